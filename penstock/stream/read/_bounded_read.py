"""Bounded reading: parts of segments as Arrow batches, and how to cut segments into such parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import BadArgument, DataTruncated, LogError, NoSuchEvent
from penstock.model import EventPointer
from penstock.stream.format import READ_SCHEMA, Block, Chunk
from penstock.stream.read._arrow import carried, event_columns, event_offsets
from penstock.stream.segment import LargeBlock, LargeEvent, block_at, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from penstock.model import SegmentRange
    from penstock.stream.format import AnyBlock
    from penstock.stream.read._arrow import Slice
    from penstock.stream.segment import ReadableSegment, Times

__all__ = ["range_cuts", "read_part"]


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
    return DataTruncated(EventPointer(part.stream, part.segment_id, offset), head="a later place")


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
