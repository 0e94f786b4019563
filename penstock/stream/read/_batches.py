"""Events as Arrow batches, with what they carry and where each of them is; the batches of a reader.

A batch of a reader is put together of parts of blocks, of one segment after another.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.stream.format import BLOCK_HEADER_SIZE, HEADERS_TYPE, READ_SCHEMA, TIME_TYPE, Block
from penstock.stream.read._held_segments import UNREADABLE
from penstock.stream.segment import LargeBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from penstock.stream.catalog import Key
    from penstock.stream.read._held_segments import BatchPart, Cursor, HeldSegments
    from penstock.stream.read._membership import Membership
    from penstock.stream.segment import Times

__all__ = ["BatchReads", "Slice", "batch_of", "carried", "event_columns", "event_offsets", "joined"]

Slice = tuple["Block | LargeBlock", int, int]
"""A block, and which of its events."""
_ALONE_SIZE_MIN: Final = 256 << 10  # a block of this size is a batch of its own: nothing is copied
_BATCH_SCHEMA: Final = READ_SCHEMA.set(0, READ_SCHEMA.field("event").with_nullable(nullable=False))
_STREAMS_SCHEMA: Final = _BATCH_SCHEMA.append(
    pa.field("stream", pa.dictionary(pa.int32(), pa.string()), nullable=False)
)


def event_columns(slices: Sequence[Slice]) -> list[pa.Array]:
    """Return events, keys, timestamps and headers; without a copy of the events where they are of one block.

    Blocks of one event are many where they are: those that follow each other become arrays together.
    """
    runs = _runs(slices)
    columns = [_single_columns(blocks) if blocks else _columns(rest) for blocks, rest in runs]
    return columns[0] if len(columns) == 1 else [pa.concat_arrays(parts) for parts in zip(*columns, strict=True)]


def event_offsets(slices: Sequence[Slice]) -> npt.NDArray[np.int64]:
    """Return the offset of each event."""
    found = [
        np.array([block.start for block in blocks], np.int64) + BLOCK_HEADER_SIZE
        if blocks
        else np.concatenate([block.offsets()[first:last] for block, first, last in rest])
        for blocks, rest in _runs(slices)
    ]
    return found[0] if len(found) == 1 else np.concatenate(found)


def _runs(slices: Sequence[Slice]) -> list[tuple[list[Block], list[Slice]]]:
    """Return slices in runs: of blocks of one event without headers, or of others."""
    return [
        ([block for block, _, _ in group if isinstance(block, Block)], []) if is_single else ([], list(group))
        for is_single, group in groupby(slices, _is_single)
    ]


def _is_single(piece: Slice) -> bool:
    block, first, last = piece
    return isinstance(block, Block) and block.count == 1 and not block.has_headers and (first, last) == (0, 1)


def _single_columns(blocks: Sequence[Block]) -> list[pa.Array]:
    """Return the columns of events that are alone in their blocks, and have no headers."""
    bounds = np.zeros(len(blocks) + 1, np.int64)
    np.cumsum([len(block.data) for block in blocks], out=bounds[1:])
    data = pa.py_buffer(b"".join([block.data for block in blocks]) if len(blocks) > 1 else blocks[0].data)
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), data]
    return [
        pa.Array.from_buffers(pa.binary(), len(blocks), buffers),
        pa.array([block.only_key() for block in blocks], pa.binary()),
        pa.array(np.array([block.time_ms for block in blocks], np.int64)).view(TIME_TYPE),
        pa.nulls(len(blocks), HEADERS_TYPE),
    ]


def _columns(slices: Sequence[Slice]) -> list[pa.Array]:
    return [joined([block.arrow(first, last) for block, first, last in slices]), *carried(slices)]


def carried(slices: Sequence[Slice]) -> list[pa.Array]:
    """Return keys, timestamps and headers: what events carry besides their bytes."""
    counts = [last - first for _, first, last in slices]
    times = np.repeat(np.array([block.time_ms for block, _, _ in slices], np.int64), counts)
    return [
        _column(slices, counts, 0, pa.binary()),
        pa.array(times).view(TIME_TYPE),
        _column(slices, counts, 1, HEADERS_TYPE),
    ]


def _column(slices: Sequence[Slice], counts: Sequence[int], which: int, kind: pa.DataType) -> pa.Array:
    found = [block.columns[which] for block, _, _ in slices]
    if all(column is None for column in found):
        return pa.nulls(sum(counts), kind)
    return joined(
        [
            pa.nulls(count, kind) if column is None else column[first:last]
            for column, (_, first, last), count in zip(found, slices, counts, strict=True)
        ]
    )


def joined(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return arrays as one; without a copy of a single one."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


class BatchReads:
    """Reads the batches of one reader; ``next_cursor`` returns the next segment with something to read, in turn."""

    def __init__(
        self,
        membership: Membership,
        held: HeldSegments,
        next_cursor: Callable[..., Cursor | None],
        *,
        event_size_max: int,
    ) -> None:
        self._membership, self._held, self._next_cursor = membership, held, next_cursor
        self._event_size_max = event_size_max

    def next(self, max_bytes: int) -> pa.RecordBatch | None:
        """Return the next batch, None if there is nothing to read now; after an error nothing is left out."""
        parts: list[BatchPart] = []
        try:
            self._gather(parts, max_bytes)
            return batch_of(parts, self._membership.streams, self._held.times_of) if parts else None
        except BaseException as error:
            if not _is_about_one_event(error, parts):
                self._held.go_back()
            raise

    def _gather(self, parts: list[BatchPart], max_bytes: int) -> None:
        """Find what the batch is made of: blocks or parts of them, of one segment after another."""
        budget = max_bytes
        while budget > 0 and (part := self._next_part(budget, first=not parts)) is not None:
            parts.append(part)
            _, block, start, stop, offsets = part
            budget = 0 if _is_alone(block) else budget - int(offsets[stop] - offsets[start])

    def _next_part(self, budget: int, *, first: bool) -> BatchPart | None:
        cursor = self._next_cursor(first=first)
        block = None if cursor is None else cursor.block
        if cursor is None or block is None:
            return None
        self._held.touched.add(cursor)
        is_too_large = cursor.stop == cursor.first
        part = None
        if not is_too_large and (first or not _is_alone(block)):
            part = cursor.cut(block, budget, at_least_one=first)
        if part is None and not first:
            self._held.put_first(cursor)  # of the next batch
            return None
        self._held.put_last(cursor)
        if is_too_large:
            raise cursor.skip_large(block, self._event_size_max)
        return part


def _is_alone(block: Block | LargeBlock) -> bool:
    """Whether a block shares a batch with no other."""
    return isinstance(block, LargeBlock) or block.size >= _ALONE_SIZE_MIN


def _is_about_one_event(error: BaseException, parts: Sequence[BatchPart]) -> bool:
    """Whether an error is about an event that the reader has passed by, not about the batch: large ones are alone."""
    if not parts:
        return isinstance(error, PenstockError)
    return isinstance(error, UNREADABLE) and isinstance(parts[0][1], LargeBlock)


def batch_of(parts: Sequence[BatchPart], streams: Sequence[str], times_of: Callable[[Key], Times]) -> pa.RecordBatch:
    """Return the events of some parts as a batch, without a copy where they are of one block.

    ``streams`` are those that the group reads: if there are several, the batch has a column that says which.
    """
    counts = [stop - start for _, _, start, stop, _ in parts]
    runs = [  # of each segment in its turn, all blocks together
        (key, np.concatenate([offsets[start:stop] for _, _, start, stop, offsets in run]))
        for key, run in groupby(parts, itemgetter(0))
    ]
    columns = [
        *event_columns([(block, start, stop) for _, block, start, stop, _ in parts]),
        pa.array(np.repeat([segment for (_, segment), *_ in parts], counts)),
        pa.array(np.concatenate([offsets for _, offsets in runs])),
        joined([times_of(key).of(offsets) for key, offsets in runs]),
    ]
    if len(streams) == 1:
        return pa.record_batch(columns, _BATCH_SCHEMA)
    numbers = np.array([streams.index(stream) for (stream, _), *_ in parts], np.int32)
    columns.append(pa.DictionaryArray.from_arrays(np.repeat(numbers, counts), pa.array(streams)))
    return pa.record_batch(columns, _STREAMS_SCHEMA)
