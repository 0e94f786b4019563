"""A clock and randomness that a test controls."""

from __future__ import annotations

import random


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now, self._elapsed = start, 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        return self._now

    def elapsed(self) -> float:
        """Seconds since the clock was created."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number sets the clock back."""
        self._now += seconds
        self._elapsed += max(seconds, 0.0)

    def set_forward(self, seconds: float) -> None:
        """Set the clock forward without letting time pass."""
        self._now += seconds


class SeededRandom:
    """Randomness that is the same in every run with the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        """Return the next ``size`` bytes of the sequence."""
        return self._random.randbytes(size)
