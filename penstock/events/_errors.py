"""The names of errors on the FutoIn wire: a reference client refuses every other name."""

from __future__ import annotations

import logging
from typing import Final

from penstock.errors import (
    CorruptData,
    CpoUnavailable,
    DiskFailed,
    DiskFull,
    FolderUnusable,
    FormatUnknown,
    FutoinError,
    LimitReached,
    LoginsBusy,
    NoSuchStream,
    NotAuthenticated,
    NotPermitted,
    PenstockError,
    ServerBusy,
    StoreLocked,
    StreamSealed,
    UsersUnreadable,
    WriterFailed,
)

__all__ = ["ERROR_NAMES", "error_of", "invalid"]

ERROR_NAMES: Final = frozenset(
    {
        "NotRegistered",
        "LiveNotAllowed",
        "InvalidRequest",
        "SecurityError",
        "NotSupportedVersion",
        "UnknownInterface",
        "InternalError",
        "CommError",
    }
)
_NAMES: Final[tuple[tuple[tuple[type[PenstockError], ...], str], ...]] = (
    ((NotAuthenticated, NotPermitted), "SecurityError"),
    ((ServerBusy, LoginsBusy, LimitReached), "CommError"),  # which clients take as: try again later
    ((NoSuchStream, StreamSealed), "InvalidRequest"),
    ((PenstockError,), "InternalError"),
)
_WITH_PATHS: Final = (
    CorruptData,
    CpoUnavailable,
    DiskFailed,
    DiskFull,
    FolderUnusable,
    FormatUnknown,
    StoreLocked,
    UsersUnreadable,
)
"""Errors that name a path of this machine, which peers must not see."""
_logger: Final = logging.getLogger("penstock.events")


def invalid(reason: str) -> FutoinError:
    """Return the error of a request that is not as the specification wants it."""
    return FutoinError("InvalidRequest", reason)


def error_of(error: BaseException) -> FutoinError:
    """Return the error that a client gets; of errors that are none of its business it learns nothing."""
    if isinstance(error, FutoinError):
        return error
    if isinstance(error, RecursionError):
        return invalid("the message is nested too deeply")
    cause = error.cause if isinstance(error, WriterFailed) else error
    for kinds, name in _NAMES:
        if isinstance(error, kinds) and not isinstance(cause, _WITH_PATHS):
            return FutoinError(name, str(error))
    if isinstance(cause, DiskFull):
        return FutoinError("InternalError", "the disk of the server is full: try again later")
    _logger.error("a call of FutoIn failed", exc_info=error)
    return FutoinError("InternalError", "the server failed: its log says why")
