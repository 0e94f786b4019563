"""The pace of an idle query: Spark asks a source every 10 ms for what is new, however long nothing has come.

The source rests before it asks its store again, and then answers with what is there. So an answer is never old, and
``processAllAvailable`` does not return too early. A rest is a multiple of what the last poll took: it is short where
asking is cheap, and long where a query has many streams or the machine is busy.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Clock

__all__ = ["REST_FACTOR", "REST_MAX_S", "Pace"]

REST_MAX_S: Final = 0.2
REST_FACTOR: Final = 20


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
