"""Git repositories for tests, made by ``git`` itself, with fixed dates and awkward names."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

AWKWARD: Final = [
    b"new\nline",
    b"tab\there",
    b"caf\xe9",
    "größe".encode(),
    b'quo"te',
    b"back\\slash",
    b" two  words ",
    b"D\r",
    b"\x7f\x01",
]
SUBMODULE: Final = b"1234567890" * 4
LINES: Final = b"".join(b"line %d of a text that is long enough to be found again\n" % number for number in range(20))


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git, and return what it prints."""
    command = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout


@dataclass
class History:
    """Commits for ``git fast-import``, each under a number."""

    parts: list[bytes] = field(default_factory=list)
    count: int = 0

    def commit(
        self,
        parents: Sequence[int] = (),
        files: Mapping[bytes, tuple[bytes, bytes] | None] | None = None,
        *,
        message: bytes = b"Change something\n",
        more: bytes = b"",
    ) -> int:
        """Add a commit with files, by path their mode and text or None, and return its number."""
        self.count += 1
        person = b"J\xc3\xb6rg <j@example.org> %d +0130\n" % (1_700_000_000 + 60 * self.count)
        lines = [b"reset refs/heads/x\n"] if not parents else []
        lines += [b"commit refs/heads/x\nmark :%d\nauthor " % self.count, person, b"committer ", person, more]
        lines.append(b"data %d\n%b\n" % (len(message), message))
        lines += [b"%b :%d\n" % (b"merge" if place else b"from", parent) for place, parent in enumerate(parents)]
        for path, file in (files or {}).items():
            name = b'"' + b"".join(b"\\%03o" % byte for byte in path) + b'"'
            if file is None:
                lines.append(b"D %b\n" % name)
            elif file[0] == b"160000":
                lines.append(b"M 160000 %b %b\n" % (file[1], name))
            else:
                lines.append(b"M %b inline %b\ndata %d\n%b\n" % (file[0], name, len(file[1]), file[1]))
        self.parts += [*lines, b"\n"]
        return self.count

    def name(self, ref: bytes, number: int) -> None:
        """Let a branch or a tag name a commit."""
        self.parts.append(b"reset %b\nfrom :%d\n\n" % (ref, number))

    def write(self, folder: Path) -> Path:
        """Make a git repository of what was added, or add it to one that is there."""
        if not folder.exists():
            subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True)
        end = b"reset refs/heads/x\nfrom %b\n\n" % (b"0" * 40)
        marks = folder / "marks"
        options = [f"--export-marks={marks}", f"--import-marks-if-exists={marks}", "--date-format=raw-permissive"]
        git(folder, "fast-import", "--quiet", "--force", *options, stdin=b"".join([*self.parts, end]))
        self.parts.clear()
        return folder


def plain(text: bytes) -> tuple[bytes, bytes]:
    """Return an ordinary file."""
    return b"100644", text


def awkward_history() -> History:
    """Return a history with everything that git has: renames, merges, modes, links, deletions, odd names, tags."""
    history = History()
    root = history.commit(
        (),
        {path: plain(b"text of " + path) for path in AWKWARD}
        | {b"a.txt": plain(LINES), b"dir/b.txt": plain(LINES + b"b\n"), b"empty": plain(b"")}
        | {b"run": (b"100755", b"#!/bin/sh\n"), b"link": (b"120000", b"dir/b.txt"), b"sub": (b"160000", SUBMODULE)},
        message=b"Begin\n\n\xff not UTF-8, no newline at the end",
    )
    changed = history.commit([root], {b"a.txt": plain(LINES + b"more\n"), b"run": plain(b"#!/bin/sh\n")})
    empty = history.commit([changed], message=b"")
    renamed = history.commit(
        [root], {b"dir/b.txt": None, b"moved/b.txt": plain(LINES + b"b\nchanged\n")}, more=b"encoding ISO-8859-1\n"
    )
    edited = history.commit([renamed], {b"moved/b.txt": plain(LINES + b"b\nchanged twice\n")})
    merge = history.commit([empty, edited], {b"dir/b.txt": None, b"moved/b.txt": plain(LINES + b"b\nchanged twice\n")})
    sides = [history.commit([merge], {b"side-%d" % number: plain(b"%d\n" % number)}) for number in range(3)]
    octopus = history.commit(
        [merge, *sides], {b"side-%d" % number: plain(b"%d\n" % number) for number in range(3)} | {AWKWARD[0]: None}
    )
    swapped = history.commit([octopus], {b"link": None, b"link/inside": plain(b"x\n"), b"moved/b.txt": None})
    again = history.commit([swapped], {b"dir/b.txt": plain(b"another file\n"), b"empty": (b"120000", b"a.txt")})
    both = history.commit([again], {b"a.txt": plain(b"new a\n"), b"a2.txt": plain(LINES + b"more\n")})
    other_root = history.commit((), {b"a.txt": plain(b"elsewhere\n")})
    history.name(b"refs/heads/main", both)
    history.name(b"refs/heads/other/line", other_root)
    history.name(b"refs/tags/light", merge)
    return history
