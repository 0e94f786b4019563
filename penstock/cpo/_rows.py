"""What the oracle asks of a database: rows of bytes under a key, read and changed inside a transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value, and the version to expect when changing it."""

    value: bytes
    version: int


class CpoRows(Protocol):
    """The rows as one transaction sees them."""

    def get(self, key: str) -> Versioned | None:
        """Return the row, checked; None only if it is certain that there is none."""

    def keys(self, prefix: str) -> list[str]:
        """Return every key that starts with ``prefix``, sorted."""

    def put(self, key: str, value: bytes) -> int:
        """Make or replace a row that this transaction looked at; return its version, larger than any given before."""

    def remove(self, key: str) -> None:
        """Remove a row that this transaction found."""
