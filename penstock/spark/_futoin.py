"""FutoIn events as columns: an FTN18 event is stored as ``{"type": "…", "ts": "…", "data": …}``; the data stays JSON.

*Plain* events have exactly this form, with these blanks or none, and are parsed many at once: they are cut into frame
and fields, the frame is compared, and the data of all is decoded as one list. If the list has as many values as there
are events and each has the length of its data, every value is the data of one event. All other events are decoded one
by one. So are the plain ones in the same part of a batch if a time or value is invalid, to find the invalid one.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime  # noqa: TC003 - msgspec looks it up
from functools import cache, reduce
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EventMalformed
from penstock.model import UNDECODABLE
from penstock.spark._json import readable, texts_of
from penstock.stream.read import event_ends

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["futoin_columns"]

_KIND: Final = "^[A-Za-z0-9_]+"
_TIME_SIZES: Final = (27, 24, 20)  # with microseconds, with milliseconds, 2024-12-31T23:59:59Z
_PIECES: Final = 7  # frame and field in turn
_PART: Final = 8192  # events that are read at once


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: Annotated[str, msgspec.Meta(pattern=rf"{_KIND}\Z")]
    ts: Annotated[datetime, msgspec.Meta(tz=True)]
    data: msgspec.Raw


_TIME: Final = pa.timestamp("us", "UTC")
_decoder: Final = msgspec.json.Decoder(_Event)
_list_decoder: Final = msgspec.json.Decoder(list[msgspec.Raw])
_FRAME: Final = (b'{"type": "', b'", "ts": "', b'", "data": ', b"}")


def futoin_columns(
    events: pa.Array, offsets: pa.Array, *, where: str, corrupt: str, keep_corrupt: bool
) -> dict[str, pa.Array]:
    """Return the fields of events, and a column with invalid events; null where there is no event.

    The id of an event is the position just after it, also for an event in chunks.
    """
    kinds, times, values = _fields(events)
    data = texts_of(values)
    good = pc.is_valid(data)
    wrong = pc.and_not(pc.is_valid(events), good)
    if not keep_corrupt and (first := pc.index(wrong, True).as_py()) >= 0:
        raise EventMalformed(
            f"{where}@{offsets[first]}",
            wanted="event of FutoIn",
            reason="it needs a type, a ts like 2024-12-31T23:59:59Z, and data",
        )
    return {
        "id": event_ends(offsets, pc.binary_length(events).cast(pa.int64())),
        "type": pc.if_else(good, kinds, None),
        "data": data,
        "ts": pc.if_else(good, times, None),
        corrupt: readable(pc.if_else(wrong, events, None)),
    }


def _fields(events: pa.Array) -> list[pa.Array]:
    """Return types, times and data; null where an event lacks one of them."""
    parts = [_fields_of_part(events[start : start + _PART]) for start in range(0, len(events) or 1, _PART)]
    return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]


def _fields_of_part(events: pa.Array) -> list[pa.Array]:
    plain, found = np.zeros(len(events), bool), _decoded([])
    if pc.any(pc.starts_with(events, b'{"type":')).as_py():
        with suppress(*UNDECODABLE):
            plain, found = _plain_fields(events)
    if plain.all():
        return found
    rest = _decoded(events.filter(pa.array(~plain)).to_pylist())
    rows = np.argsort(np.append(np.flatnonzero(plain), np.flatnonzero(~plain)))
    return [pa.concat_arrays(both).take(pa.array(rows)) for both in zip(found, rest, strict=True)]


def _decoded(events: list[bytes | None]) -> list[pa.Array]:
    """Decode events one by one; null where an event lacks type, time or data."""
    found = [_decoded_one(event) for event in events]
    return [
        pa.array([None if event is None else event.type for event in found], pa.string()),
        pa.array([None if event is None else event.ts for event in found], _TIME),
        pa.array([None if event is None else bytes(event.data) for event in found], pa.binary()),
    ]


def _decoded_one(event: bytes | None) -> _Event | None:
    try:
        return None if event is None else _decoder.decode(event)
    except UNDECODABLE:  # no JSON, no UTF-8, too deep
        return None


def _plain_fields(events: pa.Array) -> tuple[npt.NDArray[np.bool_], list[pa.Array]]:
    """Return which events are plain, with their types, times and data; raise an error if one of these is invalid."""
    pieces = _cut(events)
    columns = [pieces.take(pa.array(np.arange(place, len(pieces), _PIECES))) for place in range(_PIECES)]
    kinds, times, data = columns[1::2]
    framed = map(pc.is_in, columns[::2], _frames())
    plain = reduce(pc.and_, [*framed, _are_kinds(kinds), _may_be_times(times)])
    kinds, times, data = (column.filter(plain) for column in (kinds, times, data))
    _check_values(data)
    return plain.to_numpy(zero_copy_only=False), [kinds.cast(pa.string()), times.cast(pa.string()).cast(_TIME), data]


@cache
def _frames() -> list[pa.Array]:
    """Return both forms of each part of the frame, made on first use: pyarrow imports pandas to make an array."""
    return [pa.array([text.replace(b" ", b""), text], pa.binary()) for text in _FRAME]


def _cut(events: pa.Array) -> pa.Array:
    """Return the pieces of all events, as views; some pieces of events that are not plain are empty."""
    _, offsets, body = events.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(events) + 1, 4 * events.offset).astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    blank = _numbers(pc.starts_with(events, b'{"type": ').cast(pa.int32()))
    time = starts + _numbers(pc.find_substring(events, b'"ts":')) + len(b'"ts":"') + blank
    time_end = time + _time_sizes(np.frombuffer(body, np.uint8), time)
    kind, kind_end = starts + len(b'{"type":"') + blank, time - len(b'","ts":"') - 2 * blank
    data, data_end = time_end + len(b'","data":') + 2 * blank, ends - len(b"}")
    fits = (kind <= kind_end) & (data <= data_end)
    cuts = np.full(_PIECES * len(events) + 1, bounds[-1], np.int32)
    for place, cut in enumerate((starts, kind, kind_end, time, time_end, data, data_end)):
        cuts[place:-1:_PIECES] = np.where(fits, cut, starts)
    return pa.Array.from_buffers(pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), body])


def _numbers(found: pa.Array) -> npt.NDArray[np.int32]:
    return np.asarray(found.fill_null(-1))


def _time_sizes(body: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sizes of the times that start at these offsets and end at a quote; 0 where there is none."""
    sizes = np.zeros_like(starts)
    for size in _TIME_SIZES:
        sizes[body.take(starts + size, mode="clip") == ord('"')] = size
    return sizes


def _are_kinds(texts: pa.Array) -> pa.Array:
    """Return whether texts are valid types; distinct ones are few, so each is checked once."""
    found = texts.dictionary_encode()
    return pc.match_substring_regex(found.dictionary, f"{_KIND}$").take(found.indices)


def _may_be_times(texts: pa.Array) -> pa.Array:
    """Return whether texts are times if Arrow can parse them: Arrow accepts more forms than FTN18, and a year 0."""
    sized = pc.is_in(pc.binary_length(texts), pa.array(_TIME_SIZES, pa.int32()))
    return pc.and_(sized, pc.and_not(pc.ends_with(texts, b"Z"), pc.starts_with(texts, b"0000")))


def _check_values(texts: pa.Array) -> None:
    """Raise an error unless every text is one JSON value without surrounding blanks."""
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), b",")[0]
    values = _list_decoder.decode(b"".join([b"[", joined.as_buffer(), b"]"]))
    sizes = np.fromiter(map(len, values), np.int32, len(values))
    if not np.array_equal(sizes, pc.binary_length(texts).to_numpy()):
        raise ValueError("not one value each")
