r"""The inventory of a revision: which files it has, and in which revision each of them got its text.

::

    100644 5f1d… setup.py setup.py
    100755 0a44… tool tools/run me
    120000 5f1d… latest latest

A line has the mode in six octal digits, the revision of the text, the file id and the path, with one space between
them. The lines are sorted by path, byte by byte, and each ends with a newline. Revision and file id are words, as
``_quoting`` writes them, and the path is a name: a newline in it is ``\n``. A path has one spelling, is not absolute,
has no NUL, and no component of it is empty, ``.`` or ``..``. A repository takes no other path, and inventories in other
formats as they are.

The mode says the kind: a file, an executable, a symbolic link or a submodule. Each entry has a text, under
``(b"texts", file id, revision)``: of a link its target, of a submodule the id of its commit.

The file id stays the same when a file is renamed, and is unique in an inventory. It is the path that the file had at
first; if another file has that id, ``@`` and the revision follow.
"""

from __future__ import annotations

import re
import stat
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from operator import lt
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, BadRecord
from penstock.model import shown
from penstock.repo._keys import INVENTORIES, TEXTS, Key
from penstock.repo._quoting import quote, quote_word, unquote
from penstock.repo._records import KNIT_DELTA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Inventory", "InventoryEntry", "changed_paths", "check_paths"]

_SUBMODULE: Final = 0o160000
_MODE_MAX: Final = 0o177777
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFLNK: "symlink", _SUBMODULE: "submodule"}
_BAD_COMPONENTS: Final = frozenset({b"", b".", b".."})
_LINE: Final = re.compile(rb"[0-7]{6} [^ ]+ [^ ]+ ")


@dataclass(frozen=True, slots=True)
class InventoryEntry:
    """A file of an inventory: its mode, the revision of its text and its id."""

    mode: int
    revision: bytes
    file_id: bytes

    @property
    def kind(self) -> str:
        """``file``, ``executable``, ``symlink`` or ``submodule``."""
        kind = _KINDS[stat.S_IFMT(self.mode)]
        return "executable" if kind == "file" and self.mode & stat.S_IXUSR else kind

    @property
    def git_mode(self) -> str:
        """The mode as git writes it: ``100644`` for a file."""
        return f"{self.mode:06o}"

    @property
    def key(self) -> Key:
        """The key of its text."""
        return TEXTS, self.file_id, self.revision


class Inventory(Mapping[bytes, InventoryEntry]):
    """The files of a revision, by their paths in order. It does not change; :meth:`changed` makes another one.

    Paths and lines lie side by side, and an entry is made of its line when it is asked for: the inventory of the next
    revision takes a copy of two lists and the few lines that differ, however many files there are.
    """

    __slots__ = ("_lines", "_moved", "_paths", "revision")

    def __init__(self, revision: bytes, text: bytes = b"", *, like: Inventory | None = None) -> None:
        """Read the text of an inventory; ``BadRecord`` if it is invalid.

        Lines that ``like`` has, too, are not read again: of the next revision these are almost all.
        """
        self.revision = revision
        self._lines = [line + b"\n" for line in text.split(b"\n")]
        if self._lines.pop() != b"\n":
            raise self._bad("its last line does not end")
        known = dict(zip(like._lines, like._paths, strict=True)) if like is not None else {}
        entries = {line: _parsed(revision, line) for line in self._lines if line not in known}
        self._paths: list[bytes] = [known.get(line) or entries[line][0] for line in self._lines]
        if not all(map(lt, self._paths, self._paths[1:])):
            raise self._bad("its paths are not in order")
        self._moved: dict[bytes, bytes] = {}  # the paths of files whose id is another path
        if like is not None and like._moved:
            lines = set(self._lines)
            for file_id, path in like._moved.items():
                if like._line(path) in lines:
                    self._moved[file_id] = path
        for path, entry in entries.values():
            self._note_id(entry.file_id, path)
        self._check_ids({*self._moved, *(entry.file_id for _, entry in entries.values())})

    @property
    def text(self) -> bytes:
        """The text, as it is stored."""
        return b"".join(self._lines)

    def __getitem__(self, path: bytes) -> InventoryEntry:
        if not isinstance(path, bytes):
            raise BadArgument(f"invalid path {shown(path)}: paths are bytes, such as b'README.md'")
        return _entry(self._line(path))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def path_of(self, file_id: bytes) -> bytes | None:
        """Return where the file with an id is; None if it is not here."""
        if (path := self._moved.get(file_id)) is not None:
            return path
        return file_id if file_id in self and self[file_id].file_id == file_id else None

    def changed(self, revision: bytes, changes: Mapping[bytes, InventoryEntry | None]) -> Inventory:
        """Return the inventory of another revision, in which these paths are changed; None removes a path."""
        other = Inventory(revision)
        other._paths, other._lines = self._paths.copy(), self._lines.copy()
        other._moved = self._moved.copy()
        for path in changes:
            if path in self and (file_id := self[path].file_id) != path:
                del other._moved[file_id]
        for path, entry in changes.items():
            other._put(path, entry)
        other._check_ids(entry.file_id for entry in changes.values() if entry is not None)
        return other

    def changes_from(self, other: Inventory) -> dict[bytes, InventoryEntry | None]:
        """Return the paths that are different in another inventory: what they are here, None if they are not."""
        lines = dict(zip(self._paths, self._lines, strict=True))
        old_lines = dict(zip(other._paths, other._lines, strict=True))
        paths = sorted({path for path, _ in lines.items() ^ old_lines.items()})
        return {path: _entry(lines[path]) if path in lines else None for path in paths}

    def _line(self, path: bytes) -> bytes:
        place = bisect_left(self._paths, path)
        if place == len(self._paths) or self._paths[place] != path:
            raise KeyError(path)
        return self._lines[place]

    def _put(self, path: bytes, entry: InventoryEntry | None) -> None:
        place = bisect_left(self._paths, path)
        is_here = place < len(self._paths) and self._paths[place] == path
        if entry is None:
            if is_here:
                del self._paths[place], self._lines[place]
            return
        _check(self.revision, path, entry.mode)
        words = quote_word(entry.revision), quote_word(entry.file_id), quote(path)
        line = b"%06o %b %b %b\n" % (entry.mode, *words)
        if is_here:
            self._lines[place] = line
        else:
            self._paths.insert(place, path)
            self._lines.insert(place, line)
        self._note_id(entry.file_id, path)

    def _note_id(self, file_id: bytes, path: bytes) -> None:
        if file_id != path and self._moved.setdefault(file_id, path) != path:
            raise self._bad(f"two files have the id {_shown(file_id)}")

    def _check_ids(self, file_ids: Iterable[bytes]) -> None:
        """Require that no file is where the id of another one says."""
        for file_id in file_ids:
            if file_id in self._moved and file_id in self and self[file_id].file_id == file_id:
                raise self._bad(f"two files have the id {_shown(file_id)}")

    def _bad(self, reason: str) -> BadRecord:
        return _bad(self.revision, reason)


def _parsed(revision: bytes, line: bytes) -> tuple[bytes, InventoryEntry]:
    """Return path and entry of a line; an error if an inventory would have written another one."""
    fields = line.removesuffix(b"\n").split(b" ", 3)
    try:
        mode, (text_revision, file_id, path) = int(fields[0], 8), map(unquote, fields[1:])
    except ValueError:
        raise _bad(revision, f"its line {_shown(line)} is damaged") from None
    _check(revision, path, mode)
    written = b"%06o %b %b %b\n" % (mode, quote_word(text_revision), quote_word(file_id), quote(path))
    if written != line or not text_revision or not file_id:
        raise _bad(revision, f"its line {_shown(line)} is damaged")
    return path, InventoryEntry(mode, text_revision, file_id)


def _check(revision: bytes, path: bytes, mode: int) -> None:
    if b"\0" in path or not _BAD_COMPONENTS.isdisjoint(path.split(b"/")):
        rule = "a path is relative, without NUL, empty components, '.' and '..'"
        raise _bad(revision, f"invalid path {_shown(path)}: {rule}")
    if not 0 <= mode <= _MODE_MAX or stat.S_IFMT(mode) not in _KINDS:
        raise _bad(revision, f"invalid mode {mode:o} of {_shown(path)}")


def _bad(revision: bytes, reason: str) -> BadRecord:
    return BadRecord((INVENTORIES, revision), reason)


def _entry(line: bytes) -> InventoryEntry:
    """Return the entry of a line that was checked."""
    mode, revision, file_id, _ = line.split(b" ", 3)
    return InventoryEntry(int(mode, 8), unquote(revision), unquote(file_id))


def _shown(name: bytes) -> str:
    return repr(name[:200])[1:]


def changed_paths(revision: bytes, kind: str, data: bytes) -> dict[bytes, bytes]:
    """Return the paths of the files whose text is of this revision, by id, from a stored inventory or its delta."""
    entries = (_parsed(revision, line) for line in _stored_lines(kind, data))
    return {entry.file_id: path for path, entry in entries if entry.revision == revision}


def check_paths(revision: bytes, kind: str, data: bytes) -> None:
    """Require valid lines of a stored inventory or its delta; lines of other formats have no paths, and pass."""
    for line in _stored_lines(kind, data):
        if _LINE.match(line):
            _parsed(revision, line)


def _stored_lines(kind: str, data: bytes) -> list[bytes]:
    """Return the lines of an inventory, or those that the hunks of its delta insert."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    if kind != KNIT_DELTA:
        return lines[:-1] if lines[-1] == b"\n" else lines
    inserted, row = list[bytes](), 1
    while row < len(lines) - 2:
        count = int(lines[row].rpartition(b",")[2])
        inserted += lines[row + 1 : row + 1 + count]
        row += 1 + count
    return inserted
