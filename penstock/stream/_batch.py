"""Batches: whatever the caller has, as one Arrow array of bytes and the key position of each event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadArgument
from penstock.model import check_many
from penstock.stream._block import LENGTH_SIZE
from penstock.stream._keys import key_position, key_positions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

__all__ = [
    "array_data",
    "array_ends",
    "array_lengths",
    "array_of",
    "as_array",
    "as_positions",
    "block_marks",
    "cut_marks",
    "positions_of",
    "split",
]


def as_array(events: object) -> pa.BinaryArray:
    """Return the events as one binary array, without a copy where they are one already."""
    try:
        array = events if isinstance(events, pa.Array | pa.ChunkedArray) else pa.array(events, pa.binary())
        if array.type != pa.binary():
            array = array.cast(pa.binary())
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    except (pa.ArrowException, TypeError, UnicodeError) as error:
        raise BadArgument(f"these are no events: give a list of bytes or an Arrow array of them ({error})") from error
    if array.null_count:
        raise BadArgument(f"{array.null_count} of {len(array)} events are null: an event is bytes, maybe none")
    return array


def as_positions(keys: object, count: int) -> npt.NDArray[np.float64]:
    """Return the key position of each of ``count`` keys; a key that comes again and again is worked out once."""
    check_many("keys", keys, "texts, or an Arrow array")
    try:
        array = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        coded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
        kinds: Sequence[str | bytes] = coded.dictionary.to_pylist()
        which = coded.indices.to_numpy(zero_copy_only=False)
    except (pa.ArrowException, TypeError, UnicodeError, OverflowError) as error:
        raise BadArgument(f"these are no keys: give a list of texts or an Arrow array of them ({error})") from error
    if len(which) != count or coded.null_count:
        raise BadArgument(f"{len(which) - coded.null_count} keys for {count} events: give one for each, or none at all")
    positions: npt.NDArray[np.float64] = key_positions(kinds)[which]
    return positions


def positions_of(keys: object, count: int, *, without: str) -> npt.NDArray[np.float64]:
    """Return the key position of each of ``count`` events: with a key for each, one for all, or none at all.

    ``without`` is what those without a key go by.
    """
    if keys is None or isinstance(keys, str | bytes):
        return np.full(count, key_position(without if keys is None else keys))
    return as_positions(keys, count)


def split(
    array: pa.BinaryArray, which: npt.NDArray[np.integer]
) -> Iterator[tuple[int, npt.NDArray[np.integer], pa.BinaryArray]]:
    """Return each place that events go to, which of them do, and those; ``which`` is the place of each event."""
    for place in np.unique(which):
        chosen = np.flatnonzero(which == place)
        yield int(place), chosen, array if len(chosen) == len(array) else array.take(chosen)


def block_marks(ends: npt.NDArray[np.int64], *, size: int) -> list[int]:
    """Return before which events to cut, and their number: blocks of at most ``size`` bytes, or of one event."""
    return cut_marks(ends + LENGTH_SIZE * np.arange(1, len(ends) + 1), size=size)


def cut_marks(ends: npt.NDArray[np.int64], *, size: int) -> list[int]:
    """Return before which events to cut, and their number: parts of at most ``size`` bytes, or of one event."""
    marks = [0]
    while marks[-1] < len(ends):
        first = marks[-1]
        begin = int(ends[first - 1]) if first else 0
        marks.append(max(first + 1, int(np.searchsorted(ends, begin + size, side="right"))))
    return marks


def array_ends(array: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return where each event ends, counted from the first byte of the first."""
    bounds = _bounds(array)
    ends: npt.NDArray[np.int64] = bounds[1:].astype(np.int64) - bounds[0]
    return ends


def array_lengths(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return how long each event is."""
    bounds = _bounds(array)
    return bounds[1:] - bounds[:-1]


def array_data(array: pa.BinaryArray) -> memoryview:
    """Return the bytes of all events, one after another, without a copy."""
    bounds, data = _bounds(array), array.buffers()[2]
    return memoryview(b"" if data is None else data)[int(bounds[0]) : int(bounds[-1])]


def array_of(lengths: npt.NDArray[np.integer], data: bytes) -> pa.BinaryArray:
    """Return events of these lengths as an array, without a copy."""
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _bounds(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
