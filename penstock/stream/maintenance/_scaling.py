"""Automatic scaling: when segments split, and when they merge again.

What a segment takes is measured over windows of ``WINDOW_S``. A segment splits when it took more than the target over
the last window, into as many equal parts as would each take the target, at most ``factor``. Two neighbours merge when
together they took less than half of the target in every window of the last ``MERGE_AFTER_S``; half, so that what was
merged is not split again at once. Between two changes of a stream are at least ``COOL_DOWN_S``, each is one split or
one merge, the hottest segment comes first, and merges come after splits.

A stream has never more than ``SEGMENTS_MAX`` segments, and a merge never leaves fewer than ``min_segments``; one that
has fewer has its widest segment split, whatever it takes. A segment with less than ``WIDTH_MIN`` of the key space is
not split: what makes it hot is a single key, and that cannot be spread.

Measurements are not stored. A new segment, one without a sample for longer than a window, and every segment
after a restart or when the clock was set back are measured afresh, and left alone until there is a whole window.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from penstock.model import SEGMENTS_MAX, ByDataRate, ByEventRate
from penstock.stream.catalog import even_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.stream.catalog import SegmentState, StreamState

    Unit = Literal["events", "bytes"]
    _Rate = Callable[[float], float | None]

__all__ = ["COOL_DOWN_S", "MERGE_AFTER_S", "SAMPLES_MAX", "WIDTH_MIN", "WINDOW_S", "Decision", "Meter", "decide"]

WINDOW_S: Final = 60.0
MERGE_AFTER_S: Final = 600.0
COOL_DOWN_S: Final = 60.0
WIDTH_MIN: Final = 2.0**-24
_SAMPLE_EVERY_S: Final = 10.0  # what comes sooner takes the place of the one before it
_MERGE_WINDOWS: Final = int(MERGE_AFTER_S / WINDOW_S)
SAMPLES_MAX: Final = int(MERGE_AFTER_S / _SAMPLE_EVERY_S) + 4


class _Sample(NamedTuple):
    time: float
    events: int
    bytes: int


class Meter:
    """Measures the load of one segment; needs a sample at least once a window."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[_Sample] = []

    def sample(self, now: float, *, events: int, size: int) -> None:
        """Add a sample: how many events and bytes the segment has taken so far."""
        new, samples = _Sample(now, events, size), self._samples
        if samples and not _follows(samples[-1], new):
            samples.clear()
        if len(samples) > 1 and samples[-1].time - samples[-2].time < _SAMPLE_EVERY_S:
            samples.pop()
        samples.append(new)
        while len(samples) > 2 and samples[1].time <= now - MERGE_AFTER_S:
            del samples[0]
        assert len(samples) <= SAMPLES_MAX

    def rate(self, unit: Unit, end: float) -> float | None:
        """Return the load per second in the window before ``end``; None if the window was not measured completely."""
        start = end - WINDOW_S
        if not self._samples or self._samples[0].time > start:
            return None
        return (self._count(unit, end) - self._count(unit, start)) / WINDOW_S

    def _count(self, unit: Unit, time: float) -> float:
        """Return the count at any time; between two samples it grows evenly."""
        index = bisect_right(self._samples, time, key=lambda sample: sample.time)
        before = self._samples[index - 1]
        count = getattr(before, unit)
        if index == len(self._samples):
            return float(count)
        after = self._samples[index]
        share = (time - before.time) / (after.time - before.time)
        return float(count + share * (getattr(after, unit) - count))


def _follows(before: _Sample, after: _Sample) -> bool:
    grown = after.events >= before.events and after.bytes >= before.bytes
    return grown and 0 <= after.time - before.time <= WINDOW_S


@dataclass(frozen=True, slots=True)
class Decision:
    """A change of a stream's segments, as ``scale_stream`` takes it."""

    seal: list[int]
    ranges: list[tuple[float, float]]


def decide(
    state: StreamState, meters: Mapping[int, Meter], now: float, *, clock_time: float | None = None
) -> Decision | None:
    """Return the split or merge that a stream needs now, if any; ``meters`` are by segment.

    ``now`` is what they were sampled by, and ``clock_time`` the time as the stream remembers it, if that is another.
    """
    match state.config.scaling:
        case ByEventRate() as scaling:
            unit: Unit = "events"
        case ByDataRate() as scaling:
            unit = "bytes"
        case _:
            return None
    since_scaled = (now if clock_time is None else clock_time) - state.scaled_ms / 1000
    if state.sealed or 0 <= since_scaled < COOL_DOWN_S:
        return None
    current = state.current
    if len(current) < scaling.min_segments:
        widest = max(current, key=lambda segment: segment.high - segment.low)
        return _split(widest, scaling.min_segments - len(current) + 1)
    measured = {segment: partial(meter.rate, unit) for segment, meter in meters.items()}
    return _hottest_split(current, measured, scaling, now) or _coolest_merge(current, measured, scaling, now)


def _hottest_split(
    current: Sequence[SegmentState], measured: Mapping[int, _Rate], scaling: ByEventRate | ByDataRate, now: float
) -> Decision | None:
    hot: list[tuple[float, SegmentState]] = []
    for segment in current:
        rate = measured[segment.segment_id](now) if segment.segment_id in measured else None
        if rate is not None and rate > scaling.target and segment.high - segment.low >= WIDTH_MIN:
            hot.append((rate, segment))
    parts_max = SEGMENTS_MAX - len(current) + 1
    if not hot or parts_max < 2:
        return None
    rate, hottest = max(hot, key=lambda found: found[0])
    return _split(hottest, min(scaling.factor, parts_max, math.ceil(rate / scaling.target)))


def _split(segment: SegmentState, parts: int) -> Decision:
    return Decision([segment.segment_id], even_ranges(parts, segment.low, segment.high))


def _coolest_merge(
    current: Sequence[SegmentState], measured: Mapping[int, _Rate], scaling: ByEventRate | ByDataRate, now: float
) -> Decision | None:
    if len(current) <= scaling.min_segments:
        return None
    cool: list[tuple[float, SegmentState, SegmentState]] = []
    for left, right in pairwise(current):
        if left.segment_id in measured and right.segment_id in measured:
            highest = _highest_together(measured[left.segment_id], measured[right.segment_id], now)
            if highest is not None and highest < scaling.target / 2:
                cool.append((highest, left, right))
    if not cool:
        return None
    _, left, right = min(cool, key=lambda found: found[0])
    return Decision([left.segment_id, right.segment_id], [(left.low, right.high)])


def _highest_together(left: _Rate, right: _Rate, now: float) -> float | None:
    """Return the highest load of two segments together in the last windows; None if one was not measured."""
    highest = 0.0
    for window in reversed(range(_MERGE_WINDOWS)):  # the first is the one that a new segment lacks
        a, b = left(now - window * WINDOW_S), right(now - window * WINDOW_S)
        if a is None or b is None:
            return None
        highest = max(highest, a + b)
    return highest
