"""The names of errors on the FutoIn wire: a reference client refuses every other name."""

from __future__ import annotations

from typing import Final

from penstock.errors import FutoinError

__all__ = ["ERROR_NAMES", "invalid"]

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


def invalid(reason: str) -> FutoinError:
    """Return the error of a request that is not as the specification wants it."""
    return FutoinError("InvalidRequest", reason)
