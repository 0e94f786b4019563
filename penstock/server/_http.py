"""The HTTP port: health and metrics.

It is bounded everywhere: in the size of a request, in how long its head may take, and all of it, in connections. When
there are too many, who has been silent for longest goes first, and then the oldest request; so neither sockets that
only sit there keep anybody out, nor those that send without end, or do not read what they are answered.
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

import h11
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock._version import __version__
from penstock.errors import NotAuthenticated, ServerError
from penstock.server._limits import Limits
from penstock.server._listen import listen
from penstock.server._login import login
from penstock.server._watch import Ledger, Watch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry
    from starlette.requests import Request

    from penstock.server._config import Config
    from penstock.server._health import Health
    from penstock.server._tls import Certificate
    from penstock.server._users import Users

__all__ = ["HttpServer", "new_app"]

_HEAD_SIZE_MAX: Final = 64 << 10
_SCRAPES_AT_ONCE: Final = 4  # checking passwords takes threads for long; health has to have some


def new_app(health: Health, registry: CollectorRegistry, users: Users | None) -> Starlette:
    """Return the application; with ``users``, figures are for those who may read every stream."""
    scrapes = threading.BoundedSemaphore(_SCRAPES_AT_ONCE)

    def healthz(_: Request) -> Response:
        trouble = health.trouble()
        if trouble is not None:
            return JSONResponse({"status": "failing", "reason": trouble}, 503)
        return JSONResponse({"status": "ok", "version": __version__})

    def metrics(request: Request) -> Response:
        if not scrapes.acquire(blocking=False):
            return JSONResponse({"error": f"{_SCRAPES_AT_ONCE} others ask for it right now"}, 503, {"Retry-After": "1"})
        try:
            refusal = None if users is None else _refusal(users, request)
            return refusal or Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
        finally:
            scrapes.release()

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])


def _refusal(users: Users, request: Request) -> Response | None:
    """Return what to say to somebody who may not read every stream."""
    try:
        user = login(users, request.headers.get("authorization"))
    except ServerError as error:
        return JSONResponse({"error": str(error)}, 503, {"Retry-After": "1"})
    except NotAuthenticated as error:
        return JSONResponse({"error": str(error)}, 401, {"WWW-Authenticate": 'Basic realm="penstock"'})
    if not user.may("read", "*"):
        return JSONResponse({"error": f"{user.name} may not read all streams"}, 403)
    return None


class HttpServer:
    """Listens from the beginning on, and serves an application, in a thread of its own, from :meth:`start` on."""

    def __init__(self, config: Config, certificate: Certificate | None) -> None:
        self._config, self._certificate = config, certificate
        self._socket = listen(config.host, config.http_port)
        self._door = _Door(config)
        self._end: Callable[[], None] = self._socket.close
        self.port: Final[int] = self._socket.getsockname()[1]

    def start(self, app: Starlette) -> None:
        """Serve everybody who waits, and who comes."""
        server = uvicorn.Server(self._settings(app))
        thread = threading.Thread(target=server.run, args=([self._socket],), name="penstock-http")
        watch = None if self._certificate is None else self._door.watch(self.port, Limits.of(self._config))

        def end() -> None:
            if watch is not None:
                watch.end()
            server.should_exit = True
            thread.join()
            self._socket.close()

        thread.start()
        self._end = end

    def _settings(self, app: Starlette) -> uvicorn.Config:
        config, certificate = self._config, self._certificate
        return uvicorn.Config(
            app,
            http=cast("type[H11Protocol]", partial(_Connection, self._door)),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_HEAD_SIZE_MAX,
            timeout_keep_alive=max(1, int(config.idle_timeout_s)),
            timeout_graceful_shutdown=max(1, int(config.shutdown_timeout_s)),
            ssl_certfile=None if certificate is None else certificate.cert_path,
            ssl_keyfile=None if certificate is None else str(certificate.key_path),
        )

    def connections(self) -> int:
        """Return how many there are."""
        return len(self._door)

    def shutdown(self) -> None:
        """Let requests under way come to their end, and serve no more."""
        self._end()


class _Door:
    """Who came in: those who are silent, longest first, and those whose requests are under way, oldest first."""

    def __init__(self, config: Config) -> None:
        self.max_connections: Final = config.max_connections
        self.header_timeout_s: Final = config.header_timeout_s
        self.request_timeout_s: Final = config.idle_timeout_s
        self.silent: Final[dict[_Connection, asyncio.TimerHandle | None]] = {}  # with what ends it, if a head is due
        self.busy: Final[dict[_Connection, asyncio.TimerHandle]] = {}
        self._ledger: Ledger | None = None

    def watch(self, port: int, limits: Limits) -> Watch:
        """Look after those who have not come in yet: with TLS, they may take long before we hear of them."""
        self._ledger = Ledger()
        return Watch(port, limits, self._ledger)

    def let_in(self, transport: asyncio.Transport) -> None:
        """Note that somebody is known here now."""
        peer = transport.get_extra_info("peername")
        if self._ledger is not None and peer is not None:
            self._ledger.account("tcp:{}:{}".format(*peer)).add(0)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.silent) + len(self.busy)

    def who_goes(self, newest: _Connection) -> _Connection:
        """Return the connection that makes way for the newest: of those that are never complete, the oldest."""
        return next((one for one in chain(self.silent, self.busy) if one is not newest), newest)


class _Connection(H11Protocol):
    """A connection whose requests have to come in time; uvicorn itself would wait for the first one for ever.

    And to come to their end in time: a body may come without end, and an answer that nobody reads is never sent.
    """

    def __init__(self, door: _Door, **given: Any) -> None:  # noqa: ANN401 - what uvicorn gives
        super().__init__(**given)
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the head of a request; close another connection if there are too many."""
        super().connection_made(transport)
        self._door.let_in(transport)
        self._wait_for_head()
        if len(self._door) > self._door.max_connections:
            self._door.who_goes(self).leave()

    def data_received(self, data: bytes) -> None:
        """Note whether the head of a request is there."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            if self not in self._door.busy:
                self._wait_for_end()
        elif self._door.silent.get(self) is None:
            self._wait_for_head()

    def on_response_complete(self) -> None:
        """Note that it is silent again, or has another request; uvicorn ends it when it stays silent for too long."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._stop_waiting()
            self._door.silent[self] = None
        elif not self.cycle.response_complete:
            self._wait_for_end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def leave(self) -> None:
        """Close the connection, answered or not."""
        self._stop_waiting()
        self.transport.abort()

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._door.silent[self] = self.loop.call_later(self._door.header_timeout_s, self.leave)

    def _wait_for_end(self) -> None:
        self._stop_waiting()
        self._door.busy[self] = self.loop.call_later(self._door.request_timeout_s, self.leave)

    def _stop_waiting(self) -> None:
        for timer in (self._door.silent.pop(self, None), self._door.busy.pop(self, None)):
            if timer is not None:
                timer.cancel()
