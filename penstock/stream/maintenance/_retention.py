"""Retention: where to truncate a stream so that its oldest events are deleted.

Only whole plogs can be deleted, so a stream is truncated where a plog begins, or at the end of a sealed segment. In
each part of the key space the oldest events are deleted first: the cut starts at the stream's head and advances in each
segment. At the end of a segment its successors replace it in the cut, all of them at once if they share predecessors.
The plog that takes appends is never deleted. It is kept small if the stream retains few bytes, and replaced in time if
the stream retains events by time.

The age of a plog is that of its last block, and finding it takes one read. To read few of them, the search doubles its
distance until it finds a plog that is too young, and then bisects. A maintenance run that has nothing to delete reads
once for each segment. If the clock was set back, a plog may be deleted a little early or late; a plog with a time in
the future does not prevent the deletion of those before or after it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from penstock.stream.catalog import advance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.stream.catalog import StreamState

    Cut = dict[int, int]
    Reach = Callable[[int, int], int | None]

__all__ = ["SegmentView", "StartOffsets", "by_consumption", "by_size", "by_time"]

_PLOGS_SEARCHED_MAX: Final = 64  # plogs, for a time that can be


class StartOffsets(Protocol):
    """Where in a segment each of its plogs begins."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...


class SegmentView(Protocol):
    """What retention needs to know of a segment."""

    @property
    def tail(self) -> int:
        """Where the segment ends now."""

    def plog_starts(self) -> StartOffsets:
        """Return where each plog begins; nothing if the segment was never written to."""

    def time_at(self, offset: int) -> int:
        """Return when the block that holds the byte at ``offset`` was appended."""


def by_time(state: StreamState, view: Callable[[int], SegmentView], *, older_than_ms: int, now_ms: int) -> Cut | None:
    """Return the cut before which everything is older; None if nothing can be deleted."""
    return _new_head(state, _Ages(state, view, now_ms).cut(older_than_ms))


def by_size(state: StreamState, view: Callable[[int], SegmentView], *, size_bytes: int, now_ms: int) -> Cut | None:
    """Return the cut behind which at most ``size_bytes`` are left, or as few as can be; None if nothing can go.

    All segments are cut at the same age, the highest that will do. What came last stays, be it too large by itself.
    """
    ages = _Ages(state, view, now_ms, keeps_last=True)
    if ages.size(state.head) <= size_bytes:
        return None
    most = ages.cut(math.inf)
    if ages.size(most) >= size_bytes:
        return _new_head(state, most)

    def fits(limit_ms: int) -> bool:
        return ages.size(ages.cut(limit_ms)) <= size_bytes

    low, step = ages.oldest(), 1
    while not fits(low + step):
        low, step = low + step, 2 * step
    limit_ms = low + bisect_left(range(low, low + step), True, key=fits)
    if not ages.size(ages.cut(limit_ms)):
        limit_ms -= 1
    return _new_head(state, ages.cut(limit_ms))


def by_consumption(
    state: StreamState, view: Callable[[int], SegmentView], cuts: Sequence[Mapping[int, int]]
) -> Cut | None:
    """Return the cut that all consumers have passed; ``cuts`` are their positions.

    None if nothing can go, or if there is no consumer. One that has come less far than the head needs all there is. One
    that is at the end of a segment needs the segment, because that says where to go on.
    """
    consumers = [(cut, state.before(cut)) for cut in cuts]

    def reach(segment: int, offset: int) -> int | None:
        if all(segment in passed for _, passed in consumers):
            return None
        needed = min(cut.get(segment, 0) for cut, passed in consumers if segment not in passed)
        starts = view(segment).plog_starts()
        place = bisect_right(starts, needed)
        return max(offset, starts[place - 1]) if place else offset

    return _new_head(state, advance(state, reach)) if consumers else None


def _new_head(state: StreamState, cut: Cut) -> Cut | None:
    return None if cut == state.head else cut


class _Marks:
    """Where a segment can be cut behind an offset: where plogs begin, up to ``last``, and at its end if it has one."""

    def __init__(self, starts: StartOffsets, *, offset: int, last: int, end: int | None) -> None:
        self._starts, self._end = starts, end
        self._low = bisect_right(starts, offset)
        self._count = max(bisect_right(starts, last) - self._low, 0)

    def __len__(self) -> int:
        return self._count + (self._end is not None)

    def __getitem__(self, index: int) -> int:
        if index < self._count:
            return self._starts[self._low + index]
        assert self._end is not None
        return self._end


def _count_first(count: int, holds: Callable[[int], bool]) -> int:
    """Return for how many numbers, from 0 on, something holds; asks for few of them, most of those early ones."""
    low, step = 0, 1
    while low + step <= count and holds(low + step - 1):
        low, step = low + step, 2 * step
    rest = range(low, min(low + step - 1, count))
    return low + bisect_left(rest, True, key=lambda number: not holds(number))


class _Ages:
    """How old the parts of a stream are. Each is looked at once, so what is written meanwhile does not matter.

    A block whose time is still to come was written by a machine whose clock was wrong. It is not younger than what
    follows it, so the next time that can be counts; there is no telling how old it is by its own.

    With ``keeps_last`` the last plog with any bytes stays, in every segment that goes on.
    """

    def __init__(
        self, state: StreamState, view: Callable[[int], SegmentView], now_ms: int, *, keeps_last: bool = False
    ) -> None:
        self._state, self._view, self._now_ms, self._keeps_last = state, view, now_ms, keeps_last
        self._lengths: dict[int, int] = {}
        self._marks: dict[int, _Marks] = {}
        self._times: dict[tuple[int, int], int] = {}

    def cut(self, limit_ms: float) -> Cut:
        """Return the last cut before which all plogs are older than the limit."""
        return advance(self._state, lambda segment, offset: self._reach(segment, offset, limit_ms))

    def _reach(self, segment: int, offset: int, limit_ms: float) -> int | None:
        end = self._state.segments[segment].end
        if end is not None and offset >= end:
            return None
        marks = self._marks_behind(segment, offset)
        count = _count_first(len(marks), lambda index: limit_ms == math.inf or self._time(segment, index) < limit_ms)
        if count and count == len(marks) and end is not None:
            return None
        return marks[count - 1] if count else offset

    def _marks_behind(self, segment: int, offset: int) -> _Marks:
        if segment not in self._marks:
            tail, starts = self._length(segment), self._view(segment).plog_starts()
            end = self._state.segments[segment].end
            last = tail - 1 if self._keeps_last and end is None else tail
            self._marks[segment] = _Marks(starts, offset=offset, last=last, end=end)
        return self._marks[segment]

    def _time(self, segment: int, index: int) -> int:
        """Return when the last block before a mark was appended, or at the latest."""
        marks = self._marks[segment]
        nearest = islice(range(index, len(marks)), _PLOGS_SEARCHED_MAX)
        times = (self._block_time(segment, marks[number]) for number in nearest)
        found = next((time for time in times if time <= self._now_ms), None)
        return self._end_time(segment) if found is None else found

    def _block_time(self, segment: int, end: int) -> int:
        if (segment, end) not in self._times:
            self._times[segment, end] = self._view(segment).time_at(end - 1)
        return self._times[segment, end]

    def _end_time(self, segment: int) -> int:
        """Return when the last block of a segment was appended, at the latest."""
        if self._state.segments[segment].successors:
            return min(self._state.scaled_ms, self._now_ms)
        return min(self._block_time(segment, self._length(segment)), self._now_ms)

    def oldest(self) -> int:
        """Return the time of the oldest plog that can go."""
        places = self.cut(-math.inf).items()
        marks = {segment: self._marks[segment] for segment, _ in places if segment in self._marks}
        return min(self._time(segment, 0) for segment, found in marks.items() if len(found))

    def size(self, cut: Cut) -> int:
        """Return how many bytes there are behind a cut."""
        later = sum(map(self._length, self._state.after(cut)))
        return later + sum(self._length(segment) - offset for segment, offset in cut.items())

    def _length(self, segment: int) -> int:
        if segment not in self._lengths:
            end = self._state.segments[segment].end
            self._lengths[segment] = self._view(segment).tail if end is None else end
        return self._lengths[segment]
