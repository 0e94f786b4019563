"""Bounded reads of a stream, from one place to another: Arrow batches, ranges for parallel readers, the next cut."""

from __future__ import annotations

from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.errors import BadArgument, DataTruncated, LogError, NoSuchEvent
from penstock.model import EventPointer, NextCut, SegmentRange, StreamCut, check_kind, check_whole
from penstock.stream.format import READ_SCHEMA, Block, Chunk
from penstock.stream.read._batches import carried, event_columns, event_offsets
from penstock.stream.read._event_files import event_at, file_at
from penstock.stream.read._next_cut import CutBudget, next_cut_through
from penstock.stream.segment import LargeBlock, LargeEvent, block_at, scan
from penstock.stream.time import bound_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from penstock.model import StreamPosition
    from penstock.stream.catalog import Catalog
    from penstock.stream.format import AnyBlock
    from penstock.stream.read._batches import Slice
    from penstock.stream.read._event_files import EventInputStream
    from penstock.stream.segment import Cuts, ReadableSegment, Segments, Times
    from penstock.stream.time import CutFinder, Watermarks, WatermarkTimes

__all__ = ["StreamReads", "as_reader", "range_cuts", "read_part"]

_RANGES_MAX: Final = 100_000  # of one call: all of them are in memory


def as_reader(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return batches as what other programs take through Arrow's C interface; errors reach the caller as they are."""
    return pa.RecordBatchReader.from_batches(READ_SCHEMA, batches)


def read_part(
    segment: ReadableSegment, part: SegmentRange, times: Times, *, max_event_size: int
) -> Iterator[pa.RecordBatch]:
    """Return the events of a part of a segment; those above the limit as null, with the place where they are."""
    offset = part.start
    if not 0 <= part.start <= part.end <= segment.tail:
        raise NoSuchEvent(EventPointer(part.stream, part.segment_id, part.end))
    while offset < part.end:
        before = offset
        slices: list[Slice] = []
        large: LargeBlock | None = None
        for block in _page(segment, part, offset):
            if isinstance(block, LargeBlock):
                large = block
                break
            if isinstance(block, Block):
                slices += _slices(block, part, offset)
            elif isinstance(block, Chunk):
                raise NoSuchEvent(EventPointer(part.stream, part.segment_id, offset))
            offset = min(block.end, part.end)
        if slices:
            yield _as_batch(times, slices, part.segment_id)
        if large is not None and large.large.pointer.offset < part.end:
            yield _as_row(times, large, max_event_size)
            offset = large.end
        elif large is not None:
            return  # the part ends where the event begins, behind the header of its first chunk
        elif offset == before:
            raise _truncated(part, offset)


def _page(segment: ReadableSegment, part: SegmentRange, offset: int) -> Iterator[AnyBlock | LargeBlock]:
    """Return the next blocks and large events; ``DataTruncated`` if they were truncated away since the part was cut."""
    try:
        yield from scan(segment, part.stream, part.segment_id, offset, end=part.end)
    except (BadArgument, LogError) as error:
        raise _truncated(part, offset) from error


def _truncated(part: SegmentRange, offset: int) -> DataTruncated:
    return DataTruncated(EventPointer(part.stream, part.segment_id, offset), head="a later position")


def _slices(block: Block, part: SegmentRange, offset: int) -> list[Slice]:
    """Return which events of a block are in the part."""
    first, last = block.index_at(max(offset, block.start)), block.count
    if part.end < block.end:
        last = block.index_at(part.end) or 0
    if first is None:
        raise NoSuchEvent(EventPointer(part.stream, part.segment_id, offset))
    return [(block, first, last)] if first < last else []


def _as_batch(times: Times, slices: Sequence[Slice], segment_id: int) -> pa.RecordBatch:
    return pa.record_batch([*event_columns(slices), *_placed(event_offsets(slices), times, segment_id)], READ_SCHEMA)


def _as_row(times: Times, block: LargeBlock, max_event_size: int) -> pa.RecordBatch:
    event = block.large
    data = event.read_all() if event.size <= max_event_size else None
    places = np.array([event.pointer.offset])
    columns = [pa.array([data], pa.binary()), *carried([(block, 0, 1)])]
    return pa.record_batch([*columns, *_placed(places, times, event.pointer.segment_id)], READ_SCHEMA)


def _placed(offsets: npt.NDArray[np.int64], times: Times, segment_id: int) -> list[pa.Array]:
    """Return segment ids, offsets and mark times."""
    return [pa.array(np.full(len(offsets), segment_id, np.int64)), pa.array(offsets), times.of(offsets)]


def range_cuts(segment: ReadableSegment, low: int, high: int, *, size: int) -> Iterator[int]:
    """Return where to cut a span into parts of about ``size`` bytes: where blocks begin, never inside an event."""
    place = low
    while place + size < high:
        block = block_at(segment, place + size)
        assert block is not None, "the span ends behind it"
        begin, end = block.start, block.end
        if isinstance(block, Chunk):
            begin = block.event_start
            end = LargeEvent(segment, "", 0, begin, None).end if begin <= place else begin
        place = begin if begin > place else end
        if place < high:
            yield place


class StreamReads:
    """Reads streams by place, without a reader group."""

    def __init__(
        self, catalog: Catalog, segments: Segments, cuts: Cuts, finder: CutFinder, watermarks: Watermarks
    ) -> None:
        self._catalog, self._segments, self._cuts = catalog, segments, cuts
        self._finder, self._watermarks = finder, watermarks

    def fetch(self, pointer: EventPointer) -> bytes:
        """Return the event that a pointer points to, all of it."""
        event = event_at(self._cuts.segment_at(pointer), pointer)
        return event if isinstance(event, bytes) else event.read_all()

    def fetch_as_stream(self, pointer: EventPointer) -> EventInputStream:
        """Return the event that a pointer points to, as a file."""
        return file_at(self._cuts.segment_at(pointer), pointer)

    def times(self, name: str, segment_id: int) -> WatermarkTimes:
        """Return the times of a segment's events, by watermarks."""
        return self._watermarks.times(self._catalog.open_stream(name), segment_id)

    def read(
        self, name: str, start: StreamPosition | None, end: StreamPosition | None, *, max_event_size: int
    ) -> pa.RecordBatchReader:
        """Return the events from one place to another, as Arrow batches."""
        check_whole("max_event_size", max_event_size, least=1)
        parts = self.ranges(name, start, end, None)
        return as_reader(chain.from_iterable(map(partial(self.read_range, max_event_size=max_event_size), parts)))

    def read_range(self, part: SegmentRange, *, max_event_size: int) -> pa.RecordBatchReader:
        """Return the events of a part of one segment, as Arrow batches."""
        check_kind("part", part, SegmentRange)
        check_whole("max_event_size", max_event_size, least=1)
        segment = self._cuts.segment_at(EventPointer(part.stream, part.segment_id, part.start))
        times = self.times(part.stream, part.segment_id)
        return as_reader(read_part(segment, part, times, max_event_size=max_event_size))

    def ranges(
        self, name: str, start: StreamPosition | None, end: StreamPosition | None, approx_bytes: int | None
    ) -> list[SegmentRange]:
        """Return what parallel readers may read: parts of segments of about ``approx_bytes``, or whole ones."""
        if approx_bytes is not None:
            check_whole("approx_bytes", approx_bytes, least=1)
        while True:
            try:
                return self._ranges(name, start, end, approx_bytes)
            except DataTruncated:
                if start is not None:
                    raise  # otherwise it is read from where the stream begins now
                if end is not None:
                    self._finder.find("end", name, end)  # which raises if that is gone, too

    def _ranges(
        self, name: str, start: StreamPosition | None, end: StreamPosition | None, approx_bytes: int | None
    ) -> list[SegmentRange]:
        def find() -> list[dict[str, StreamCut]]:
            first = self._finder.find("start", name, "head" if start is None else start)
            return [{name: first}, {name: self._finder.find("end", name, "tail" if end is None else end)}]

        with self._cuts.found([name], find) as found:
            state = self._catalog.open_stream(name)
            head, (first, last) = state.head, (cuts[name] for cuts in found)
            if any(low < high for _, low, high in self._cuts.spans(state, last, first)):
                raise BadArgument(f"the start {first} is behind the end {last}: give a start before the end")
            spans = self._cuts.spans(state, first, last)
        parts = []
        with self._cuts.unless_truncated(state, first, head):
            for segment, low, high in spans:
                cuts = (
                    ()
                    if approx_bytes is None
                    else range_cuts(self._segments.of(state, segment), low, high, size=approx_bytes)
                )
                for begin, end_of_part in pairwise(chain([low], cuts, [high])):
                    if begin < end_of_part:
                        parts.append(SegmentRange(name, segment, begin, end_of_part))
                    if len(parts) > _RANGES_MAX and approx_bytes is not None:
                        raise BadArgument(f"more than {_RANGES_MAX:,} parts: use an approx_bytes above {approx_bytes}")
        return parts

    def next_cut(
        self,
        name: str,
        start: StreamCut,
        end: StreamCut | None,
        *,
        max_bytes: int | None,
        max_events: int | None,
        align: bool,
        skip_truncated: bool,
    ) -> NextCut:
        """Return how far to read next; see :meth:`penstock.Store.next_cut`."""
        for argument, limit in (("max_bytes", max_bytes), ("max_events", max_events)):
            if limit is not None:
                check_whole(argument, limit, least=1)
        for argument, flag in (("align", align), ("skip_truncated", skip_truncated)):
            check_kind(argument, flag, bool)
        for argument, cut in (("start", start), ("end", end)):
            if cut is not None or argument == "start":
                check_kind(argument, cut, StreamCut)
        while True:
            try:
                return self._next_cut(
                    name, start, end, CutBudget(max_bytes, max_events), align=align, moves=skip_truncated
                )
            except DataTruncated:
                if not skip_truncated:
                    raise

    def _next_cut(
        self, name: str, start: StreamCut, end: StreamCut | None, budget: CutBudget, *, align: bool, moves: bool
    ) -> NextCut:
        check = self._moved_on if moves else self._checked

        def find() -> list[dict[str, StreamCut]]:
            return [{name: check(name, self._cuts.tail(name) if cut is None else cut)} for cut in (start, end)]

        with self._cuts.found([name], find) as found:
            state = self._catalog.open_stream(name)
            head, (start, end) = state.head, (cuts[name] for cuts in found)
            ends = {segment: high for segment, _, high in self._cuts.spans(state, start, end)}
            successions = [state.succession(segment) for segment in ends if state.segments[segment].successors]
        with self._cuts.unless_truncated(state, start, head):
            reached = next_cut_through(start.offsets, ends, successions, partial(self._segments.of, state), budget)
        with self._catalog.lock:
            self._cuts.check_there(state, start, head)
            return self._watermarks.next_cut(state, start.offsets, reached, align=align)

    def _checked(self, name: str, cut: StreamCut) -> StreamCut:
        self._cuts.check(cut, stream=name)
        return cut

    def _moved_on(self, name: str, cut: StreamCut) -> StreamCut:
        """Return a cut, but not before the head."""
        try:
            return self._checked(name, cut)
        except DataTruncated:
            with self._catalog.lock:
                state = self._catalog.open_stream(name)
                return StreamCut.of(state.name, bound_of(state, [], cut.offsets))
