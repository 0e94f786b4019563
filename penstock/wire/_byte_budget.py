"""A budget for bytes that are under way: a thread that finds none waits until others have arrived."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ByteBudget"]


class ByteBudget:
    """So many bytes may be under way at a time; what is larger than that goes alone."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0  # how often there was no budget at first
        self._change = threading.Condition()

    def take(self, size: int, *, wait: bool = True) -> bool:
        """Take budget, as soon as there is some; without ``wait``, return whether there was."""
        with self._change:
            if not self._fits(size):
                self.refused += 1
                if not wait:
                    return False
                self._change.wait_for(lambda: self._fits(size))
            self.used += size
            return True

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.limit

    def give(self, size: int) -> None:
        """Give budget back."""
        with self._change:
            self.used -= size
            assert self.used >= 0, "what is given back was taken"
            self._change.notify_all()

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Have budget for the duration of a block."""
        self.take(size)
        try:
            yield
        finally:
            self.give(size)
