"""Registered consumers: which events each has got.

A registration is a consumer of its stream, so retention by consumption waits for it.
Positions are kept here and written to the store about once a second: after a crash, a consumer gets the last events
again, and none is lost.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import DataTruncated, FutoinError, NoSuchStream
from penstock.events._functions import LIVE
from penstock.model import StreamCut

if TYPE_CHECKING:
    from penstock.events._event_log import EventLog
    from penstock.events._ports import RegistersConsumers
    from penstock.events.consumers import Consumer

__all__ = ["Registrations"]


class Registrations:
    """The positions of consumers; threads may share it."""

    def __init__(self, store: RegistersConsumers) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._moved: dict[Consumer, tuple[EventLog, int]] = {}  # not stored yet

    def register(self, consumer: Consumer, log: EventLog) -> None:
        """Register a consumer, from the oldest kept event on, which may be in the archive; one that is stays there."""
        if consumer.component == LIVE:
            raise FutoinError("LiveNotAllowed", "LIVE is the component of live delivery: it cannot be registered")
        with self._lock:
            if self._stored(consumer) is None:
                self._moved.pop(consumer, None)  # of a registration that was dropped
                self._move(consumer, log, log.start)

    def position(self, consumer: Consumer) -> int:
        """Return the id behind which a consumer goes on; ``NotRegistered`` if it is not registered."""
        with self._lock:
            stored = self._stored(consumer)
            if stored is None:
                self._moved.pop(consumer, None)
                raise FutoinError(
                    "NotRegistered", f"{consumer.user} has registered no component {consumer.component} here"
                )
            return max(stored, self._unstored(consumer))

    def advance(self, consumer: Consumer, log: EventLog, event_id: int) -> None:
        """Note that a consumer has got all events up to an id; a position never goes back."""
        with self._lock:
            self._moved[consumer] = log, max(self._unstored(consumer), event_id)

    def store_positions(self) -> None:
        """Write the positions that have changed to the store; meanwhile others may change."""
        with self._lock:
            moved = {consumer: (log, self._unstored(consumer)) for consumer, (log, _) in list(self._moved.items())}
        for consumer, (log, event_id) in moved.items():
            with suppress(NoSuchStream):
                stored = self._stored(consumer)
                if stored is not None and stored < event_id:
                    self._move(consumer, log, event_id)
            with self._lock:
                if self._moved.get(consumer) == (log, event_id):
                    del self._moved[consumer]

    def _move(self, consumer: Consumer, log: EventLog, event_id: int) -> None:
        """Store a position; before the head, from where an archive is read, no event is there to be looked at."""
        registered = self._store.registered
        while event_id >= log.head:
            try:
                registered.register(consumer.stream, consumer.name, log.cut(event_id), user=consumer.owner)
            except DataTruncated:
                continue  # the head has moved on meanwhile
            return
        cut = StreamCut.of(consumer.stream, {0: event_id})
        registered.register_archived(consumer.name, cut, user=consumer.owner)

    def _unstored(self, consumer: Consumer) -> int:
        """Return the position that is not stored yet, 0 if there is none: one of an earlier stream does not count."""
        log, event_id = self._moved.get(consumer, (None, 0))
        if log is not None and not log.is_current:
            del self._moved[consumer]
            return 0
        return event_id

    def _stored(self, consumer: Consumer) -> int | None:
        cut = self._store.registered.cut(consumer.stream, consumer.name)
        return None if cut is None else cut.offsets.get(0, 0)
