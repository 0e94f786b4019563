"""A budget for bytes that are under way: a thread that finds none waits until others have arrived."""

from __future__ import annotations

import threading

import msgspec

__all__ = ["ByteBudget"]


class ByteBudget:
    """So many bytes may be under way at a time; what is larger than that goes alone."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0  # how often there was no budget at first
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._waiting = 0  # threads

    def take(self, size: int, *, wait: bool = True) -> bool:
        """Take budget, as soon as there is some; without ``wait``, return whether there was."""
        with self._lock:
            if self.used and not self._fits(size):
                self.refused += 1
                if not wait:
                    return False
                self._wait_until_it_fits(size)
            self.used += size
            return True

    def _wait_until_it_fits(self, size: int) -> None:
        self._waiting += 1
        try:
            self._change.wait_for(lambda: self._fits(size))
        finally:
            self._waiting -= 1

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit

    def give(self, size: int) -> None:
        """Give budget back."""
        with self._lock:
            self.used -= size
            assert self.used >= 0, "what is given back was taken"
            if self._waiting:
                self._change.notify_all()

    def held(self, size: int) -> _HeldBytes:
        """Have budget for the duration of a block."""
        return _HeldBytes(self, size)


class _HeldBytes(msgspec.Struct):
    """Some budget, for the duration of a block; a generator would take longer than all else here."""

    _budget: ByteBudget
    _size: int

    def __enter__(self) -> None:
        self._budget.take(self._size)

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._budget.give(self._size)
