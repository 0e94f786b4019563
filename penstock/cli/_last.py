"""The last events of a stream, without reading the whole of it.

Each segment is cut into parts and read from its last part backwards. Segments have no order among each other, so the
active ones contribute an even share each; if that is not enough, their predecessors do, the newest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock import Store
    from penstock.model import SegmentRange, StreamCut

__all__ = ["even_shares", "last_events"]

_PARTS_MAX: Final = 1024  # finding the start of a part reads one block
_PART_SIZE_MIN: Final = 1 << 20


def last_events(store: Store, stream: str, *, end: StreamCut, count: int) -> list[pa.RecordBatch]:
    """Return the last events before a cut at the tail, at most ``count`` of them."""
    part_size = max(_PART_SIZE_MIN, store.stream(stream).size_bytes // _PARTS_MAX)
    parts: dict[int, list[SegmentRange]] = {}
    for part in store.segment_ranges(stream, end=end, approx_bytes=part_size):
        parts.setdefault(part.segment_id, []).append(part)
    now = [_last_of_segment(store, parts.pop(segment, []), count) for segment in end.offsets]
    shares = even_shares([_count(batches) for batches in now], count)
    found = [batch for batches, share in zip(now, shares, strict=True) for batch in _last(batches, share)]
    for segment in sorted(parts, reverse=True):
        missing = count - _count(found)
        if missing <= 0:
            break
        found = _last_of_segment(store, parts[segment], missing) + found
    return found


def even_shares(available: Sequence[int], wanted: int) -> list[int]:
    """Return how many to take of each, as evenly as possible, so that they add up to ``wanted``."""
    shares = [0] * len(available)
    fewest_first = sorted(range(len(available)), key=available.__getitem__)
    for left, index in zip(range(len(available), 0, -1), fewest_first, strict=True):
        shares[index] = min(available[index], wanted // left)
        wanted -= shares[index]
    return shares


def _last_of_segment(store: Store, parts: Sequence[SegmentRange], count: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    for part in reversed(parts):
        if _count(found) >= count:
            break
        found = [*store.read_range(part), *found]
    return _last(found, count)


def _last(batches: Sequence[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    for batch in reversed(batches):
        if count > 0:
            found.insert(0, batch[-count:])
        count -= len(batch)
    return found


def _count(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(map(len, batches))
