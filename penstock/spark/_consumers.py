"""A query as a consumer of its streams: retention by consumption keeps what it has not read yet.

A query with a name of its own is kept in mind until somebody unregisters it. One without is forgotten when it was not
there for a week, because nobody may remember that there ever was such a query.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock import Store
    from penstock.model import StreamCut

__all__ = ["ConsumerLease"]

_LEASE_S: Final = 7 * 24 * 3600.0
_RENEW_S: Final = 3600.0


class ConsumerLease:
    """Registers a query with its streams, and again before the lease is over."""

    def __init__(self, store: Store, *, is_named: bool) -> None:
        self._store, self._lease_s = store, None if is_named else _LEASE_S
        self._cuts: dict[str, StreamCut] = {}  # as they were registered
        self._renew_at = 0.0

    def begin(self, consumer: str, cuts: Mapping[str, StreamCut]) -> None:
        """Register the query with streams that it begins to read."""
        self.move(consumer, {name: cut for name, cut in cuts.items() if name not in self._cuts})

    def move(self, consumer: str, cuts: Mapping[str, StreamCut]) -> None:
        """Note how far the query has come."""
        for name, cut in cuts.items():
            self._store.register_consumer(name, consumer, cut, lease_s=self._lease_s)
            self._cuts[name] = cut

    def renew(self, consumer: str) -> None:
        """Let the lease begin anew, where the query only waits for events."""
        if self._lease_s is not None and time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + _RENEW_S
            self.move(consumer, self._cuts)
