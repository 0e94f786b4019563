"""Marks: what writers say about time, and what all of them together can promise a reader.

A writer's *mark* is a time and a position: an offset in some segments, behind all that it wrote before it noted the
time. A *watermark* is the lowest time of all marks with a cut that is behind all their positions. So time never
overtakes data: a reader that has read up to the cut has read all that was written before that time was noted.

Segments are numbered as they come. Of two that share a part of the key space, the one with the higher number comes
after the other: that is all these functions need to know about scaling.

Everything here is a value in and a value out.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import numpy.typing as npt

    from penstock.stream.catalog import SegmentState, StreamState

    Segments = Mapping[int, SegmentState]
    Offsets = Mapping[int, int]

__all__ = [
    "MarkStatus",
    "Relation",
    "Verdict",
    "WriterMark",
    "bound_of",
    "check_mark",
    "compare",
    "judge",
    "least_upper_bound",
    "place_in",
    "times_of",
]


class MarkStatus(Enum):
    """The result of noting a mark."""

    SUCCESS = "success"
    INVALID_TIME = "invalid time"  # the writer noted a later one before
    INVALID_POSITION = "invalid position"  # the writer was further before
    UNKNOWN_WRITER = "unknown writer"  # there is nothing to shut down or to remove


@dataclass(frozen=True, slots=True, eq=False)
class WriterMark:
    """A writer's last mark: its time, and its position.

    ``is_open`` is False once the writer was shut down, or was silent for too long: then its mark counts once more, and
    delays no watermark. Its position is behind all that it has written by then.
    """

    time: int
    segments: tuple[int, ...]
    offsets: npt.NDArray[np.int64]
    is_open: bool = True

    def position(self) -> dict[int, int]:
        """Return the offset in each segment."""
        return dict(zip(self.segments, self.offsets.tolist(), strict=True))

    def closed_at(self, position: Offsets) -> WriterMark:
        """Return the mark of the same writer when it is shut down, behind all that it has written."""
        return replace(
            self, segments=tuple(position), offsets=np.array(list(position.values()), np.int64), is_open=False
        )


def check_mark(known: WriterMark | None, new: WriterMark) -> MarkStatus:
    """Return whether a mark may follow the last one of its writer: neither time nor position goes back."""
    if known is None:
        return MarkStatus.SUCCESS
    if new.time < known.time:
        return MarkStatus.INVALID_TIME
    if known.segments == new.segments:
        is_back = bool((new.offsets < known.offsets).any())
    else:
        before = known.position()
        is_back = any(offset < before.get(segment, 0) for segment, offset in new.position().items())
    return MarkStatus.INVALID_POSITION if is_back else MarkStatus.SUCCESS


class Verdict(NamedTuple):
    """What a maintenance run finds: writers that are not waited for, and the marks that time the next watermark.

    There is to be no watermark if there are none of the latter.
    """

    gone: list[str]
    counted: list[WriterMark]


def judge(marks: Mapping[str, WriterMark], *, last_time: int | None) -> Verdict:
    """Decide whose marks give the next watermark its times, behind one of ``last_time``.

    Every writer with a later time takes part. One without holds up the others until it is shut down.
    """
    late = {name: mark for name, mark in marks.items() if last_time is not None and mark.time <= last_time}
    gone = [name for name, mark in late.items() if not mark.is_open]
    is_held_up = len(gone) < len(late)
    return Verdict(gone, [] if is_held_up else [mark for name, mark in marks.items() if name not in late])


def times_of(marks: Collection[WriterMark]) -> tuple[int, int]:
    """Return the lower and the upper time of a watermark.

    The slowest of the open writers says how late it is. Those that were shut down delay no watermark, however many;
    if there is no other, the one that had come furthest counts.
    """
    times = [mark.time for mark in marks]
    slowest = min((mark.time for mark in marks if mark.is_open), default=max(times))
    return slowest, max(times)


def bound_of(stream: StreamState, marks: Iterable[WriterMark], last: Offsets | None) -> dict[int, int]:
    """Return a cut of the stream that is behind all the marks, behind the ``last`` watermark, and not before the head.

    It is the least such cut, except where it needs a segment that no mark names: that segment is passed by as far as
    necessary, and not at all if it is new.
    """
    positions = [*_highest(marks), stream.head, *([] if last is None else [last])]
    bound = least_upper_bound(stream.segments, positions)
    while True:
        early = stream.before(bound)  # of some, though they share no key with what comes after them, all have passed
        bound = {segment: offset for segment, offset in bound.items() if segment not in early}
        missing = _gaps(stream.segments, bound)
        if not missing:
            return bound
        bound = least_upper_bound(stream.segments, [bound, _fill(stream, bound, missing)])


def _highest(marks: Iterable[WriterMark]) -> Iterator[dict[int, int]]:
    """Return positions that are as far as the marks, one for all that name the same segments."""
    alike: dict[tuple[int, ...], list[npt.NDArray[np.int64]]] = {}
    for mark in marks:
        alike.setdefault(mark.segments, []).append(mark.offsets)
    for segments, offsets in alike.items():
        yield dict(zip(segments, np.max(offsets, axis=0).tolist(), strict=True))


def least_upper_bound(segments: Segments, positions: Iterable[Offsets]) -> dict[int, int]:
    """Return the highest of all positions: of a segment the highest offset, and nothing that comes before another.

    Some of the key space may be in none of the segments that are left. Segments that are not there any more do not
    count: the stream begins behind them.
    """
    highest: dict[int, int] = {}
    for position in positions:
        for segment, offset in position.items():
            if segment in segments and offset > highest.get(segment, -1):
                highest[segment] = offset
    chosen: list[tuple[float, float, int]] = []  # by key range, none overlaps another
    for segment in sorted(highest, reverse=True):
        low, high = segments[segment].low, segments[segment].high
        place = bisect_left(chosen, (low, high))
        if (place == 0 or chosen[place - 1][1] <= low) and (place == len(chosen) or high <= chosen[place][0]):
            chosen.insert(place, (low, high, segment))
    return {segment: highest[segment] for *_, segment in chosen}


def _gaps(segments: Segments, bound: Collection[int]) -> list[tuple[float, float]]:
    """Return the parts of the key space that no segment of the bound has."""
    ranges = sorted((segments[segment].low, segments[segment].high) for segment in bound)
    ends = [0.0, *(high for _, high in ranges)]
    starts = [*(low for low, _ in ranges), 1.0]
    return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]


def _fill(stream: StreamState, bound: Collection[int], gaps: list[tuple[float, float]]) -> dict[int, int]:
    """Return the segments that had the missing key ranges in the latest epoch that the bound has come to."""
    epoch = max(stream.segments[segment].epoch for segment in bound)
    return {
        segment.segment_id: stream.head.get(segment.segment_id, 0)
        for segment in stream.segments.values()
        if _was_current(stream.segments, segment, epoch) and any(segment.overlaps(low, high) for low, high in gaps)
    }


def _was_current(segments: Segments, segment: SegmentState, epoch: int) -> bool:
    """Whether a segment took events in that epoch."""
    return segment.epoch <= epoch and all(segments[after].epoch > epoch for after in segment.successors)


class Relation(NamedTuple):
    """How a position lies to a cut: whether it is behind it in some segment, and ahead in some."""

    behind: bool
    ahead: bool


def compare(segments: Segments, position: Offsets, cut: Offsets) -> Relation:
    """Compare a position with a cut; where it is just there it is neither behind nor ahead.

    What is not there any more comes before everything that is.
    """
    behind = ahead = False
    for segment in position.keys() & cut.keys():
        behind |= position[segment] < cut[segment]
        ahead |= position[segment] > cut[segment]
    ours, others = position.keys() - cut.keys(), cut.keys() - position.keys()
    for segment, other in _overlaps(segments, ours, others):
        behind |= segment < other
        ahead |= segment > other
    behind |= not ours <= segments.keys()
    ahead |= not others <= segments.keys()
    return Relation(behind, ahead)


def _overlaps(segments: Segments, numbers: Collection[int], others: Collection[int]) -> Iterator[tuple[int, int]]:
    """Return the pairs that share a part of the key space; neither side has two that do."""
    left, right = _by_range(segments, numbers), _by_range(segments, others)
    while left and right:
        if left[-1].overlaps(right[-1].low, right[-1].high):
            yield left[-1].segment_id, right[-1].segment_id
        (left if left[-1].high <= right[-1].high else right).pop()


def _by_range(segments: Segments, numbers: Collection[int]) -> list[SegmentState]:
    """Return those that are there, the last first, so that they can be taken from the end."""
    there = (segments[segment] for segment in numbers if segment in segments)
    return sorted(there, key=lambda segment: segment.low, reverse=True)


def place_in(segments: Segments, segment: int, cut: Offsets) -> int | None:
    """Return from which offset of a segment on events lie behind a cut; None if none of them does.

    None is also returned for a segment that is not there any more.
    """
    if segment in cut:
        return cut[segment]
    if segment not in segments:
        return None
    return None if any(other > segment for _, other in _overlaps(segments, [segment], cut.keys())) else 0
