"""The times of events and of readers, by the watermarks of their stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import BadArgument, LogError
from penstock.model import TimeWindow
from penstock.stream.format import TIME_TYPE
from penstock.stream.time._marks import compare, place_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from penstock.model import Watermark
    from penstock.stream.catalog import StreamState
    from penstock.stream.time._watermark_log import WatermarkLog

    FindLog = Callable[[], WatermarkLog | None]

__all__ = ["NO_TIMES", "Steps", "WatermarkTimes", "event_window", "last_passed", "times_column", "window_at"]

_NEVER: Final = (1 << 63) - 1


def window_at(log: WatermarkLog, state: StreamState, position: Mapping[int, int]) -> TimeWindow | None:
    """Return between which times a reader at ``position`` is; None if no writer has noted time yet."""

    def is_not_ahead(watermark: Watermark) -> bool:
        relation = compare(state.segments, position, watermark.cut.offsets)
        return relation.ahead or not relation.behind

    return _window(log, last_passed(log, state, position), log.border(is_not_ahead).first)


def last_passed(log: WatermarkLog, state: StreamState, position: Mapping[int, int]) -> Watermark | None:
    """Return the last watermark that a position has passed in all segments."""
    return log.border(lambda watermark: not compare(state.segments, position, watermark.cut.offsets).behind).last


def event_window(log: WatermarkLog, state: StreamState, segment: int, offset: int) -> TimeWindow | None:
    """Return between which times an event is, by the watermarks before and behind it; None if there are none."""
    border = log.border(lambda watermark: _place_of(state, segment, watermark) <= offset)
    return _window(log, border.last, border.first)


def _window(log: WatermarkLog, before: Watermark | None, behind: Watermark | None) -> TimeWindow | None:
    if log.last is None:
        return None
    return TimeWindow(None if before is None else before.lower, None if behind is None else behind.upper)


def _place_of(state: StreamState, segment: int, watermark: Watermark) -> int:
    """Return from which offset of a segment on events lie behind a watermark."""
    place = place_in(state.segments, segment, watermark.cut.offsets)
    return _NEVER if place is None else place


class Steps(NamedTuple):
    """Times that hold from some offsets of a segment on; before the first of them it is ``begin``."""

    begin: int | None
    places: list[int]
    times: list[int]


NO_TIMES: Final = Steps(None, [], [])


def times_column(offsets: npt.NDArray[np.int64], steps: Steps) -> pa.Array:
    """Return the time at each offset; null where there is none yet."""
    begin, places, times = steps
    if begin is None and not places:
        return pa.nulls(len(offsets), TIME_TYPE)
    which = np.searchsorted(places, offsets, side="right")
    column = np.array([begin or 0, *times], np.int64)[which]
    return pa.array(column, mask=which == 0 if begin is None else None).cast(TIME_TYPE)


class WatermarkTimes:
    """The times of the events of one segment: of each, that of the last watermark that lies before it.

    Segments are read in order, so the watermarks are read along with them, each once.
    """

    __slots__ = ("_find_log", "_next_place", "_offset", "_read_to", "_segment", "_state", "_time")

    def __init__(self, find_log: FindLog, state: StreamState, segment: int) -> None:
        self._find_log, self._state, self._segment = find_log, state, segment
        self._offset = _NEVER  # of the segment, up to which times were asked for
        self._time: int | None = None  # of the last watermark before that
        self._read_to = 0  # in the watermark log
        self._next_place = 0  # in the segment, of the watermark there; 0 if it is not known

    def of(self, offsets: npt.NDArray[np.int64]) -> pa.Array:
        """Return the time of each event at ascending offsets; null where there is none yet."""
        return times_column(offsets, self.steps(int(offsets[0]), int(offsets[-1])) if len(offsets) else NO_TIMES)

    def steps(self, first: int, last: int) -> Steps:
        """Return how the times change from one offset of the segment to another."""
        log = self._find_log()
        if log is None:
            return NO_TIMES
        start = log.start
        try:
            if first < self._offset or self._read_to < start:
                self._begin(log, first)
            self._offset, begin = last, self._time
            return Steps(begin, *self._read(log, last))
        except (BadArgument, LogError):
            if log.start == start:
                raise
            self._offset = _NEVER  # watermarks were truncated away at this very moment
            return self.steps(first, last)

    def _begin(self, log: WatermarkLog, offset: int) -> None:
        border = log.border(lambda watermark: _place_of(self._state, self._segment, watermark) <= offset)
        self._time = None if border.last is None else border.last.lower
        self._read_to, self._next_place = border.offset, 0

    def _read(self, log: WatermarkLog, offset: int) -> tuple[list[int], list[int]]:
        """Return the watermarks up to an offset of the segment: where in it each of them is, and its time."""
        places, times = list[int](), list[int]()
        while self._next_place <= offset and self._read_to < log.end:
            _, watermark, end = log.at(self._read_to)
            self._next_place = _place_of(self._state, self._segment, watermark)
            if self._next_place <= offset:
                places.append(self._next_place)
                times.append(watermark.lower)
                self._read_to, self._time = end, watermark.lower
        return places, times
