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
    """Blocks one behind another: where each begins and ends, and what it is.

    A thread that fetches holds ``_fetching`` alone. It may wait for the answer of a server, which comes only after the
    thread that receives has added the blocks that were sent before it.
    """

    def __init__(self) -> None:
        self._fetching = threading.Lock()
        self._lock = threading.Lock()  # held for a moment only
        self._blocks: deque[tuple[int, int, T]] = deque()

    def holds(self, offset: int) -> bool:
        """Whether the block that holds ``offset`` is here."""
        with self._lock:
            return bool(self._blocks) and self._blocks[0][0] <= offset < self._blocks[-1][1]

    def add(self, start: int, end: int, block: T) -> None:
        """Add a block that comes behind those that are here, or takes their place; this does not wait for a fetch."""
        with self._lock:
            blocks = self._blocks
            if blocks and start < blocks[-1][1]:
                return  # it is here: it was fetched, or sent while another thread fetched it
            if blocks and start > blocks[-1][1]:
                blocks.clear()
            blocks.append((start, end, block))
            while len(blocks) > 1 and end - blocks[0][0] > NEWEST_SIZE:
                blocks.popleft()

    def between(self, offset: int, stop: int, fetch: Callable[[int, int], Iterable[tuple[int, int, T]]]) -> list[T]:
        """Return the blocks that hold any byte from ``offset`` to ``stop``; those that are not here are fetched.

        A thread that asks while another fetches waits for it.
        """
        if self._is_behind(offset):
            return [block for _, _, block in fetch(offset, stop)]  # a reader that is behind shares with no other
        with self._fetching:
            found = self._found(offset, stop)
            reached = found[-1][1] if found else offset
            for block in fetch(reached, stop) if reached < stop else ():
                self.add(*block)
                found.append(block)
            return [stored for _, _, stored in found]

    def _is_behind(self, offset: int) -> bool:
        with self._lock:
            return bool(self._blocks) and offset < self._blocks[0][0]

    def _found(self, offset: int, stop: int) -> list[tuple[int, int, T]]:
        """Return the blocks of a range that are here, from its first one on; none if that is not here."""
        with self._lock:
            if not self._blocks or offset < self._blocks[0][0]:
                return []
            return [block for block in self._blocks if block[0] < stop and offset < block[1]]
