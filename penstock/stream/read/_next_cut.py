"""The next cut: how far a reader that takes one batch after another reads next, on its way to a later cut.

A cut budget limits the bytes and the events, which the segments share evenly; what one segment does not need is left to
the others. Successors come once all segments that must be read before them are. At least one event is taken if there is
any. The cost depends on the budget, and not on how much lies behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.stream.format import Block, Chunk
from penstock.stream.segment import LargeBlock, block_at, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.stream.catalog import Succession
    from penstock.stream.segment import ReadableSegment


__all__ = ["CutBudget", "next_cut_through"]


class CutBudget:
    """How many bytes and events may still be taken before the next cut; None is no limit."""

    __slots__ = ("bytes", "events", "is_untouched")

    def __init__(self, size: int | None, events: int | None) -> None:
        self.bytes, self.events = size, events
        self.is_untouched = True

    def is_empty(self) -> bool:
        """Whether nothing more may be taken."""
        return not self.is_untouched and (self.bytes == 0 or self.events == 0)

    def share(self, parts: int) -> CutBudget:
        """Return the share of each of so many segments."""
        return CutBudget(*(None if budget is None else max(budget // parts, 1) for budget in (self.bytes, self.events)))

    def take(self, size: int, events: int) -> None:
        """Note what was taken; a single event may be more than there was budget for."""
        self.bytes = None if self.bytes is None else max(self.bytes - size, 0)
        self.events = None if self.events is None else max(self.events - events, 0)
        self.is_untouched = self.is_untouched and not size


def next_cut_through(
    start: Mapping[int, int],
    ends: Mapping[int, int],
    successions: Iterable[Succession],
    segment_of: Callable[[int], ReadableSegment],
    budget: CutBudget,
) -> dict[int, int]:
    """Return the next cut behind the cut ``start``; ``ends`` are how far segments are read at most."""
    found = dict(start)
    waiting = list(successions)
    while True:
        _fill({segment: ends.get(segment, place) for segment, place in found.items()}, found, segment_of, budget)
        over = {segment for segment, place in found.items() if place >= ends.get(segment, place)}
        ready = [(old, new) for old, new in waiting if old <= over and new <= ends.keys()]
        if not ready or budget.is_empty():
            return found
        waiting = [succession for succession in waiting if succession not in ready]
        for old, new in ready:
            found = {segment: place for segment, place in found.items() if segment not in old}
            found |= dict.fromkeys(new, 0)


def _fill(
    ends: Mapping[int, int], found: dict[int, int], segment_of: Callable[[int], ReadableSegment], budget: CutBudget
) -> None:
    """Move on in segments that are read side by side, as far as there is budget."""
    active = [segment for segment, end in sorted(ends.items()) if found[segment] < end]
    while active and not budget.is_empty():
        moved = []
        for index, segment in enumerate(active):
            if budget.is_empty():
                return
            place, end = found[segment], ends[segment]
            share = budget.share(len(active) - index)  # of what is left: the first event may have taken more than that
            reached, count = _reach(segment_of(segment), place, end, share, at_least_one=budget.is_untouched)
            budget.take(reached - place, count)
            found[segment] = reached
            moved += [segment] if place < reached < end else []
        active = moved


def _reach(segment: ReadableSegment, place: int, end: int, share: CutBudget, *, at_least_one: bool) -> tuple[int, int]:
    """Return how far a share reaches, and how many events that are, if it matters."""
    stop = end if share.bytes is None else _border(segment, place, min(place + share.bytes, end), end)
    if stop <= place and at_least_one:
        stop = _first_end(segment, place, end)
    return (stop, 0) if share.events is None else _count(segment, place, stop, share.events)


def _border(segment: ReadableSegment, place: int, target: int, end: int) -> int:
    """Return the last place up to ``target`` where an event begins or ends; not before ``place``."""
    if target >= end:
        return end
    block = block_at(segment, target)
    assert block is not None, "the segment goes on up to the end"
    found = block.start
    if isinstance(block, Chunk):
        found = block.event_start
    elif isinstance(block, Block):
        offsets = block.offsets()
        index = int(np.searchsorted(offsets, target, "right")) - 1
        found = int(offsets[index]) if index >= 0 else block.start
    return max(found, place)


def _first_end(segment: ReadableSegment, place: int, end: int) -> int:
    """Return where the first event from a place on ends."""
    while place < end:
        for block in scan(segment, "", 0, place, end=end, size=1):
            first = block.index_at(place) or 0
            if isinstance(block, Block | LargeBlock) and first < block.count:
                return block.offset_of(first + 1)
            place = block.end
    return end


def _count(segment: ReadableSegment, place: int, stop: int, most: int) -> tuple[int, int]:
    """Return how far ``most`` events reach, at most up to ``stop``, and how many they are."""
    count = 0
    while place < stop and count < most:
        for block in scan(segment, "", 0, place, end=stop):
            if not isinstance(block, Block):
                place, count = block.end, count + isinstance(block, LargeBlock)
                break
            first = block.index_at(place) or 0
            last = block.index_at(stop) if stop < block.end else block.count
            assert last is not None, "the next cut is where an event begins or ends"
            if last - first > most - count:
                return block.offset_of(first + most - count), most
            place, count = min(block.end, stop), count + last - first
            if count >= most:
                break
    return place, count
