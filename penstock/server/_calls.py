"""Calls that are under way. Each has a thread, and gRPC makes more and more of them until the process ends by it."""

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
    """How many there are, in all, by connection and by user; who comes when there are too many is told to try again."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._by_peer: Counter[str] = Counter()
        self._by_user: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def one(self, peer: str, user: str | None = None) -> Iterator[None]:
        """Note that a call of a peer is under way; without users, everybody may have all of them."""
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
        limits = self._limits
        if self._total >= limits.calls_max or self._by_peer[peer] >= limits.calls_of_one_max:
            raise _busy("as many calls are under way as the server takes at once")
        if user is not None and self._by_user[user] >= limits.calls_of_user_max:
            raise _busy(f"as many calls of user {user!r} are under way as one user may have")


def _busy(why: str) -> flight.FlightUnavailableError:
    return flight.FlightUnavailableError(f"{why}: try again later", extra_info=BUSY)


def _add(counts: Counter[str], name: str | None, number: int) -> None:
    """Count, and keep nothing of who has none."""
    if name is not None:
        counts[name] += number
        if not counts[name]:
            del counts[name]
