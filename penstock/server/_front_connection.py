"""A connection of the front: a client, the server's side of it, and what is on its way between them."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.server._frames import AnswerFollower, FrameFollower
from penstock.server._limits import IdleFrames
from penstock.server._tls_socket import RECEIVED_MAX, TlsSocket

if TYPE_CHECKING:
    from penstock.server._limits import IdleFrameLimit

__all__ = ["CLIENT_ENDED", "GONE", "IN", "READ_SIZE", "FrontConnection"]

READ_SIZE: Final = 128 << 10
_RECORD_SIZE: Final = 16 << 10  # the most that TLS has in one piece
_TURN_S: Final = 0.001  # a client whose bytes take longer to follow has fewer of them followed at a time
_TURN_SIZE_MIN: Final = 1 << 10
_IDLE_FRAMES_EXCUSED: Final = 4  # for each frame with content: headers, ends, windows and pings of a call
_CANCELLED_S: Final = 1.0  # for which a cancelled call counts
IN, _OUT, GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR
CLIENT_ENDED: Final = select.EPOLLRDHUP  # it sends no more: to be asked for where its bytes are not read
_NOTHING: Final = memoryview(b"")


class FrontConnection:
    """A client, the connection to the server that was made for it, and what is on its way between them.

    ``OSError`` or ``EOFError`` if the connection is over, ``Refused`` if it has to be.
    """

    def __init__(
        self,
        client: socket.socket | TlsSocket,
        peer: str,
        epoll: select.epoll,
        buffer: memoryview,
        idle_frames: IdleFrameLimit,
    ) -> None:
        self.client, self.peer = client, peer
        self.server: socket.socket | None = None
        self._epoll, self._buffer = epoll, buffer  # which are those of all connections
        self._follower = FrameFollower()
        self._answers = AnswerFollower(self._follower.calls)
        self._idle_frames, self._idle_seen = IdleFrames(idle_frames), 0
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
        self._client_mask = self._server_mask = IN

    def on_client(self, events: int) -> bool:
        """Read from the client, or send to it; return whether a server is needed."""
        if events & (GONE | CLIENT_ENDED):
            raise EOFError
        if self._is_shaking_hands and not self._shake_hands():
            return False
        if self._is_client_full():
            self._flush_to_client()
            while self._has_server_gone and not self._is_client_full():
                self._read_server()
        if (events & IN or self._unread) and not (self._to_server or self._has_client_ended or self.is_paused):
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
            if events & (IN | GONE):
                self._read_server()
        elif events & GONE:  # what it has said before is read when the client has taken the rest
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
        """The number of frames without content that the client has sent."""
        return self._follower.idle_frames

    def is_flood(self) -> bool:
        """Whether the client has sent far more frames without content than go with the others."""
        content = self._follower.content_frames + self._answers.content_frames
        seen, self._idle_seen = self._idle_seen, self._follower.idle_frames - _IDLE_FRAMES_EXCUSED * content
        return self._idle_frames.are_too_many(self._idle_seen - seen)

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
            client = (_OUT if self._is_client_full() else 0) | (IN if is_read else 0)
            client |= CLIENT_ENDED if self.is_paused else 0
        server = (_OUT if self._to_server else 0) | (0 if self._is_client_full() else IN)
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
        self._turn_size = max(_TURN_SIZE_MIN, self._turn_size // 2) if is_slow else min(READ_SIZE, self._turn_size * 2)
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
