"""Reading ahead: the objects behind a sequential read are fetched before its reader asks for them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plog._replica import BlockSlice
    from penstock.plog.objects._journal import Cache
    from penstock.plog.objects._state import PlogState

__all__ = ["ReadAhead"]

_SIZE_MAX: Final = 16 << 20  # ahead of the reader
_EXTENTS_MAX: Final = 16
_MUCH: Final = 64 << 10
_NEVER: Final = -2


class ReadAhead:
    """How far the readers of a plog have come. Threads may share it: they only lose foresight."""

    __slots__ = ("_fetched", "_last")

    def __init__(self) -> None:
        self._last = _NEVER  # the number of the block that was read last
        self._fetched = 0  # the position in the image up to which extents are fetched or on their way

    def note(self, cache: Cache, plog: PlogState, slices: Sequence[BlockSlice]) -> None:
        """Note a read; fetch what follows if it goes on where the last one ended, or reads much from the beginning."""
        first, position = slices[0], slices[-1].position
        goes_on = 0 <= first.index - self._last <= 1 or (first.index == 0 and position - first.position >= _MUCH)
        self._last = slices[-1].index
        if not goes_on:
            self._fetched = 0
            return
        extents = plog.extents
        next_one = bisect_right(extents, position, key=lambda extent: extent.start)
        for extent in extents[next_one : next_one + _EXTENTS_MAX]:
            if extent.start >= position + _SIZE_MAX:
                break
            if extent.start >= self._fetched:
                self._fetched = extent.start + extent.size
                cache.prefetch(extent.name, extent.position, extent.size)
