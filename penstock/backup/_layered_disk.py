"""A disk of two layers: files that are only read, and changes to them in memory.

A check opens a store as its owner would, with the recovery after a crash, and not one byte of the store is changed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Protocol

from penstock.ports import map_file
from penstock.testing import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.backup._snapshots import StoreSnapshot
    from penstock.ports import Bytes, File

from penstock.backup._snapshots import blocks_of
from penstock.plog import plog_file, plog_head

__all__ = ["FolderFiles", "LayeredDisk", "ReadFiles", "SnapshotFiles"]


class ReadFiles(Protocol):
    """Files that are only read."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def view(self, name: str) -> memoryview:
        """Return all bytes of a file; ``FileNotFoundError`` if there is none."""

    def where(self, name: str = "") -> str:
        """Return the path of a file, for messages."""


class FolderFiles:
    """The files of a folder; a folder, a pipe or a device in the place of a file is no file, and is never opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names of all files."""
        return [entry.name for entry in os.scandir(self._folder) if entry.is_file() and entry.name != "LOCK"]

    def view(self, name: str) -> memoryview:
        """Return a file, mapped."""
        fd = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # of a pipe, this would wait
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            return map_file(fd, status.st_size)
        finally:
            os.close(fd)

    def others(self) -> list[str]:
        """Return the names of what is in the folder and is no file."""
        return [entry.name for entry in os.scandir(self._folder) if not entry.is_file()]

    def where(self, name: str = "") -> str:
        """Return the path of a file."""
        return str(self._folder / name)


class SnapshotFiles:
    """The plogs of a snapshot as the files that a restore would write; one is made when it is opened."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        self._snapshot = snapshot
        self._cuts = {plog_file(cut.plog_id): cut for cut in snapshot.plogs}

    def names(self) -> list[str]:
        """Return the names of all files."""
        return list(self._cuts)

    def view(self, name: str) -> memoryview:
        """Return the file of a plog, sealed at its length in the snapshot."""
        cut = self._cuts.get(name)
        if cut is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        parts = list(blocks_of(self._snapshot, cut))
        first = parts[0]
        head = plog_head(cut.plog_id, key=first.key, size=first.size, length=cut.length, sealed=True)
        return memoryview(b"".join([head, *(raw.data for raw in parts)]))

    def where(self, name: str = "") -> str:
        """Return the name of a plog."""
        cut = self._cuts.get(name)
        return f"the store ({name})" if cut is None else self._snapshot.where(cut.plog_id)


class LayeredDisk:
    """Files of ``below``, as they were changed here since."""

    def __init__(self, below: ReadFiles, above: MemoryDisk | None = None) -> None:
        self._below, self.above = below, above or MemoryDisk()
        self._hidden: set[str] = set()

    def create(self, name: str) -> File:
        """Create a file and open it."""
        if self._has_below(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        return self.above.create(name)

    def open(self, name: str) -> File:
        """Open a file."""
        if name in self.above.names():
            return self.above.open(name)
        if name in self._hidden:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return _LayeredFile(self, name, self._below.view(name))

    def _has_below(self, name: str) -> bool:
        return name not in self._hidden and name in self._below.names()

    def remove(self, name: str) -> None:
        """Hide a file, or remove a changed one."""
        if name in self.above.names():
            self.above.remove(name)
        elif not self._has_below(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self._hidden.add(name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        if old not in self.above.names():
            self.raise_up(old, self._below.view(old))
        self.above.rename(old, new)
        self._hidden.add(old)

    def raise_up(self, name: str, data: memoryview) -> File:
        """Return a file that can be changed: a copy in memory, made when it is first changed."""
        if name in self.above.names():
            return self.above.open(name)
        file = self.above.create(name)
        if len(data):
            file.pwritev([data], 0)
        return file

    def names(self) -> list[str]:
        """Return the names of all files."""
        above = self.above.names()
        return [*above, *(set(self._below.names()) - self._hidden - set(above))]

    def sync(self) -> None:
        """Do nothing: nothing is kept."""

    def lock(self) -> None:
        """Do nothing: the caller keeps others away, or reads what does not change."""

    def where(self, name: str = "") -> str:
        """Return the path of a file, for messages."""
        return self._below.where(name)

    def close(self) -> None:
        """Do nothing."""


class _LayeredFile:
    """A file that was not changed when it was opened."""

    def __init__(self, disk: LayeredDisk, name: str, data: memoryview) -> None:
        self._disk, self._name, self._data = disk, name, data
        self._changed: File | None = None

    def _file(self) -> File:
        if self._changed is None:
            self._changed = self._disk.raise_up(self._name, self._data)
        return self._changed

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write into the copy."""
        return self._file().pwritev(parts, offset)

    def view(self, offset: int, size: int) -> memoryview:
        """Return a view."""
        if self._changed is None:
            return self._data[offset : offset + size]
        return self._changed.view(offset, size)

    def datasync(self) -> None:
        """Do nothing: nothing is kept."""

    def reserve(self, size: int) -> None:
        """Make the copy longer."""
        self._file().reserve(size)

    def truncate(self, size: int) -> None:
        """Make the copy shorter."""
        self._file().truncate(size)

    def size(self) -> int:
        """Return the length in bytes."""
        return len(self._data) if self._changed is None else self._changed.size()

    def close(self) -> None:
        """Let go of the file."""
        if self._changed is not None:
            self._changed.close()
