"""The errors of the FutoIn wire, which clients know by name; every other name would break a reference client."""

from __future__ import annotations

from typing import Final, Literal, get_args

from penstock.errors import PenstockError

__all__ = ["ERROR_NAMES", "ErrorName", "FutoinError", "invalid"]

ErrorName = Literal[
    "NotRegistered",
    "LiveNotAllowed",
    "InvalidRequest",
    "SecurityError",
    "NotSupportedVersion",
    "UnknownInterface",
    "InternalError",
    "CommError",
]
ERROR_NAMES: Final[tuple[str, ...]] = get_args(ErrorName)


class FutoinError(PenstockError):
    """A call of FutoIn was refused or failed; ``name`` is what the specification calls the error."""

    def __init__(self, name: ErrorName, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


def invalid(reason: str) -> FutoinError:
    """Return the error of a request that is not as the specification wants it."""
    return FutoinError("InvalidRequest", reason)
