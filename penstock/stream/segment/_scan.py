"""Scanning a segment: the blocks of events and the large events in it, and where an event begins or ends.

A large event is an extent followed by chunks. A scan yields it as one block, so that its users need not know of
chunks. A border is where an event begins or ends; no place inside a large event is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.stream.format import Block, Chunk, Extent
from penstock.stream.segment._large_event import LargeBlock
from penstock.stream.segment._readable import READ_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream.format import AnyBlock
    from penstock.stream.segment._readable import ReadableSegment

__all__ = ["block_at", "event_border", "is_border", "is_reader_place", "large_event", "scan"]


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
