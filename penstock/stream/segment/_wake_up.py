"""The wake-up: how a waiting reader learns at once that something happened."""

from __future__ import annotations

import threading
from contextlib import suppress

__all__ = ["WakeUp", "as_timeout"]


class WakeUp:
    """One waits, many ring. A ring while nobody waits is kept for the next wait."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def notify(self) -> None:
        """Wake the one who waits, or who will."""
        with suppress(RuntimeError):  # it rang already, and nobody has heard it yet
            self._gate.release()

    def wait(self, timeout: float | None) -> bool:
        """Return True when it rings, False when the time is over; None waits for as long as it takes."""
        return self._gate.acquire(timeout=as_timeout(timeout))


def as_timeout(seconds: float | None) -> float:
    """Return a time to wait as locks take it: None is for ever, less than nothing is nothing, and there is a limit."""
    return -1 if seconds is None else min(max(seconds, 0), threading.TIMEOUT_MAX)
