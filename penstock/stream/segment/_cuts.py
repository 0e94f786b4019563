"""Cuts of a stream: its head, its tail, what lies between two of them, and whether a cut is one of the stream."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import BadArgument, DataTruncated, LogError, NoSuchEvent, NoSuchStream, WrongCut
from penstock.model import EventPointer, StreamCut, check_kind
from penstock.stream.catalog import advance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.stream.catalog import Catalog, StreamState
    from penstock.stream.segment._segment import Segment
    from penstock.stream.segment._segments import Segments

__all__ = ["Cuts"]


class Cuts:
    """Finds and checks cuts of streams."""

    def __init__(self, catalog: Catalog, segments: Segments) -> None:
        self._catalog, self._segments = catalog, segments

    def head(self, name: str) -> StreamCut:
        """Return where the stream begins."""
        with self._catalog.lock:
            return StreamCut.of(name, self._catalog.open_stream(name).head)

    def tail(self, name: str) -> StreamCut:
        """Return where the stream ends now."""
        with self._catalog.lock:
            current = self._catalog.open_stream(name).current
            return StreamCut.of(
                name, {one.segment_id: self._segments.get(name, one.segment_id).tail for one in current}
            )

    def check(self, cut: StreamCut, *, stream: str | None = None) -> None:
        """Refuse a cut that is not one of its stream, or not any more; ``stream`` says which one it should be of."""
        check_kind("cut", cut, StreamCut)
        with self._catalog.lock:
            state = self._catalog.open_stream(cut.stream if stream is None else stream)
            state.check_cut(cut)
            before = state.before(state.head)
            for segment, offset in cut.places:
                if segment in before or offset < state.head.get(segment, 0):
                    raise DataTruncated(cut, head=self.head(state.name))
                one = self._segments.get(state.name, segment)
                if offset > one.tail:
                    raise WrongCut(state.name, cut, reason=f"segment {segment} ends at {one.tail}")
                if not one.is_border(offset):
                    raise WrongCut(state.name, cut, reason=f"no event of segment {segment} begins or ends at {offset}")

    def segment_at(self, pointer: EventPointer) -> Segment:
        """Return the segment that a pointer points into; an error if nothing is there, or not any more."""
        check_kind("pointer", pointer, EventPointer)
        with self._catalog.lock:
            state = self._catalog.open_stream(pointer.stream)
            is_known = pointer.segment_id in state.segments
            if not is_known and not 0 <= pointer.segment_id < state.next_segment:
                raise NoSuchEvent(pointer)
            if not is_known or pointer.offset < state.head.get(pointer.segment_id, 0):
                raise DataTruncated(pointer, head=self.head(pointer.stream))
            return self._segments.get(pointer.stream, pointer.segment_id)

    def spans(self, state: StreamState, start: StreamCut, end: StreamCut) -> list[tuple[int, int, int]]:
        """Return the segments from one cut to another with the offsets from which and up to which they are read."""
        return [
            (segment, low, self._segments.get(state.name, segment).tail if high is None else high)
            for segment, low, high in state.between(start.offsets, end.offsets)
        ]

    def appended_before(self, state: StreamState, time_ms: int) -> StreamCut:
        """Return the cut behind which everything was appended at a time or later."""

        def reach(segment_id: int, offset: int) -> int | None:
            segment, end = self._segments.get(state.name, segment_id), state.segments[segment_id].end
            found = segment.offset_at_time(time_ms, low=offset)
            return None if found == end else found

        return StreamCut.of(state.name, advance(state, reach))

    def size_bytes(self, state: StreamState, tail: Mapping[int, int]) -> int:
        """Return how many bytes there are from the head of a stream to its tail."""
        growing = sum(tail[one.segment_id] for one in state.current if one.end is None)
        return state.ended_bytes + growing - sum(state.head.values())

    def events(self, state: StreamState, tail: Mapping[int, int]) -> int:
        """Return how many events there are from head to tail: only segments that take events are looked at."""
        growing = 0
        for segment, offset in tail.items():
            if state.segments[segment].end is None:
                growing += self._segments.get(state.name, segment).count_before(offset)
        return state.ended_events + growing - sum(state.head_counts.values())

    @contextmanager
    def unless_truncated(self, state: StreamState, cut: StreamCut, head: Mapping[int, int]) -> Iterator[None]:
        """Say so if what is read from ``cut`` on is truncated away meanwhile, or its stream deleted."""
        try:
            yield
        except (BadArgument, KeyError, LogError):
            self.check_there(state, cut, head)
            raise

    def check_there(self, state: StreamState, cut: StreamCut, head: Mapping[int, int]) -> None:
        """Refuse to go on from a cut that is not there any more; it was when the stream began at ``head``."""
        with self._catalog.lock:
            if self._catalog.streams.get(state.name) is not state:
                raise NoSuchStream(state.name)
            if state.head is not head:  # as with every truncation
                self.check(cut, stream=state.name)
