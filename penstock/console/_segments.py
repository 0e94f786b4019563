"""The segments of a stream over key space and time: what the picture of splits and merges is drawn from.

The catalog records in which order segments followed each other, and only when the last change was. The other times are
those of the first and the last event of each segment; a segment without events has none, and is drawn by its epoch.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import LogError, NoSuchStream

if TYPE_CHECKING:
    from penstock.console._ports import ConsoleStore
    from penstock.console._rates import Rates
    from penstock.stream.catalog import SegmentState, StreamState

__all__ = ["SEGMENTS_DRAWN_MAX", "segment_picture"]

SEGMENTS_DRAWN_MAX: Final = 1_000  # the newest: a block of each may be read, and each is a shape in a page


def segment_picture(store: ConsoleStore, rates: Rates, name: str) -> dict[str, Any]:
    """Return the newest segments of a stream, those that take no more events, too."""
    with store.catalog.lock:
        state = store.catalog.open_stream(name).copy()
    numbers = sorted(state.segments)
    drawn = numbers[-SEGMENTS_DRAWN_MAX:]
    of_segments = rates.of_segments()
    segments = []
    for number in drawn:
        rate = None if of_segments is None else of_segments.get((state.uid, number))
        segments.append(_described(store, state, state.segments[number]) | {"events_per_s": rate and rate.events})
    return {
        "segments": segments,
        "omitted": len(numbers) - len(drawn),
        "scaled_ms": state.scaled_ms or None,
        "sealed": state.sealed,
        "now_ms": int(store.clock.now() * 1000),
    }


def _described(store: ConsoleStore, state: StreamState, segment: SegmentState) -> dict[str, Any]:
    number, start = segment.segment_id, state.head.get(segment.segment_id, 0)
    first_ms = last_ms = None
    tail = segment.end or 0
    with suppress(KeyError, NoSuchStream, LogError):  # it is truncated away, or its stream is deleted, meanwhile
        handle = store.segments.get(state.name, number)
        tail = handle.tail
        if tail > max(start, handle.start):
            first_ms, last_ms = handle.time_at(max(start, handle.start)), handle.time_at(tail - 1)
    return {
        "id": number,
        "low": segment.low,
        "high": segment.high,
        "epoch": segment.epoch,
        "before": [other for other in segment.predecessors if other in state.segments],
        "after": list(segment.successors),
        "active": segment.end is None,
        "truncated": start > 0,
        "size_bytes": max(0, tail - start),
        "first_ms": first_ms,
        "last_ms": last_ms,
    }
