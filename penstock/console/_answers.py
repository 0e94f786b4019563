"""Answers of the JSON API, and which status an error has.

An error of the store's own (its disk, its bucket) names paths and is not for every user; the health page has it for
those who may read all streams, and the log for the administrator.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from starlette.responses import Response

from penstock.console._guard import HEADERS
from penstock.errors import (
    BadArgument,
    DataTruncated,
    LimitReached,
    LoginsBusy,
    NoSuchEvent,
    NoSuchGroup,
    NoSuchStream,
    NoSuchUser,
    NotAuthenticated,
    NotPermitted,
    PenstockError,
    ServerError,
    StreamError,
)

__all__ = ["error_answer", "failure_answer", "json_answer"]

_STATUS: Final[tuple[tuple[type[PenstockError], int], ...]] = (  # the first that fits
    (NotAuthenticated, 401),
    (NotPermitted, 403),
    (NoSuchStream, 404),
    (NoSuchEvent, 404),
    (NoSuchGroup, 404),
    (NoSuchUser, 404),
    (DataTruncated, 410),
    (LoginsBusy, 429),
    (LimitReached, 429),
    (ServerError, 503),
    (BadArgument, 400),
    (StreamError, 409),
)
_HIDDEN: Final = "the store cannot do this now: the health page and the server's log say why"
_FAILED: Final = "the server failed at this call: its log says why"
_encoder: Final = msgspec.json.Encoder()
_logger: Final = logging.getLogger("penstock.console")


def json_answer(content: object, status: int = 200) -> Response:
    """Return an answer that no cache keeps."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    if status in {429, 503}:
        headers["Retry-After"] = "1"
    return Response(_encoder.encode(content), status, headers, media_type="application/json")


def error_answer(error: PenstockError) -> Response:
    """Return the answer that tells what went wrong."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
    if status is None:
        _logger.warning("a call of the console failed: %s", error)
        return json_answer({"error": "StoreFailed", "message": _HIDDEN}, 503)
    return json_answer({"error": type(error).__name__, "message": str(error)}, status)


def failure_answer(error: Exception) -> Response:
    """Log an error that nobody expected, and return an answer that shows nothing of it."""
    _logger.error("a call of the console failed", exc_info=error)
    return json_answer({"error": "InternalError", "message": _FAILED}, 500)
