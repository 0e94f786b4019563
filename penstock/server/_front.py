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
import ssl
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from penstock.server._addresses import written_address
from penstock.server._frames import AnswerFollower, FrameFollower, Refused
from penstock.server._service import FlightService
from penstock.server._tls_socket import RECEIVED_MAX, TlsSocket

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server._limits import Limits
    from penstock.server._permissions import Guard
    from penstock.stream import Engine

__all__ = ["FrontedService"]

_READ_SIZE: Final = 128 << 10
_RECORD_SIZE: Final = 16 << 10  # the most that TLS has in one piece
_TURN_S: Final = 0.001  # a client whose bytes take longer to follow has fewer of them followed at a time
_TURN_SIZE_MIN: Final = 1 << 10
_PAUSE_S: Final = 0.1  # between attempts to accept when there are no descriptors left
_ACCEPTED_AT_ONCE: Final = 64
_CALLS_FREE: Final = 16  # that every connection may have
_CALLS_MORE: Final = 100  # above those that the service permits, which refuses them itself
_IDLE_FRAMES_MAX: Final = 1_000  # before a call is accepted: clients send about ten
_CANCELLED_S: Final = 1.0  # for which a cancelled call counts
_RESUME_S: Final = 0.05
_HANG_UP_S: Final = 5.0
_IN, _OUT, _GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR
_ENDED: Final = select.EPOLLRDHUP  # it sends no more: to be asked for where its bytes are not read
_NOTHING: Final = memoryview(b"")
_logger: Final = logging.getLogger("penstock.server")


class FrontedService(FlightService):
    """A Flight service that only its front can connect to; its port is the front's."""

    def __init__(
        self, store: Engine, listener: socket.socket, *, guard: Guard | None, tls: ssl.SSLContext | None, limits: Limits
    ) -> None:
        self._public_port: int = listener.getsockname()[1]
        with ExitStack() as parts:
            parts.enter_context(listener)
            with TemporaryDirectory(prefix="penstock-") as folder:
                super().__init__(store, f"grpc+unix://{folder}/sock", guard=guard, limits=limits)
                server = os.open(f"{folder}/sock", os.O_PATH | os.O_CLOEXEC)  # from now on it has no other name
            parts.callback(os.close, server)
            self._front = Front(listener, f"/proc/self/fd/{server}", tls, self._connections.user_of, limits)
            self._parts = parts.pop_all()

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._public_port

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
        self._paused: dict[_Relay, float] = {}  # those that have too many calls, and since when
        self._patience_s = limits.header_timeout_s
        self._resumes_at = 0.0
        self._epoll = select.epoll()
        self._buffer = memoryview(bytearray(_READ_SIZE))
        self._connections: dict[int, _Relay] = {}  # by the descriptors of both sides
        self._waiting: dict[bool, deque[_Relay]] = {
            True: deque(),
            False: deque(),
        }  # for a turn; by whether authenticated
        self._is_full = False  # there are no descriptors left
        self._ends_at = math.inf
        listener.setblocking(False)
        self._epoll.register(listener, _IN)
        self._thread = threading.Thread(target=self._work, name="penstock-front", daemon=True)
        self._thread.start()

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
                self._epoll.register(self._listener, _IN)
        for connection in set(self._connections.values()):
            self._close(connection)

    def _on_event(self, connection: _Relay, number: int, events: int) -> None:
        is_said = number == connection.client.fileno() and not events & (_GONE | _ENDED)
        if is_said and self._user(connection) is None:
            self._let_wait(connection)
            connection.set_masks()
        else:
            self._handle(connection, number, events)

    def _let_wait(self, connection: _Relay) -> None:
        if not connection.is_waiting:
            connection.is_waiting = True
            self._waiting[self._user(connection) is not None].append(connection)

    def _give_turn(self, waiting: deque[_Relay]) -> None:
        """Let the first of those who wait have its turn, unless it is closed."""
        if waiting:
            connection = waiting.popleft()
            connection.is_waiting = False
            if (number := connection.client.fileno()) in self._connections:
                self._handle(connection, number, _IN)

    def _handle(self, connection: _Relay, number: int, events: int) -> None:
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

    def _user(self, connection: _Relay) -> str | None:
        """Return the user of a connection; once it has one, it stays."""
        if connection.user is None:
            connection.user = self._user_of(connection.peer)
        return connection.user

    def _count_calls(self, connection: _Relay) -> None:
        """Pause a connection with too many calls; ``Refused`` if it has them for long, or only keeps the front busy."""
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
        self._epoll.register(side, _IN)
        self._connections[side.fileno()] = _Relay(side, peer, self._epoll, self._buffer)

    def _connect(self, connection: _Relay) -> None:
        """Connect to the server, now that the client has sent something that may be passed on."""
        server = socket.socket(socket.AF_UNIX)
        try:
            server.setblocking(False)
            server.bind(f"\0{secrets.token_hex(8)}/{connection.peer}")  # or another process could take the name first
            server.connect(self._path)
            self._epoll.register(server, _IN)
        except BaseException:
            server.close()
            raise
        self._connections[server.fileno()] = connection
        connection.connected(server)

    def _close(self, connection: _Relay) -> None:
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


class _Relay:
    """A client, the connection to the server that was made for it, and what is on its way between them.

    ``OSError`` or ``EOFError`` if the connection is over, ``Refused`` if it has to be.
    """

    def __init__(self, client: socket.socket | TlsSocket, peer: str, epoll: select.epoll, buffer: memoryview) -> None:
        self.client, self.peer = client, peer
        self.server: socket.socket | None = None
        self._epoll, self._buffer = epoll, buffer  # which are those of all connections
        self._follower = FrameFollower()
        self._answers = AnswerFollower(self._follower.calls)
        self._cancelled: deque[tuple[float, int]] = deque()  # calls that were cancelled of late
        self._cancelled_count = 0  # of those, and of all before
        self.user: str | None = None
        self.counted = 0  # its calls, among those of its user
        self.is_paused = False
        self._is_shaking_hands = isinstance(client, TlsSocket)
        self.is_waiting = False  # for its turn
        self._to_server = self._to_client = _NOTHING  # what could not be sent yet
        self._unread = _NOTHING  # what the client has sent, and was not looked at yet
        self._turn_size = _TURN_SIZE_MIN
        self._has_client_ended = self._has_server_gone = False
        self._client_mask = self._server_mask = _IN

    def on_client(self, events: int) -> bool:
        """Read from the client, or send to it; return whether a server is needed."""
        if events & (_GONE | _ENDED):
            raise EOFError
        if self._is_shaking_hands and not self._shake_hands():
            return False
        if self._is_client_full():
            self._flush_to_client()
            while self._has_server_gone and not self._is_client_full():
                self._read_server()
        if (events & _IN or self._unread) and not (self._to_server or self._has_client_ended or self.is_paused):
            self._read_client()
        return self.server is None and bool(self._to_server)

    def connected(self, server: socket.socket) -> None:
        """Send what the client has sent before there was a server."""
        self.server = server
        self._flush_to_server()

    def on_server(self, events: int) -> None:
        """Read from the server, or send to it."""
        assert self.server is not None, "it is the server's descriptor"
        if self._to_server:
            self._flush_to_server()
        if not self._is_client_full():
            if events & (_IN | _GONE):
                self._read_server()
        elif events & _GONE:  # what it has said before is read when the client has taken the rest
            self._has_server_gone = True
            self._epoll.unregister(self.server)

    def calls(self) -> int:
        """Return how many calls are under way, as far as can be known here."""
        cancelled = self._follower.cancelled - self._cancelled_count
        if cancelled:
            self._cancelled.append((time.monotonic(), cancelled))
            self._cancelled_count += cancelled
        while self._cancelled and self._cancelled[0][0] < time.monotonic() - _CANCELLED_S:
            self._cancelled.popleft()
        return len(self._follower.calls) + sum(count for _, count in self._cancelled)

    @property
    def idle_frames(self) -> int:
        """The number of frames without data that the client has sent."""
        return self._follower.idle_frames

    @property
    def is_behind(self) -> bool:
        """Whether there is something that the client has sent, and that is passed on when the others had their turn."""
        return bool(self._unread) and not self._to_server

    def set_masks(self) -> None:
        """Wait for those sides from which something can be passed on, or to which something waits."""
        if self.is_waiting:
            client = 0
        else:
            is_read = not (self._to_server or self._has_client_ended or self.is_paused)
            client = (_OUT if self._is_client_full() else 0) | (_IN if is_read else 0)
            client |= _ENDED if self.is_paused else 0
        server = (_OUT if self._to_server else 0) | (0 if self._is_client_full() else _IN)
        if client != self._client_mask:
            self._epoll.modify(self.client, client)
        if server != self._server_mask and self.server is not None and not self._has_server_gone:
            self._epoll.modify(self.server, server)
        self._client_mask, self._server_mask = client, server

    def _shake_hands(self) -> bool:
        """Go on with the handshake of TLS; return whether it is over: then there may be data already."""
        assert isinstance(self.client, TlsSocket), "only TLS has a handshake"
        with suppress(ssl.SSLWantReadError):
            self.client.do_handshake()
            self._is_shaking_hands = False
        return not self._is_shaking_hands

    def _is_client_full(self) -> bool:
        """Whether something waits that could not be sent to the client."""
        return bool(self._to_client) or (isinstance(self.client, TlsSocket) and self.client.has_unsent)

    def _flush_to_client(self) -> None:
        if isinstance(self.client, TlsSocket):
            self.client.flush()
        self._to_client = _send(self.client, self._to_client)

    def _read_client(self) -> None:
        data = self._unread or _receive(self.client, self._buffer)
        if data is None:
            return
        if not data:
            self._has_client_ended = True
            self._flush_to_server()
            return
        data, self._unread = data[: self._turn_size], memoryview(bytes(data[self._turn_size :]))
        begun = time.thread_time()
        self._follower.feed(data)
        is_slow = time.thread_time() - begun > _TURN_S
        self._turn_size = max(_TURN_SIZE_MIN, self._turn_size // 2) if is_slow else min(_READ_SIZE, self._turn_size * 2)
        if self.server is not None:
            data = _send(self.server, data)
        self._to_server = memoryview(bytes(data))

    def _flush_to_server(self) -> None:
        if self.server is None:
            raise EOFError
        self._to_server = _send(self.server, self._to_server)
        if self._has_client_ended and not self._to_server:
            self.server.shutdown(socket.SHUT_WR)

    def _read_server(self) -> None:
        assert self.server is not None, "it is connected"
        data = _receive(self.server, self._buffer)
        if data is None:
            return
        if not data:
            raise EOFError
        self._answers.feed(data)
        self._to_client = memoryview(bytes(_send(self.client, data)))


def _receive(side: socket.socket | TlsSocket, buffer: memoryview) -> memoryview | None:
    """Return what has come, nothing at the end, and None if there is nothing yet."""
    size = 0
    try:
        while size <= len(buffer) - RECEIVED_MAX:  # TLS must not hold a rest, which epoll would not report
            part = side.recv_into(buffer[size:])
            size += part
            if part < _RECORD_SIZE // 2 or not isinstance(side, TlsSocket):
                break
    except (BlockingIOError, ssl.SSLWantReadError):
        if not size:
            return None
    return buffer[:size]


def _send(side: socket.socket | TlsSocket, data: memoryview) -> memoryview:
    """Send what can be sent at once; return the rest."""
    with suppress(BlockingIOError):
        while data:
            data = data[side.send(data) :]
    return data
