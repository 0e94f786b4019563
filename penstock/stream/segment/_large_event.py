"""A large event of a segment: a sequence of chunks, found by its extent, by its first chunk, or by any other.

All chunks are of the same size but the last, so where a byte is can be computed. The extent says how large the event
is; a reader that comes by a pointer has not read the extent, and finds the end by looking further and further ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

import numpy as np
import pyarrow as pa

from penstock.errors import BadArgument, CorruptData, DataTruncated, LogError, NoSuchEvent, PlogError, StreamCorrupt
from penstock.model import EventPointer
from penstock.stream.format import BLOCK_HEADER_SIZE, LENGTH_SIZE, NO_COLUMNS, Chunk, Extent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    import numpy.typing as npt

    from penstock.stream.format import AnyBlock, Columns
    from penstock.stream.segment._readable import ReadableSegment

__all__ = ["FRAME_SIZE", "LargeBlock", "LargeEvent", "carried_by"]

FRAME_SIZE: Final = BLOCK_HEADER_SIZE + LENGTH_SIZE  # what a chunk takes besides its bytes
_CHUNKS_MIN: Final = 2  # what fits into one is no large event
_READ_AHEAD: Final = 8 << 20


class LargeEvent:
    """An event that is a sequence of chunks, the first of which is the block at ``start`` of its segment."""

    __slots__ = ("_end", "_first", "_segment", "_size", "pointer", "start")

    def __init__(
        self, segment: ReadableSegment, stream: str, segment_id: int, start: int, extent: Extent | None
    ) -> None:
        self._segment, self.start = segment, start
        self.pointer = EventPointer(stream, segment_id, start + BLOCK_HEADER_SIZE)
        self._first: Chunk | None = None
        self._size = self._end = -1  # not known yet
        if extent is not None:
            self._size, self._end = extent.size, extent.end + extent.span
            chunks, rest = divmod(extent.span - extent.size, FRAME_SIZE)
            if rest or chunks < _CHUNKS_MIN or not extent.size or self._end > segment.tail:
                raise self._corrupt(extent.start, "an extent that no large event can have")

    @property
    def size(self) -> int:
        """How many bytes the event has."""
        if self._size < 0:
            self._find_end()
        return self._size

    @property
    def end(self) -> int:
        """Where in the segment it ends."""
        if self._end < 0:
            self._find_end()
        return self._end

    @property
    def first(self) -> Chunk:
        """Its first chunk, whose size is that of all but the last."""
        if self._first is None:
            block = self._block_at(self.start)
            if not isinstance(block, Chunk) or block.number or block.start != self.start:
                raise NoSuchEvent(self.pointer)
            if self._size >= 0 and not self._agrees_with(block):
                self._end = self.start  # not known: the chunks are to be looked at one by one
                raise self._corrupt(self.start, "an extent says otherwise than the chunks behind it")
            self._first = block
        return self._first

    def _agrees_with(self, first: Chunk) -> bool:
        """Whether so many bytes are so many chunks of this size, the last of which may be shorter, even empty."""
        chunks = (self._end - self.start - self._size) // FRAME_SIZE
        return (chunks - 1) * len(first.data) <= self._size <= chunks * len(first.data)

    def _corrupt(self, offset: int, reason: str) -> StreamCorrupt:
        return StreamCorrupt(self._segment.where, offset=offset, reason=reason)

    def _find_end(self) -> None:
        """Look ahead, twice as far each time, and then between the last two places: a few reads, however large."""
        low, step = self.first, 1
        while low.partial and (ahead := self._chunk(low.number + step)) is not None:
            low, step = ahead, 2 * step
        while low.partial:
            step //= 2
            if not step:
                raise self._corrupt(low.start, "a chunk says that another follows, and none does")
            low = self._chunk(low.number + step) or low
        self._size, self._end = low.number * len(self.first.data) + len(low.data), low.end

    def _block_at(self, place: int) -> AnyBlock | None:
        """Return the block that holds a byte of the segment; None at its end."""
        try:
            return next(self._segment.blocks(place, size=1), None)
        except (BadArgument, LogError, PlogError) as error:
            raise DataTruncated(self.pointer, head="a later position") from error

    def _chunk(self, number: int) -> Chunk | None:
        """Return a chunk by its number; None if the event does not have so many."""
        if number == 0:
            return self.first
        found = self._block_at(self._place_of(number))
        return found if self._has(found, number) else None

    def _place_of(self, number: int) -> int:
        return self.start + number * (FRAME_SIZE + len(self.first.data))

    def _has(self, block: AnyBlock | None, number: int) -> TypeGuard[Chunk]:
        """Whether a block is the event's chunk of this number."""
        place = self._place_of(number)
        ours = (place, number, place - self.start)
        return isinstance(block, Chunk) and (block.start, block.number, block.back) == ours

    def chunks_at(self, offset: int) -> Iterator[Chunk]:
        """Return the chunk that has a byte of the event, and some that follow it; at least one."""
        place = self._place_of(number := offset // len(self.first.data))
        try:
            blocks = list(self._segment.blocks(place, end=self.end, size=_READ_AHEAD))
        except (BadArgument, LogError, PlogError) as error:
            raise DataTruncated(self.pointer, head="a later position") from error
        if not blocks:
            raise DataTruncated(self.pointer, head="a later position")
        for expected, block in enumerate(blocks, number):
            if not self._has(block, expected) or block.partial != (block.end < self.end):
                raise self._corrupt(block.start, f"it is not chunk {expected} of the large event at {self.start}")
            yield block

    def read_all(self) -> bytes:
        """Return the whole event."""
        parts: list[memoryview] = []
        found = 0
        while found < self.size:
            more = [chunk.data for chunk in self.chunks_at(found)]
            found += sum(map(len, more))
            parts += more
        return b"".join(parts)


class LargeBlock:
    """A large event as readers of blocks see it: a block with one event, of which nothing is read before it is used.

    It begins with the extent, where that is known; ``columns`` are the event's key and headers.
    """

    __slots__ = ("bounds", "columns", "end", "large", "start", "time_ms")

    count: Final = 1

    def __init__(self, event: LargeEvent, *, start: int, time_ms: int, columns: Columns) -> None:
        self.large, self.start, self.end, self.time_ms = event, start, event.end, time_ms
        self.bounds, self.columns = np.array([0, event.size]), columns

    @classmethod
    def of(cls, segment: ReadableSegment, stream: str, segment_id: int, block: Chunk | Extent) -> Self:
        """Return the large event that a block begins: its extent, or its first chunk."""
        if isinstance(block, Extent):
            event = LargeEvent(segment, stream, segment_id, block.end, block)
            return cls(event, start=block.start, time_ms=block.time_ms, columns=block.columns)
        event = LargeEvent(segment, stream, segment_id, block.start, None)
        columns, time_ms = carried_by(segment, block)
        return cls(event, start=block.start, time_ms=time_ms, columns=columns)

    @property
    def size(self) -> int:
        """How many bytes of events it has."""
        return self.large.size

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the offset of the event, and the end of the block."""
        return np.array([self.large.pointer.offset, self.end])

    def offset_of(self, index: int) -> int:
        """Return the offset of the event; with 1, the end of the block."""
        return self.end if index else self.large.pointer.offset

    def index_at(self, offset: int) -> int | None:
        """Return 0 where the event begins, 1 where it ends; None: it does neither there."""
        if offset == self.end:
            return 1
        return 0 if offset in (self.start, self.large.start, self.large.pointer.offset) else None

    def event(self, _: int) -> bytes:
        """Return the event."""
        return self.large.read_all()

    def events(self, first: int = 0) -> list[bytes]:
        """Return the event, put together."""
        return [] if first else [self.large.read_all()]

    def arrow(self, first: int = 0, last: int | None = None) -> pa.BinaryArray:
        """Return the event, put together, as an Arrow array."""
        return pa.array([self.large.read_all()], pa.binary())[first:last]


def carried_by(segment: ReadableSegment, chunk: Chunk) -> tuple[Columns, int]:
    """Return the key and headers, and the time, of the large event that begins with a chunk.

    They are in the extent before it; where that is damaged or truncated away, only the time of the chunk is known.
    """
    try:
        before = next(segment.blocks(chunk.start - 1, size=1), None)
    except (BadArgument, CorruptData, LogError, PlogError):
        before = None
    return (before.columns, before.time_ms) if isinstance(before, Extent) else (NO_COLUMNS, chunk.time_ms)
