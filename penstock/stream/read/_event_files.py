"""Reading an event as a file: chunk by chunk, or skipping to any place in it at once."""

from __future__ import annotations

import io
from operator import index
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadArgument, EventClosed, NoSuchEvent
from penstock.stream.format import BLOCK_HEADER_SIZE, LENGTH_SIZE, Attributes, Block, Chunk
from penstock.stream.segment import FRAME_SIZE, LargeEvent, carried_by
from penstock.stream.write import CHUNK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from typing_extensions import Buffer

    from penstock.model import EventPointer
    from penstock.stream.format import Headers
    from penstock.stream.segment import LargeBlock, ReadableSegment

__all__ = ["EventInputStream", "event_at", "event_ends", "file_at", "file_of"]


def event_ends(offsets: pa.Array, sizes: pa.Array) -> pa.Array:
    """Return the place just behind each event, before its key and headers; null where the size is.

    An event above the size of a chunk has a header and a length word before each of its further chunks, too.
    """
    further_chunks = pc.divide(pc.subtract(pc.max_element_wise(sizes, 1, skip_nulls=False), 1), CHUNK_SIZE)
    return pc.add(pc.add(offsets, LENGTH_SIZE), pc.add(sizes, pc.multiply(further_chunks, FRAME_SIZE)))


class EventInputStream(io.RawIOBase):
    """An event, as a file to be read and sought in. Memory is one chunk at most, for an event of any size.

    ``pointer`` is where it is, ``stream`` which stream it is of, ``size`` how many bytes it has. It also has the
    event's ``key``, its ``timestamp``, in milliseconds since 1970, its ``headers``, and ``header_pairs``, where a name
    may be there more than once.
    """

    def __init__(
        self, event: LargeEvent | bytes, pointer: EventPointer, *, attributes: Attributes, timestamp: int
    ) -> None:
        super().__init__()
        self._event, self.pointer, self.stream = event, pointer, pointer.stream
        self.key, self.timestamp = attributes.key, timestamp
        self.header_pairs: Headers = tuple(attributes.headers or ())
        self.headers: dict[str, bytes] = dict(self.header_pairs)
        self._offset = 0
        self._chunk: bytes | memoryview = event if isinstance(event, bytes) else b""
        self._chunk_start = 0
        self._ahead: Iterator[Chunk] = iter(())

    @property
    def size(self) -> int:
        """How many bytes the event has."""
        return len(self._event) if isinstance(self._event, bytes) else self._event.size

    def readable(self) -> bool:
        """Return True; an error once the file is closed."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return True; an error once the file is closed."""
        self._check_open()
        return True

    def write(self, data: Buffer, /) -> NoReturn:
        """Raise ``UnsupportedOperation``."""
        raise io.UnsupportedOperation("an event that is read cannot be written")

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, by default all that are left; a size above that takes no more memory."""
        if size is None or index(size) < 0:
            return self.readall()
        self._check_open()
        return super().read(min(index(size), max(self.size - self._offset, 0))) or b""

    def readinto(self, buffer: Buffer, /) -> int:
        """Read as much as fits into the buffer: less only at the end, as from a file on disk."""
        self._check_open()
        budget, filled = memoryview(buffer).cast("B"), 0
        while filled < len(budget) and (data := self._rest()):
            count = min(len(budget) - filled, len(data))
            budget[filled : filled + count] = data[:count]
            filled += count
            self._offset += count
        return filled

    def _rest(self) -> bytes | memoryview:
        """Return what is left of the chunk that is being read; nothing at the end of the event."""
        place = self._offset - self._chunk_start
        if 0 <= place < len(self._chunk):
            return self._chunk[place:]
        if self._offset >= self.size or isinstance(self._event, bytes):
            return b""
        if place != len(self._chunk) or (chunk := next(self._ahead, None)) is None:
            self._ahead = self._event.chunks_at(self._offset)
            chunk = next(self._ahead)
        self._chunk, self._chunk_start = chunk.data, chunk.number * len(self._event.first.data)
        return self._chunk[self._offset - self._chunk_start :]

    def peek(self, size: int = 0, /) -> bytes:
        """Return bytes that come next, without reading them; Python finds the end of a line with it."""
        self._check_open()
        return bytes(self._rest()[: max(size, io.DEFAULT_BUFFER_SIZE)])

    def readall(self) -> bytes:
        """Read all that is left."""
        self._check_open()
        parts = []
        while data := self._rest():
            parts.append(data)
            self._offset += len(data)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to any position in the event, at no cost."""
        self._check_open()
        offset = index(offset)
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise BadArgument(f"cannot seek to {offset} from {whence} in an event of {self.size} bytes")
        self._offset = base + offset
        return self._offset

    def skip(self, count: int) -> int:
        """Step over bytes, at no cost; return how many there were."""
        if index(count) < 0:
            raise BadArgument(f"cannot skip {count} bytes")
        before = min(self._offset, self.size)
        return self.seek(min(before + count, self.size)) - before

    def tell(self) -> int:
        """Return how far it was read."""
        self._check_open()
        return self._offset

    def _check_open(self) -> None:
        if self.closed:
            raise EventClosed("closed")


def event_at(segment: ReadableSegment, pointer: EventPointer) -> bytes | LargeEvent:
    """Return the event that begins where the pointer points."""
    block, index = _block_with(segment, pointer)
    if isinstance(block, Block):
        return block.event(index)
    return LargeEvent(segment, pointer.stream, pointer.segment_id, block.start, None)


def file_at(segment: ReadableSegment, pointer: EventPointer) -> EventInputStream:
    """Return the event that begins where the pointer points, as a file."""
    block, index = _block_with(segment, pointer)
    if isinstance(block, Block):
        return file_of(block, index, pointer)
    event = LargeEvent(segment, pointer.stream, pointer.segment_id, block.start, None)
    columns, time_ms = carried_by(segment, block)
    return EventInputStream(event, pointer, attributes=Attributes.at(columns, 0), timestamp=time_ms)


def file_of(block: Block | LargeBlock, index: int, pointer: EventPointer) -> EventInputStream:
    """Return an event of a block as a file."""
    event = block.event(index) if isinstance(block, Block) else block.large
    attributes = Attributes.at(block.columns, index)
    return EventInputStream(event, pointer, attributes=attributes, timestamp=block.time_ms)


def _block_with(segment: ReadableSegment, pointer: EventPointer) -> tuple[Block | Chunk, int]:
    """Return the block, or the first chunk, with the event that begins where the pointer points; which of it."""
    for block in segment.blocks(pointer.offset, size=1):
        if isinstance(block, Block):
            index = block.index_at(pointer.offset)
            if index is not None and index < block.count and block.offset_of(index) == pointer.offset:
                return block, index
        elif isinstance(block, Chunk) and block.number == 0 and pointer.offset == block.start + BLOCK_HEADER_SIZE:
            return block, 0
    raise NoSuchEvent(pointer)
