"""A disk in memory: the storage behind ``memory:``, and the state that a recorded crash leaves.

Invariants of the bytes of a file:

- A buffer never moves. Growing takes a new buffer of at least twice the size and leaves the old one to its views.
- Bytes at and after ``_written`` are zero and were never touched, so allocated space takes no memory until it is used.
- Readers take no lock: a writer raises the size last, a reader reads it first.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import StoreLocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Bytes


class _FileBytes:
    """The bytes of a file, independent of its name and its handles."""

    __slots__ = ("_buffer", "_lock", "_readable", "_written", "size")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffer = memoryview(bytearray())
        self._readable = self._buffer.toreadonly()
        self._written = 0
        self.size = 0

    def view(self, offset: int, size: int) -> memoryview:
        end = min(offset + size, self.size)
        return self._readable[offset:end]

    def write(self, parts: Sequence[Bytes], offset: int) -> int:
        views = [memoryview(part).cast("B") for part in parts]
        end = offset + sum(map(len, views))
        if end == offset:
            return 0
        with self._lock:
            self._grow(end)
            position = offset
            for view in views:
                self._buffer[position : position + len(view)] = view
                position += len(view)
            self._written = max(self._written, end)
            self.size = max(self.size, end)
        return end - offset

    def reserve(self, size: int) -> None:
        with self._lock:
            self._grow(size)
            self.size = max(self.size, size)

    def truncate(self, size: int) -> None:
        with self._lock:
            self._grow(size)
            self.size = size
            if size < self._written:
                self._buffer[size : self._written] = bytes(self._written - size)
                self._written = size

    def _grow(self, size: int) -> None:
        if size <= len(self._buffer):
            return
        # Zeros from numpy are the system's zero pages: memory that is never written is never allocated.
        larger = np.zeros(max(size, 2 * len(self._buffer)), np.uint8).data
        larger[: self._written] = self._buffer[: self._written]
        self._buffer, self._readable = larger, larger.toreadonly()


class MemoryFile:
    """An open file of a :class:`MemoryDisk`.

    A view shows later writes, as a shared mapping does, until the file outgrows its buffer; after that the view no
    longer changes.
    """

    __slots__ = ("_handle",)

    def __init__(self, content: _FileBytes) -> None:
        self._handle: _FileBytes | None = content

    def _content(self) -> _FileBytes:
        if self._handle is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._handle

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write all parts at ``offset``; return their size."""
        return self._content().write(parts, offset)

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view, shorter at the end of the file."""
        return self._content().view(offset, size)

    def datasync(self) -> None:
        """Check the handle; memory needs no flush."""
        self._content()

    def reserve(self, size: int) -> None:
        """Make the file at least ``size`` long."""
        self._content().reserve(size)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size``; from then on, earlier views must not be read past it."""
        self._content().truncate(size)

    def size(self) -> int:
        """Return the length in bytes."""
        return self._content().size

    def close(self) -> None:
        """Close the handle; views stay valid."""
        self._handle = None


class MemoryDisk:
    """A folder that lives as long as this object, and has one owner at a time."""

    def __init__(self) -> None:
        self._files: dict[str, _FileBytes] = {}
        self._guard = threading.Lock()
        self._locked = False

    def create(self, name: str) -> MemoryFile:
        """Create a file and open it."""
        with self._guard:
            if name in self._files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            content = self._files[name] = _FileBytes()
        return MemoryFile(content)

    def open(self, name: str) -> MemoryFile:
        """Open a file."""
        with self._guard:
            return MemoryFile(self._find(name))

    def remove(self, name: str) -> None:
        """Remove a file; its handles and views stay valid."""
        with self._guard:
            self._find(name)
            del self._files[name]

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new``."""
        with self._guard:
            content = self._find(old)
            del self._files[old]
            self._files[new] = content

    def _find(self, name: str) -> _FileBytes:
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._files[name]

    def names(self) -> list[str]:
        """Return the names of all files."""
        with self._guard:
            return list(self._files)

    def sync(self) -> None:
        """Do nothing: memory needs no flush."""

    def lock(self) -> None:
        """Own the disk until :meth:`close`."""
        with self._guard:
            if self._locked:
                raise StoreLocked(self.where(), owner="another user of the same memory disk")
            self._locked = True

    def where(self, name: str = "") -> str:
        """Return the name of a file, or of the disk, for messages."""
        return f"memory:{name}"

    def close(self) -> None:
        """Release the lock; the files stay for the next owner."""
        with self._guard:
            self._locked = False
