"""JSON events as columns, many at once.

Arrow's parser takes lines, so events become lines of one text. Each event is one row if it begins and ends with a
brace: no value can continue in the next line, because a comma would have to come between. The parser refuses the whole
text if one event is not JSON, or has other types than the columns. Invalid events are found with Python's parser as far
as it can tell, which is fast if there are many, and otherwise by bisection; Arrow's parser decides what is valid.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from penstock.errors import EventMalformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["JsonColumns", "readable", "texts_of"]

_OBJECT: Final = r"(?s)\A\s*\{.*\}\s*\z"
_OPENING, _CLOSING = b"{}"
_OWN_ZONE: Final = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_NO_FIELD: Final = pa.field("\0", pa.null())  # without a column, the parser counts no rows


def texts_of(events: pa.Array) -> pa.Array:
    """Return events as texts; null where an event is not UTF-8."""
    return _as_texts(events, _decoded)


def readable(events: pa.Array) -> pa.Array:
    """Return events as readable texts, in which bytes that are not UTF-8 are replaced."""
    return _as_texts(events, lambda event: event.decode(errors="replace"))


def _as_texts(events: pa.Array, decode: Callable[[bytes], str | None]) -> pa.Array:
    try:
        return events.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if event is None else decode(event) for event in events.to_pylist()], pa.string())


def _decoded(event: bytes) -> str | None:
    try:
        return event.decode()
    except UnicodeDecodeError:
        return None


class JsonColumns:
    """Parses columns from events; with ``keep_corrupt``, invalid events are returned in a column of their own.

    Times without a zone are in ``zone``.
    """

    def __init__(self, fields: Sequence[pa.Field], *, keep_corrupt: bool, zone: str = "UTC") -> None:
        self._fields, self._keep_corrupt, self._zone = fields, keep_corrupt, zone
        self._schema = pa.schema([pa.field(field.name, _as_read(field.type)) for field in fields] or [_NO_FIELD])
        self._kinds = {field.name: _python_kinds(field.type) for field in self._schema}

    def of(self, events: pa.Array, offsets: pa.Array, *, where: str, corrupt: str) -> dict[str, pa.Array]:
        """Return a column for each field, and one with invalid events; null where there is no event.

        ``where`` is the segment of the offsets.
        """
        good = there = pc.is_valid(events)
        try:
            columns = self._parse(events if not events.null_count else events.filter(good))
        except pa.ArrowInvalid:
            if not self._keep_corrupt:
                self._refuse(events.filter(there), offsets.filter(there), where)
            good = self._good(events)
            columns = self._parse(events.filter(good))
        if good.true_count == len(events):
            return columns | {corrupt: pa.nulls(len(events), pa.string())}
        rows = pc.if_else(good, pc.subtract(pc.cumulative_sum(good.cast(pa.int64())), 1), None)
        columns = {name: column.take(rows) for name, column in columns.items()}
        return columns | {corrupt: readable(pc.if_else(pc.and_not(there, good), events, None))}

    def _parse(self, events: pa.Array) -> dict[str, pa.Array]:
        if not len(events):
            return {field.name: pa.nulls(0, field.type) for field in self._fields}
        if not (_is_braced(events) or pc.all(pc.match_substring_regex(events, _OBJECT)).as_py()):
            raise pa.ArrowInvalid("no object")
        events.cast(pa.string())  # the parser takes any bytes as text, Spark does not
        lines = pa.ListArray.from_arrays(pa.array([0, len(events)], pa.int32()), events)
        text = pc.binary_join(lines, b"\n")[0].as_buffer()
        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._schema, unexpected_field_behavior="ignore", newlines_in_values=True
            ),
        )
        if len(table) != len(events):
            raise pa.ArrowInvalid("more than one object")
        return {
            field.name: _converted(_whole(table.column(field.name)), field.type, self._zone) for field in self._fields
        }

    def _refuse(self, events: pa.Array, offsets: pa.Array, where: str) -> None:
        """Raise an error for the first invalid event, if there is one."""
        try:
            self._parse(events)
        except pa.ArrowInvalid as error:
            if len(events) == 1:
                place = f"{where}@{offsets[0]}"
                raise EventMalformed(place, wanted="JSON object of the schema", reason=str(error)) from None
            half = len(events) // 2
            self._refuse(events[:half], offsets[:half], where)
            self._refuse(events[half:], offsets[half:], where)

    def _good(self, events: pa.Array) -> pa.Array:
        """Return which events are valid."""
        maybe = pa.array(
            [place for place, event in enumerate(events.to_pylist()) if self._may_be_good(event)], pa.int64()
        )
        found = pa.array(list(self._sift(events, maybe)), pa.int64())
        return pc.is_in(pa.array(range(len(events)), pa.int64()), found)

    def _may_be_good(self, event: bytes | None) -> bool:
        """Return whether Python's parser accepts an event."""
        try:
            row = None if event is None else json.loads(event.decode())
        except (json.JSONDecodeError, UnicodeDecodeError):
            return False
        except (RecursionError, ValueError):  # its own limits, on depth and digits
            return True
        return isinstance(row, dict) and all(
            row.get(name) is None or type(row[name]) in kinds for name, kinds in self._kinds.items()
        )

    def _sift(self, events: pa.Array, places: pa.Array) -> Iterator[int]:
        """Return the indices whose events are valid."""
        try:
            self._parse(events.take(places))
        except pa.ArrowInvalid:
            half = len(places) // 2
            if half:
                yield from self._sift(events, places[:half])
                yield from self._sift(events, places[half:])
        else:
            yield from places.to_pylist()


def _is_braced(events: pa.Array) -> bool:
    """Return whether each event begins and ends with a brace itself: the common case, and 20 times as fast to find."""
    _, offsets, data = events.buffers()
    ends = np.frombuffer(offsets, np.int32)[events.offset : events.offset + len(events) + 1]
    if data is None or (ends[1:] == ends[:-1]).any():
        return False
    text = np.frombuffer(data, np.uint8)
    return bool((text[ends[:-1]] == _OPENING).all() and (text[ends[1:] - 1] == _CLOSING).all())


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's parser produces; it has no dates, and takes all times as UTC."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_read(kind.value_type))
    return pa.string() if pa.types.is_date(kind) or _is_zoned(kind) else kind


def _is_zoned(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _has_zoned(kind: pa.DataType) -> bool:
    """Return whether a type contains times with a zone."""
    return _is_zoned(kind) or any(_has_zoned(kind.field(place).type) for place in range(kind.num_fields))


def _converted(array: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    """Convert values to types that Arrow's parser cannot produce."""
    if not _has_zoned(kind):
        return array.cast(kind)
    if _is_zoned(kind):
        return _times(array, kind, zone)
    if pa.types.is_struct(kind):
        parts = [_converted(part, field.type, zone) for part, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.is_null(array))
    values = _converted(array.values, kind.value_type, zone)
    return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=pc.is_null(array))


def _times(texts: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    """Parse times with their own zone, or in ``zone``, as Spark does.

    An ambiguous time in autumn is the earlier one. One that a clock set forward in spring skips is as far behind the
    change as it is behind the last time before: then ``skipped`` is not zero.
    """
    has_zone = pc.match_substring_regex(texts, _OWN_ZONE)
    own = pc.if_else(has_zone, texts, None).cast(kind)
    local = pc.if_else(has_zone, None, texts).cast(pa.timestamp(kind.unit))
    zoned = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    skipped = pc.subtract(local, pc.local_timestamp(zoned))
    return pc.coalesce(own, pc.add(zoned, skipped).cast(kind))


def _python_kinds(kind: pa.DataType) -> tuple[type, ...]:
    """Return the Python types that Python's parser produces for a column type."""
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return (dict,) if pa.types.is_struct(kind) else (list,)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return (bool,) if pa.types.is_boolean(kind) else (int,)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return (int, float) if pa.types.is_floating(kind) else (int, float, str)
    return (str,)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
