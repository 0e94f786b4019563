"""The newest blocks of a segment: readers at its tail ask for the same ones, which are fetched once."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["NEWEST_SIZE", "Newest"]

T = TypeVar("T")

NEWEST_SIZE: Final = 1 << 20  # bytes that are kept of a segment, or one block


class Newest(Generic[T]):
    """Blocks one behind another: where each begins and ends, and what it is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: deque[tuple[int, int, T]] = deque()

    def holds(self, offset: int) -> bool:
        """Whether the block that holds ``offset`` is here."""
        with self._lock:
            return bool(self._blocks) and self._blocks[0][0] <= offset < self._blocks[-1][1]

    def add(self, start: int, end: int, block: T) -> None:
        """Add a block that comes behind those that are here; any other takes their place."""
        with self._lock:
            if self._blocks and start < self._blocks[-1][1]:
                return  # a reader has fetched it already
            if self._blocks and start > self._blocks[-1][1]:
                self._blocks.clear()
            self._blocks.append((start, end, block))
            self._drop_oldest()

    def between(self, offset: int, stop: int, fetch: Callable[[int, int], Iterable[tuple[int, int, T]]]) -> list[T]:
        """Return the blocks that hold any byte from ``offset`` to ``stop``; those that are not here are fetched.

        A thread that asks while another fetches waits for it.
        """
        with self._lock:
            blocks = self._blocks
            if not blocks or offset > blocks[-1][1]:
                blocks.clear()
            elif offset < blocks[0][0]:
                return [block for _, _, block in fetch(offset, stop)]  # a reader that is behind shares with no other
            reached = blocks[-1][1] if blocks else offset
            if reached < stop:
                blocks.extend(fetch(reached, stop))
            found = [block for start, end, block in blocks if start < stop and offset < end]
            self._drop_oldest()
            return found

    def _drop_oldest(self) -> None:
        while len(self._blocks) > 1 and self._blocks[-1][1] - self._blocks[0][0] > NEWEST_SIZE:
            self._blocks.popleft()
