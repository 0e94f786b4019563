"""Events as Arrow batches, with what they carry and where each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.stream._columns import HEADERS_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stream._block import Block
    from penstock.stream._large_read import LargeBlock

__all__ = ["MARK_TIME", "READ_SCHEMA", "Slice", "carried", "event_columns", "joined"]

MARK_TIME: Final = pa.timestamp("ms", "UTC")
READ_SCHEMA: Final = pa.schema(
    [
        pa.field("event", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("timestamp", MARK_TIME, nullable=False),
        pa.field("headers", HEADERS_TYPE),
        pa.field("segment_id", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("mark_time", MARK_TIME),
    ]
)

Slice = tuple["Block | LargeBlock", int, int]
"""A block, and which of its events."""


def event_columns(slices: Sequence[Slice]) -> list[pa.Array]:
    """Return events, keys, timestamps and headers; without a copy of the events where they are of one block."""
    return [joined([block.arrow(first, last) for block, first, last in slices]), *carried(slices)]


def carried(slices: Sequence[Slice]) -> list[pa.Array]:
    """Return keys, timestamps and headers: what events carry besides their bytes."""
    counts = [last - first for _, first, last in slices]
    times = np.repeat(np.array([block.time_ms for block, _, _ in slices], np.int64), counts)
    return [
        _column(slices, counts, 0, pa.binary()),
        pa.array(times).view(MARK_TIME),
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
