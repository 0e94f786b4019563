"""The pace of an idle query: Spark asks a source every 10 ms for what is new, however long nothing has come.

The source rests before it asks its store again, and then answers with what is there. So an answer is never old, and
``processAllAvailable`` does not return too early. A rest is a multiple of what the last poll took: it is short where
asking is cheap, and long where a query has many streams or the machine is busy.

A new watermark without an event costs two micro-batches: one for the row that carries it, and one that closes windows.
Where writers note time every second, that would be most of a core, so such batches have a pace of their own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Clock

__all__ = ["REST_FACTOR", "REST_MAX_S", "WATERMARKS_AT_ONCE", "Pace", "WatermarkPace"]

REST_MAX_S: Final = 0.2
REST_FACTOR: Final = 20
WATERMARKS_AT_ONCE: Final = 10


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

    So time that is noted now and then is never held back, and neither is that of a test, which notes it a few times.
    """

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self._clock, self._interval_s = clock, interval_s
        self._covered_until = 0.0  # by the batches that have run, each of which covers an interval

    @property
    def is_due(self) -> bool:
        """Whether another batch may run now."""
        return self._covered_until - self._clock.elapsed() <= (WATERMARKS_AT_ONCE - 1) * self._interval_s

    def take(self) -> bool:
        """Return whether another batch may run now, and count it."""
        is_due = self.is_due
        if is_due:
            self._covered_until = max(self._covered_until, self._clock.elapsed()) + self._interval_s
        return is_due
