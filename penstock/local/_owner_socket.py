"""The owner of a folder, and the socket at which other processes ask it for the service.

A client sends one request and reads one answer. ``enter`` starts the Flight service, unless it runs; ``leave`` asks an
owner process that has no clients to end.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from penstock import forks
from penstock.errors import OwnerStopped, StoreLocked
from penstock.local._folder import (
    block_socket,
    listen_for_blocks,
    make_service_folder,
    owner_socket,
    owner_socket_inode,
    remove_access_probes,
    remove_sockets,
    service_socket,
)
from penstock.local._owner_watch import answer_of, peer_of
from penstock.ports import owner_name, uninterrupted

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

__all__ = ["ENTER", "EXCLUSIVE", "READY", "OwnerSocket", "Serve", "ask", "open_owned", "open_owner_socket"]

ENTER: Final = b"enter\n"
READY: Final = b"ready\n"
EXCLUSIVE: Final = b"exclusive "
_LEAVE: Final = b"leave\n"
_LEAVING: Final = b"leaving\n"
_STAYING: Final = b"staying\n"
_BACKLOG: Final = 1024
_REQUEST_S: Final = 1.0  # that a client may take to send its request
_PAUSE_S: Final = 0.1
_LEAVE_S: Final = 5.0  # that an owner process may take to close the store
_LEAVE_ANSWER_S: Final = 2.0
_LEAVE_PAUSE_S: Final = 0.01
_logger: Final = logging.getLogger("penstock.local")


class Service(Protocol):
    """The Flight service, as the owner needs it."""

    def connections(self) -> int:
        """Return how many clients are connected."""

    def shutdown(self) -> None:
        """End the connections, and accept no more."""


Serve = Callable[["Engine", str, socket.socket], Service]
"""Starts the service of a store at a location, with a listening socket for blocks."""


def open_owned(folder: Path, *, maintenance_interval_s: float, serve: Serve, exclusive: bool = False) -> Engine:
    """Open the store in a folder as its owner, and serve it to other processes, unless ``exclusive``."""
    store = _open_store(folder, maintenance_interval_s)
    try:
        open_owner_socket(store, folder, serve=serve, exclusive=exclusive)
    except OSError as error:
        _logger.warning("other processes cannot use %s: no socket can be made there (%s)", folder, error)
    except BaseException:
        store.close()
        raise
    return store


def _open_store(folder: Path, maintenance_interval_s: float) -> Engine:
    """Open a store; an owner process without clients is asked to leave first."""
    from penstock.embedded import open_store  # noqa: PLC0415 - clients do without

    try:
        return open_store(folder, maintenance_interval_s=maintenance_interval_s)
    except StoreLocked:
        if not _is_leaving(folder):
            raise
    deadline = time.monotonic() + _LEAVE_S
    while True:
        try:
            return open_store(folder, maintenance_interval_s=maintenance_interval_s)
        except StoreLocked:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LEAVE_PAUSE_S)


def _is_leaving(folder: Path) -> bool:
    """Ask the owner of a folder to leave; return whether it is an owner process that does."""
    try:
        return ask(folder, _LEAVE, timeout=_LEAVE_ANSWER_S)[0] == _LEAVING
    except (OSError, OwnerStopped):
        return False


def ask(folder: Path, request: bytes, *, timeout: float) -> tuple[bytes, int]:
    """Return the answer of a folder's owner, and its process; ``OwnerStopped`` if that is stopped."""
    with socket.socket(socket.AF_UNIX) as owner:
        owner.settimeout(timeout)
        owner.connect(owner_socket(folder))
        owner.sendall(request)
        return answer_of(owner, folder, timeout=timeout), peer_of(owner)


@uninterrupted
def open_owner_socket(
    store: Engine, folder: Path, *, serve: Serve, exclusive: bool = False, leave: threading.Event | None = None
) -> OwnerSocket:
    """Listen at the owner socket until the store is closed."""
    remove_access_probes(folder)
    listener = OwnerSocket(store, folder, serve=serve, exclusive=exclusive, leave=leave)
    store.before_close(listener.close)
    return listener


class OwnerSocket:
    """Where clients ask for the service.

    An owner process has ``leave``, which is set when it is asked to leave and has no clients.
    """

    def __init__(
        self, store: Engine, folder: Path, *, serve: Serve, exclusive: bool, leave: threading.Event | None
    ) -> None:
        forks.guard(self)
        self._store, self._folder, self._serve = store, folder, serve
        self._exclusive, self._leave = exclusive, leave
        self._service: Service | None = None
        self._over = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            remove_sockets(folder)  # an owner that was killed left them; this process has the lock
            os.fchmod(self._socket.fileno(), 0o600)  # before it has a name that other users could connect to
            self._socket.bind(owner_socket(folder))
            self._inode = owner_socket_inode(folder)
            self._socket.listen(_BACKLOG)
        except BaseException:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._work, name="penstock-owner-socket", daemon=True)
        self._thread.start()

    def release_in_child(self) -> None:
        """Close the sockets in a forked child: clients notice the end of the owner once no process has them open."""
        folder = self._folder
        forks.drop_sockets({owner_socket(folder), service_socket(folder), block_socket(folder)})

    def _work(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                if self._over.wait(_PAUSE_S):
                    return
                _logger.exception("the owner of %s cannot accept connections", self._folder)  # too many files, perhaps
                continue
            with client:
                try:
                    client.settimeout(_REQUEST_S)
                    client.sendall(self._answer(client.recv(64)))
                except ConnectionError:
                    pass  # the client has gone
                except Exception:
                    _logger.exception("a request at the owner socket failed")

    def _answer(self, request: bytes) -> bytes:
        if request == _LEAVE:
            if self._leave is None or self.connections():
                return _STAYING
            self._leave.set()
            return _LEAVING
        if self._exclusive or forks.is_network_lost():
            return EXCLUSIVE + owner_name().encode()
        self._start_service()
        return READY

    def _start_service(self) -> None:
        """Start the service, unless it runs."""
        if self._service is None:
            make_service_folder(self._folder)
            blocks = listen_for_blocks(self._folder)
            try:
                self._service = self._serve(self._store, f"grpc+unix://{service_socket(self._folder)}", blocks)
            except BaseException:
                blocks.close()
                raise
            atexit.register(self._end_service, os.getpid())  # a program that does not close its store would not end

    def _end_service(self, pid: int) -> None:
        """End the service, in the process that started it: Arrow waits for its calls, while clients stay connected."""
        if self._service is not None and os.getpid() == pid:
            self._service.shutdown()

    def connections(self) -> int:
        """Return how many clients are connected."""
        return 0 if self._service is None else self._service.connections()

    def close(self) -> None:
        """End the service, and remove the sockets."""
        self._over.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        atexit.unregister(self._end_service)
        self._end_service(os.getpid())
        if self.is_there():
            remove_sockets(self._folder)

    def is_there(self) -> bool:
        """Whether the socket in the folder is still this one; the folder may have been removed, and made again."""
        return owner_socket_inode(self._folder) == self._inode
