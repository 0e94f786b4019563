"""Errors that no handler of the HTTP port expected: they are logged, and the client learns nothing of the inside.

Without this, uvicorn would write them to a log of its own, where they do not count as errors of Penstock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ErrorsLogged"]

_logger: Final = logging.getLogger("penstock.server")


class ErrorsLogged:
    """Answers a request that failed with 500; an answer that has begun is cut off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, and log why it failed."""
        has_begun = False

        async def begin(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, begin)
        except Exception:
            _logger.exception("a request failed", extra={"path": scope.get("path")})
            if has_begun or scope["type"] != "http":
                raise
            answer = JSONResponse({"error": "the server failed at this request: its log says why"}, 500)
            await answer(scope, receive, send)
