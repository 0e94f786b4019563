"""A reader's membership in a group of this process.

A read with a timeout waits no longer for the catalog than it may: its holder may wait for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from penstock.deadlines import run_locked
from penstock.errors import NoSuchStream, StoreClosed
from penstock.stream.group._coordinator import let_go
from penstock.stream.read import Assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.model import TimeWindow
    from penstock.stream.catalog import Key
    from penstock.stream.group._coordinator import Claim, Coordinator
    from penstock.stream.read import Member
    from penstock.stream.segment import Segment
    from penstock.stream.time import WatermarkTimes

__all__ = ["LocalMembership"]

T = TypeVar("T")


class LocalMembership:
    """A membership in a group of this process."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self._catalog = coordinator, coordinator.catalog
        self.clock: Final = coordinator.clock
        self.streams: Final = coordinator.streams
        self.epoch = 0  # of the group, when the reader joined
        self._reader: Member | None = None

    def take(self, reader: Member, claim: Claim | None = None) -> None:
        """Let a reader join; the caller holds the catalog's lock."""
        self._coordinator.join(reader, claim)
        self._reader = reader
        self.epoch = self._coordinator.state.epoch

    @property
    def _member(self) -> Member:
        assert self._reader is not None, "a membership is taken before it is used"
        return self._reader

    def _holding(self, step: Callable[[], T]) -> T | None:
        """Take a step while holding the catalog, unless the reader was stopped; ``DeadlineExceeded`` if it is late."""
        return run_locked(self._catalog.lock, lambda: None if self._member.error is not None else step())

    def sync(self, places: Mapping[Key, int], *, told: str | None, passing: bool) -> Assignment | None:
        """Reach a checkpoint that the reader has returned, or passes by; release and take segments."""
        return self._holding(lambda: self._sync(places, told, passing=passing))

    def _sync(self, places: Mapping[Key, int], told: str | None, *, passing: bool) -> Assignment:
        reader, coordinator = self._member, self._coordinator
        checkpoint = coordinator.checkpoint_of(reader.reader_id)
        if checkpoint is not None and (passing or checkpoint == told):
            coordinator.reach_checkpoint(reader.reader_id, places)
            checkpoint = None
        coordinator.losses.confirm(reader)
        coordinator.losses.skip(reader)
        return Assignment(checkpoint, coordinator.rebalance(reader.reader_id, places))

    def record(self, places: Mapping[Key, int] | None, *, durable: bool = False) -> None:
        """Record the position of the reader, if it moved, and take silent readers offline."""

        def recorded() -> list[Member]:
            if places is not None:
                self._coordinator.record(self._member.reader_id, places, durable=durable)
            return self._coordinator.expire(self.clock.elapsed())

        let_go(self._holding(recorded) or [])

    def finish_segment(self, key: Key, place: int) -> None:
        """Record that a segment is read to its end."""
        self._holding(lambda: self._coordinator.finish_segment(self._member.reader_id, key, place))

    def note_loss_reported(self, stream: str, segments: Sequence[int]) -> None:
        """Note that the reader has reported the loss of these segments, or of the stream."""
        self._holding(lambda: self._coordinator.losses.note_reported(stream, segments))

    def leave(self, places: Mapping[Key, int]) -> None:
        """Leave the group; other readers continue from ``places``."""
        with self._catalog.lock:
            if self._member.error is None:
                self._coordinator.leave(self._member, places)
                self._member.stop(StoreClosed(f"reader {self._member.reader_id!r}"))

    def await_return(self, places: Mapping[Key, int]) -> None:
        """Stop the reader, because its server ends, but keep it a member of the group for the next server."""
        with self._catalog.lock:
            if self._member.error is None:
                try:
                    self._coordinator.await_return(self._member, places)
                finally:
                    self._member.stop(StoreClosed(f"reader {self._member.reader_id!r}"))

    def check_places(self, places: Iterable[tuple[Key, int]]) -> set[Key]:
        """Refuse positions that no reader can have; return the segments that the group has not, or not any more.

        A remote reader may send anything.
        """
        return {key for key, place in places if not self._coordinator.check_place(key, place)}

    def segment(self, key: Key) -> Segment:
        """Return a segment; ``KeyError`` if it was truncated away."""
        return self._coordinator.segments.get(*key)

    def bounds_of(self, key: Key) -> tuple[int, int | None] | None:
        """Return where a segment begins and ends; takes no lock, because its holder may wait for the disk."""
        stream, segment = key
        state = self._catalog.streams.get(stream)
        if state is None:
            raise NoSuchStream(stream)
        segment_state = state.segments.get(segment)
        return None if segment_state is None else (state.head.get(segment, 0), segment_state.end)

    def end_of(self, key: Key) -> int | None:
        """Return where the group ends in a segment; None if it reads to the segment's own end."""
        return self._coordinator.end_of(key)

    def times_of(self, key: Key) -> WatermarkTimes:
        """Return the times of a segment's events, by watermarks."""
        return self._coordinator.times(*key)

    def time_window(self, stream: str | None) -> TimeWindow | None:
        """Return the time window of the group."""
        return self._coordinator.time_window(stream)

    @property
    def finished(self) -> bool:
        """Whether the group has read everything."""
        return self._coordinator.finished

    @property
    def has_company(self) -> bool:
        """Whether there are other readers, which might fall silent, or not return."""
        return len(self._coordinator.readers) > 1 or self._coordinator.is_waiting
