"""When a client tries something again: one policy for lost connections, absent servers and busy ones.

Whatever is repeated is bounded, by attempts in a row or by time. The caller's own time limit ends it, too, and so does
Ctrl-C. The pause before each attempt is twice the one before, up to half a second, and each client takes a random part
of it: clients that lost their server together do not come back together, again and again.
"""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.deadlines import DeadlineExceeded, time_left
from penstock.ports import interruption_point

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ATTEMPTS_MAX", "PAUSE_MAX_S", "PAUSE_S", "Retry"]

ATTEMPTS_MAX: Final = 20  # in a row; each waits for a new connection
PAUSE_S: Final = 0.02
PAUSE_MAX_S: Final = 0.5
_DOUBLINGS: Final = 10  # more than it takes to get there
_jitter: Final = random.Random()  # its own: threads in the background do not change what a program has seeded
_INTERRUPTIBLE_EVERY_S: Final = 0.05


class Retry(msgspec.Struct, kw_only=True):
    """Counts attempts that failed: at most ``attempts_max`` in a row, and none after ``until``.

    ``until`` is a time of ``time.monotonic``. Every call to a server makes one, so it is a struct: that costs little.
    """

    attempts_max: float = ATTEMPTS_MAX
    until: float = math.inf
    _failed: int = 0

    def after(self, error: Exception, give_up: Callable[[], Exception] | None = None) -> None:
        """Return when there may be another attempt; raise ``give_up``, or the error, if there may be none."""
        end = time.monotonic() + self.pause_after(error, give_up)
        while (pause_s := end - time.monotonic()) > 0:
            time.sleep(min(pause_s, _INTERRUPTIBLE_EVERY_S))
            interruption_point()

    def pause_after(self, error: Exception, give_up: Callable[[], Exception] | None = None) -> float:
        """Return the seconds to wait before another attempt, for callers that wait themselves; or raise as above."""
        self._failed += 1
        if self._failed >= self.attempts_max or time.monotonic() > self.until:
            if give_up is None:
                raise error
            raise give_up() from error
        left = time_left()
        if left == 0:
            raise DeadlineExceeded from error
        interruption_point()
        pause_s = min(PAUSE_S * 2.0 ** min(self._failed - 1, _DOUBLINGS), PAUSE_MAX_S) * _jitter.uniform(0.5, 1.0)
        return pause_s if left is None else min(pause_s, left)

    def progress(self) -> None:
        """Count from the beginning: an attempt has achieved something."""
        self._failed = 0
