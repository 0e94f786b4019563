"""Events as Arrow batches, with what they carry and where each of them is."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.stream.format import BLOCK_HEADER_SIZE, HEADERS_TYPE, TIME_TYPE, Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from penstock.stream.segment import LargeBlock

__all__ = ["Slice", "carried", "event_columns", "event_offsets", "joined"]

Slice = tuple["Block | LargeBlock", int, int]
"""A block, and which of its events."""


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
        ([block for block, _, _ in some if isinstance(block, Block)], []) if is_single else ([], list(some))
        for is_single, some in groupby(slices, _is_single)
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
