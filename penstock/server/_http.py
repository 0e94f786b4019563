"""The HTTP port: health, metrics, FutoIn, and the web console.

It is bounded everywhere: settings of uvicorn bound the size of a head and the time between two requests, and
:mod:`penstock.server._http_connections` the connections, and how long a head and a whole request may take.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from penstock._version import __version__
from penstock.errors import NotAuthenticated, ServerError
from penstock.server._addresses import listen
from penstock.server._http_connections import ConnectionTable
from penstock.server._http_errors import ErrorsLogged
from penstock.server._limits import Limits
from penstock.server._other_sites import OtherSitesRefused
from penstock.server._permissions import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prometheus_client import CollectorRegistry
    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from penstock.server._config import Config
    from penstock.server._futoin import FutoinPort
    from penstock.server._health import AnyHealth
    from penstock.server._limits import QuotaUse
    from penstock.server._login import Logins
    from penstock.server._permissions import Principal
    from penstock.server._tls import Certificate

__all__ = ["HttpServer", "new_app"]

_HEAD_SIZE_MAX: Final = 64 << 10
_WEBSOCKET_MESSAGE_MAX: Final = 64 << 10
_ACCEPTED_AT_ONCE: Final = 128  # asyncio has 256 KiB for each connection with TLS, until it has looked at it
_STANDS_BY: Final = "this server stands by: another one owns the store"
_SCRAPES_AT_ONCE: Final = 4  # checking passwords takes threads for long; health has to have some


def new_app(
    health: AnyHealth,
    registry: CollectorRegistry,
    logins: Logins | None,
    futoin: FutoinPort | None = None,
    console: Sequence[BaseRoute] = (),
    *,
    is_local: bool = True,
) -> Starlette:
    """Return the application; with ``logins``, figures and details are for users who may read the streams.

    Without ``futoin`` it is that of a server that stands by. ``console`` are the routes of the web console. Without
    ``logins``, requests of other sites are refused, ``is_local`` says if the server is for this machine alone.
    """
    guards = [Middleware(ErrorsLogged)]
    if logins is None:
        guards.append(Middleware(OtherSitesRefused, is_local=is_local))
    at_once = threading.BoundedSemaphore(_SCRAPES_AT_ONCE)

    def healthz(request: Request) -> Response:
        if logins is None or "authorization" not in request.headers:
            return _health_of(health, ANONYMOUS if logins is None else None)
        busy = partial(_health_of, health, None)  # the store may be well all the same
        return _logged_in(logins, at_once, request, partial(_health_of, health), busy=lambda _: busy())

    def metrics(request: Request) -> Response:
        def figures(user: Principal) -> Response:
            if not user.may("read", "*"):
                return JSONResponse({"error": f"{user.name} may not read all streams"}, 403)
            return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

        return figures(ANONYMOUS) if logins is None else _logged_in(logins, at_once, request, figures, busy=_busy)

    routes: list[BaseRoute] = [Route("/healthz", healthz), Route("/metrics", metrics)]
    if futoin is None:
        return Starlette(routes=[*routes, *_STANDBY_ROUTES], middleware=guards)
    return Starlette(routes=[*routes, *futoin.routes, *console], middleware=guards, lifespan=futoin.lifespan)


def _refuse(_: Request) -> Response:
    return JSONResponse({"error": _STANDS_BY}, 503, {"Retry-After": "1"})


async def _deny(websocket: WebSocket) -> None:
    await websocket.send_denial_response(JSONResponse({"error": _STANDS_BY}, 503))


_STANDBY_ROUTES: Final[list[BaseRoute]] = [  # what a client gets who takes a server that stands by for the owner
    Route("/futoin{rest:path}", _refuse, methods=["POST"]),
    WebSocketRoute("/futoin{rest:path}", _deny),
    Route("/console{rest:path}", _refuse, methods=["GET", "POST", "DELETE"]),
]


def _health_of(health: AnyHealth, user: Principal | None) -> Response:
    """Return whether the store can do its work; details, and single streams, are for a user who may read them."""
    trouble = health.trouble()
    answer: dict[str, object] = {"status": health.status, "version": __version__}
    if trouble is not None:
        detailed = user is not None and user.may("read", "*")
        answer = {"status": "failing", "reason": trouble.detail if detailed else trouble.kind}
    if user is not None:
        streams = health.stream_troubles()
        answer["streams"] = {name: reason for name, reason in streams.items() if user.may("read", name)}
    return JSONResponse(answer, 200 if trouble is None else 503)


def _logged_in(
    logins: Logins,
    at_once: threading.BoundedSemaphore,
    request: Request,
    answer: Callable[[Principal], Response],
    *,
    busy: Callable[[str], Response],
) -> Response:
    """Return the answer for the user who asks, or why there is none."""
    if not at_once.acquire(blocking=False):
        return busy(f"{_SCRAPES_AT_ONCE} others ask for it right now")
    try:
        return answer(logins.check(request.headers.get("authorization"), _peer(request)))
    except ServerError as error:
        return busy(str(error))
    except NotAuthenticated as error:
        return JSONResponse({"error": str(error)}, 401, {"WWW-Authenticate": 'Basic realm="penstock"'})
    finally:
        at_once.release()


def _busy(reason: str) -> Response:
    return JSONResponse({"error": reason}, 503, {"Retry-After": "1"})


def _peer(request: Request) -> str:
    return "" if request.client is None else f"http:[{request.client.host}]:{request.client.port}"


class HttpServer:
    """Listens from the beginning on, and serves an application, in a thread of its own, from :meth:`start` on.

    Another application may take its place; connections wait meanwhile.
    """

    def __init__(self, config: Config, certificate: Certificate | None) -> None:
        self._config, self._certificate = config, certificate
        self._socket = listen(config.host, config.http_port, setting="--http-port (http_port)")
        self._connections = ConnectionTable(config)
        self._end: Callable[[], None] = _do_nothing
        self.port: Final[int] = self._socket.getsockname()[1]

    def start(self, app: Starlette) -> None:
        """Serve this application from now on; requests to the one before it come to their end."""
        self.stop()
        server = uvicorn.Server(self._settings(app))
        thread = threading.Thread(target=server.run, args=([self._socket.dup()],), name="penstock-http")
        watch = None if self._certificate is None else self._connections.watch(self.port, Limits.of(self._config))

        def end() -> None:
            if watch is not None:
                watch.end()
            server.should_exit = True
            thread.join()

        thread.start()
        self._end = end

    def _settings(self, app: Starlette) -> uvicorn.Config:
        config, certificate = self._config, self._certificate
        return uvicorn.Config(
            app,
            http=self._connections.protocol,
            ws=self._connections.websocket,
            ws_max_size=_WEBSOCKET_MESSAGE_MAX,
            ws_per_message_deflate=False,  # a small message could become a large one
            lifespan="auto",
            loop="asyncio",
            backlog=_ACCEPTED_AT_ONCE,
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
        return len(self._connections)

    def websockets(self) -> int:
        """Return how many of the connections are WebSockets."""
        return self._connections.websocket_count()

    def use(self) -> QuotaUse:
        """Return how many frames without content WebSockets send, and how many were closed for them."""
        return self._connections.idle_frames.use()

    def stop(self) -> None:
        """Let requests under way come to their end; later ones wait for the next application."""
        self._end()
        self._end = _do_nothing

    def shutdown(self) -> None:
        """Let requests under way come to their end, and serve no more."""
        self.stop()
        self._socket.close()


def _do_nothing() -> None:
    """There is no application to end."""
