"""The plog server: its port, its connections, and its end."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.plog.replicated import HELLO_SIZE_MAX, FrameConnection
from penstock.plog.server._connection import ClientConnection
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
        self._clients: dict[threading.Thread, ClientConnection | None] = {}
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
            clients = [client for client in self._clients.values() if client is not None]
            appends = self._appends + sum(client.appends for client in clients)
            return appends, self._appended_size + sum(client.appended_size for client in clients)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, address = self._listener.accept()
            except OSError:
                self._over.wait(_ACCEPT_PAUSE_S)
                continue
            with self._lock:
                is_full = len(self._clients) >= self._limits.connections_max or self._over.is_set()
                if is_full:
                    self._end_most_silent()
                else:
                    thread = threading.Thread(
                        target=self._serve,
                        args=(connection, f"tcp:{address[0]}:{address[1]}"),
                        name="penstock-plog-client",
                        daemon=True,
                    )
                    self._clients[thread] = None
                    thread.start()
            if is_full:
                connection.close()

    def _end_most_silent(self) -> None:
        """End the client that was silent for longest, so that others find a place at their next attempt."""
        clients = [client for client in self._clients.values() if client is not None]
        if clients:
            min(clients, key=lambda client: client.seen_at).end()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        thread = threading.current_thread()
        client: ClientConnection | None = None
        try:
            with suppress(OSError):  # a handshake that fails, or takes too long
                frames = FrameConnection(self._shaken(connection), size_max=HELLO_SIZE_MAX)
                client = ClientConnection(
                    frames,
                    self.folder,
                    limits=self._limits,
                    budget=self._budget,
                    check_user=self._check_user,
                    peer=peer,
                )
                with self._lock:
                    self._clients[thread] = client
                    is_over = self._over.is_set()
                if not is_over:
                    client.serve()
                frames.close()
        except Exception:  # a mistake of ours ends one connection, not the server
            _logger.exception("a connection has failed")
        finally:
            connection.close()
            with self._lock:
                del self._clients[thread]
                if client is not None:
                    self._appends += client.appends
                    self._appended_size += client.appended_size

    def _shaken(self, connection: socket.socket) -> socket.socket:
        if self._tls is None:
            return connection
        connection.settimeout(self._limits.hello_s_max)
        return self._tls.wrap_socket(connection, server_side=True)

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
            if client is not None:
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
