"""Events as Arrow batches, with where each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.stream._block import Block

__all__ = ["MARK_TIME", "READ_SCHEMA", "Slice", "read_columns"]

MARK_TIME: Final = pa.timestamp("ms", "UTC")
READ_SCHEMA: Final = pa.schema(
    [
        pa.field("event", pa.binary()),
        pa.field("segment_id", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("mark_time", MARK_TIME),
    ]
)

Slice = tuple["Block", int, int]
"""A block, and which of its events."""


def read_columns(slices: Sequence[Slice], segment_id: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return events, segment ids and offsets; without a copy of the events where they are of one block."""
    events = [block.arrow(first, last) for block, first, last in slices]
    offsets = [block.offsets()[first:last] for block, first, last in slices]
    places = offsets[0] if len(offsets) == 1 else np.concatenate(offsets)
    return (
        events[0] if len(events) == 1 else pa.concat_arrays(events),
        pa.array(np.full(len(places), segment_id, np.int64)),
        pa.array(places),
    )
