"""Calls that are under way. Each has a thread, and gRPC has no limit for them."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyarrow import flight

from penstock.wire import BUSY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server._limits import Limits

__all__ = ["Calls"]


class Calls:
    """The number of calls in all, by connection and by user; above the limits calls are refused, to be tried again."""

    def __init__(self, limits: Limits) -> None:
        self._max, self._of_one_max = limits.calls_max, limits.calls_of_one_max
        self._of_user_max = limits.calls_of_user_max
        self._lock = threading.Lock()
        self._by_peer: Counter[str] = Counter()
        self._by_user: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def one(self, peer: str, user: str | None = None) -> Iterator[None]:
        """Count a call of a peer while it is under way; without users there is no limit of one user."""
        with self._lock:
            self._check(peer, user)
            self._total += 1
            _add(self._by_peer, peer, 1)
            _add(self._by_user, user, 1)
        try:
            yield
        finally:
            with self._lock:
                self._total -= 1
                _add(self._by_peer, peer, -1)
                _add(self._by_user, user, -1)

    def _check(self, peer: str, user: str | None) -> None:
        if self._total >= self._max or self._by_peer[peer] >= self._of_one_max:
            raise _busy("the server has as many calls under way as it may have")
        if user is not None and self._by_user[user] >= self._of_user_max:
            raise _busy(f"user {user!r} has as many calls under way as one user may have")


def _busy(why: str) -> flight.FlightUnavailableError:
    return flight.FlightUnavailableError(f"{why}: try again later", extra_info=BUSY)


def _add(counts: Counter[str], name: str | None, number: int) -> None:
    """Change a count, and remove it at zero."""
    if name is not None:
        counts[name] += number
        if not counts[name]:
            del counts[name]
