"""Owners of a folder that are stopped, as by Ctrl-Z: the system accepts what clients send, and no answer ever comes.

gRPC waits for such an owner for ever, and offers no way to break off a call. So a client checks the state of the
owner's process every second. When that was stopped for some seconds, the client shuts its connections down. From then
on it is as if the owner had been killed, but no process can take the folder over: calls raise ``OwnerStopped``, which
says what to do.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import OwnerStopped
from penstock.ports import copied_socket

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["OwnerWatch", "answer_of", "peer_of"]

_CHECK_S: Final = 1.0
_CHECKS: Final = 5  # in a row that find the owner stopped, before its clients hang up
_SETTLE_S: Final = 0.5  # without an answer, before a stopped owner counts as such: a debugger may stop it briefly
_CREDENTIALS: Final = struct.Struct("iII")  # process, user and group
_logger: Final = logging.getLogger("penstock.client")


def answer_of(owner: socket.socket, folder: Path, *, timeout: float) -> bytes:
    """Return what the owner of a folder sends; ``OwnerStopped`` if it is stopped."""
    deadline = time.monotonic() + timeout
    owner.settimeout(_SETTLE_S)
    while True:
        try:
            return owner.recv(1024)
        except TimeoutError:
            _check(peer_of(owner), folder)
            if time.monotonic() > deadline:
                raise


def peer_of(connected: socket.socket) -> int:
    """Return the process at the other side of a socket; 0 if that is in another container."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(found)[0]
    return pid


def _check(pid: int, folder: Path) -> None:
    if _is_stopped(pid):
        raise OwnerStopped(str(folder), pid=pid)


def _is_stopped(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return status.rpartition(b")")[2].split()[0] in {b"T", b"t"}


class OwnerWatch:
    """Checks, while a client is connected to a folder's owner, whether that is stopped."""

    def __init__(self, folder: Path, sockets: Container[str]) -> None:
        self._folder, self._sockets = folder, sockets
        self._owner = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, owner: int) -> None:
        """Watch this process from now on."""
        self._owner = owner
        if self._thread is None and owner != os.getpid():
            self._thread = threading.Thread(target=self._work, name="penstock-owner-watch", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise ``OwnerStopped`` if it is stopped."""
        _check(self._owner, self._folder)

    def _work(self) -> None:
        stopped = 0
        while not self._over.wait(_CHECK_S):
            stopped = stopped + 1 if _is_stopped(self._owner) else 0
            if stopped == _CHECKS:
                _logger.warning("%s", OwnerStopped(str(self._folder), pid=self._owner))
                _shut_down(self._sockets)

    def close(self) -> None:
        """End the watch."""
        self._over.set()


def _shut_down(sockets: Container[str]) -> None:
    """Shut down all connections of this process to sockets."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), copied_socket(int(name)) as sock:
            if sock.family == socket.AF_UNIX and sock.getpeername() in sockets:
                sock.shutdown(socket.SHUT_RDWR)
