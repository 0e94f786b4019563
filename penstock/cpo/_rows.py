"""The oracle's view of a database: rows of bytes under a key, read and changed inside a transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value, and the version to expect when changing it."""

    value: bytes
    version: int


class CpoRows(Protocol):
    """The rows inside one transaction."""

    def get(self, key: str) -> Versioned | None:
        """Return the row, checked; None only if there is certainly none."""

    def keys(self, prefix: str) -> list[str]:
        """Return every key that starts with ``prefix``, sorted."""

    def put(self, key: str, value: bytes) -> int:
        """Create or replace a row that this transaction has read; return its version, higher than all before it."""

    def remove(self, key: str) -> None:
        """Remove a row that this transaction has read."""
