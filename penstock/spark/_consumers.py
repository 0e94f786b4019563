"""A query as a consumer of its streams: retention by consumption keeps what it has not read yet.

A query with a name stays registered until it is unregistered. A query without a name is forgotten after a week of
absence, because its user may have forgotten it, too.
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
    """Registers a query with its streams, and renews the registration before its lease expires."""

    def __init__(self, store: Store, *, is_named: bool) -> None:
        self._store, self._lease_s = store, None if is_named else _LEASE_S
        self._cuts: dict[str, StreamCut] = {}  # as they were registered
        self._renew_at = 0.0

    def begin(self, consumer: str, cuts: Mapping[str, StreamCut]) -> None:
        """Register the query with streams that it starts to read."""
        self.move(consumer, {name: cut for name, cut in cuts.items() if name not in self._cuts})

    def move(self, consumer: str, cuts: Mapping[str, StreamCut]) -> None:
        """Record the position of the query."""
        for name, cut in cuts.items():
            self._store.register_consumer(name, consumer, cut, lease_s=self._lease_s)
            self._cuts[name] = cut

    def renew(self, consumer: str) -> None:
        """Renew the lease while the query waits for events."""
        if self._lease_s is not None and time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + _RENEW_S
            self.move(consumer, self._cuts)
