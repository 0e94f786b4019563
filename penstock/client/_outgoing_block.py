"""A block of a writer under way to the server, and the forms in which it is sent."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa

from penstock.stream.format import BLOCK_HEADER_SIZE, block_digest
from penstock.stream.segment import SegmentEnded
from penstock.wire import APPENDS, BLOCKS_MAX, ENDED, LEFT_SIZE, SmallBlock, column_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import flight

    from penstock.ports import Bytes
    from penstock.stream.format import StreamBlockHeader

__all__ = ["OutgoingBlock", "fitting", "parts_of", "put_block", "size_of", "small"]


class _Sender(Protocol):
    def send(self) -> None: ...


class OutgoingBlock(msgspec.Struct, eq=False):
    """A block under way."""

    _host: _Sender
    segment_id: int
    header: StreamBlockHeader
    parts: tuple[Bytes, ...]
    answer: int | None = None  # where it begins, or that its segment has ended

    @property
    def start(self) -> int:
        """Where it begins, once it is durable."""
        assert self.answer is not None, "asked for once it is durable"
        return self.answer

    def described(self) -> tuple[int, int, int, bytes]:
        """Return what identifies it: its segment, numbers and digest."""
        digest = block_digest(self.header, *self.parts)
        return self.segment_id, self.header.last_number, self.header.count, digest

    def result(self) -> None:
        """Return when it is durable; ``SegmentEnded`` if there are successors to write to."""
        if self.answer is None:
            self._host.send()
        if self.answer == ENDED:
            raise SegmentEnded


def size_of(block: OutgoingBlock) -> int:
    """Return how many bytes a block has, with its header."""
    return sum(map(len, block.parts)) + BLOCK_HEADER_SIZE


def fitting(blocks: Sequence[OutgoingBlock], limit: float) -> int:
    """Return how many of the blocks go together: one at least."""
    if len(blocks) == 1:
        return 1
    sizes = accumulate(map(size_of, blocks[:BLOCKS_MAX]))
    return max(1, sum(size <= limit for size in sizes))


def put_block(put: flight.FlightStreamWriter, block: OutgoingBlock, left: int) -> None:
    """Send a block, behind which ``left`` others are acknowledged together with it."""
    if SmallBlock.fits(sum(map(len, block.parts))):
        put.write_metadata(small(block, left))
    else:
        put.write_with_metadata(_as_batch(block, block.header.pack()), left.to_bytes(LEFT_SIZE, "big"))


def small(block: OutgoingBlock, left: int) -> bytes:
    """Return a small block as it is sent."""
    return SmallBlock.pack(left, block.segment_id, block.header.pack(), block.parts)


def parts_of(block: OutgoingBlock, left: int) -> list[Bytes]:
    """Return a block as it is sent over a connection for blocks, in the parts that it has."""
    return [SmallBlock.pack_head(left, block.segment_id, block.header.pack()), *block.parts]


def _as_batch(block: OutgoingBlock, header: bytes) -> pa.RecordBatch:
    words, data, *rest = (*block.parts, b"", b"")[: max(2, len(block.parts))]
    columns = [pa.array([block.segment_id], pa.int64()), *map(column_of, (header, words, data, b"".join(rest)))]
    return pa.record_batch(columns, APPENDS)
