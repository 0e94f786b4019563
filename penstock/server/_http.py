"""The HTTP port: health and metrics.

It is bounded everywhere: settings of uvicorn bound the size of a head and the time between two requests, and
:mod:`penstock.server._http_connections` the connections, and how long a head and a whole request may take.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock._version import __version__
from penstock.errors import NotAuthenticated, ServerError
from penstock.server._addresses import listen
from penstock.server._http_connections import ConnectionTable
from penstock.server._limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry
    from starlette.requests import Request

    from penstock.server._config import Config
    from penstock.server._health import Health
    from penstock.server._login import Logins
    from penstock.server._tls import Certificate

__all__ = ["HttpServer", "new_app"]

_HEAD_SIZE_MAX: Final = 64 << 10
_SCRAPES_AT_ONCE: Final = 4  # checking passwords takes threads for long; health has to have some


def new_app(health: Health, registry: CollectorRegistry, logins: Logins | None) -> Starlette:
    """Return the application; with ``logins``, figures are for users who may read every stream."""
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
            refusal = None if logins is None else _refusal(logins, request)
            return refusal or Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
        finally:
            scrapes.release()

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])


def _refusal(logins: Logins, request: Request) -> Response | None:
    """Return the answer to a client that may not read every stream."""
    client = request.client
    peer = f"http:[{client.host}]:{client.port}" if client is not None else ""
    try:
        user = logins.check(request.headers.get("authorization"), peer)
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
        self._connections = ConnectionTable(config)
        self._end: Callable[[], None] = self._socket.close
        self.port: Final[int] = self._socket.getsockname()[1]

    def start(self, app: Starlette) -> None:
        """Serve everybody who waits, and who comes."""
        server = uvicorn.Server(self._settings(app))
        thread = threading.Thread(target=server.run, args=([self._socket],), name="penstock-http")
        watch = None if self._certificate is None else self._connections.watch(self.port, Limits.of(self._config))

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
            http=self._connections.protocol,
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
        return len(self._connections)

    def shutdown(self) -> None:
        """Let requests under way come to their end, and serve no more."""
        self._end()
