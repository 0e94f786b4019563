"""The plog server: its port, its connections, and its end."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.frames import HELLO_SIZE_MAX, FrameConnection
from penstock.plog.server._connection import PRESENT_OWNER, ClientConnection
from penstock.plog.server._limits import PlogServerLimits, RequestBudget
from penstock.plog.server._scrub import Scrubber, ScrubSettings

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self

    from penstock.plog.server._connection import CheckUser
    from penstock.plog.server._folder import ServerFolder

__all__ = ["PlogServer"]

_ACCEPT_PAUSE_S: Final = 0.1  # after a connection could not be accepted, perhaps for want of descriptors
_END_S: Final = 5.0
_logger: Final = logging.getLogger("penstock.plog_server")


@dataclass(slots=True)
class _Client:
    """A connection that was accepted; ``served`` is None until its handshake is done."""

    socket: socket.socket
    since: float
    served: ClientConnection | None = None

    def worth(self) -> tuple[int, float]:
        """Return what decides who has to go: one without a session before others, then the most silent one."""
        return (0, self.since) if self.served is None else (self.served.standing, self.served.seen_at)

    def end(self) -> None:
        """End the connection; its thread notices."""
        if self.served is not None:
            self.served.end()
        else:
            with suppress(OSError):
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)  # that of TLS would disturb the handshake


class PlogServer:
    """Serves the replicas of a folder at a listening socket until it is closed; it closes both."""

    def __init__(
        self,
        folder: ServerFolder,
        listener: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        check_user: CheckUser | None = None,
        limits: PlogServerLimits | None = None,
        scrub: ScrubSettings | None = None,
    ) -> None:
        self.folder = folder
        self.scrubber: Final = Scrubber(folder, scrub or ScrubSettings())
        self.port: Final[int] = listener.getsockname()[1]
        self._listener, self._tls, self._check_user = listener, tls, check_user
        self._limits = limits or PlogServerLimits()
        self._budget = RequestBudget(self._limits.total_size_max)
        self._lock = threading.Lock()
        self._clients: dict[threading.Thread, _Client] = {}
        self._appends = self._appended_size = 0  # of connections that are over
        self._over = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="penstock-plog-accept", daemon=True)
        self._acceptor.start()
        self.scrubber.start()

    def connections(self) -> int:
        """Return how many clients are connected."""
        with self._lock:
            return len(self._clients)

    def appended(self) -> tuple[int, int]:
        """Return how many changes were made for clients, and with how many bytes."""
        with self._lock:
            clients = [client.served for client in self._clients.values() if client.served is not None]
            appends = self._appends + sum(client.appends for client in clients)
            return appends, self._appended_size + sum(client.appended_size for client in clients)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, address = self._listener.accept()
            except OSError:
                self._over.wait(_ACCEPT_PAUSE_S)
                continue
            if not self._begin(connection, f"tcp:{address[0]}:{address[1]}"):
                connection.close()

    def _begin(self, connection: socket.socket, peer: str) -> bool:
        """Serve a connection in a thread of its own; return False if there is no place for it, or no thread."""
        client = _Client(connection, time.monotonic())
        thread = threading.Thread(target=self._serve, args=(client, peer), name="penstock-plog-client", daemon=True)
        with self._lock:
            if len(self._clients) >= self._limits.connections_max or self._over.is_set():
                self._end_one()
                return False
            self._clients[thread] = client
            try:
                thread.start()
            except RuntimeError as error:  # the system has no more threads
                del self._clients[thread]
                _logger.warning("a connection is closed: %s", error)
                return False
        return True

    def _end_one(self) -> None:
        """End the client that is worth least, so that others find a place at their next attempt; but no present owner.

        Whoever can reach the port can open connections without a session.
        """
        client = min(self._clients.values(), key=_Client.worth, default=None)
        if client is not None and client.worth()[0] < PRESENT_OWNER:
            client.end()

    def _serve(self, client: _Client, peer: str) -> None:
        try:
            with suppress(OSError):  # a handshake that fails, or takes too long
                self._shake(client)
                frames = FrameConnection(client.socket, size_max=HELLO_SIZE_MAX)
                served = ClientConnection(
                    frames,
                    self.folder,
                    limits=self._limits,
                    budget=self._budget,
                    check_user=self._check_user,
                    peer=peer,
                )
                with self._lock:
                    client.served = served
                    is_over = self._over.is_set()
                if not is_over:
                    served.serve()
                frames.close()
        except Exception:  # a mistake of ours ends one connection, not the server
            _logger.exception("a connection has failed")
        finally:
            client.socket.close()
            with self._lock:
                del self._clients[threading.current_thread()]
                if client.served is not None:
                    self._appends += client.served.appends
                    self._appended_size += client.served.appended_size

    def _shake(self, client: _Client) -> None:
        if self._tls is not None:
            client.socket.settimeout(self._limits.hello_s_max)
            secured = self._tls.wrap_socket(client.socket, server_side=True, do_handshake_on_connect=False)
            client.socket = secured
            secured.do_handshake()

    def close(self) -> None:
        """End all connections and close the folder; what was acknowledged is durable in any case."""
        self._over.set()
        self.scrubber.close()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        with self._lock:
            clients = dict(self._clients)
        self._budget.close()
        for client in clients.values():
            client.end()
        for thread in clients:
            thread.join(_END_S)
        self.folder.close()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
