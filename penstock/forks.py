"""Forks: a forked child process must not use the handles of its parent.

The child has a copy of every handle, with locks perhaps held by threads that the child does not have. It shares all
that is outside of memory: the folder's lock, files, sockets, a database. So in the child

- every method of a guarded handle raises ``ForkedHandle``, except ``close``, which does nothing;
- resources that other processes would notice are released (``release_in_child``), so that the folder is free as soon
  as its owner ends;
- nothing is finalized, since that would close, cancel or roll back what the parent is using.

This costs nothing while a handle is used: in the child, the handle changes its class. gRPC and obstore do not survive
a fork. In a child of a process in which one of them ran, ``check_network`` and ``check_buckets`` raise
``ForkedNetwork`` where it would hang.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from contextlib import suppress
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast
from weakref import WeakSet

from penstock.errors import ForkedHandle, ForkedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from types import TracebackType
    from typing import Self

__all__ = ["Handle", "check_buckets", "check_network", "drop_sockets", "guard", "is_network_lost", "silent_in_child"]

_Leave = TypeVar("_Leave", bound="Callable[..., object]")

_FLIGHT: Final = "pyarrow._flight"
_OBSTORE: Final = "obstore"
_OBSTORE_THREADS: Final = ("tokio",)  # which stay until the process ends
_GRPC_THREADS: Final = ("grpc", "event_engine", "lifeguard")
_GRPC_ENDS_S: Final = 0.05  # gRPC ends about 3 ms after its last user
_PAUSE_S: Final = 0.001


class _Process:
    """The guarded handles of this process, and the state of gRPC and obstore in it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.handles = WeakSet[Any]()
        self.refusing = set[type]()  # the classes of its parents' handles
        self.runs_grpc = self.runs_obstore = False  # at the last fork
        self.is_network_lost = self.are_buckets_lost = False


_process: Final = _Process()


class Handle:
    """A handle that is closed at the end of its ``with`` block."""

    def close(self) -> None:
        """Release what the handle holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the handle, also after an exception."""
        self.close()


def guard(handle: object) -> None:
    """Make a handle raise ``ForkedHandle`` in every child forked from now on."""
    _process.handles.add(handle)


def silent_in_child(leave: _Leave) -> _Leave:
    """Have an ``__exit__`` do nothing in a child.

    A block that was entered before the fork calls the method that the handle had then, not that of its new class.
    """

    @wraps(leave)
    def left(handle: object, *error: object) -> object:
        return None if type(handle) in _process.refusing else leave(handle, *error)

    return cast("_Leave", left)


def is_network_lost() -> bool:
    """Return whether this process was forked from one in which gRPC ran."""
    return _process.is_network_lost


def check_network() -> None:
    """Raise ``ForkedNetwork`` where gRPC would hang."""
    if _process.is_network_lost:
        raise ForkedNetwork(ran="gRPC", lost="a store over the network or through its owner")


def check_buckets() -> None:
    """Raise ``ForkedNetwork`` where obstore would hang."""
    if _process.are_buckets_lost:
        raise ForkedNetwork(ran="obstore", lost="a bucket")


def drop_sockets(names: Container[object]) -> None:
    """Close every socket with one of these addresses, also those of gRPC; their descriptors stay in use."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # not a socket, or already closed
            candidate = socket.socket(fileno=fd)
            try:
                is_ours = candidate.getsockname() in names
            finally:
                candidate.detach()
            if is_ours:
                os.dup2(null, fd, inheritable=False)
    os.close(null)


def _before_fork() -> None:
    """Note whether gRPC runs; wait a moment for it if it is about to end."""
    deadline = time.monotonic() + _GRPC_ENDS_S
    while (runs := _FLIGHT in sys.modules and _has_threads(_GRPC_THREADS)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    _process.runs_grpc, _process.runs_obstore = runs, _OBSTORE in sys.modules and _has_threads(_OBSTORE_THREADS)


def _has_threads(names: tuple[str, ...]) -> bool:
    return any(name.startswith(names) for name in map(_thread_name, os.listdir("/proc/self/task")))


def _thread_name(task: str) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm") as comm:
            return comm.read()
    except OSError:  # the thread has just ended
        return ""


def _in_child() -> None:
    handles, owner = list(_process.handles), _process.pid
    _process.is_network_lost |= _process.runs_grpc
    _process.are_buckets_lost |= _process.runs_obstore
    _process.pid, _process.handles = os.getpid(), WeakSet()
    for handle in handles:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
        release = getattr(handle, "release_in_child", None)
        if release is not None:
            with suppress(OSError):
                release()
    for handle in handles:
        kind: Any = type(handle)
        handle.__class__ = _refusing(kind, owner)
        _process.refusing.add(handle.__class__)


@cache
def _refusing(kind: Any, owner: int) -> Any:  # noqa: ANN401 - classes
    """Return the class that objects of ``kind`` get in a child of the process ``owner``."""

    def refuse(self: object, name: str) -> object:
        if name.startswith("__") or name == "close":
            return object.__getattribute__(self, name)
        raise ForkedHandle(kind.__name__, owner=owner)

    def refuse_entry(_: object) -> NoReturn:
        raise ForkedHandle(kind.__name__, owner=owner)

    def nothing(*_: object) -> None:
        """Do nothing: the handle is the parent's."""

    async def nothing_async(*_: object) -> None:
        """Do nothing, for handles whose ``close`` is awaited."""

    methods: dict[str, object] = {"close": nothing, "__exit__": nothing, "__del__": nothing}
    if hasattr(kind, "__aexit__"):
        methods |= {"close": nothing_async, "__aexit__": nothing_async}
    metaclass: Any = type(kind)
    return metaclass(
        kind.__name__, (kind,), {"__slots__": (), "__getattribute__": refuse, "__enter__": refuse_entry, **methods}
    )


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
