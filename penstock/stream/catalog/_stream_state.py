"""A stream's state: its segments, how they follow each other, and what its records add up to.

Segments are numbered as they come, so a segment's predecessors have smaller numbers than it. Those that take
events cover the key space [0, 1) without overlap; so do the segments of any cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import BadArgument, DataTruncated, WrongCut
from penstock.model import SEGMENTS_MAX, StreamCut
from penstock.stream.format import (
    ConsumerMoved,
    SegmentFull,
    StreamCreated,
    StreamFull,
    StreamScaled,
    StreamStopped,
    StreamTruncated,
    StreamUpdated,
    WriterClaimed,
    WriterMarked,
    WritersForgotten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.stream.format import StreamRecord

    _Step = Callable[["SegmentState"], tuple[int, ...]]
    from collections.abc import Callable

    Cut = dict[int, int]
    Reach = Callable[[int, int], int | None]

__all__ = [
    "BATCH_WRITERS_MAX",
    "OWNED_IDS_MAX",
    "LastBatch",
    "SegmentState",
    "StreamState",
    "Succession",
    "advance",
    "covers",
    "even_ranges",
]

BATCH_WRITERS_MAX: Final = 10_000  # whose batch numbers a stream remembers
OWNED_IDS_MAX: Final = BATCH_WRITERS_MAX  # writer ids of users; so those of one user push out no other user's numbers


@dataclass(slots=True)
class SegmentState:
    """One segment; ``end`` is its length once it is sealed, and ``count`` how many events it has had."""

    segment_id: int
    low: float
    high: float
    epoch: int
    predecessors: tuple[int, ...] = ()
    successors: tuple[int, ...] = ()
    end: int | None = None
    count: int = 0

    def overlaps(self, low: float, high: float) -> bool:
        """Whether it has any part of a key range."""
        return self.low < high and low < self.high


def even_ranges(count: int, low: float = 0.0, high: float = 1.0) -> list[tuple[float, float]]:
    """Return a key range cut into ``count`` equal parts."""
    marks = [low + (high - low) * part / count for part in range(count)] + [high]
    return list(pairwise(marks))


def covers(ranges: Iterable[tuple[float, float]], whole: Sequence[tuple[float, float]] = ((0.0, 1.0),)) -> bool:
    """Whether ``ranges`` are the key space of ``whole``, without gap or overlap."""
    return _joined(ranges) == _joined(whole) is not None


def _joined(ranges: Iterable[tuple[float, float]]) -> list[tuple[float, float]] | None:
    """Return the ranges with neighbours made one; None if they overlap or one is empty."""
    merged: list[tuple[float, float]] = []
    for low, high in sorted(ranges):
        if not low < high or (merged and low < merged[-1][1]):
            return None
        if merged and merged[-1][1] == low:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged


class LastBatch(NamedTuple):
    """The highest number under which a writer has committed transactions together, and the time it notes with them."""

    number: int
    time: int | None


class Succession(NamedTuple):
    """Segments that follow others, ``after``, and all those that must be read ``before`` them."""

    before: set[int]
    after: set[int]


class StreamState:
    """The segments, configuration, head and consumers of one stream, as the catalog records them."""

    def __init__(self, created: StreamCreated) -> None:
        self.name, self.uid, self.config, self.owner = created.stream, created.uid, created.config, created.owner
        self.sealed = False
        self.epoch = 0
        self.next_segment = 0
        self.segments: dict[int, SegmentState] = {}
        self.current: list[SegmentState] = []  # which take events, or did when it was sealed, by key range
        self.ended_bytes = self.ended_events = 0  # in segments that take no more
        self.head: dict[int, int] = {}
        self.head_counts: dict[int, int] = {}  # events that lie before the head, of each segment where it is
        self.consumers: dict[str, ConsumerMoved] = {}
        self.writers: dict[str, WriterMarked] = {}  # those that note time, with the last mark on record
        self.last_batches: dict[str, LastBatch] = {}  # of transactions committed together, by writer; last used last
        self.owners: OrderedDict[str, str] = OrderedDict()  # the users that writer ids belong to; last opened last
        self.scaled_ms = 0
        self._add_segments(even_ranges(created.segments))
        self.head = dict.fromkeys(self.segments, 0)

    @classmethod
    def restore(cls, full: StreamFull) -> StreamState:
        """Return the state that a snapshot holds."""
        state = cls(StreamCreated(full.stream, full.uid, 0, full.config, full.owner))
        state.sealed, state.epoch, state.next_segment = full.sealed, full.epoch, full.next_segment
        state.add_full(full.segments)
        state.head, state.head_counts, state.scaled_ms = full.head, full.head_counts, full.scaled_ms
        return state

    def copy(self) -> StreamState:
        """Return its segments and its head as they are now; the rest is shared."""
        copied = copy(self)
        copied.segments = {number: copy(segment) for number, segment in self.segments.items()}
        return copied

    def add_full(self, segments: Sequence[SegmentFull]) -> None:
        """Take in segments of a snapshot."""
        for record in segments:
            before, after = tuple(record.predecessors), tuple(record.successors)
            self.segments[record.segment] = SegmentState(
                record.segment, record.low, record.high, record.epoch, before, after, record.end, record.count
            )
            self.ended_bytes += record.end or 0
            self.ended_events += record.count
        self._go_on_in([self.segments[record.segment] for record in segments])

    def full(self) -> StreamFull:
        """Return the record that holds all of it."""
        segments = [
            SegmentFull(
                segment.segment_id,
                segment.low,
                segment.high,
                segment.epoch,
                list(segment.predecessors),
                list(segment.successors),
                segment.end,
                segment.count,
            )
            for segment in self.segments.values()
        ]
        return StreamFull(
            self.name,
            self.uid,
            self.config,
            self.sealed,
            self.epoch,
            self.next_segment,
            segments,
            dict(self.head),
            self.scaled_ms,
            dict(self.head_counts),
            self.owner,
        )

    def apply(self, record: StreamRecord) -> None:
        """Take in one record; ``KeyError`` if it does not follow from those before."""
        match record:
            case StreamUpdated():
                self.config = record.config
            case StreamScaled():
                self.epoch += 1
                self.scaled_ms = record.time_ms
                self._end_segments(record.ends, record.counts)
                self._add_segments(record.ranges, after=record.ends)
            case StreamStopped():
                self._end_segments(record.ends, record.counts)
                self.sealed = True
            case StreamTruncated():
                self._truncate(record.head, record.counts)
            case ConsumerMoved(cut=None):
                self.consumers.pop(record.consumer, None)
            case ConsumerMoved():
                self.consumers[record.consumer] = record
            case WriterMarked():
                self.writers[record.writer] = record
            case WriterClaimed():
                self._claim(record)
            case WritersForgotten():
                for writer in record.writers:
                    del self.writers[writer]

    def _claim(self, record: WriterClaimed) -> None:
        self.owners[record.writer] = record.user
        if record.instead_of is not None:
            self.owners.pop(record.instead_of, None)
            self.last_batches.pop(record.instead_of, None)

    def consumer_cuts(self) -> dict[str, dict[int, int]]:
        """Return how far each registered consumer has come."""
        return {name: consumer.cut for name, consumer in sorted(self.consumers.items()) if consumer.cut is not None}

    def expired_consumers(self, now_ms: int) -> list[str]:
        """Return the consumers that have not moved for as long as they said they would need."""
        return [
            name
            for name, consumer in self.consumers.items()
            if consumer.expires_ms is not None and consumer.expires_ms <= now_ms
        ]

    def note_batch(self, writer: str, batch: LastBatch) -> None:
        """Take in the number of transactions that were committed together; the longest silent writer is forgotten."""
        self.last_batches.pop(writer, None)
        self.last_batches[writer] = batch
        if len(self.last_batches) > BATCH_WRITERS_MAX:
            del self.last_batches[next(iter(self.last_batches))]

    def locate(self, position: float) -> int:
        """Return the segment that takes events with this key."""
        current = self.current
        return current[bisect_right([segment.low for segment in current], position) - 1].segment_id

    def check_scale(self, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> None:
        """Refuse a change of segments that would lose a part of the key space, or have one twice."""
        current = {segment.segment_id: segment for segment in self.current}
        unknown = [segment for segment in seal if type(segment) is not int or segment not in current]
        if not seal or unknown or len(set(seal)) != len(seal):
            raise BadArgument(
                f"cannot seal the segments {list(seal)} of {self.name!r}: those that take events are {sorted(current)}"
            )
        whole = [(current[segment].low, current[segment].high) for segment in seal]
        if not covers(ranges, whole):
            raise BadArgument(
                f"the ranges {list(ranges)} do not cover the key space {sorted(whole)} "
                f"of the sealed segments {list(seal)}"
            )
        if len(current) - len(seal) + len(ranges) > SEGMENTS_MAX:
            raise BadArgument(f"a stream has at most {SEGMENTS_MAX} segments")

    def check_cut(self, cut: StreamCut) -> None:
        """Refuse a cut that is not one of this stream; whether its offsets are there is not looked at."""
        if not _is_cut(cut):
            raise BadArgument(f"invalid cut {cut!r}: give a StreamCut")
        if cut.stream != self.name:
            raise WrongCut(self.name, cut, reason=f"it is a cut of stream {cut.stream!r}")
        gone = [segment for segment, _ in cut.places if segment not in self.segments]
        if gone and max(gone) < self.next_segment:
            raise DataTruncated(cut, head=StreamCut.of(self.name, self.head))
        if gone:
            raise WrongCut(self.name, cut, reason=f"there is no segment {max(gone)}")
        if not covers((self.segments[segment].low, self.segments[segment].high) for segment, _ in cut.places):
            raise WrongCut(
                self.name,
                cut,
                reason=f"a cut needs every segment once, as in {StreamCut.of(self.name, self.head)}; "
                "give such a cut, a time, head or tail",
            )
        early = self.before(cut.offsets) & cut.offsets.keys()
        if early:
            raise WrongCut(self.name, cut, reason=f"segment {min(early)} precedes another segment of the cut")

    def predecessors(self, segment: SegmentState) -> list[SegmentState]:
        """Return the segments that a segment follows, but those that were truncated away."""
        return [old for old in map(self.segments.get, segment.predecessors) if old is not None]

    def before(self, segments: Iterable[int]) -> set[int]:
        """Return all segments that come before any of these."""
        return self._reach(segments, lambda segment: segment.predecessors)

    def after(self, segments: Iterable[int]) -> set[int]:
        """Return all segments that come after any of these."""
        return self._reach(segments, lambda segment: segment.successors)

    def is_behind(self, start: Mapping[int, int], end: Mapping[int, int]) -> bool:
        """Whether a cut lies behind another in any part of the key space."""
        beyond = start.keys() - end.keys() - self.before(end)  # also if the end was truncated away
        return bool(beyond) or any(place > end[segment] for segment, place in start.items() if segment in end)

    def between(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[tuple[int, int, int | None]]:
        """Return the segments from one cut to another with the offsets from which and up to which they are read.

        None is the segment's end. Predecessors come before their successors.
        """
        wanted = (start.keys() | self.after(start)) - self.after(end)
        return [(segment, start.get(segment, 0), end.get(segment)) for segment in sorted(wanted)]

    def moved(self, cut: Mapping[int, int], places: Mapping[int, int]) -> dict[int, int]:
        """Return a cut with some of its segments at other places; these may be segments that it has passed.

        Those that it has passed together with them are read to the end. It is no cut if there is something unread
        before one of the places.
        """
        before, after = self.before(places), self.after(places)
        moved = {segment: place for segment, place in cut.items() if segment not in before | after} | dict(places)
        passed = self.before(cut.keys() & after) - before - after - moved.keys()
        for segment in passed:
            state = self.segments[segment]
            if state.end is not None and not passed & set(state.successors):
                moved[segment] = state.end
        return moved

    def succession(self, segment: int) -> Succession:
        """Return the segments that can only be passed by together with this one, and those that follow them.

        They are its neighbours: those with which it shares a successor, those with which they do, and so on. Only when
        all of them are read is there a cut that begins their successors.
        """
        before, after, known = set[int](), set[int](), {segment}
        while known != before:
            before = known
            after = {new for segment in before for new in self.segments[segment].successors}
            known = before | (
                {old for segment in after for old in self.segments[segment].predecessors} & self.segments.keys()
            )
        return Succession(before, after) if after else Succession(set(), after)

    def _reach(self, segments: Iterable[int], step: _Step) -> set[int]:
        reached: set[int] = set()
        todo = list(segments)
        while todo:
            segment = self.segments.get(todo.pop())
            new = set(step(segment)) - reached if segment is not None else set()
            reached |= new
            todo += new
        return reached & self.segments.keys()

    def _end_segments(self, ends: Mapping[int, int], counts: Mapping[int, int]) -> None:
        for segment, end in ends.items():
            state = self.segments[segment]
            state.end, state.count = end, counts.get(segment, 0)
            self.ended_bytes += end
            self.ended_events += state.count

    def _add_segments(self, ranges: Sequence[tuple[float, float]], after: Iterable[int] = ()) -> None:
        old, new = [self.segments[segment] for segment in after], list[SegmentState]()
        for low, high in sorted(ranges):
            segment, self.next_segment = self.next_segment, self.next_segment + 1
            predecessors = tuple(state.segment_id for state in old if state.overlaps(low, high))
            new.append(SegmentState(segment, low, high, self.epoch, predecessors))
            self.segments[segment] = new[-1]
            for predecessor in predecessors:
                self.segments[predecessor].successors += (segment,)
        self._go_on_in(new)

    def _go_on_in(self, new: Sequence[SegmentState]) -> None:
        """Let segments take events, but those that others follow."""
        self.current = sorted(
            (state for state in (*self.current, *new) if not state.successors), key=lambda state: state.low
        )

    def _truncate(self, head: dict[int, int], counts: dict[int, int]) -> None:
        for segment in self.before(head):
            gone = self.segments.pop(segment)
            self.ended_bytes -= gone.end or 0
            self.ended_events -= gone.count
        self.head, self.head_counts = dict(head), dict(counts)


def _is_cut(cut: object) -> bool:
    return isinstance(cut, StreamCut) and all(map(_is_place, cut.places))


def _is_place(place: object) -> bool:
    """Whether it may be stored as one: plain integers, because nothing else is read back."""
    return isinstance(place, tuple) and len(place) == 2 and all(type(part) is int and part >= 0 for part in place)


def advance(state: StreamState, reach: Reach) -> Cut:
    """Return the cut that is as far from the head as ``reach`` says, in each segment from an offset.

    None is the end of the segment, and on to those that follow it.
    """
    cut: Cut = {}
    whole: set[int] = set()
    fresh = dict(state.head)
    while fresh:
        reached = {segment: reach(segment, offset) for segment, offset in fresh.items()}
        ended = [segment for segment, offset in reached.items() if offset is None]
        whole.update(ended)
        cut |= {segment: _end(state, segment) if offset is None else offset for segment, offset in reached.items()}
        fresh = {}
        for old, new in (state.succession(segment) for segment in ended):
            if new and old <= whole and old <= cut.keys():
                for segment in old:
                    del cut[segment]
                fresh |= dict.fromkeys(new, 0)
    return cut


def _end(state: StreamState, segment: int) -> int:
    end = state.segments[segment].end
    assert end is not None, "only what takes no more events can go whole"
    return end
