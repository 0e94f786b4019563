"""The wake-up: how a waiting reader learns at once that something happened."""

from __future__ import annotations

import threading
from contextlib import suppress

__all__ = ["WakeUp", "as_timeout"]


class WakeUp:
    """One thread waits, any thread notifies. A notification while no thread waits is kept for the next wait."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def notify(self) -> None:
        """Wake the waiting thread, or the next that waits."""
        with suppress(RuntimeError):  # it was notified already, and no thread has waited since
            self._gate.release()

    def wait(self, timeout: float | None) -> bool:
        """Return True when it is notified, False when the time is over; None waits for as long as it takes."""
        return self._gate.acquire(timeout=as_timeout(timeout))


def as_timeout(seconds: float | None) -> float:
    """Return a time to wait as locks take it: None is for ever, less than nothing is nothing, and there is a limit."""
    return -1 if seconds is None else min(max(seconds, 0), threading.TIMEOUT_MAX)
