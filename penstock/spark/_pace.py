"""The pace of an idle query: Spark asks a source every 10 ms for what is new, however long nothing has come.

The source rests before it asks its store again, and then answers with what is there. So an answer is never old, and
``processAllAvailable`` does not return too early. A rest is a multiple of what the last poll took: it is short where
asking is cheap, and long where a query has many streams or the machine is busy.

A new watermark without an event costs two micro-batches: one for the row that carries it, and one that closes windows.
Where writers note time every second, that would be most of a core, so such batches have a pace of their own. It becomes
slower the longer no event has come: who has waited ten minutes for an event can wait another one for its window.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Clock

__all__ = ["REST_FACTOR", "REST_MAX_S", "WATERMARKS_AT_ONCE", "WATERMARK_INTERVAL_MAX_S", "Pace", "WatermarkPace"]

REST_MAX_S: Final = 0.2
REST_FACTOR: Final = 40
WATERMARKS_AT_ONCE: Final = 10
WATERMARK_INTERVAL_MAX_S: Final = 60.0  # unless a user wants a longer one
_SILENCE_SHARE: Final = 0.1  # of the time without an event, by which a window may close late


class Pace:
    """Rests between polls that find nothing; one that finds something is followed by the next one at once."""

    def __init__(self, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock, self._sleep = clock, sleep
        self._rest_until = self._polled_at = 0.0

    def begin(self) -> None:
        """Rest as long as the last poll has earned; a query that is triggered less often does not rest."""
        rest_s = self._rest_until - self._clock.elapsed()
        if rest_s > 0:
            self._sleep(rest_s)
        self._polled_at = self._clock.elapsed()

    def end(self, *, is_idle: bool) -> None:
        """Note how long a poll took, and whether it found nothing."""
        now = self._clock.elapsed()
        rest_s = min(REST_FACTOR * (now - self._polled_at), REST_MAX_S)
        self._rest_until = now + rest_s if is_idle else 0.0


class WatermarkPace:
    """Lets batches run that carry a new watermark and no event: a few at once, and then one an interval.

    An interval is ``interval_s`` at first, and a tenth of the time without an event later. An interval of nothing stays
    that, and holds nothing back. A test, which notes time a few times, does not wait.
    """

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self._clock, self._interval_s = clock, interval_s
        self._silent_since = self._counted_at = clock.elapsed()
        self._batches = float(WATERMARKS_AT_ONCE)  # that may run at once; one more with each interval

    @property
    def is_due(self) -> bool:
        """Whether another batch may run now."""
        return self._batches_now() >= 1

    def take(self) -> bool:
        """Return whether another batch may run now, and count it."""
        batches = self._batches_now()
        if batches < 1:
            return False
        self._batches, self._counted_at = batches - 1, self._clock.elapsed()
        return True

    def note_event(self) -> None:
        """Begin with the shortest interval again."""
        self._batches = self._batches_now()
        self._silent_since = self._counted_at = self._clock.elapsed()

    def _batches_now(self) -> float:
        passed_s = self._clock.elapsed() - self._counted_at
        interval_s = self._interval_now()
        return min(self._batches + passed_s / interval_s, WATERMARKS_AT_ONCE) if interval_s else WATERMARKS_AT_ONCE

    def _interval_now(self) -> float:
        if not self._interval_s:
            return 0.0
        grown_s = _SILENCE_SHARE * (self._clock.elapsed() - self._silent_since)
        return max(self._interval_s, min(grown_s, WATERMARK_INTERVAL_MAX_S))
