"""The durations of syncs, the figure that says most about a store's disk."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.ports import File

__all__ = ["SyncTimes"]


class SyncTimes:
    """A histogram of sync durations; counting a sync costs a thousandth of its duration."""

    BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(self.BOUNDS_S) + 1)
        self._total_s = 0.0

    def datasync(self, file: File) -> None:
        """Sync a file and count the duration; a sync that fails is not counted."""
        start = time.perf_counter()
        file.datasync()
        seconds = time.perf_counter() - start
        with self._lock:
            self._counts[bisect_left(self.BOUNDS_S, seconds)] += 1
            self._total_s += seconds

    def figures(self) -> tuple[list[int], float]:
        """Return the number of syncs in each bucket, the last above all bounds, and the sum of their seconds."""
        with self._lock:
            return self._counts.copy(), self._total_s

    @property
    def count(self) -> int:
        """The number of syncs."""
        return sum(self.figures()[0])
