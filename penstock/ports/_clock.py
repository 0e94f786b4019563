"""Ports of time and randomness, and the machine's own."""

from __future__ import annotations

import os
import time
from typing import Protocol

__all__ = ["Clock", "Random", "SystemClock", "SystemRandom"]


class Clock(Protocol):
    """The time of day, and durations."""

    def now(self) -> float:
        """Seconds since 1970, as leases and retention count them."""

    def elapsed(self) -> float:
        """Seconds since an arbitrary start, for durations: setting the machine's clock does not affect it."""


class Random(Protocol):
    """The source of random ids."""

    def token(self, size: int) -> bytes:
        """Return ``size`` random bytes."""


class SystemClock:
    """The machine's clock; see :class:`Clock`."""

    now = staticmethod(time.time)
    elapsed = staticmethod(time.monotonic)


class SystemRandom:
    """The machine's randomness."""

    def token(self, size: int) -> bytes:
        """Return ``size`` random bytes."""
        return os.urandom(size)
