"""The disk: files in one flat folder, as a port, and as the operating system has them.

Penstock makes the names of the files, never a user, so no path is ever built from outside input. The files of the
operating system are read through a shared mapping, in a folder that one process owns.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from penstock import forks
from penstock.errors import FolderUnusable, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bytes", "Disk", "File", "OsDisk", "OsFile", "check_no_file", "map_file", "owner_name", "write_all"]

_IOVECS_MAX: Final = 1024  # the most that one pwritev takes on Linux and macOS
Bytes = bytes | memoryview
"""Data to be written: bytes, or a flat view of bytes that do not change meanwhile."""
_LOCK_NAME: Final = "LOCK"
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_READ_BY_OTHERS: Final = 0o044
_CLOSED: Final = -1  # not a descriptor: every call with it fails
_OFFSET: Final = ctypes.c_int64  # off_t, on every system of 64 bits
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, _OFFSET]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_WRITE_BEHIND_SIZE_MIN: Final = 128 << 10
_SYNC_FILE_RANGE_WRITE: Final = 2
_sync_file_range: Final = getattr(_libc, "sync_file_range", None)  # of Linux
if _sync_file_range is not None:
    _sync_file_range.argtypes = [ctypes.c_int, _OFFSET, _OFFSET, ctypes.c_uint]


class File(Protocol):
    """An open file of a :class:`Disk`. Errors are plain ``OSError``; the caller translates them."""

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts one after another at ``offset``; return how many bytes were written (maybe not all)."""

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view of the bytes, shorter at the end of the file; no copy where possible."""

    def datasync(self) -> None:
        """Return once all data written to this file survives a power loss; after an error nothing is known."""

    def reserve(self, size: int) -> None:
        """Make the file at least ``size`` long, and allocate the space for it."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size``."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Close the handle; views stay valid."""


class Disk(Protocol):
    """One flat folder of files."""

    def create(self, name: str) -> File:
        """Create a file and open it; ``FileExistsError`` if there is one."""

    def open(self, name: str) -> File:
        """Open a file; ``FileNotFoundError`` if there is none."""

    def remove(self, name: str) -> None:
        """Remove a file; ``FileNotFoundError`` if there is none."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step, replacing ``new``."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def sync(self) -> None:
        """Return once every creation, rename and removal so far survives a power loss."""

    def lock(self) -> None:
        """Own the folder until :meth:`close`; ``StoreLocked`` if another process owns it."""

    def where(self, name: str = "") -> str:
        """Return the path of a file, or of the folder, for messages."""

    def close(self) -> None:
        """Release the lock."""


def write_all(file: File, parts: Sequence[Bytes], offset: int) -> None:
    """Write every byte of ``parts`` at ``offset``, however many calls it takes.

    A short write is ordinary (a signal, a nearly full disk): the next call shows whether it was an error.
    """
    rest, left = (parts if len(parts) <= _IOVECS_MAX else _rest(parts, 0)), sum(map(len, parts))
    while left:
        written = file.pwritev(rest[:_IOVECS_MAX], offset)
        if not written:
            raise OSError(errno.EIO, "the disk wrote nothing")
        left, offset = left - written, offset + written
        if left:
            rest = _rest(rest, written)


def _rest(parts: Sequence[Bytes], written: int) -> Sequence[Bytes]:
    """Return the rest of ``parts`` after their first ``written`` bytes."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[index + 1 :]]
        written -= len(part)
    return ()


def map_file(fd: int, size: int) -> memoryview:
    """Return the first ``size`` bytes of an open file as memory that stays valid when the file is closed or removed.

    The mapping ends with its last view. Python's own mmap would keep a second descriptor open as long.
    """
    if not size:
        return memoryview(b"")  # an empty file cannot be mapped
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    mapped = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(mapped, _libc.munmap, address, size).atexit = False  # views may be used until the process ends
    return memoryview(mapped).cast("B").toreadonly()


class OsFile:
    """A file of the operating system, read through a shared mapping.

    Mapped pages and ``pwritev`` share the page cache, so a view also shows bytes written after it was taken;
    callers read only what they have acknowledged.
    """

    __slots__ = ("_fd", "_map")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map: memoryview = memoryview(b"")

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts at ``offset``; return how many bytes were written.

        Of a large write the disk begins with its part at once, while the caller prepares what comes next. Nothing is
        promised by that: an error is reported by the next :meth:`datasync`, as without it.
        """
        size = os.pwritev(self._fd, parts, offset)
        if size >= _WRITE_BEHIND_SIZE_MIN and _sync_file_range is not None:
            _sync_file_range(self._fd, offset, size, _SYNC_FILE_RANGE_WRITE)
        return size

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view, shorter at the end of the file."""
        mapped = self._map  # read once: another thread may replace it by a shorter one, taken before the file grew
        if offset + size > len(mapped):
            length = os.fstat(self._fd).st_size
            if length > len(mapped):
                mapped = self._map = map_file(self._fd, length)
        return mapped[offset : offset + size]

    def datasync(self) -> None:
        """Flush the data, and the part of the inode that is needed to find it."""
        os.fdatasync(self._fd)

    def reserve(self, size: int) -> None:
        """Allocate the space on the disk now, so that a later write has it."""
        os.posix_fallocate(self._fd, 0, size)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size``; from then on, earlier views must not be read past it."""
        os.ftruncate(self._fd, size)
        self._map = memoryview(b"")

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the descriptor; the mapping ends with its last view."""
        os.close(self._fd)
        self._map = memoryview(b"")


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents, and flush each name: without that, synced files could vanish with it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(_FOLDER_MODE, exist_ok=True)
    parent_fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent_fd)
    finally:
        os.close(parent_fd)


def owner_name() -> str:
    """Return the name of this process, for messages to other processes."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def check_no_file(folder: Path | str) -> None:
    """Refuse a path at which there is a file, or below which a folder would be."""
    path = Path(folder).absolute()
    there = next((parent for parent in (path, *path.parents) if os.path.lexists(parent)), path.root)
    if not os.path.isdir(there):
        raise FolderUnusable(str(folder), reason="it is a file" if there == path else f"{there} is a file")


class OsDisk:
    """A folder of the operating system, created if there is none, closed to other users.

    If its user opens it to them, files that are created from then on can be read by those who may list the folder.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder).absolute()
        try:
            check_no_file(folder)
            _make_folder(self._folder)
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ValueError) as error:
            raise FolderUnusable(str(folder), reason=getattr(error, "strerror", None) or str(error)) from error
        self._lock_fd = _CLOSED
        forks.guard(self)

    def release_in_child(self) -> None:
        """Close the child's copy of the lock, so that the lock ends with the parent."""
        if self._lock_fd != _CLOSED:
            os.close(self._lock_fd)

    def create(self, name: str) -> OsFile:
        """Create a file and open it."""
        mode = _FILE_MODE | os.fstat(self._folder_fd).st_mode & _READ_BY_OTHERS
        return OsFile(self._os_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))

    def open(self, name: str) -> OsFile:
        """Open a file."""
        return OsFile(self._os_open(name, os.O_RDWR))

    def _os_open(self, name: str, flags: int, mode: int = _FILE_MODE) -> int:
        return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=self._folder_fd)

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=self._folder_fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing ``new``."""
        os.rename(old, new, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)

    def names(self) -> list[str]:
        """Return the names of all files except the lock."""
        return [name for name in os.listdir(self._folder) if name != _LOCK_NAME]

    def sync(self) -> None:
        """Flush the folder."""
        os.fsync(self._folder_fd)

    def lock_unchanged(self) -> None:
        """Take the folder's lock without writing anything, also where nothing can be written.

        If no process has ever locked the folder, there is no lock to take, and none is made.
        """
        try:
            self._lock_fd = self._os_open(_LOCK_NAME, os.O_RDONLY)
        except FileNotFoundError:
            return
        except OSError as error:
            raise FolderUnusable(self.where(), reason=error.strerror or str(error)) from error
        self._take_lock(self._lock_fd)

    def lock(self) -> None:
        """Take the folder's lock, which ends with the process in any case."""
        try:
            fd = self._lock_fd = self._os_open(_LOCK_NAME, os.O_RDWR | os.O_CREAT)  # noted before it is locked
        except OSError as error:
            raise FolderUnusable(self.where(), reason=error.strerror or str(error)) from error
        self._take_lock(fd)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{owner_name()}\n".encode(), 0)

    def _take_lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 256, 0).decode(errors="replace").strip() or "another process"
            self._close_lock()
            raise StoreLocked(self.where(), owner=owner) from error
        except OSError as error:
            self._close_lock()
            raise FolderUnusable(self.where(), reason=f"it cannot be locked ({error.strerror})") from error

    def _close_lock(self) -> None:
        fd, self._lock_fd = self._lock_fd, _CLOSED
        os.close(fd)

    def where(self, name: str = "") -> str:
        """Return the path, for messages."""
        return str(self._folder / name)

    def close(self) -> None:
        """Release the lock and the folder; closing again does nothing."""
        for fd in (self._lock_fd, self._folder_fd):
            if fd != _CLOSED:
                os.close(fd)
        self._lock_fd = self._folder_fd = _CLOSED
