"""Calls that are under way. Each has a thread, and gRPC makes more and more of them until the process ends by it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyarrow import flight

from penstock.client._wire import BUSY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server._limits import Limits

__all__ = ["Calls"]


class Calls:
    """How many there are, in all and by connection; who comes when there are too many is told to try again."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._by_peer: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def one(self, peer: str) -> Iterator[None]:
        """Note that a call of a peer is under way."""
        with self._lock:
            if self._total >= self._limits.calls_max or self._by_peer[peer] >= self._limits.calls_of_one_max:
                raise flight.FlightUnavailableError(
                    "as many calls are under way as the server takes at once: try again later", extra_info=BUSY
                )
            self._total += 1
            self._by_peer[peer] += 1
        try:
            yield
        finally:
            with self._lock:
                self._total -= 1
                self._by_peer[peer] -= 1
                if not self._by_peer[peer]:
                    del self._by_peer[peer]
