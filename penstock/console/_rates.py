"""Rates: what was appended to each stream of late.

Segments count what is appended to them since the store was opened. The counts are sampled when a page asks for rates,
at most once a second, so a console that is not used costs nothing. A rate is the difference between the newest sample
and an older one; right after the first sample there is none yet.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.stream.segment import Segment

__all__ = ["Rate", "Rates"]

_EVERY_S: Final = 1.0
_SPAN_S: Final = 4.0  # that a rate is the mean of
_OLD_S: Final = 15.0  # after which a sample says nothing about now
_SAMPLES_MAX: Final = 16

_Key = tuple[int, int]  # a segment, by the uid of its stream


class Rate(NamedTuple):
    """Events and bytes in a second."""

    events: float
    bytes: float


class _RateSample(NamedTuple):
    at: float
    counts: dict[_Key, tuple[int, int]]


class Rates:
    """The rates of all streams and segments; ``at_work`` returns the segments that count, ``elapsed`` the time."""

    def __init__(self, at_work: Callable[[], Mapping[_Key, Segment]], elapsed: Callable[[], float]) -> None:
        self._at_work, self._elapsed = at_work, elapsed
        self._lock = threading.Lock()
        self._samples: deque[_RateSample] = deque(maxlen=_SAMPLES_MAX)

    def of_segments(self) -> dict[_Key, Rate] | None:
        """Return the rate of each segment that is at work; None if there is no older sample to compare with."""
        with self._lock:
            now = self._elapsed()
            while self._samples and now - self._samples[0].at > _OLD_S:
                self._samples.popleft()
            if not self._samples or now - self._samples[-1].at >= _EVERY_S:
                counts = {key: (segment.events, segment.bytes) for key, segment in self._at_work().items()}
                self._samples.append(_RateSample(now, counts))
            newest = self._samples[-1]
            older = [sample for sample in self._samples if newest.at - sample.at >= _EVERY_S]
            recent = [sample for sample in older if newest.at - sample.at <= _SPAN_S]
        if not older:
            return None
        return _difference(recent[0] if recent else older[-1], newest)

    def of_streams(self) -> dict[int, Rate] | None:
        """Return the rate of each stream, by its uid."""
        rates = self.of_segments()
        if rates is None:
            return None
        totals: dict[int, Rate] = {}
        for (uid, _), rate in rates.items():
            before = totals.get(uid, Rate(0.0, 0.0))
            totals[uid] = Rate(before.events + rate.events, before.bytes + rate.bytes)
        return totals


def _difference(old: _RateSample, new: _RateSample) -> dict[_Key, Rate]:
    seconds = new.at - old.at
    rates = {}
    for key, (events, size) in new.counts.items():
        events_before, size_before = old.counts.get(key, (0, 0))
        rates[key] = Rate(max(0, events - events_before) / seconds, max(0, size - size_before) / seconds)
    return rates
