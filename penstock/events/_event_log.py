"""The events of one stream, by their FutoIn ids.

The id of an event is the place just after it, so reading on behind an id is a seek, however long the stream is. A
stream that is read so has one segment: ids of several segments would not be one order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadArgument, DataTruncated, NoSuchStream
from penstock.events._archived_events import ArchivedEvents
from penstock.events._errors import invalid
from penstock.events._event import WireEvent, unpack_events
from penstock.events._sizes import EVENTS_MAX
from penstock.model import StreamCut
from penstock.stream.format import Block
from penstock.stream.read import event_ends
from penstock.stream.segment import block_at

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.events._ports import ReadsEvents
    from penstock.stream.segment import Segment

__all__ = ["PAGE_SIZE", "EventLog", "EventPage", "check_one_segment", "page_of"]

PAGE_SIZE: Final = 256 << 10  # bytes; receivers that do not read hold a few of them in memory


def check_one_segment(tail: StreamCut) -> None:
    """Refuse a stream that ends in other segments than its first."""
    if tail.offsets.keys() != {0}:
        raise BadArgument(
            f"stream {tail.stream} has several segments, or had: FutoIn ids need a stream with one, never scaled"
        )


class EventPage(NamedTuple):
    """Some events in order; all events behind the id ``start`` and up to ``end`` were looked at."""

    start: int
    end: int
    events: list[WireEvent]

    def behind(self, event_id: int) -> EventPage:
        """Return what of the page lies behind an id."""
        if event_id <= self.start:
            return self
        return EventPage(event_id, self.end, [event for event in self.events if int(event.id) > event_id])


def page_of(after: int, table: pa.Table, end: int, *, events_max: int) -> EventPage:
    """Return the page of these events, which are all behind an id and up to ``end``, cut at a number of events."""
    if len(table) > events_max:
        end = table["offset"][events_max].as_py()
        table = table.slice(0, events_max)
    events = table["event"].combine_chunks()
    ids = event_ends(table["offset"].combine_chunks(), pc.binary_length(events).cast(pa.int64()))
    unpacked = unpack_events(ids.to_pylist(), events.to_pylist())
    return EventPage(after, end, [event for event in unpacked if event is not None and int(event.id) > after])


class EventLog:
    """Reads a stream by ids. Events that are not of FutoIn are passed over.

    ``archives`` is a folder with archives of streams, by their names.
    """

    def __init__(self, store: ReadsEvents, stream: str, archives: Path | None = None) -> None:
        try:
            check_one_segment(store.tail(stream))
        except BadArgument as error:
            raise invalid(str(error)) from None
        self._store, self.stream = store, stream
        self._uid = store.catalog.open_stream(stream).uid
        self._archives = archives
        self._archive: ArchivedEvents | None = None

    def check_exists(self) -> None:
        """Raise ``NoSuchStream`` if the stream was deleted, whether or not there is another of its name."""
        if self._store.catalog.open_stream(self.stream).uid != self._uid:
            raise NoSuchStream(self.stream)

    @property
    def is_current(self) -> bool:
        """Whether the stream is still there, and not another one under its name."""
        state = self._store.catalog.streams.get(self.stream)
        return state is not None and state.uid == self._uid

    @property
    def segment(self) -> Segment:
        """The only segment of the stream."""
        return self._store.segments.get(self.stream, 0)

    @property
    def head(self) -> int:
        """The place where the stream begins: every kept event has a higher id."""
        return self._store.head(self.stream).offsets[0]

    @property
    def start(self) -> int:
        """The id behind which a new consumer begins: with the oldest event of the archive, if there is one."""
        return self.head if self._archived() is None else 0

    @property
    def tail(self) -> int:
        """The place where the stream ends: no event has a higher id."""
        return self.segment.tail

    def cut(self, event_id: int) -> StreamCut:
        """Return the cut behind an event, or before an event that an id points into."""
        return StreamCut.of(self.stream, {0: self._border(min(event_id, self.tail))})

    def page(self, after: int, *, events_max: int = EVENTS_MAX, size_max: int = PAGE_SIZE) -> EventPage:
        """Return the next events behind an id, about so many bytes; the page ends where it starts at the tail.

        Those before the head come from the archive, if there is one.
        """
        head = self.head
        archive = self._archived() if after < head else None
        found = None if archive is None else archive.between(after, head, events_max=events_max, size_max=size_max)
        if found is not None:
            return page_of(after, *found, events_max=events_max)
        while True:
            try:
                self.check_exists()
                return self._page(after, self.cut(max(after, self.head)), events_max, size_max)
            except DataTruncated:
                continue  # the head has moved on meanwhile

    def _page(self, after: int, first: StreamCut, events_max: int, size_max: int) -> EventPage:
        end = self._store.next_cut(self.stream, first, max_bytes=size_max, max_events=events_max).cut
        batches = list(self._store.read(self.stream, first, end))
        place = max(after, end.offsets[0])
        if not batches:
            return EventPage(after, place, [])
        return page_of(after, pa.Table.from_batches(batches), place, events_max=events_max)

    def _archived(self) -> ArchivedEvents | None:
        """Return the archive of the stream, if there is one; it may have come since the last look."""
        if self._archive is None and self._archives is not None:
            self._archive = ArchivedEvents.of(self._archives / self.stream, self.stream, self._uid)
        return self._archive

    def _border(self, place: int) -> int:
        """Return where the event begins that a place lies within; the place itself if it lies between two."""
        segment = self.segment
        if segment.is_border(place):
            return place
        block = block_at(segment, place)
        assert block is not None, "only the tail is behind every block, and it is a border"
        if isinstance(block, Block):
            return block.offset_of(max(int(np.searchsorted(block.offsets(), place)) - 1, 0))
        return segment.event_border(block.start)
