"""What there is to know of a stream: copied while the catalog is locked, and computed when it is not.

A stream may have thousands of segments. To copy what they are takes milliseconds; to count their events may read blocks
of each of them, and all other calls would wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.model import SegmentInfo, StreamCut, StreamInfo

if TYPE_CHECKING:
    from penstock.stream.catalog import StreamState
    from penstock.stream.segment import Segment, Segments

__all__ = ["StreamView"]


class StreamView:
    """A stream at one moment; the caller holds the catalog while it is made."""

    def __init__(self, state: StreamState, segments: Segments) -> None:
        self.head: Final = state.head  # a truncation replaces it, and changes nothing in it
        self._head_counts = state.head_counts
        self._name, self._uid, self._config, self._epoch = state.name, state.uid, state.config, state.epoch
        self._is_sealed, self._current = state.sealed, state.current
        self._ended_bytes, self._ended_events = state.ended_bytes, state.ended_events
        self._tail: dict[int, int] = {}
        self._growing: list[tuple[Segment, int]] = []
        self._growing_bytes = self._known_events = 0
        for segment in state.current:
            known = segments.known_end(state, segment)
            if known is None:
                opened = segments.opened(state, segment)
                tail = opened.tail
                if segment.end is None:
                    self._growing.append((opened, tail))
            else:
                tail = known[0]
                self._known_events += known[1]
            self._tail[segment.segment_id] = tail
            self._growing_bytes += tail if segment.end is None else 0

    def info(self) -> StreamInfo:
        """Compute what it adds up to."""
        segments = () if self._is_sealed else self._current
        return StreamInfo(
            name=self._name,
            uid=self._uid,
            state="sealed" if self._is_sealed else "active",
            epoch=self._epoch,
            segments=tuple(SegmentInfo(segment.segment_id, segment.low, segment.high) for segment in segments),
            config=self._config,
            events=self._events(),
            size_bytes=self._ended_bytes + self._growing_bytes - sum(self.head.values()),
            head=StreamCut.of(self._name, self.head),
            tail=StreamCut.of(self._name, self._tail),
        )

    def _events(self) -> int:
        """Count the events from head to tail: only segments that take events are looked at, unless they are known."""
        growing = sum(segment.count_before(tail) for segment, tail in self._growing)
        return self._ended_events + self._known_events + growing - sum(self._head_counts.values())
