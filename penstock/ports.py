"""Ports: the few ways in which Penstock touches the world.

What decides is written against these protocols. The classes here do the real thing; those in
``penstock.testing`` pretend, record or fail. A disk is one flat folder: the names in it are made by us, never
by a user, so no path is ever built from outside input.
"""

from __future__ import annotations

import _signal  # the module signal spends 16 microseconds on what takes one
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import secrets
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

from penstock import forks
from penstock.errors import FolderUnusable, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

__all__ = [
    "Bytes",
    "Clock",
    "Disk",
    "File",
    "OsDisk",
    "Random",
    "SystemClock",
    "SystemRandom",
    "interruptible",
    "interruption_point",
    "map_file",
    "opened",
    "owner_name",
    "uninterrupted",
    "write_all",
]

P = ParamSpec("P")
T = TypeVar("T")

_LOCK_NAME: Final = "LOCK"
_CLOSED: Final = -1  # no descriptor: whatever is tried with it fails
_OFFSET: Final = ctypes.c_int64  # off_t, on every system of 64 bits
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_IOVECS_MAX: Final = 1024  # what one pwritev takes on Linux and macOS
_SIGNALS: Final = tuple(  # that programs handle; those of a crash and of job control are left alone, each costs 0.1 us
    getattr(_signal, name)
    for name in (
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGTERM",
        "SIGCHLD",
        "SIGVTALRM",
        "SIGPROF",
    )
)


Bytes = bytes | memoryview
"""What is written: bytes, or a flat view of bytes that nobody changes meanwhile."""


class Clock(Protocol):
    """Time as others see it."""

    def now(self) -> float:
        """Seconds since 1970, as leases and retention count them."""

    def elapsed(self) -> float:
        """Seconds since any time, for how long something takes: whoever sets the clock does not change it."""


class Random(Protocol):
    """Where ids come from."""

    def token(self, size: int) -> bytes:
        """Return ``size`` random bytes."""


class File(Protocol):
    """An open file of a :class:`Disk`. Errors are plain ``OSError``; the caller knows what they mean."""

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts one after another at ``offset``; return how many bytes went in (maybe not all)."""

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view of what is there, shorter at the end of the file; no copy where possible."""

    def datasync(self) -> None:
        """Return once all written to this file survives a power loss; after an error nothing is known."""

    def reserve(self, size: int) -> None:
        """Make the file at least ``size`` long, with the room for it on the disk."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size``."""

    def size(self) -> int:
        """Return how long the file is."""

    def close(self) -> None:
        """Give the handle back; views stay good."""


class Disk(Protocol):
    """One flat folder of files."""

    def create(self, name: str) -> File:
        """Make a new file and open it; ``FileExistsError`` if it is there."""

    def open(self, name: str) -> File:
        """Open a file; ``FileNotFoundError`` if it is not there."""

    def remove(self, name: str) -> None:
        """Remove a file; ``FileNotFoundError`` if it is not there."""

    def rename(self, old: str, new: str) -> None:
        """Put ``old`` in the place of ``new`` in one step."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def sync(self) -> None:
        """Return once every name made, renamed or removed so far survives a power loss."""

    def lock(self) -> None:
        """Own the folder until :meth:`close`; ``StoreLocked`` if somebody else does."""

    def where(self, name: str = "") -> str:
        """Return how to call a file in a message."""

    def close(self) -> None:
        """Let go of the lock."""


def write_all(file: File, parts: Sequence[Bytes], offset: int) -> None:
    """Write every byte of ``parts`` at ``offset``, however many calls it takes.

    A short write is ordinary (a signal, a nearly full disk): the next call tells whether it was an error.
    """
    rest, left = (parts if len(parts) <= _IOVECS_MAX else _rest(parts, 0)), sum(map(len, parts))
    while left:
        written = file.pwritev(rest[:_IOVECS_MAX], offset)
        if not written:
            raise OSError(errno.EIO, "the disk took no byte of a write")
        left, offset = left - written, offset + written
        if left:
            rest = _rest(rest, written)


def _rest(parts: Sequence[Bytes], written: int) -> Sequence[Bytes]:
    """Return what is left of ``parts`` when so many bytes of them are written, from the first byte that is left."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[index + 1 :]]
        written -= len(part)
    return ()


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds since any time."""
        return time.monotonic()


class SystemRandom:
    """The machine's randomness."""

    def token(self, size: int) -> bytes:
        """Return ``size`` random bytes."""
        return secrets.token_bytes(size)


class _Hold:
    """Keeps signals back while the main thread is within a step: Ctrl-C, and whatever has a handler that may raise."""

    def __init__(self) -> None:
        self.is_on = False
        self._handlers: tuple[object, ...] = ()  # of all signals, when the last step began
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}  # those that are in Python
        self._held: dict[int, FrameType | None] = {}  # in the order in which they came
        self._handler = self._hold  # one for all, known by its identity
        self.find_main_thread()

    def find_main_thread(self) -> None:
        """Note which thread it is."""
        self.main_thread = threading.main_thread().ident

    def begin_anew(self) -> None:
        """In a forked process the thread that forked is the main one; whose step was under way is not here any more."""
        if self.is_on and threading.get_ident() != self.main_thread:
            self._held = {}
            self.__exit__()
        self.find_main_thread()

    def __enter__(self) -> None:
        handlers = tuple(map(_signal.getsignal, _SIGNALS))
        if handlers != self._handlers:
            found = zip(_SIGNALS, handlers, strict=True)
            self._before = {number: handler for number, handler in found if callable(handler)}
            self._handlers = handlers
        self._held = {}
        try:
            for number in self._before:
                _signal.signal(number, self._handler)
        except BaseException:  # of the handler of one that is not held yet
            self.__exit__()
            raise
        self.is_on = True

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._held[number] = frame

    def __exit__(self, *_: object) -> None:
        self.is_on = False
        try:
            self._restore()
        finally:
            if self._held:  # asked after the last one that was held: restoring may have found it
                self.deliver()

    def _restore(self) -> None:
        """Give signals their handlers back, unless they were given others meanwhile; the first may raise at once."""
        try:
            for number, before in self._before.items():
                if _signal.getsignal(number) is self._handler:
                    _signal.signal(number, before)
        except BaseException:
            self._restore()
            raise

    def deliver(self) -> None:
        """Let what is held back happen now; whatever a handler raises, the others are called, too."""
        if self._held:
            number = next(iter(self._held))
            frame = self._held.pop(number)
            try:
                self._before[number](number, frame)
            finally:
                self.deliver()


_hold: Final = _Hold()
os.register_at_fork(after_in_child=_hold.begin_anew)


def uninterrupted(step: Callable[P, T]) -> Callable[P, T]:
    """Let Ctrl-C, and other signals, wait until the step is over, or at an :func:`interruption_point`.

    Python calls the handlers of signals, of which that of Ctrl-C raises KeyboardInterrupt, between any two instructions
    of the main thread, also between writing a record and taking note of it, or between taking a lock and the ``try``
    behind it. Only ``with lock``, where the lock is one of C, takes and releases a lock in one instruction; whatever
    takes it in Python is within a step. A step ends by itself within a sync or two, so nobody waits long.
    """

    @functools.wraps(step)
    def held(*args: P.args, **kwargs: P.kwargs) -> T:
        if _hold.is_on or threading.get_ident() != _hold.main_thread:
            return step(*args, **kwargs)
        with _hold:
            return step(*args, **kwargs)

    return held


def opened(step: Callable[[], T], close: Callable[[T], object]) -> T:
    """Open something in a step; whoever is interrupted before getting it finds it closed again."""
    found: list[T] = []
    try:
        return _opened_into(found, step)
    except BaseException:
        for one in found:
            close(one)
        raise


@uninterrupted
def _opened_into(found: list[T], step: Callable[[], T]) -> T:
    found.append(step())
    return found[0]


def interruption_point() -> None:
    """Deliver a signal that waits: the caller is within a step, and nothing of it is half done at this place."""
    if _hold.is_on and threading.get_ident() == _hold.main_thread:
        _hold.deliver()


def interruptible(wait: Callable[[], T]) -> T:
    """Wait within a step, and let a signal end that at once: nothing of the step is half done at this place."""
    if not _hold.is_on or threading.get_ident() != _hold.main_thread:
        return wait()
    _hold.__exit__()
    try:
        return wait()
    finally:
        _hold.__enter__()


_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, _OFFSET]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def map_file(fd: int, size: int) -> memoryview:
    """Return the first ``size`` bytes of an open file as memory that stays good when the file is closed or removed.

    The mapping ends with its last view. Python's own mmap would keep a second descriptor open as long.
    """
    if not size:
        return memoryview(b"")  # which cannot be mapped
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    mapped = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(mapped, _libc.munmap, address, size).atexit = False  # views may be used until the very end
    return memoryview(mapped).cast("B").toreadonly()


class OsFile:
    """A file of the operating system, read through a shared mapping.

    Mapped pages and ``pwritev`` meet in the page cache, so a view shows what was written after it was taken
    too; callers bound what they read by what they acknowledged.
    """

    __slots__ = ("_fd", "_map")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map: memoryview = memoryview(b"")

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts at ``offset``; return how many bytes went in."""
        return os.pwritev(self._fd, parts, offset)

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view, shorter at the end of the file."""
        mapped = self._map  # once: another reader's mapping, taken before the file grew, may replace it meanwhile
        if offset + size > len(mapped):
            length = os.fstat(self._fd).st_size
            if length > len(mapped):
                mapped = self._map = map_file(self._fd, length)
        return mapped[offset : offset + size]

    def datasync(self) -> None:
        """Flush the data, and of the inode what is needed to find them."""
        os.fdatasync(self._fd)

    def reserve(self, size: int) -> None:
        """Allocate the room on the disk now, so that a later write finds it."""
        os.posix_fallocate(self._fd, 0, size)

    def truncate(self, size: int) -> None:
        """Cut the file; a mapping taken before must not be touched past ``size`` any more."""
        os.ftruncate(self._fd, size)
        self._map = memoryview(b"")

    def size(self) -> int:
        """Return how long the file is."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the descriptor; the mapping goes when its last view does."""
        os.close(self._fd)
        self._map = memoryview(b"")


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; each name is flushed, or all that is synced inside could vanish with it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    parent_fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent_fd)
    finally:
        os.close(parent_fd)


def owner_name() -> str:
    """Return how this process is called in messages to others."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class OsDisk:
    """A folder of the operating system, made if it is not there."""

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder).absolute()
        try:
            _make_folder(self._folder)
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ValueError) as error:
            raise FolderUnusable(str(folder), reason=getattr(error, "strerror", None) or str(error)) from error
        self._lock_fd = _CLOSED
        forks.guard(self)

    def give_back_in_child(self) -> None:
        """Let the lock go with the process that has it."""
        if self._lock_fd != _CLOSED:
            os.close(self._lock_fd)

    def create(self, name: str) -> OsFile:
        """Make a new file and open it."""
        return OsFile(self._os_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def open(self, name: str) -> OsFile:
        """Open a file."""
        return OsFile(self._os_open(name, os.O_RDWR))

    def _os_open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, 0o644, dir_fd=self._folder_fd)

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=self._folder_fd)

    def rename(self, old: str, new: str) -> None:
        """Put ``old`` in the place of ``new``."""
        os.rename(old, new, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)

    def names(self) -> list[str]:
        """Return the names of all files but the lock's."""
        return [name for name in os.listdir(self._folder) if name != _LOCK_NAME]

    def sync(self) -> None:
        """Flush the folder."""
        os.fsync(self._folder_fd)

    def lock(self) -> None:
        """Take the folder's lock, which ends with the process however it ends."""
        try:
            fd = self._lock_fd = self._os_open(_LOCK_NAME, os.O_RDWR | os.O_CREAT)  # known before it is locked
        except OSError as error:
            raise FolderUnusable(self.where(), reason=error.strerror or str(error)) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(fd, 256, 0).decode(errors="replace").strip() or "another process"
            self._close_lock()
            raise StoreLocked(self.where(), owner=owner) from error
        except OSError as error:
            self._close_lock()
            raise FolderUnusable(self.where(), reason=f"it cannot be locked ({error.strerror})") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{owner_name()}\n".encode(), 0)

    def _close_lock(self) -> None:
        fd, self._lock_fd = self._lock_fd, _CLOSED
        os.close(fd)

    def where(self, name: str = "") -> str:
        """Return the path, for messages."""
        return str(self._folder / name)

    def close(self) -> None:
        """Let go of the lock and the folder; closing again does nothing."""
        for fd in (self._lock_fd, self._folder_fd):
            if fd != _CLOSED:
                os.close(fd)
        self._lock_fd = self._folder_fd = _CLOSED
