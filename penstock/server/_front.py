"""The front: what stands between the clients of other machines and gRPC.

gRPC unpacks compressed messages before anything of ours is asked, and pyarrow offers no way to forbid that. So where
others can reach the server, gRPC listens at a socket that only this process can find, and a thread of ours accepts the
connections, ends TLS, and passes the bytes on. What a client sends goes through a
:class:`~penstock.server._frames.FrameFollower` first, and a client that is refused there is hung up on.

One thread does it for all connections. Of each it holds what it could not pass on, in either direction, and reads
nothing more from there until it could: so a side that does not read slows down the other side of its connection only.
A client that sends very many very small messages does not slow down others either: connections take turns, and a turn
is short. What authenticated clients send is read at once, and all unauthenticated clients together have one turn in
between, so that many of them slow down only each other.

The calls that have begun and not ended are counted, because gRPC takes as many as there are, with memory for each.
Where a user has more of them than the service permits, or a client that is not authenticated has more than a few,
nothing more is read from connections with many until some have ended. A call that the client has cancelled counts for
another second: gRPC ends it sometime, and does not say when.

Frames without content are counted, too: clients of gRPC send a few for each frame with content, in either direction. A
connection with many more is closed, because each takes the front as long as a small message, and takes nothing from the
client.

The socket to gRPC has the address of the client for a name, so that the address is what a call's ``peer()`` says: the
rest of the server knows nothing of the front. The connections are observed and closed at the client's side, as those
without a front.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import select
import socket
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from penstock.server._addresses import written_address
from penstock.server._frames import Refused
from penstock.server._front_connection import CLIENT_ENDED, GONE, IN, READ_SIZE, FrontConnection
from penstock.server._limits import IdleFrameLimit
from penstock.server._service import FlightService
from penstock.server._tls_socket import TlsSocket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from penstock.server._limits import Limits, QuotaUse
    from penstock.server._permissions import Guard
    from penstock.stream import Engine

__all__ = ["FrontedService"]

_PAUSE_S: Final = 0.1  # between attempts to accept when there are no descriptors left
_ACCEPTED_AT_ONCE: Final = 64
_CALLS_FREE: Final = 16  # that every connection may have
_CALLS_MORE: Final = 100  # above those that the service permits, which refuses them itself
_IDLE_FRAMES_MAX: Final = 1_000  # before a call is accepted: clients send about ten
_IDLE_FRAMES_AT_ONCE: Final = 2_000  # that no content excuses
_IDLE_FRAMES_S: Final = 100  # of those, in a second: a client of gRPC pings once in some seconds
_RESUME_S: Final = 0.05
_HANG_UP_S: Final = 5.0
_logger: Final = logging.getLogger("penstock.server")


class FrontedService(FlightService):
    """A Flight service that only its front can connect to; its port is the front's."""

    def __init__(
        self,
        store: Engine,
        listener: socket.socket,
        *,
        guard: Guard | None,
        tls: ssl.SSLContext | None,
        limits: Limits,
        block_listener: socket.socket | None = None,
    ) -> None:
        self._public_port: int = listener.getsockname()[1]
        with ExitStack() as parts:
            parts.enter_context(listener)
            with TemporaryDirectory(prefix="penstock-") as folder:
                location = f"grpc+unix://{folder}/sock"
                super().__init__(store, location, guard=guard, limits=limits, block_listener=block_listener)
                server = os.open(f"{folder}/sock", os.O_PATH | os.O_CLOEXEC)  # from now on it has no other name
            parts.callback(os.close, server)
            self._front = Front(listener, f"/proc/self/fd/{server}", tls, self._connections.user_of, limits)
            self._parts = parts.pop_all()

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._public_port

    def quotas(self) -> list[QuotaUse]:
        """Return the limit and the use of each kind of thing that is limited."""
        return [*super().quotas(), self._front.use()]

    def shutdown(self) -> None:
        """End the service, and then the front, which passes on what it has said."""
        super().shutdown()
        self._front.end()
        self._parts.close()


class Front:
    """A thread that passes bytes between the connections of a listener and the server at a path.

    ``user_of`` returns the user of the client at an address; None if it is not authenticated.
    """

    def __init__(
        self,
        listener: socket.socket,
        path: str,
        tls: ssl.SSLContext | None,
        user_of: Callable[[str], str | None],
        limits: Limits,
    ) -> None:
        self._listener, self._path, self._tls, self._user_of = listener, path, tls, user_of
        self._calls_max = limits.share_of_user(limits.max_calls) + _CALLS_MORE
        self._calls_max_anonymous = limits.max_calls + _CALLS_MORE
        self._calls: Counter[str] = Counter()  # by user
        self._idle_frames = IdleFrameLimit("idle_frames", at_once=_IDLE_FRAMES_AT_ONCE, per_s=_IDLE_FRAMES_S)
        self._paused: dict[FrontConnection, float] = {}  # those that have too many calls, and since when
        self._patience_s = limits.header_timeout_s
        self._resumes_at = 0.0
        self._epoll = select.epoll()
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._connections: dict[int, FrontConnection] = {}  # by the descriptors of both sides
        self._waiting: dict[bool, deque[FrontConnection]] = {
            True: deque(),
            False: deque(),
        }  # for a turn; by whether authenticated
        self._is_full = False  # there are no descriptors left
        self._ends_at = math.inf
        listener.setblocking(False)
        self._epoll.register(listener, IN)
        self._thread = threading.Thread(target=self._work, name="penstock-front", daemon=True)
        self._thread.start()

    def use(self) -> QuotaUse:
        """Return how many frames without content clients send, and how many connections were closed for them."""
        return self._idle_frames.use()

    def end(self) -> None:
        """Accept no more, and end when the connections have: the server has closed its side of them."""
        self._ends_at = time.monotonic() + _HANG_UP_S
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join()
        self._epoll.close()

    def _work(self) -> None:
        while self._ends_at == math.inf or (self._connections and time.monotonic() < self._ends_at):
            was_full = self._is_full
            waits_s = _PAUSE_S if was_full or self._ends_at < math.inf else _RESUME_S if self._paused else None
            for number, events in self._epoll.poll(0 if any(self._waiting.values()) else waits_s):
                if (connection := self._connections.get(number)) is not None:
                    self._on_event(connection, number, events)
                elif number == self._listener.fileno():
                    self._accept()
            for waiting in self._waiting.values():
                self._give_turn(waiting)
            if self._paused and time.monotonic() >= self._resumes_at:
                self._resume()
            if was_full and self._ends_at == math.inf:
                self._is_full = False
                self._epoll.register(self._listener, IN)
        for connection in set(self._connections.values()):
            self._close(connection)

    def _on_event(self, connection: FrontConnection, number: int, events: int) -> None:
        is_said = number == connection.client.fileno() and not events & (GONE | CLIENT_ENDED)
        if is_said and self._user(connection) is None:
            self._let_wait(connection)
            connection.set_masks()
        else:
            self._handle(connection, number, events)

    def _let_wait(self, connection: FrontConnection) -> None:
        if not connection.is_waiting:
            connection.is_waiting = True
            self._waiting[self._user(connection) is not None].append(connection)

    def _give_turn(self, waiting: deque[FrontConnection]) -> None:
        """Let the first of those who wait have its turn, unless it is closed."""
        if waiting:
            connection = waiting.popleft()
            connection.is_waiting = False
            if (number := connection.client.fileno()) in self._connections:
                self._handle(connection, number, IN)

    def _handle(self, connection: FrontConnection, number: int, events: int) -> None:
        try:
            if number != connection.client.fileno():
                connection.on_server(events)
            elif connection.on_client(events):
                self._connect(connection)
            self._count_calls(connection)
            if connection.is_behind and not connection.is_paused:
                self._let_wait(connection)
            connection.set_masks()
        except Refused as error:
            _logger.info("closing a connection", extra={"peer": connection.peer, "reason": str(error)})
            with suppress(OSError):
                connection.client.send(error.answer)
            self._close(connection)
        except (OSError, EOFError):  # it is lost, or over
            self._close(connection)
        except Exception:  # the others go on
            _logger.exception("a connection failed", extra={"peer": connection.peer})
            self._close(connection)

    def _user(self, connection: FrontConnection) -> str | None:
        """Return the user of a connection; once it has one, it stays."""
        if connection.user is None:
            connection.user = self._user_of(connection.peer)
        return connection.user

    def _count_calls(self, connection: FrontConnection) -> None:
        """Pause a connection with too many calls; ``Refused`` if it has them for long, or only keeps the front busy."""
        if connection.is_flood():
            raise Refused("too many frames without content")
        user, calls = self._user(connection), connection.calls()
        if user is None:
            has_too_many = True
            if connection.idle_frames > _IDLE_FRAMES_MAX:
                raise Refused("too many frames without an accepted call")
        else:
            self._calls[user] += calls - connection.counted
            connection.counted = calls
            has_too_many = self._calls[user] > (self._calls_max if user else self._calls_max_anonymous)
        connection.is_paused = has_too_many and calls > _CALLS_FREE
        if not connection.is_paused:
            self._paused.pop(connection, None)
        elif time.monotonic() - self._paused.setdefault(connection, time.monotonic()) > self._patience_s:
            raise Refused("more calls than its user may have")

    def _resume(self) -> None:
        """Read again from those whose user has few enough calls by now."""
        for connection in list(self._paused):
            self._handle(connection, connection.client.fileno(), 0)
        self._resumes_at = time.monotonic() + _RESUME_S

    def _accept(self) -> None:
        """Accept those who wait, but not all of very many: the others have their turn."""
        try:
            for _ in range(_ACCEPTED_AT_ONCE):
                client, address = self._listener.accept()
                with suppress(OSError):  # it is gone already
                    self._begin(client, written_address(*address[:2]))
        except BlockingIOError:
            pass
        except OSError:  # the front ends, or there are no descriptors left
            self._is_full = True
            self._epoll.unregister(self._listener)

    def _begin(self, client: socket.socket, peer: str) -> None:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            side: socket.socket | TlsSocket = TlsSocket(client, self._tls)
        else:
            side = client
        self._epoll.register(side, IN)
        self._connections[side.fileno()] = FrontConnection(side, peer, self._epoll, self._buffer, self._idle_frames)

    def _connect(self, connection: FrontConnection) -> None:
        """Connect to the server, now that the client has sent something that may be passed on."""
        server = socket.socket(socket.AF_UNIX)
        try:
            server.setblocking(False)
            server.bind(f"\0{secrets.token_hex(8)}/{connection.peer}")  # or another process could take the name first
            server.connect(self._path)
            self._epoll.register(server, IN)
        except BaseException:
            server.close()
            raise
        self._connections[server.fileno()] = connection
        connection.connected(server)

    def _close(self, connection: FrontConnection) -> None:
        self._paused.pop(connection, None)
        if connection.user is not None:
            self._calls[connection.user] -= connection.counted
            if not self._calls[connection.user]:
                del self._calls[connection.user]
            connection.user = None
        for side in (connection.client, connection.server):
            if side is not None:
                self._connections.pop(side.fileno(), None)
                with suppress(OSError, ValueError):  # it may not be registered any more
                    self._epoll.unregister(side)
                with suppress(OSError):  # a forked child may have a copy, which closing does not end
                    side.shutdown(socket.SHUT_RDWR)
                side.close()
