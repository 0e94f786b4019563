"""The batches of a reader: parts of blocks, of one segment after another, put together as Arrow batches."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.stream.format import READ_SCHEMA
from penstock.stream.read._arrow import event_columns, joined
from penstock.stream.read._cursor import UNREADABLE
from penstock.stream.segment import LargeBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.stream.catalog import Key
    from penstock.stream.format import Block
    from penstock.stream.read._cursor import BatchPart, Cursor
    from penstock.stream.read._held_segments import HeldSegments
    from penstock.stream.read._membership import Membership
    from penstock.stream.segment import Times

__all__ = ["BatchReads", "batch_of"]

_ALONE_SIZE_MIN: Final = 256 << 10  # a block of this size is a batch of its own: nothing is copied
_BATCH_SCHEMA: Final = READ_SCHEMA.set(0, READ_SCHEMA.field("event").with_nullable(nullable=False))
_STREAMS_SCHEMA: Final = _BATCH_SCHEMA.append(
    pa.field("stream", pa.dictionary(pa.int32(), pa.string()), nullable=False)
)


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
