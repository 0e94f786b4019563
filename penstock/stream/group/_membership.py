"""A reader's membership in a group of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchStream, StoreClosed
from penstock.stream.group._coordinator import let_go
from penstock.stream.read import Look

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.model import TimeWindow
    from penstock.stream.catalog import Key
    from penstock.stream.group._coordinator import Claim, Coordinator
    from penstock.stream.read import Seated
    from penstock.stream.segment import Segment
    from penstock.stream.time import MarkTimes

__all__ = ["LocalSeat"]


class LocalSeat:
    """A seat in a group of this process."""

    def __init__(self, live: Coordinator) -> None:
        self._live, self._catalog = live, live.catalog
        self.clock: Final = live.clock
        self.streams: Final = live.streams
        self.epoch = 0  # of the group, when the seat was taken
        self._reader: Seated | None = None

    def take(self, reader: Seated, claim: Claim | None = None) -> None:
        """Let a reader sit down; the caller holds the catalog's lock."""
        self._live.join(reader, claim)
        self._reader = reader
        self.epoch = self._live.state.epoch

    @property
    def _seated(self) -> Seated:
        assert self._reader is not None, "a seat is taken before it is used"
        return self._reader

    def look(self, places: Mapping[Key, int], *, told: str | None, passing: bool) -> Look | None:
        """Come to a checkpoint that the reader was told of, or passes by; give and take segments."""
        reader, live = self._seated, self._live
        with self._catalog.lock:
            if reader.error is not None:
                return None
            checkpoint = live.checkpoint_of(reader.reader_id)
            if checkpoint is not None and (passing or checkpoint == told):
                live.reach_checkpoint(reader.reader_id, places)
                checkpoint = None
            live.come_back(reader)
            live.leave_lost(reader)
            return Look(checkpoint, live.rebalance(reader.reader_id, places))

    def record(self, places: Mapping[Key, int] | None, *, durable: bool = False) -> None:
        """Note how far the reader has come, if it has, and take those offline who are silent."""
        with self._catalog.lock:
            if self._seated.error is not None:
                return
            if places is not None:
                self._live.record(self._seated.reader_id, places, durable=durable)
            silent = self._live.expire(self.clock.elapsed())
        let_go(silent)

    def finish_segment(self, key: Key, place: int) -> None:
        """Note that a segment is read to its end."""
        with self._catalog.lock:
            if self._seated.error is None:
                self._live.finish_segment(self._seated.reader_id, key, place)

    def note_told(self, stream: str, segments: Sequence[int]) -> None:
        """Note that the reader has said that these segments, or the stream, were lost before they were read."""
        with self._catalog.lock:
            if self._seated.error is None:
                self._live.note_told(stream, segments)

    def leave(self, places: Mapping[Key, int]) -> None:
        """Leave the group, from these places."""
        with self._catalog.lock:
            if self._seated.error is None:
                self._live.leave(self._seated, places)
                self._seated.stop(StoreClosed(f"reader {self._seated.reader_id!r}"))

    def segment(self, key: Key) -> Segment:
        """Return a segment; ``KeyError`` if it was truncated away."""
        return self._live.segments.get(*key)

    def bounds_of(self, key: Key) -> tuple[int, int | None] | None:
        """Return where a segment begins and ends; without the lock, which may be held for as long as the disk takes."""
        stream, segment = key
        state = self._catalog.streams.get(stream)
        if state is None:
            raise NoSuchStream(stream)
        one = state.segments.get(segment)
        return None if one is None else (state.head.get(segment, 0), one.end)

    def end_of(self, key: Key) -> int | None:
        """Return where the group ends in a segment, if it does not read on to the segment's own end."""
        return self._live.end_of(key)

    def times_of(self, key: Key) -> MarkTimes:
        """Return what tells the times of a segment's events."""
        return self._live.times(*key)

    def time_window(self, stream: str | None) -> TimeWindow | None:
        """Return between which times the group is."""
        return self._live.time_window(stream)

    @property
    def finished(self) -> bool:
        """Whether the group has read everything."""
        return self._live.finished

    @property
    def has_company(self) -> bool:
        """Whether there are other readers, who might fall silent, or not come again."""
        return len(self._live.readers) > 1 or self._live.is_waiting
