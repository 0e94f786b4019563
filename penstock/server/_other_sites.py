"""On a server without users, requests that a browser sends for a page of another site are refused.

Such a server trusts whoever reaches it, and mostly that is this machine alone. But a page of any site that its user
opens can send requests there: with an ``Origin`` of its own, or under a name of its own that leads to this machine. So
another origin is refused, and on a server for this machine alone every name that may be of another site. Health tells
nothing, so load balancers may ask for it by any name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from penstock.console import has_own_host, has_own_origin

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["OtherSitesRefused"]

_ADVICE: Final = "add users (penstock user add), or open it as localhost or by its address"
_HEALTH: Final = "/healthz"


class OtherSitesRefused:
    """The application behind it gets no request of another site; see the module."""

    def __init__(self, app: ASGIApp, *, is_local: bool) -> None:
        self._app, self._is_local = app, is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, or refuse it."""
        if scope["type"] == "lifespan" or scope["path"] == _HEALTH or self._is_own(HTTPConnection(scope)):
            await self._app(scope, receive, send)
            return
        refusal = JSONResponse({"error": f"this server has no users, and refuses pages of other sites: {_ADVICE}"}, 403)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(refusal)
        else:
            await refusal(scope, receive, send)

    def _is_own(self, request: HTTPConnection) -> bool:
        if "origin" in request.headers and not has_own_origin(request):
            return False
        return not self._is_local or has_own_host(request)
