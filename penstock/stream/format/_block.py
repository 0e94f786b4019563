"""The stream block: how events lie in a segment. One append is one block.

First the header, then the length word of each event (4 bytes, big-endian), then the events' bytes, then their keys and
headers if any has one (see ``_columns``). So a block of one event is, behind its header, the frame of the Pravega File
API, byte for byte; and a block of many is an Arrow array without touching an event. The plog below checks every byte,
so there is no checksum here.

An event that is too large for one block is a sequence of *chunks*, each a block of its own with one frame; the
high-order bit of its length word is the *partial* flag: the event goes on in the next block. All chunks are of the same
size but the last, which may be empty. Before them stands an *extent*, which says how large the event is, so that a
reader can pass by without looking at the chunks, and has its key and headers. The event's offset is that of its first
frame.

An event's offset is the one it would have if its length word stood right before it: events of 3 and 5 bytes in a
block whose header ends at 1000 are at 1000 and 1007, and the block ends at 1016. Offsets increase strictly, for empty
events, too, and the place behind an event is the offset of the next or the block's end.

A block says how many events come before it in its log. In a log that a segment has taken over from a transaction that
is not yet where they are in the segment: how many come before the whole log is in the label of the splice, together
with the time of the commit. So any place of a segment says how many events lie before it, and when it was appended.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import StreamCorrupt
from penstock.stream.format._columns import KEYS, keys_size, unpack_columns, unpack_only_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from penstock.ports import Bytes
    from penstock.stream.format._columns import Columns

__all__ = [
    "BLOCK_HEADER_SIZE",
    "CHUNK",
    "EVENTS",
    "EXTENT",
    "LENGTH_SIZE",
    "NO_WRITER",
    "PARTIAL",
    "WRITERS",
    "AnyBlock",
    "Block",
    "Chunk",
    "Extent",
    "SpliceLabel",
    "StreamBlockHeader",
    "block_digest",
    "pack_chunk",
    "pack_extent",
    "pack_lengths",
    "read_block",
    "read_header",
    "split_parts",
    "without_keys",
]

_HEADER: Final = struct.Struct(">BBHIQ16sQQQQ")
BLOCK_HEADER_SIZE: Final = _HEADER.size
assert BLOCK_HEADER_SIZE == 64, "on disk since format 1: a new size needs a new kind"
LENGTH_SIZE: Final = 4

PARTIAL: Final = 0x80000000
_EXTENT: Final = struct.Struct(">QQ")

EVENTS: Final = 1
WRITERS: Final = 2  # no events: the table of writers up to here
CHUNK: Final = 3
EXTENT: Final = 4
NO_WRITER: Final = bytes(16)


class StreamBlockHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The 64 bytes before every block, big-endian.

    0   1  kind            1 events, 2 table of writers, 3 chunk, 4 extent; a number is never given a new meaning
    1   1  columns         what stands behind the events: 1 keys, 2 headers
    2   2  flush_segments  how many segments this flush of the writer went to; 0: not its last block in the segment
    4   4  count           events in the block
    8   8  time_ms         when the store's owner appended it, milliseconds since 1970
    16  16 writer          hash of the writer's id; zeros for a writer without one
    32  8  last_number     number of the block's last event
    40  8  flush_last      number of the last event of the flush that the block is part of
    48  8  durable_floor   all events of the writer up to this number are durable once this block is
    56  8  before          how many events come before it in its log

    In a chunk the three numbers are 0, the chunk's number in the event, and how many bytes before it the event's first
    chunk is. The segment that takes the block fills in ``time_ms`` and ``before``.
    """

    kind: int = EVENTS
    columns: int = 0
    flush_segments: int = 1
    count: int
    time_ms: int = 0
    writer: bytes = NO_WRITER
    last_number: int = 0
    flush_last: int = 0
    durable_floor: int = 0
    before: int = 0

    @property
    def events(self) -> int:
        """How many events it stands for: a large event is counted with its extent."""
        return self.count if self.kind == EVENTS else int(self.kind == EXTENT)

    def pack(self) -> bytes:
        """Return the bytes."""
        return self.pack_at(self.time_ms, self.before)

    def pack_at(self, time_ms: int, before: int) -> bytes:
        """Return the bytes, with the time at which it is appended and how many events come before it."""
        return _HEADER.pack(
            self.kind,
            self.columns,
            self.flush_segments,
            self.count,
            time_ms,
            self.writer,
            self.last_number,
            self.flush_last,
            self.durable_floor,
            before,
        )


_LABEL: Final = struct.Struct(">QQ")


class SpliceLabel(msgspec.Struct, frozen=True):
    """What a segment keeps of a log that it has taken over: 16 bytes, big-endian.

    0   8  events    of the segment, come before the log
    8   8  time_ms   when the log became part of the segment, milliseconds since 1970
    """

    events: int
    time_ms: int

    def pack(self) -> bytes:
        """Return the bytes."""
        return _LABEL.pack(self.events, self.time_ms)

    @classmethod
    def unpack(cls, data: bytes) -> SpliceLabel:
        """Read what :meth:`pack` wrote."""
        return cls(*_LABEL.unpack(data))


def read_header(view: memoryview, *, where: str, start: int) -> StreamBlockHeader:
    """Return the header of the block at ``start`` of the segment called ``where``."""
    if len(view) < BLOCK_HEADER_SIZE:
        raise StreamCorrupt(where, offset=start, reason=f"a block of {len(view)} bytes has no header")
    kind, columns, flush_segments, count, time_ms, writer, last_number, flush_last, durable_floor, before = (
        _HEADER.unpack_from(view)
    )
    if not EVENTS <= kind <= EXTENT:
        raise StreamCorrupt(where, offset=start, reason=f"a block of unknown kind {kind}")
    return StreamBlockHeader(
        kind=kind,
        columns=columns,
        flush_segments=flush_segments,
        count=count,
        time_ms=time_ms,
        writer=writer,
        last_number=last_number,
        flush_last=flush_last,
        durable_floor=durable_floor,
        before=before,
    )


def split_parts(parts: Sequence[Bytes], place: int) -> tuple[list[memoryview], memoryview]:
    """Return what stands in a body before a place, and what stands behind it: a copy only if that is in pieces."""
    before, behind = list[memoryview](), list[memoryview]()
    for part in parts:
        view = memoryview(part)
        before.append(view[:place])
        behind.append(view[place:])
        place = max(place - len(view), 0)
    rest = [part for part in behind if len(part)]
    return before, rest[0] if len(rest) == 1 else memoryview(b"".join(rest))


def without_keys(header: StreamBlockHeader, *parts: Bytes) -> tuple[StreamBlockHeader, *tuple[Bytes, ...]]:
    """Return a block of events without their keys; the events are not copied. The first part has all length words."""
    if header.kind != EVENTS or not header.columns & KEYS:
        return header, *parts
    lengths = np.frombuffer(parts[0], ">u4", header.count)
    events, columns = split_parts(parts, LENGTH_SIZE * header.count + int(lengths.sum(dtype=np.int64)))
    body = [*events, columns[keys_size(columns, header.count) :]]
    return msgspec.structs.replace(header, columns=header.columns & ~KEYS), *body


def block_digest(header: StreamBlockHeader, *parts: Bytes) -> bytes:
    """Return a digest of a block, without the time and the count that depend on where it was appended.

    Nor does it depend on the keys: the stream may have stopped storing them while the block was under way.
    """
    header, *body = without_keys(header, *parts)
    digest = blake2b(header.pack_at(0, 0), digest_size=16)
    for part in body:
        digest.update(part)
    return digest.digest()


def pack_lengths(lengths: npt.NDArray[np.integer]) -> bytes:
    """Return the length words of events."""
    return lengths.astype(">u4").tobytes()


class Block:
    """The events of one block, none of them touched yet."""

    __slots__ = (
        "_bounds",
        "_columns",
        "_flags",
        "_rest",
        "_where",
        "before",
        "count",
        "data",
        "end",
        "start",
        "time_ms",
    )

    def __init__(self, header: StreamBlockHeader, view: memoryview, *, where: str, start: int) -> None:
        count = header.count if header.kind == EVENTS else 0
        body = BLOCK_HEADER_SIZE + LENGTH_SIZE * count
        if len(view) < body:
            raise StreamCorrupt(
                where, offset=start, reason=f"a block of {len(view)} bytes is too small for {count} events"
            )
        self.start, self.end, self.count, self.time_ms = start, start + len(view), count, header.time_ms
        self.before, self._flags, self._where = header.before, header.columns, where
        self._bounds: npt.NDArray[np.int32] | None = None
        ends: npt.NDArray[np.int64] | None = None
        if count == 1:  # many blocks have one event, and an array for each would cost more than all else
            size = int.from_bytes(view[BLOCK_HEADER_SIZE:body], "big")
        else:
            ends = np.cumsum(np.frombuffer(view, ">u4", count, BLOCK_HEADER_SIZE), dtype=np.int64)
            size = int(ends[-1]) if count else 0
        self.data, self._rest = view[body : body + size], view[body + size :]
        self._columns: Columns | None = None
        if len(self.data) < size or (header.kind == EVENTS and bool(len(self._rest)) != bool(self._flags)):
            raise StreamCorrupt(
                where, offset=start, reason="the lengths of its events do not add up to the size of the block"
            )
        if ends is not None:
            self._bounds = np.zeros(count + 1, np.int32)
            self._bounds[1:] = ends

    @property
    def bounds(self) -> npt.NDArray[np.int32]:
        """Where each event begins and the last ends, in ``data``."""
        if self._bounds is None:
            self._bounds = np.array([0, len(self.data)], np.int32)
        return self._bounds

    def only_key(self) -> bytes | None:
        """Return the key of the only event, without an array for it."""
        if self._columns is not None or self._flags & ~KEYS:
            keys = self.columns[0]
            key: bytes | None = None if keys is None else keys[0].as_py()
            return key
        try:
            return unpack_only_key(self._rest) if self._flags else None
        except ValueError as error:
            raise StreamCorrupt(self._where, offset=self.start, reason=str(error)) from error

    @property
    def has_headers(self) -> bool:
        """Whether any event has headers."""
        return bool(self._flags & ~KEYS)

    @property
    def columns(self) -> Columns:
        """The keys and the headers of the events."""
        if self._columns is None:
            self._columns = (None, None) if not self._flags else self._unpacked()
        return self._columns

    def _unpacked(self) -> Columns:
        try:
            return unpack_columns(self._flags, self._rest, self.count)
        except ValueError as error:
            raise StreamCorrupt(self._where, offset=self.start, reason=str(error)) from error

    @property
    def size(self) -> int:
        """How many bytes of events it has."""
        return len(self.data)

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the offset of each event, and the end of the block."""
        if self.count == 1:
            return np.array([self.start + BLOCK_HEADER_SIZE, self.end], np.int64)
        found = np.arange(self.count + 1, dtype=np.int64)
        found *= LENGTH_SIZE
        found += self.bounds
        found += self.start + BLOCK_HEADER_SIZE
        found[-1] = self.end
        return found

    def offset_of(self, index: int) -> int:
        """Return the offset of one event; of the one behind the last: the end of the block."""
        if index == self.count:
            return self.end
        return self.start + BLOCK_HEADER_SIZE + LENGTH_SIZE * index + int(self.bounds[index])

    def index_at(self, offset: int) -> int | None:
        """Return which event begins at ``offset``; the block's own beginning and end count too. None: none does.

        So does the place just behind the last event, before its key and headers: a caller that knows an event's offset
        and size can compute where the next read begins.
        """
        if offset <= self.start:
            return 0 if offset == self.start else None
        if self.count and offset == self.start + BLOCK_HEADER_SIZE + LENGTH_SIZE * self.count + int(self.bounds[-1]):
            return self.count
        offsets = self.offsets()
        index = int(np.searchsorted(offsets, offset))
        return index if index <= self.count and offsets[index] == offset else None

    def arrow(self, first: int = 0, last: int | None = None) -> pa.BinaryArray:
        """Return the events as an Arrow array over the same memory."""
        buffers = [None, pa.py_buffer(self.bounds), pa.py_buffer(self.data)]
        array = pa.Array.from_buffers(pa.binary(), self.count, buffers)
        return array if first == 0 and last is None else array[first:last]

    def events(self, first: int = 0) -> Sequence[bytes]:
        """Return the events as Python's bytes."""
        bounds = self.bounds
        width = int(bounds[1] - bounds[0]) if self.count else 0
        if width and np.array_equal(bounds, np.arange(0, width * self.count + 1, width, dtype=np.int32)):
            found: list[bytes] = np.frombuffer(self.data, f"V{width}").tolist()
            return found[first:] if first else found
        data, ends = bytes(self.data), bounds.tolist()
        return [data[low:high] for low, high in zip(ends[first:], ends[first + 1 :], strict=False)]

    def event(self, index: int) -> bytes:
        """Return a copy of the event at an index, counted from the first of the block."""
        return bytes(self.data[self.bounds[index] : self.bounds[index + 1]])


class Chunk:
    """A part of a large event; ``partial`` says that there is more."""

    __slots__ = ("back", "data", "end", "number", "partial", "start", "time_ms")

    count: Final = 0  # it holds no event

    def __init__(self, header: StreamBlockHeader, view: memoryview, *, where: str, start: int) -> None:
        self.start, self.end, self.time_ms = start, start + len(view), header.time_ms
        self.number, self.back = header.flush_last, header.durable_floor
        self.data = view[BLOCK_HEADER_SIZE + LENGTH_SIZE :]
        word = int.from_bytes(view[BLOCK_HEADER_SIZE : BLOCK_HEADER_SIZE + LENGTH_SIZE], "big")
        self.partial = bool(word & PARTIAL)
        if word & ~PARTIAL != len(self.data) or len(view) < BLOCK_HEADER_SIZE + LENGTH_SIZE:
            raise StreamCorrupt(where, offset=start, reason="the length of a chunk is not the size of its block")
        if self.partial and not self.data:
            raise StreamCorrupt(where, offset=start, reason="a chunk is empty, though more follows")
        if self.back > start or (self.back == 0) != (self.number == 0):
            raise StreamCorrupt(where, offset=start, reason="a chunk does not follow the one before it")

    @property
    def event_start(self) -> int:
        """Where the first chunk of the event begins."""
        return self.start - self.back

    def index_at(self, offset: int) -> int | None:
        """Return 0 where the event begins or ends; None: it does neither there."""
        begins = self.number == 0 and offset in (self.start, self.start + BLOCK_HEADER_SIZE)
        return 0 if begins or (not self.partial and offset == self.end) else None


class Extent:
    """What stands before the chunks of a large event: how many bytes it has, and how many its blocks have.

    Behind that are the event's key and headers, as behind the events of a block.
    """

    __slots__ = ("before", "columns", "end", "size", "span", "start", "time_ms")

    count: Final = 0  # it holds no event

    def __init__(self, header: StreamBlockHeader, view: memoryview, *, where: str, start: int) -> None:
        self.start, self.end, self.time_ms, self.before = start, start + len(view), header.time_ms, header.before
        if len(view) < BLOCK_HEADER_SIZE + _EXTENT.size:
            raise StreamCorrupt(where, offset=start, reason="an extent of the wrong size")
        self.size, self.span = _EXTENT.unpack_from(view, BLOCK_HEADER_SIZE)
        try:
            self.columns = unpack_columns(header.columns, view[BLOCK_HEADER_SIZE + _EXTENT.size :], 1)
        except ValueError as error:
            raise StreamCorrupt(where, offset=start, reason=str(error)) from error

    def index_at(self, offset: int) -> int | None:
        """Return 0 at its own beginning and end; None elsewhere."""
        return 0 if offset in (self.start, self.end) else None


def pack_chunk(data_size: int, *, number: int, back: int, partial: bool, time_ms: int) -> bytes:
    """Return what stands before the bytes of a chunk: its header and its length word."""
    header = StreamBlockHeader(
        kind=CHUNK, flush_segments=0, count=1, time_ms=time_ms, flush_last=number, durable_floor=back
    )
    return header.pack() + (data_size | (PARTIAL if partial else 0)).to_bytes(LENGTH_SIZE, "big")


def pack_extent(size: int, span: int) -> bytes:
    """Return what stands in an extent, between its header and its columns."""
    return _EXTENT.pack(size, span)


AnyBlock = Block | Chunk | Extent


def read_block(view: memoryview, *, where: str, start: int, commit_ms: int = 0) -> AnyBlock:
    """Return the block at ``start`` of the segment called ``where``; a table of writers is a block without events.

    One that was written in a transaction counts from ``commit_ms`` on, when it became part of the segment.
    """
    header = read_header(view, where=where, start=start)
    block: AnyBlock
    if header.kind == CHUNK:
        block = Chunk(header, view, where=where, start=start)
    elif header.kind == EXTENT:
        block = Extent(header, view, where=where, start=start)
    else:
        block = Block(header, view, where=where, start=start)
    if commit_ms:
        block.time_ms = commit_ms
    return block
