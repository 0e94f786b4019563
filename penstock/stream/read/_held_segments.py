"""The segments that a reader holds: a cursor for each, whose turn is next, and what was lost before it was read.

A cursor is the place of a reader in one segment, and the block that it is in. A segment with something to read is in a
queue. It gets there when a block arrives, from any thread, or when it is put back after its turn; so a reader of very
many segments need not look at all of them.

Data that was truncated away, or deleted, before the reader came to it is in the queue of losses. The reader raises each
of them once.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import chain, islice
from operator import length_hint
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import (
    BadArgument,
    CorruptData,
    DataTruncated,
    EventTooLarge,
    LogError,
    NoSuchEvent,
    NoSuchStream,
    PenstockError,
    StreamCorrupt,
)
from penstock.model import EventPointer, StreamCut
from penstock.stream.format import Block
from penstock.stream.segment import LargeBlock, WakeUp, large_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from penstock.stream.catalog import Key
    from penstock.stream.format import AnyBlock
    from penstock.stream.read._membership import Membership
    from penstock.stream.segment import ReadableSegment

    BatchPart = tuple[Key, Block | LargeBlock, int, int, npt.NDArray[np.int64]]
    """Events of one block: the segment, the block, from which event, up to which, and the offsets of all of them."""
    from collections.abc import Mapping

    from penstock.stream.segment import Times

__all__ = ["UNREADABLE", "Cursor", "HeldSegments", "LossQueue", "first_with_events"]

UNREADABLE: Final = (CorruptData, DataTruncated, NoSuchEvent)
"""What is wrong with an event itself: trying again would not help."""


class Cursor:
    """A reader's place in one segment.

    Events were returned up to ``reached`` and count as read up to ``place``; the group reads up to ``end``. While there
    is a ``block``, its events from ``first`` up to ``last`` come next.
    """

    __slots__ = (
        "_ahead",
        "_blocks",
        "_large",
        "_membership",
        "block",
        "end",
        "first",
        "is_ready",
        "key",
        "last",
        "place",
        "reached",
        "segment",
        "wake_up",
    )

    wake_up: WakeUp  # notified when something happens to the segment

    def __init__(
        self, membership: Membership, key: Key, segment: ReadableSegment, *, place: int, end: int | None
    ) -> None:
        self._membership, self.key, self.segment, self.end = membership, key, segment, end
        self.place = self.reached = place
        self.block: Block | LargeBlock | None = None
        self.first = self.last = 0
        self._blocks: Iterator[AnyBlock] = iter(())
        self._ahead: Iterator[AnyBlock] = iter(())  # the first of them, which wait for nothing
        self._large: list[int] = []
        self.is_ready = False  # whether its turn will come

    def load(self, event_size_max: int) -> Block | LargeBlock | None:
        """Return the block with the next event; None if there is none now, or the segment is gone."""
        while self.block is None:
            block = self._next_block()
            if block is not None:
                self._open(block, event_size_max)
            elif self.reached >= self.limit or not self._fetch():
                return None
        return self.block

    @property
    def limit(self) -> int:
        """How far there is anything to read now."""
        return self.segment.tail if self.end is None else self.end

    def _next_block(self) -> Block | LargeBlock | None:
        try:
            block = next(self._blocks, None)
        except (BadArgument, LogError):
            head = self.head()
            if head is not None and self.reached >= head:
                raise
            return None  # truncated away at this very moment
        if block is None or isinstance(block, Block):
            return block
        try:
            large = large_event(self.segment, *self.key, block, end=self.end)
        except UNREADABLE:
            self._go_on_at(block.end)  # what an extent cannot tell, the chunks can
            raise
        if large is None:  # a chunk of an event whose beginning could not be read, or an extent at the end
            self._pass_to(block.end)
        else:
            self._drop_blocks()  # its chunks are passed by
        return large

    def _go_on_at(self, offset: int) -> None:
        """Step over what cannot be read; the segment may begin even later now."""
        self._drop_blocks()
        self._pass_to(max(offset, self.head() or 0))

    def _drop_blocks(self) -> None:
        self.block, self._blocks, self._ahead = None, iter(()), iter(())

    def read_ahead(self, count: int) -> None:
        """Have up to so many of the next blocks at hand, as long as they are plain ones with events before the end."""
        if length_hint(self._ahead):
            return
        blocks, ahead, behind = self._blocks, [], []
        with suppress(Exception):  # which the cursor meets again when it comes there
            for block in islice(blocks, count):
                if not isinstance(block, Block) or not block.count or block.end > self.limit:
                    behind.append(block)
                    break
                ahead.append(block)
        self._ahead = iter(ahead)
        self._blocks = chain(self._ahead, behind, blocks)

    @property
    def is_at_hand(self) -> bool:
        """Whether its next events wait for nothing."""
        return self.block is not None or length_hint(self._ahead) > 0

    def skip_unreadable(self, block: LargeBlock) -> None:
        """Step over a large event that cannot be read."""
        self._go_on_at(block.large.end)

    def _fetch(self) -> bool:
        """Have more blocks ready; ``DataTruncated``, once, if they begin later than they should."""
        head = self.head()
        if head is None:
            return False
        if self.reached < head and self._has_unread(head):
            missed = EventPointer(*self.key, self.reached)
            self.reached = self.place = head if self.end is None else min(head, self.end)
            raise DataTruncated(missed, head=EventPointer(*self.key, head))
        if self.reached < head:
            self._pass_to(head)
        self._blocks = self.segment.blocks(self.reached, end=self.end)
        return True

    def _has_unread(self, head: int) -> bool:
        """Whether events were truncated away before they were read; if even their blocks are gone, there may be."""
        try:
            return first_with_events(self.segment, self.reached, head) is not None
        except (BadArgument, LogError):
            return True

    def head(self) -> int | None:
        """Return where the segment begins now; None if it is gone."""
        bounds = self._membership.bounds_of(self.key)
        return None if bounds is None else bounds[0]

    def _open(self, block: Block | LargeBlock, event_size_max: int) -> None:
        first = block.index_at(self.reached) if self.reached > block.start else 0
        last = block.index_at(self.end) if self.end is not None and self.end < block.end else block.count
        assert last is not None, "cuts are checked before they are recorded"
        if first is None:  # the extent before it did not tell the truth
            lie, self.reached, self.place = self.reached, block.start, block.start
            self._drop_blocks()
            raise StreamCorrupt(self.segment.where, offset=lie, reason="no event begins where another is said to end")
        if first >= last:
            self._pass_to(block.end)
            return
        too_large = block.size > event_size_max
        self._large = np.flatnonzero(np.diff(block.bounds) > event_size_max).tolist() if too_large else []
        self.first, self.last, self.block = first, last, block

    def _pass_to(self, offset: int) -> None:
        """Go on behind what has no events; it counts as read at once, unless events before it do not yet."""
        waits = self.place < self.reached
        self.reached = offset if self.end is None else min(offset, self.end)
        if not waits:
            self.place = self.reached

    @property
    def stop(self) -> int:
        """Up to which event of the block none is too large."""
        return next((index for index in self._large if self.first <= index < self.last), self.last)

    def advance(self, index: int) -> None:
        """Note that the events of the block before ``index`` were returned."""
        assert self.block is not None, "only what was loaded is returned"
        self.first, self.reached = index, self.block.offset_of(index)
        if index == self.last:
            self.block = None

    def go_back(self, place: int | None = None, reached: int | None = None) -> None:
        """Return again what does not count as read, or what came behind an earlier place."""
        self._drop_blocks()
        self.place = self.place if place is None else place
        self.reached = self.place if reached is None else reached

    def skip_large(self, block: Block | LargeBlock, limit: int) -> EventTooLarge:
        """Step over the next event, which is too large; return the error to raise."""
        index = self.first
        size = int(block.bounds[index + 1] - block.bounds[index])
        pointer = EventPointer(*self.key, block.offset_of(index))
        self.advance(index + 1)
        return EventTooLarge(size=size, limit=limit, pointer=pointer)

    def take(self) -> tuple[Block | LargeBlock, int]:
        """Return the block and the next event in it, however large, and step over it."""
        assert self.block is not None, "only what was loaded is returned"
        block, index = self.block, self.first
        self.advance(index + 1)
        return block, index

    def cut(self, block: Block | LargeBlock, budget: int, *, at_least_one: bool) -> BatchPart | None:
        """Return as many of the next events as there is budget for; None if that is none."""
        first, stop, offsets = self.first, self.stop, block.offsets()
        if offsets[stop] - offsets[first] > budget:
            stop = int(np.searchsorted(offsets, offsets[first] + budget, "right")) - 1
            if stop <= first and not at_least_one:
                return None
            stop = max(stop, first + 1)
        self.advance(stop)
        return self.key, block, first, stop, offsets

    def is_over(self) -> bool:
        """Whether the segment is read to the end, the group's or its own, or is gone."""
        if self.end is not None and self.place >= self.end:
            return True
        bounds = self._membership.bounds_of(self.key)
        return bounds is None or (bounds[1] is not None and self.place >= bounds[1])


def first_with_events(segment: ReadableSegment, low: int, high: int) -> AnyBlock | None:
    """Return the first block from one place to another that has events, or a part of a large one."""
    while low < high and (block := next(segment.blocks(low, end=high, size=1), None)) is not None:
        if not isinstance(block, Block) or block.count:
            return block
        low = block.end
    return None


class HeldSegments:
    """The cursors of one reader, by segment. ``touched`` are those that returned events which do not count as read yet.

    ``wake_up`` is notified when a segment has something to read.
    """

    def __init__(self, membership: Membership, wake_up: WakeUp) -> None:
        self._membership, self._wake_up = membership, wake_up
        self.cursors: dict[Key, Cursor] = {}
        self.touched: set[Cursor] = set()
        self._ready: deque[Cursor] = deque()
        self._times: dict[Key, Times] = {}

    @property
    def has_ready(self) -> bool:
        """Whether a segment may have something to read."""
        return bool(self._ready)

    @property
    def is_next_at_hand(self) -> bool:
        """Whether the events of the segment whose turn is next wait for nothing."""
        if not self._ready:
            return False
        cursor = self._ready[0]
        return self.cursors.get(cursor.key) is cursor and cursor.is_at_hand

    def put_last(self, cursor: Cursor) -> None:
        """Let a segment have its turn after the others; any thread may call it."""
        if not cursor.is_ready:
            cursor.is_ready = True
            self._ready.append(cursor)

    def put_first(self, cursor: Cursor) -> None:
        """Let a segment have the next turn again."""
        cursor.is_ready = True
        self._ready.appendleft(cursor)

    def hear(self, cursor: Cursor) -> None:
        """Note that a block has arrived in a segment, or that it has ended."""
        self.put_last(cursor)
        self._wake_up.notify()

    def next(self, event_size_max: int, *, first: bool) -> tuple[Cursor | None, bool]:
        """Return the next segment with something to read, in turn, and whether it is read to its end instead.

        If it is not the ``first`` of a batch, an error only ends the batch, and is raised with the next one.
        """
        while self._ready:
            cursor = self._ready.popleft()
            cursor.is_ready = False  # before it is looked at: a block that comes now puts it into the queue again
            if self.cursors.get(cursor.key) is not cursor:
                continue
            before = cursor.place, cursor.reached
            try:
                if cursor.load(event_size_max) is not None:
                    return cursor, False
                is_over = cursor.is_over()
            except BaseException as error:
                self.put_last(cursor)
                if first or not isinstance(error, PenstockError):
                    raise
                cursor.go_back(*before)
                return None, False
            if is_over:
                return cursor, True
        return None, False

    def go_back(self) -> None:
        """Return again what was returned and does not count as read."""
        for cursor in self.touched:
            cursor.go_back()
            self.put_last(cursor)

    def places(self, *, returned: bool) -> dict[Key, int]:
        """Return how far each segment was read, with what was returned last or without; any thread may call it."""
        return {cursor.key: cursor.reached if returned else cursor.place for cursor in list(self.cursors.values())}

    def times_of(self, key: Key) -> Times:
        """Return the times of a segment's events."""
        if key not in self._times:
            self._times[key] = self._membership.times_of(key)
        return self._times[key]

    def follow(self, held: Mapping[Key, int]) -> bool:
        """Add segments that the reader has been given, at these places; False if one has been truncated away since."""
        added = [self._add(key, held[key]) for key in sorted(held.keys() - self.cursors.keys())]
        return all(added)

    def _add(self, key: Key, place: int) -> bool:
        try:
            segment = self._membership.segment(key)
        except KeyError:
            return False
        cursor = Cursor(self._membership, key, segment, place=place, end=self._membership.end_of(key))
        cursor.wake_up = _SegmentWakeUp(self, cursor)
        segment.watch(cursor.wake_up)
        self.cursors[key] = cursor
        self.put_last(cursor)
        return True

    def remove(self, key: Key) -> Cursor:
        """Give up a segment; return its cursor."""
        cursor = self.cursors.pop(key)
        self._times.pop(key, None)
        cursor.segment.unwatch(cursor.wake_up)
        self.touched.discard(cursor)
        return cursor

    def unwatch(self) -> None:
        """Be woken by no segment any more; any thread may call it."""
        for cursor in list(self.cursors.values()):
            cursor.segment.unwatch(cursor.wake_up)


class _SegmentWakeUp(WakeUp):
    """Wakes a reader for one segment."""

    __slots__ = ("_cursor", "_held")

    def __init__(self, held: HeldSegments, cursor: Cursor) -> None:
        super().__init__()
        self._held, self._cursor = held, cursor

    def notify(self) -> None:
        """Put the segment into the queue, and wake the reader."""
        self._held.hear(self._cursor)


class LossQueue:
    """The errors that a reader still has to raise, one a call; any thread may add one."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._errors: deque[PenstockError] = deque()

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, error: PenstockError) -> None:
        """Let the reader raise an error."""
        self._errors.append(error)

    def next(self) -> PenstockError:
        """Return the error to raise now, once the group has noted that its reader raises it."""
        self._membership.note_loss_reported(*_lost_part(self._errors[0]))
        return self._errors.popleft()


def _lost_part(error: PenstockError) -> tuple[str, list[int]]:
    """Return the stream whose segments were lost, and which; none if it is all of the stream."""
    if isinstance(error, DataTruncated) and isinstance(error.place, StreamCut):
        return error.place.stream, list(error.place.offsets)
    assert isinstance(error, NoSuchStream), "nothing else is lost"
    return error.stream, []
