"""When a client tries something again: one policy for lost connections, absent servers and busy ones.

Whatever is repeated is bounded, by attempts in a row or by time. The caller's own time limit ends it, too, and so does
Ctrl-C.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.deadlines import DeadlineExceeded, time_left
from penstock.ports import interruption_point

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ATTEMPTS_MAX", "Retry"]

ATTEMPTS_MAX: Final = 20  # in a row; each waits for a new connection


class Retry(msgspec.Struct, kw_only=True):
    """Counts attempts that failed: at most ``attempts_max`` in a row, and none after ``until``, with pauses between.

    ``until`` is a time of ``time.monotonic``. Every call to a server makes one, so it is a struct: that costs little.
    """

    attempts_max: float = ATTEMPTS_MAX
    until: float = math.inf
    pause_s: float = 0.0
    _failed: int = 0

    def after(self, error: Exception, give_up: Callable[[], Exception] | None = None) -> None:
        """Return when there may be another attempt; raise ``give_up``, or the error, if there may be none."""
        self._failed += 1
        if self._failed >= self.attempts_max or time.monotonic() > self.until:
            if give_up is None:
                raise error
            raise give_up() from error
        if time_left() == 0:
            raise DeadlineExceeded from error
        interruption_point()
        if self.pause_s:
            time.sleep(self.pause_s)

    def progress(self) -> None:
        """Count from the beginning: an attempt has achieved something."""
        self._failed = 0
