"""Batches: what a caller gives, as Arrow arrays of events, keys and headers, and the key position of each event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadArgument
from penstock.model import check_many
from penstock.stream.format import (
    HEADERS_TYPE,
    WORDS_SIZE,
    Attributes,
    array_bounds,
    check_arrow,
    header_sizes,
    headers_column,
    key_bytes,
    key_position,
    key_positions,
    pack_columns,
    pack_lengths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from penstock.ports import Bytes

__all__ = [
    "EventRows",
    "around_large",
    "array_data",
    "array_lengths",
    "array_of",
    "as_array",
    "as_keys",
    "as_rows",
    "check_events",
    "concat_rows",
    "cut_points",
    "split",
]


@dataclass(frozen=True, slots=True)
class EventRows:
    """Events with their keys and headers; None where no event has any."""

    events: pa.BinaryArray
    keys: pa.BinaryArray | None = None
    headers: pa.MapArray | None = None

    def __len__(self) -> int:
        return len(self.events)

    def part(self, first: int, last: int) -> EventRows:
        """Return the events from one index up to another, without a copy."""
        return EventRows(self.events[first:last], _part(self.keys, first, last), _part(self.headers, first, last))

    def take(self, chosen: npt.NDArray[np.integer]) -> EventRows:
        """Return the chosen events, in the order in which they are chosen."""
        columns = (None if column is None else column.take(chosen) for column in (self.keys, self.headers))
        return EventRows(self.events.take(chosen), *columns)

    def event(self, index: int) -> memoryview:
        """Return the bytes of one event, without a copy."""
        return memoryview(self.events[index].as_buffer())

    def attributes(self, index: int) -> Attributes:
        """Return the key and the headers of one event."""
        return Attributes.at((self.keys, self.headers), index)

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return how many bytes each event takes in a block."""
        sizes: npt.NDArray[np.int64] = array_lengths(self.events).astype(np.int64) + WORDS_SIZE
        if self.keys is not None:
            sizes += array_lengths(self.keys)
        if self.headers is not None:
            sizes += header_sizes(self.headers)
        return sizes

    def block_cuts(self, size: int) -> list[int]:
        """Return before which events to cut, and their number: blocks of at most ``size`` bytes, or of one event."""
        return cut_points(np.cumsum(self.sizes()), size=size)

    def packed(self) -> tuple[int, list[Bytes]]:
        """Return the column flags of the block that the events make, and its body."""
        flags, columns = pack_columns(self.keys, self.headers)
        return flags, [pack_lengths(array_lengths(self.events)), array_data(self.events), *columns]


def _part(array: pa.Array | None, first: int, last: int) -> pa.Array | None:
    return None if array is None else array[first:last]


def concat_rows(rows: Sequence[EventRows]) -> EventRows:
    """Return the rows of several batches in one."""
    if len(rows) == 1:
        return rows[0]
    lengths = list(map(len, rows))
    return EventRows(
        pa.concat_arrays([part.events for part in rows]),
        _concat([part.keys for part in rows], lengths, pa.binary()),
        _concat([part.headers for part in rows], lengths, HEADERS_TYPE),
    )


def _concat(arrays: Sequence[pa.Array | None], lengths: Sequence[int], kind: pa.DataType) -> pa.Array | None:
    if all(array is None for array in arrays):
        return None
    filled = [pa.nulls(length, kind) if array is None else array for array, length in zip(arrays, lengths, strict=True)]
    return pa.concat_arrays(filled)


def as_rows(
    events: object, keys: object, headers: object, *, without: float
) -> tuple[EventRows, npt.NDArray[np.float64] | None]:
    """Check what a caller gives as a batch; return it with the key position of each event, None if there are no keys.

    There is a key for each event, one for all, or none; ``without`` is the position of those without.
    """
    array = as_array(events)
    columns = None if headers is None else headers_column(headers, len(array))
    if keys is None:
        return EventRows(array, None, columns), None
    if isinstance(keys, str | bytes):
        key = key_bytes(keys)
        return EventRows(array, pa.repeat(pa.scalar(key, pa.binary()), len(array)), columns), np.full(
            len(array), key_position(key)
        )
    stored, positions = as_keys(keys, len(array), without=without)
    return EventRows(array, stored, columns), positions


def check_events(events: object) -> None:
    """Require a list of events, or an Arrow array; a table has columns, and the caller knows which are the events."""
    if isinstance(events, pa.Table | pa.RecordBatch):
        raise BadArgument(f"invalid events, a {type(events).__name__}: pass table['event'], keys=table['key']")
    check_many("events", events, "bytes, or an Arrow array")


def as_array(events: object) -> pa.BinaryArray:
    """Return the events as one binary array, without a copy where they are one already."""
    try:
        array = _as_arrow(events, pa.binary())
        if array.type != pa.binary():
            array = array.cast(pa.binary())
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    except (pa.ArrowException, TypeError, UnicodeError) as error:
        raise BadArgument(f"invalid events: give a list of bytes or an Arrow array of them ({error})") from error
    if array.null_count:
        raise BadArgument(f"{array.null_count} of {len(array)} events are null: use b'' for an empty event")
    return array


def _as_arrow(values: object, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.array(values, kind)
    check_arrow(values)
    return values


def as_keys(keys: object, count: int, *, without: float) -> tuple[pa.BinaryArray, npt.NDArray[np.float64]]:
    """Return ``count`` keys and the position of each; the position of a repeated key is computed once.

    An event may have none, which is None or null: its position is ``without``.
    """
    check_many("keys", keys, "texts, or an Arrow array")
    try:
        array = _as_arrow(keys, None)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_null(array.type):
            array = array.cast(pa.binary())
        if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
            array = array.dictionary_decode()  # so that null is no key among the others
        coded = array if pa.types.is_dictionary(array.type) else pc.dictionary_encode(array)
        kinds: Sequence[str | bytes] = coded.dictionary.to_pylist()
        which = coded.indices.fill_null(len(kinds)).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, TypeError, UnicodeError, OverflowError) as error:
        raise BadArgument(f"invalid keys: give a list of texts or an Arrow array of them ({error})") from error
    if len(which) != count:
        raise BadArgument(f"{len(which)} keys for {count} events: give one for each, None where an event has none")
    encoded = list(map(key_bytes, kinds))
    positions: npt.NDArray[np.float64] = np.append(key_positions(encoded), without)[which]
    if array.type in (pa.binary(), pa.string()):
        return array.cast(pa.binary()), positions
    return pa.array([*encoded, None], pa.binary()).take(pa.array(which)), positions


def split(rows: EventRows, which: npt.NDArray[np.integer]) -> Iterator[tuple[int, npt.NDArray[np.integer], EventRows]]:
    """Return each destination with the indexes of its events and these events; ``which`` is that of each event."""
    for place in np.flatnonzero(np.bincount(which)):
        chosen = np.flatnonzero(which == place)
        yield int(place), chosen, rows if len(chosen) == len(rows) else rows.take(chosen)


def around_large(rows: EventRows, size_max: int) -> Iterator[tuple[slice, int | None]]:
    """Return the events up to a size in slices, each with the index of the large event behind it; None at the end."""
    start = 0
    for large in np.flatnonzero(array_lengths(rows.events) > size_max).tolist():
        yield slice(start, large), large
        start = large + 1
    yield slice(start, len(rows)), None


def cut_points(ends: npt.NDArray[np.int64], *, size: int) -> list[int]:
    """Return before which events to cut, and their number: parts of at most ``size`` bytes, or of one event."""
    cuts = [0]
    while cuts[-1] < len(ends):
        first = cuts[-1]
        begin = int(ends[first - 1]) if first else 0
        cuts.append(max(first + 1, int(np.searchsorted(ends, begin + size, side="right"))))
    return cuts


def array_lengths(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return how long each event is."""
    bounds = array_bounds(array)
    return bounds[1:] - bounds[:-1]


def array_data(array: pa.BinaryArray) -> memoryview:
    """Return the bytes of all events, one after another, without a copy."""
    bounds, data = array_bounds(array), array.buffers()[2]
    return memoryview(b"" if data is None else data)[int(bounds[0]) : int(bounds[-1])]


def array_of(lengths: npt.NDArray[np.integer], data: Bytes) -> pa.BinaryArray:
    """Return events of these lengths as an array, without a copy."""
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(bounds), pa.py_buffer(data)])
