"""FutoIn events of any store, by their ids: for programs that have a store, and need no server of FutoIn."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import BadArgument, DataTruncated, FutoinError, NoSuchEvent
from penstock.events._codings import to_json
from penstock.events._event import checked_type, pack_event
from penstock.events._event_log import EventPage, check_one_segment, page_of
from penstock.events._sizes import EVENTS_MAX
from penstock.model import SegmentRange, StreamCut
from penstock.stream.format import LENGTH_SIZE

if TYPE_CHECKING:
    from penstock.store import Store

__all__ = ["StoreEvents", "packed_event"]


def packed_event(kind: str, data: object) -> bytes:
    """Return a new event as it is stored; ``BadArgument`` if it could not be delivered to every reader."""
    checked_type(kind)
    try:
        event = pack_event(kind, data, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        to_json(data)
    except FutoinError as error:
        raise BadArgument(f"invalid event: {error.reason}") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadArgument(f"invalid event: {error}") from None
    return event


class StoreEvents:
    """Adds and reads events of one stream, which has one segment."""

    def __init__(self, store: Store, stream: str) -> None:
        self._store, self.stream = store, stream
        check_one_segment(self.tail())

    def tail(self) -> StreamCut:
        """Return where the stream ends."""
        return self._store.tail(self.stream)

    def add(self, kind: str, data: object) -> int:
        """Add an event, and return its id once the event is durable."""
        event = packed_event(kind, data)
        with self._store.writer(self.stream) as writer:
            pointer = writer.write_event(event, kind).result()
        assert pointer is not None, "only numbered events have no position"
        return pointer.offset + LENGTH_SIZE + len(event)

    def page(self, after: int, *, events_max: int = EVENTS_MAX) -> EventPage:
        """Return the next events behind an id; the page ends at a border of events."""
        while True:
            try:
                return self._page(after, events_max)
            except DataTruncated:
                continue  # the head has moved on meanwhile
            except NoSuchEvent:
                raise BadArgument(f"no event of {self.stream} has the id {after}: use the id of an event") from None

    def _page(self, after: int, events_max: int) -> EventPage:
        end = self.tail().offsets[0]
        start = min(max(after, self._store.head(self.stream).offsets[0]), end)
        batches: list[pa.RecordBatch] = []
        for batch in self._store.read_range(SegmentRange(stream=self.stream, segment_id=0, start=start, end=end)):
            batches.append(batch)
            if sum(map(len, batches)) > events_max:
                break
        if not batches:
            return EventPage(after, end, [])
        return page_of(after, pa.Table.from_batches(batches), end, events_max=events_max)
