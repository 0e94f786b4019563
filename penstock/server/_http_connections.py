"""The connections of the HTTP port: how long each may take, and which one is closed when there are too many.

Settings of uvicorn bound the size of a head, the time between two requests and that of the shutdown. None bounds how
long a head may take, or a whole request: a body may come without end, and an answer that is not read is never sent.
Its limit of connections (``limit_concurrency``) refuses the newest request, so sockets that send nothing would keep
all others out; here the connection that has been silent for longest is closed first, and then the one with the oldest
request.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from penstock.server._connections import ConnectionWatch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from penstock.server._config import Config
    from penstock.server._limits import Limits

__all__ = ["ConnectionTable"]


class ConnectionTable:
    """All connections: the silent ones, longest first, and those with a request, oldest first; each with its timer."""

    def __init__(self, config: Config) -> None:
        self.config: Final = config
        self.silent: Final[dict[_Connection, asyncio.TimerHandle | None]] = {}  # None: uvicorn's own timer runs
        self.busy: Final[dict[_Connection, asyncio.TimerHandle | None]] = {}
        self.websockets: Final[dict[_WebSocket, None]] = {}
        self._watch: ConnectionWatch | None = None

    @property
    def protocol(self) -> type[H11Protocol]:
        """The factory that uvicorn calls for each new connection."""
        return cast("type[H11Protocol]", partial(_Connection, self))

    @property
    def websocket(self) -> type[WebSocketsSansIOProtocol]:
        """The factory that uvicorn calls for a connection that becomes a WebSocket."""
        return cast("type[WebSocketsSansIOProtocol]", partial(_WebSocket, self))

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
            rest: Iterator[_Connection | _WebSocket] = chain(self.silent, self.busy, self.websockets)
            next((other for other in rest if other is not connection), connection).abort()

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self.silent) + len(self.busy) + len(self.websockets)


class _Connection(H11Protocol):
    """A connection whose requests have to come, and to come to their end, in time."""

    def __init__(self, table: ConnectionTable, **given: Any) -> None:  # noqa: ANN401 - what uvicorn gives
        super().__init__(**given)
        self._table = table

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._table.add(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
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
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection, answered or not."""
        self._stop_waiting()
        self.transport.abort()

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


class _WebSocket(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket; uvicorn's pings notice a peer that is gone."""

    def __init__(self, table: ConnectionTable, **given: Any) -> None:  # noqa: ANN401 - what uvicorn gives
        super().__init__(**given)
        self._table = table

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._table.websockets[self] = None
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.websockets.pop(self, None)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self._table.websockets.pop(self, None)
        self.transport.abort()
