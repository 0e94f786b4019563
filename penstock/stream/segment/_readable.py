"""A segment as readers see it, of this process or of another: its blocks, its large events, and where events begin.

A large event is an extent followed by chunks. A scan yields it as one block, so that its users need not know of
chunks. A border is where an event begins or ends; no place inside a large event is one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from penstock.stream.format import Block, Chunk, Extent
from penstock.stream.segment._large_event import LargeBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from penstock.stream.format import AnyBlock

__all__ = [
    "READ_SIZE",
    "ReadableSegment",
    "Times",
    "WakeUp",
    "as_timeout",
    "block_at",
    "event_border",
    "is_border",
    "is_reader_place",
    "large_event",
    "scan",
]

READ_SIZE: Final = 1 << 20


class WakeUp:
    """One thread waits, any thread notifies. A notification while no thread waits is kept for the next wait.

    An event loop does not wait in a thread: it is called back instead.
    """

    __slots__ = ("_callback", "_gate")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self._callback: Callable[[], object] | None = None

    def notify(self) -> None:
        """Wake the waiting thread, or the next that waits."""
        with suppress(RuntimeError):  # it was notified already, and no thread has waited since
            self._gate.release()
        if self._callback is not None:
            self._call_back()

    def _call_back(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def call_once(self, callback: Callable[[], object] | None) -> None:
        """Call back with the next notification, in its thread, or at once if one was kept; None takes that back.

        Two notifications at the same moment may both call back. The notification itself stays, for the next wait.
        """
        self._callback = callback
        if callback is not None and self._gate.acquire(blocking=False):
            self.notify()

    def wait(self, timeout: float | None) -> bool:
        """Return True when it is notified, False when the time is over; None waits for as long as it takes."""
        return self._gate.acquire(timeout=as_timeout(timeout))


def as_timeout(seconds: float | None) -> float:
    """Return a time to wait as locks take it: None is for ever, less than nothing is nothing, and there is a limit."""
    return -1 if seconds is None else min(max(seconds, 0), threading.TIMEOUT_MAX)


class ReadableSegment(Protocol):
    """Returns blocks from any place on, and wakes readers when there is a new one."""

    @property
    def where(self) -> str:
        """The name of the segment, for messages."""

    @property
    def tail(self) -> int:
        """The offset up to which events are acknowledged."""

    def blocks(self, offset: int, *, end: int | None = None, size: int = READ_SIZE) -> Iterator[AnyBlock]:
        """Return the blocks from the one that holds ``offset`` on, as far as they were acknowledged.

        They are about ``size`` bytes, at least one block if there is any. Some may hold no events.
        """

    def watch(self, wake_up: WakeUp) -> None:
        """Notify the wake-up whenever there is something new."""

    def unwatch(self, wake_up: WakeUp) -> None:
        """Stop notifying the wake-up."""


class Times(Protocol):
    """The times of a segment's events."""

    def of(self, offsets: npt.NDArray[np.int64]) -> pa.Array:
        """Return the time of each event at ascending offsets; null where there is none yet."""


def block_at(segment: ReadableSegment, offset: int) -> AnyBlock | None:
    """Return the block that holds the byte at ``offset``; None at the end of the segment."""
    return next(segment.blocks(offset, size=1), None)


def large_event(
    segment: ReadableSegment, stream: str, segment_id: int, block: AnyBlock, *, end: int | None
) -> LargeBlock | None:
    """Return the large event that begins with a block, read up to ``end``; None if none does.

    No event begins with a later chunk, nor with an extent that ends where the reading does: its event lies behind.
    """
    if isinstance(block, Block) or (isinstance(block, Chunk) and block.number):
        return None
    if isinstance(block, Extent) and end is not None and block.end >= end:
        return None
    return LargeBlock.of(segment, stream, segment_id, block)


def scan(
    segment: ReadableSegment, stream: str, segment_id: int, offset: int, *, end: int | None, size: int = READ_SIZE
) -> Iterator[AnyBlock | LargeBlock]:
    """Return a page of blocks, about ``size`` bytes from ``offset`` on; a large event is one block, and ends its page.

    A chunk or an extent comes as it is if no event begins with it (see :func:`large_event`).
    """
    for block in segment.blocks(offset, end=end, size=size):
        large = large_event(segment, stream, segment_id, block, end=end)
        if large is not None:
            yield large
            return
        yield block


def is_border(segment: ReadableSegment, offset: int) -> bool:
    """Whether an event begins or ends at ``offset``, or the segment does."""
    if offset in (0, segment.tail):
        return True
    block = block_at(segment, offset)
    return block is not None and block.index_at(offset) is not None


def is_reader_place(segment: ReadableSegment, offset: int) -> bool:
    """Whether a reader may be at ``offset``: at a border, or between two blocks of a damaged large event."""
    if offset in (0, segment.tail):
        return True
    block = block_at(segment, offset)
    return block is not None and (block.start == offset or block.index_at(offset) is not None)


def event_border(segment: ReadableSegment, offset: int, *, low: int) -> int:
    """Return where the large event that goes on at ``offset`` begins, with its extent; if none does, ``offset``.

    What lies before ``low`` is gone.
    """
    block = block_at(segment, offset) if offset >= low else None
    if not isinstance(block, Chunk):
        return offset
    before = block_at(segment, block.event_start - 1) if block.event_start > low else None
    return before.start if isinstance(before, Extent) else block.event_start
