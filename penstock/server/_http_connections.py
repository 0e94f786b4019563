"""The connections of the HTTP port: how long each may take, and which one is closed when there are too many.

Settings of uvicorn bound the size of a head, the time between two requests and that of the shutdown. None bounds how
long a head may take, or a whole request: a body may come without end, and an answer that is not read is never sent.
Its limit of connections (``limit_concurrency``) refuses the newest request, so sockets that send nothing would keep
all others out; here the connection that has been silent for longest is closed first, then the oldest WebSocket on which
no call was permitted, then the one with the oldest request, and the oldest of the other WebSockets last.

What comes on WebSockets on which no call was permitted is handled in turns, a little of one at a time and with pauses:
twenty that sent empty messages kept health waiting for 16 s, and the clients of the Flight port for a second.

Frames without content, which are pings, pongs and empty ones, are counted on all of them: a WebSocket with many is
closed. Ten of a user that sent nothing else kept health waiting for 13 s.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode

from penstock.server._connections import ConnectionWatch
from penstock.server._limits import IdleFrameLimit, IdleFrames

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from penstock.server._config import Config
    from penstock.server._limits import Limits

__all__ = ["ConnectionTable", "WebSocketConnection"]

_FRAGMENTS_MAX: Final = 1_000  # of one message: empty ones would add up without end
_GATHERED_MAX: Final = 64 << 10  # bytes that are sent together
_TURN_SIZE: Final = 1 << 10
_TURN_PAUSES: Final = 3  # a turn may take this part of the time
_PIECE_SIZE: Final = 2 << 10  # that is handled before it is looked whether the connection has to be closed
_IDLE_FRAMES_AT_ONCE: Final = 100  # without content: clients ping once in some seconds
_IDLE_FRAMES_S: Final = 10
_HELD_MAX: Final = 256 << 10  # that wait for their turns: a client waits for its first answer, and sends no more
_NO_CONTENT: Final = (Opcode.PING, Opcode.PONG)
_FLOOD: Final = "too many frames without content"
_WRITE_BUFFER_MAX: Final = 32 << 20  # far above the largest message: a peer that sends pings reads nothing
_logger: Final = logging.getLogger("penstock.server")


class ConnectionTable:
    """All connections: the silent ones, longest first, and those with a request, oldest first; each with its timer."""

    def __init__(self, config: Config) -> None:
        self.config: Final = config
        self.silent: Final[dict[_Connection, asyncio.TimerHandle | None]] = {}  # None: uvicorn's own timer runs
        self.busy: Final[dict[_Connection, asyncio.TimerHandle | None]] = {}
        self.unauthenticated: Final[dict[WebSocketConnection, None]] = {}
        self.websockets: Final[dict[WebSocketConnection, None]] = {}  # on which a call was permitted
        self.turns: Final = _Turns()
        self.idle_frames: Final = IdleFrameLimit(
            "websocket_idle_frames", at_once=_IDLE_FRAMES_AT_ONCE, per_s=_IDLE_FRAMES_S
        )
        self._watch: ConnectionWatch | None = None

    @property
    def protocol(self) -> type[H11Protocol]:
        """The factory that uvicorn calls for each new connection."""
        return cast("type[H11Protocol]", partial(_Connection, self))

    @property
    def websocket(self) -> type[WebSocketsSansIOProtocol]:
        """The factory that uvicorn calls for a connection that becomes a WebSocket."""
        return cast("type[WebSocketsSansIOProtocol]", partial(WebSocketConnection, self))

    def watch(self, port: int, limits: Limits) -> ConnectionWatch:
        """Watch the connections that are not here yet: with TLS, a handshake may take long before one is."""
        self._watch = ConnectionWatch(limits)
        self._watch.start(port)
        return self._watch

    def add(self, connection: _Connection) -> None:
        """Take in a connection; close another one if there are too many."""
        peer = connection.transport.get_extra_info("peername")
        if self._watch is not None and peer is not None:
            self._watch.note("tcp:{}:{}".format(*peer), 0)
        connection.wait_for_head()
        if len(self) > self.config.max_connections:
            rest: Iterator[_Connection | WebSocketConnection]
            rest = chain(self.silent, self.unauthenticated, self.busy, self.websockets)
            next((other for other in rest if other is not connection), connection).abort()

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self.silent) + len(self.busy) + self.websocket_count()

    def websocket_count(self) -> int:
        """Return how many of them are WebSockets."""
        return len(self.unauthenticated) + len(self.websockets)


class _Turns:
    """The WebSockets without a permitted call that have sent something: one after the other has a turn."""

    def __init__(self) -> None:
        self._waiting: deque[WebSocketConnection] = deque()

    def add(self, connection: WebSocketConnection) -> None:
        """Let a connection have its turns."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            connection.loop.call_soon(self._give_turn)

    def _give_turn(self) -> None:
        begun = time.thread_time()
        if self._waiting[0].has_more_after_turn():
            self._waiting.rotate(-1)
        else:
            self._waiting.popleft()
        if self._waiting:
            self._waiting[0].loop.call_later(_TURN_PAUSES * (time.thread_time() - begun), self._give_turn)


class _Connection(H11Protocol):
    """A connection whose requests have to come, and to come to their end, in time."""

    def __init__(self, table: ConnectionTable, **given: Any) -> None:  # noqa: ANN401 - what uvicorn gives
        super().__init__(**given)
        self._table = table
        self._is_upgraded = False
        self.app_state = {**self.app_state, "connection": self}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._table.add(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_upgraded:
            return
        if self.conn.their_state is not h11.IDLE:
            if self not in self._table.busy:
                self._wait_for_end()
        elif self._table.silent.get(self) is None:
            self.wait_for_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._wait(self._table.silent, None)
        elif not self.cycle.response_complete:  # another request has come meanwhile
            self._wait_for_end()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to a WebSocket, which has timers of its own."""
        self._stop_waiting()
        self._is_upgraded = True
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn's timer would hold all of it for as long as a client may be idle

    def abort(self) -> None:
        """Close the connection, answered or not."""
        self._stop_waiting()
        self.transport.abort()

    def note_progress(self) -> None:
        """Give an answer that is long, and is being read, its time again."""
        if self in self._table.busy:
            self._wait_for_end()

    def wait_for_head(self) -> None:
        """Give the head of a request its time."""
        self._wait(self._table.silent, self._table.config.header_timeout_s)

    def _wait_for_end(self) -> None:
        self._wait(self._table.busy, self._table.config.idle_timeout_s)

    def _wait(self, state: dict[_Connection, asyncio.TimerHandle | None], seconds: float | None) -> None:
        """Be the newest in a state, for so long."""
        self._stop_waiting()
        state[self] = None if seconds is None else self.loop.call_later(seconds, self.abort)

    def _stop_waiting(self) -> None:
        for timer in (self._table.silent.pop(self, None), self._table.busy.pop(self, None)):
            if timer is not None:
                timer.cancel()


class _GatheredWrites:
    """A transport that sends together what is written in one turn of the event loop, as answers to many calls."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a transport has
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _GATHERED_MAX:
            self.flush()

    def flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts:
            self._transport.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return self._size + self._transport.get_write_buffer_size()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket; the application finds it as ``state.connection``.

    uvicorn's pings notice a peer that is gone. uvicorn closes a connection once everything is sent, which is never if
    the peer does not read; here it is aborted then.
    """

    def __init__(self, table: ConnectionTable, **given: Any) -> None:  # noqa: ANN401 - what uvicorn gives
        super().__init__(**given)
        self._table = table
        self._held = b""  # what waits for its turn
        self._idle_frames = IdleFrames(table.idle_frames)
        self.app_state = {**self.app_state, "connection": self}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._table.unauthenticated[self] = None
        super().connection_made(cast("asyncio.Transport", _GatheredWrites(transport, self.loop)))

    def data_received(self, data: bytes) -> None:
        if not self._held and self not in self._table.unauthenticated:
            self._handle(data)
            return
        if not self._held:
            self._table.turns.add(self)
        self._held += data
        self.transport.pause_reading()
        if len(self._held) > _HELD_MAX:
            self.abort()

    def has_more_after_turn(self) -> bool:
        """Handle some of what has come; return whether there is more."""
        size = _TURN_SIZE if self in self._table.unauthenticated else len(self._held)
        piece, self._held = self._held[:size], self._held[size:]
        if self.transport.is_closing():
            self._held = b""
        else:
            self._handle(piece)
            if not (self._held or self.read_paused or self.transport.is_closing()):
                self.transport.resume_reading()
        return bool(self._held)

    def _handle(self, data: bytes) -> None:
        for place in range(0, len(data), _PIECE_SIZE):
            if not self.transport.is_closing():
                super().data_received(data[place : place + _PIECE_SIZE])

    def handle_events(self) -> None:
        """Handle the frames that have come, unless too many of them have no content."""
        frames = [event for event in self.conn.events if isinstance(event, Frame)]
        if self._idle_frames.are_too_many(sum(not frame.data or frame.opcode in _NO_CONTENT for frame in frames)):
            _logger.info("closing a connection", extra={"peer": self.client, "reason": _FLOOD})
            self.abort()
        else:
            super().handle_events()

    def note_authenticated(self) -> None:
        """Count as one on which a call was permitted: it is not closed in favour of others that are not."""
        if self._table.unauthenticated.pop(self, self) is None:
            self._table.websockets[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= _FRAGMENTS_MAX:
            self.abort()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() > _WRITE_BUFFER_MAX:
            self.abort()
        else:
            super().handle_ping()

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.get_write_buffer_size():  # the peer does not read
            self.abort()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.abort()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(self.close_timeout, self.abort)

    def abort(self) -> None:
        """Close the connection at once."""
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        self._table.unauthenticated.pop(self, None)
        self._table.websockets.pop(self, None)
