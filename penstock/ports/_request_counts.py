"""Counts of the requests to an object store, each of which costs time and money."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["RequestCount", "RequestCounts", "RequestKind"]

RequestKind: TypeAlias = Literal["put", "get", "delete", "list"]
_KINDS: Final[tuple[RequestKind, ...]] = ("put", "get", "delete", "list")


class RequestCount(NamedTuple):
    """The requests of one kind, failed ones included, and the bytes that they carried."""

    requests: int
    size: int


class RequestCounts:
    """The requests since the bucket was opened, by kind. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()

    def add(self, kind: RequestKind, *, requests: int = 1, size: int = 0) -> None:
        """Count requests of a kind."""
        with self._lock:
            self._requests[kind] += requests
            self._sizes[kind] += size

    def read(self) -> dict[RequestKind, RequestCount]:
        """Return the counts of all kinds."""
        with self._lock:
            return {kind: RequestCount(self._requests[kind], self._sizes[kind]) for kind in _KINDS}
