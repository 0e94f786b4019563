"""Forks: what a process has open is of no use to a child that is forked from it.

The child gets a copy of every handle, with locks as they were, held perhaps by threads that it does not have; what is
outside of memory (the folder's lock, files, sockets, a database) it shares. So in the child

- every guarded handle refuses whatever it is asked for (``ForkedHandle``); closing it does nothing;
- what others would notice is given back (``give_back_in_child``), so that the folder is free when its owner ends;
- nothing is freed: that would close, cancel or roll back what the parent is using.

Handles cost nothing for that while they are used: in the child, they change their class. gRPC does not survive a fork
at all. A child of a process in which it ran cannot use it, and is told so instead of hanging (``check_network``).
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn
from weakref import WeakSet

from penstock.errors import ForkedHandle, ForkedNetwork

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["check_network", "drop_sockets", "guard", "is_network_lost"]

_FLIGHT: Final = "pyarrow._flight"
_GRPC_THREADS: Final = ("grpc", "event_engine", "lifeguard")
_GRPC_ENDS_S: Final = 0.05  # it takes 3 ms to end behind its last user
_PAUSE_S: Final = 0.001


class _Process:
    """What is known of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.handles = WeakSet[Any]()
        self.runs_grpc = False  # at the last fork
        self.is_network_lost = False


_process: Final = _Process()


def guard(handle: object) -> None:
    """Let a handle be of no use in children that are forked from here on."""
    _process.handles.add(handle)


def is_network_lost() -> bool:
    """Whether gRPC ran in a process that this one was forked from."""
    return _process.is_network_lost


def check_network() -> None:
    """Refuse to use gRPC where it would hang."""
    if _process.is_network_lost:
        raise ForkedNetwork


def drop_sockets(names: Container[object]) -> None:
    """Give back every socket with one of these addresses, also those of gRPC; their descriptors stay in use."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # it is none, or gone
            found = socket.socket(fileno=fd)
            try:
                is_ours = found.getsockname() in names
            finally:
                found.detach()
            if is_ours:
                os.dup2(null, fd, inheritable=False)
    os.close(null)


def _before_fork() -> None:
    """Look whether gRPC runs; one that is about to end is waited for."""
    deadline = time.monotonic() + _GRPC_ENDS_S
    while (runs := _FLIGHT in sys.modules and _runs_grpc()) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    _process.runs_grpc = runs


def _runs_grpc() -> bool:
    return any(name.startswith(_GRPC_THREADS) for name in map(_thread_name, os.listdir("/proc/self/task")))


def _thread_name(task: str) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm") as comm:
            return comm.read()
    except OSError:  # it has just ended
        return ""


def _in_child() -> None:
    handles, owner = list(_process.handles), _process.pid
    _process.is_network_lost |= _process.runs_grpc
    _process.pid, _process.handles = os.getpid(), WeakSet()
    for handle in handles:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
        give_back = getattr(handle, "give_back_in_child", None)
        if give_back is not None:
            with suppress(OSError):
                give_back()
    for handle in handles:
        kind: Any = type(handle)
        handle.__class__ = _refusing(kind, owner)


@cache
def _refusing(kind: Any, owner: int) -> Any:  # noqa: ANN401 - classes
    """Return a class whose objects were of ``kind`` in the process ``owner``."""

    def refuse(self: object, name: str) -> object:
        if name.startswith("__") or name == "close":
            return object.__getattribute__(self, name)
        raise ForkedHandle(kind.__name__, owner=owner)

    def refuse_entry(_: object) -> NoReturn:
        raise ForkedHandle(kind.__name__, owner=owner)

    def nothing(*_: object) -> None:
        """Leave to the parent what is the parent's."""

    methods = {"close": nothing, "__exit__": nothing, "__del__": nothing}
    metaclass: Any = type(kind)
    return metaclass(
        kind.__name__, (kind,), {"__slots__": (), "__getattribute__": refuse, "__enter__": refuse_entry, **methods}
    )


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
