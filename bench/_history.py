"""A git history for benchmarks: files of code-like text that change a little at a time, made from a seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.repo.git_history import History

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_history"]

_FILES: Final = 300
_FOLDERS: Final = 20
_MERGE_EVERY, _RENAME_EVERY, _REWRITE_EVERY = 25, 40, 30
_MODE: Final = b"100644"
_Files = dict[bytes, list[bytes]]


class _Code:
    """Lines that look like code: few words often, many seldom, the same shapes again and again."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        self._words = ["".join(self._random.choices(letters, k=self._random.randint(3, 11))) for _ in range(6_000)]

    def words(self, count: int) -> list[str]:
        """Return words, short numbers of the list more often than long ones."""
        return [self._words[int(len(self._words) * self._random.random() ** 3)] for _ in range(count)]

    def line(self) -> bytes:
        """Return a line of code, a comment or an empty line."""
        a, b, c, d = self.words(4)
        shapes = (
            "",
            f"    {a} = {b}.{c}({d})",
            f"    {a}_{b} = self._{c}[{d}] + {self._random.randint(0, 999)}",
            f"    if {a} is not None and {b}.{c} > {self._random.randint(0, 99)}:",
            f"        return {a}({b}, {c}={d})",
            f'        raise ValueError(f"invalid {a} {{{b}}}: use {c} or {d}")',
            f"def {a}_{b}({c}: bytes, {d}: int) -> None:",
            f"    # {' '.join(self.words(self._random.randint(5, 14)))}",
            f"from {a}.{b} import {c}",
        )
        return self._random.choice(shapes).encode()

    def lines(self, count: int) -> list[bytes]:
        """Return so many lines."""
        return [self.line() for _ in range(count)]


def make_history(folder: Path, revisions: int, *, seed: int = 18) -> Path:
    """Make a bare git repository: most commits change one to four files by a few lines; some merge, some rename."""
    rng, code, history = random.Random(seed), _Code(seed), History()
    files: _Files = {
        b"src/part%d/file%d.py" % (number % _FOLDERS, number): code.lines(rng.randint(20, 400))
        for number in range(_FILES)
    }
    head = history.commit(files={path: (_MODE, _text(lines)) for path, lines in files.items()})
    while history.count < revisions:
        message = " ".join(code.words(rng.randint(4, 12))).capitalize().encode() + b"\n"
        if history.count % _MERGE_EVERY == 0:
            side = _Files()
            other = head
            for _ in range(rng.randint(1, 4)):
                changed = _changed(files | side, rng, code)
                side |= changed
                other = history.commit([other], _modes(changed), message=message)
            mine = {path: lines for path, lines in _changed(files, rng, code).items() if path not in side}
            head = history.commit([head], _modes(mine), message=message)
            files |= mine | side
            head = history.commit([head, other], _modes(side), message=b"Merge\n")
        elif history.count % _RENAME_EVERY == 0:
            path = rng.choice(sorted(files))
            lines = files.pop(path)
            moved = path.replace(b"file", b"moved%d_file" % history.count)
            files[moved] = lines
            head = history.commit([head], {path: None, moved: (_MODE, _text(lines))}, message=message)
        else:
            changed = _changed(files, rng, code)
            if history.count % _REWRITE_EVERY == 0:
                changed[b"src/part%d/added%d.py" % (rng.randrange(_FOLDERS), history.count)] = code.lines(100)
            files |= changed
            head = history.commit([head], _modes(changed), message=message)
    history.name(b"refs/heads/main", head)
    return history.write(folder)


def _changed(files: _Files, rng: random.Random, code: _Code) -> _Files:
    """Return one to four files with a few other lines, in one place or two."""
    changed = {}
    for path in rng.sample(sorted(files), rng.randint(1, 4)):
        lines = list(files[path])
        for _ in range(rng.randint(1, 2)):
            start = rng.randrange(len(lines) + 1)
            lines[start : start + rng.randint(0, 4)] = code.lines(rng.randint(1, 6))
        changed[path] = lines
    return changed


def _modes(files: _Files) -> dict[bytes, tuple[bytes, bytes] | None]:
    return {path: (_MODE, _text(lines)) for path, lines in files.items()}


def _text(lines: list[bytes]) -> bytes:
    return b"\n".join([*lines, b""])
