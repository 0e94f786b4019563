"""To git: the revisions of a search as a stream for ``git fast-import``.

Each revision comes behind its parents, with the paths that differ from the first one. A parent that the search does not
find is named by its id: the target has it, since an earlier export has made it there. So is one that is not in the
repository at all, as of a shallow clone; git refuses the stream where it does not have that commit. Where git's stream
can express all of a commit, it gets the id that it had; it cannot express signatures and unknown headers, so those are
left out. A tag on an annotated tag stays one: the inner tag is made under the name that it says, which is then removed,
unless it is among the names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from penstock.errors import BadRecord
from penstock.model import check_kind, check_method
from penstock.repo._contents import RepositoryContents
from penstock.repo._graph import topological
from penstock.repo._inventory import Inventory
from penstock.repo._keys import REVISIONS, TEXTS
from penstock.repo._refs import REFS
from penstock.repo._search import AncestryOf, found_revisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.repo._keys import Key
    from penstock.repo._refs import Ref
    from penstock.repo._search import Search

__all__ = ["GitExportResult", "export_git"]

_REF: Final = b"refs/penstock/export"  # each commit is made on it, and it is removed in the end
_NO_COMMIT: Final = b"0" * 40
_COMMIT_ID: Final = re.compile(rb"[0-9a-f]{40}")
_NOT_IN_NAMES: Final = re.compile(rb"[\x00-\x20\x7f]")
_QUOTED: Final = re.compile(rb'["\\\x00-\x1f\x7f]')


@dataclass(frozen=True, slots=True)
class GitExportResult:
    """How many revisions and texts were written, and the parents that are named and are not in the repository."""

    revisions: int
    texts: int
    missing: tuple[bytes, ...]


def export_git(
    contents: RepositoryContents,
    file: BinaryIO,
    search: Search | None = None,
    *,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> GitExportResult:
    """Write the revisions that a search finds, by default all that branches and tags lead to, and these names.

    ``on_progress`` is called with the number of revisions that are done, and of all.
    """
    check_kind("contents", contents, RepositoryContents)
    check_method("file", file, "write")
    export = _Export(contents, file)
    revisions, _ = found_revisions(search or AncestryOf(contents.heads()), contents)
    parents: dict[Key, list[Key]] = {
        (revision,): [(parent,) for parent in contents.revision_parents(revision) or ()]
        for revision in sorted(contents.revisions() if revisions is None else revisions)
    }
    file.write(b"feature done\n")
    for done, (revision,) in enumerate(topological(parents), start=1):
        export.revision(revision)
        on_progress(done, len(parents))
    export.names(contents.refs().items())
    file.write(b"done\n")
    return GitExportResult(len(parents), export.texts, tuple(sorted(export.missing)))


class _Export:
    def __init__(self, contents: RepositoryContents, file: BinaryIO) -> None:
        self._contents, self._write = contents, file.write
        self._numbers: dict[Key, bytes] = {}  # the numbers of what was written, as git names them
        self._last: Inventory | None = None
        self.missing: set[bytes] = set()

    @property
    def texts(self) -> int:
        """How many texts were written."""
        return sum(key[0] == TEXTS for key in self._numbers)

    def revision(self, revision: bytes) -> None:
        """Write a revision, and before it the texts that are needed for the first time."""
        text = self._contents.revision(revision)
        parents = self._contents.revision_parents(revision) or []
        missing = {parent for parent in parents if (REVISIONS, parent) not in self._contents}
        self.missing |= missing
        is_whole = not parents or parents[0] in missing
        changes = self._inventory(revision).changes_from(
            Inventory(revision) if is_whole else self._inventory(parents[0])
        )
        files = [b"deleteall\n"] if parents and is_whole else []
        for path, entry in changes.items():
            if entry is None:
                files.insert(0, b"D %b\n" % _quoted(path))
            elif entry.kind == "submodule":
                files.append(
                    b"M 160000 %b %b\n" % (_commit_id(entry.key, self._contents.text(entry.key)), _quoted(path))
                )
            else:
                mode = {"file": b"100644", "executable": b"100755", "symlink": b"120000"}[entry.kind]
                files.append(b"M %b %b %b\n" % (mode, self._blob(entry.key), _quoted(path)))
        lines = [b"reset %b\n" % _REF] if not parents else []
        lines += [b"commit %b\n" % _REF, b"mark %b\n" % self._new_number((REVISIONS, revision))]
        for name in (b"author", b"committer", b"encoding"):
            if (value := text.header(name)) is not None:
                lines.append(b"%b %b\n" % (name, _one_line(revision, value)))
        lines.append(b"data %d\n%b\n" % (len(text.message), text.message))
        for number, parent in enumerate(parents):
            lines.append(b"%b %b\n" % (b"merge" if number else b"from", self._name_of(parent)))
        self._write(b"".join([*lines, *files, b"\n"]))

    def names(self, refs: Iterable[tuple[bytes, Ref]]) -> None:
        """Write branches and tags, as far as they lead to revisions that were written."""
        named = []
        for name, ref in refs:
            number = self._numbers.get((REVISIONS, ref.revision))
            if number is None or not name.startswith(b"refs/"):
                continue
            if _NOT_IN_NAMES.search(name):
                raise BadRecord((REFS, name), "git has no such names")
            tags = list(self._contents.tags_of(ref).items())
            for key, text in tags[:0:-1]:
                number = self._inner_tag(key, text, number)
            named.append(_tag(name, number, tags[0][1]) if tags else b"reset %b\nfrom %b\n\n" % (name, number))
        self._write(b"".join(named))  # behind the inner tags, whose names are removed
        if self._numbers:
            self._write(b"reset %b\nfrom %b\n\n" % (_REF, _NO_COMMIT))

    def _inner_tag(self, key: Key, text: bytes, target: bytes) -> bytes:
        """Write a tag that another one tags, and return its number."""
        if (known := self._numbers.get(key)) is not None:
            return known
        name = b"refs/tags/" + next((line[4:] for line in text.split(b"\n") if line.startswith(b"tag ")), b"")
        if _NOT_IN_NAMES.search(name):
            raise BadRecord(key, "git has no such names")
        number = self._new_number(key)
        self._write(_tag(name, target, text, number_line=b"mark %b\n" % number))
        self._write(b"reset %b\nfrom %b\n\n" % (name, _NO_COMMIT))
        return number

    def _inventory(self, revision: bytes) -> Inventory:
        if self._last is None or self._last.revision != revision:
            self._last = self._contents.inventory(revision, like=self._last)
        return self._last

    def _blob(self, key: Key) -> bytes:
        number = self._numbers.get(key)
        if number is None:
            number = self._new_number(key)
            text = self._contents.text(key)
            self._write(b"blob\nmark %b\ndata %d\n" % (number, len(text)))
            self._write(text)
            self._write(b"\n")
        return number

    def _new_number(self, key: Key) -> bytes:
        return self._numbers.setdefault(key, b":%d" % (len(self._numbers) + 1))

    def _name_of(self, revision: bytes) -> bytes:
        key = REVISIONS, revision
        return self._numbers.get(key) or _commit_id(key, revision)


def _tag(name: bytes, target: bytes, text: bytes, *, number_line: bytes = b"") -> bytes:
    """Return an annotated tag, of git's own text of it, with the line that gives it a number."""
    head, _, message = text.partition(b"\n\n")
    tagger = [line + b"\n" for line in head.split(b"\n") if line.startswith(b"tagger ")]
    short = name.removeprefix(b"refs/tags/")
    return b"".join(
        [b"tag %b\n%bfrom %b\n" % (short, number_line, target), *tagger, b"data %d\n%b\n" % (len(message), message)]
    )


def _commit_id(key: Key, value: bytes) -> bytes:
    """Return the id of a commit; whatever else it is, git would take it for a name, or for commands."""
    if not _COMMIT_ID.fullmatch(value):
        raise BadRecord(key, "it is no commit of git, and is to be named as one")
    return value


def _one_line(revision: bytes, value: bytes) -> bytes:
    if b"\n" in value:
        raise BadRecord((REVISIONS, revision), "a header of it has several lines")
    return value


def _quoted(path: bytes) -> bytes:
    """Return a path as ``git fast-import`` reads any path: in quotes."""
    return b'"%b"' % _QUOTED.sub(lambda match: b"\\%03o" % match[0][0], path)
