"""Events as rows of Spark: from Arrow batches of a store to Arrow batches of the requested columns.

Only the columns that the schema names are built. The content of an event can become columns, too: with ``json`` the
fields that the schema names, with ``futoin`` the fields of an FTN18 event, ``{"type": …, "ts": …, "data": …}``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import BadArgument, EventMalformed
from penstock.model import EventPointer
from penstock.spark._futoin import futoin_columns
from penstock.spark._json import JsonColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock import Store
    from penstock.spark._options import SourceOptions

__all__ = ["CORRUPT", "Rows", "check_schema", "names_in", "schema_of"]

CORRUPT: Final = "_corrupt"
_TOKENS: Final = re.compile(r"(`(?:[^`]|``)+`)|(?:'(?:[^'\\]|\\.)*')|([^\s`'<>(),:]+)|([<>(),])")
_OURS: Final[dict[str, DataType]] = {
    "event": BinaryType(),
    "key": BinaryType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), BinaryType()),
    "scope": StringType(),
    "stream": StringType(),
    "segment_id": LongType(),
    "offset": LongType(),
    "size": LongType(),
    "pointer": StringType(),
    "mark_time": TimestampType(),
}
_FUTOIN: Final[dict[str, DataType]] = {
    "id": LongType(),
    "type": StringType(),
    "data": StringType(),
    "ts": TimestampType(),
}


def schema_of(options: SourceOptions) -> StructType | str:
    """Return the default columns of a source, as text if Spark has to parse a part of them."""
    left_out = [
        *([] if options.format == "raw" else ["event"]),
        *([] if options.include_headers else ["headers"]),
        *names_in(options.json_schema or ""),
    ]
    ours = {name: kind for name, kind in _OURS.items() if name not in left_out}
    corrupt = {CORRUPT: StringType()} if options.format != "raw" and options.keep_corrupt else {}
    if options.format != "json":
        found = (_FUTOIN if options.format == "futoin" else {}) | corrupt | ours
        return StructType([StructField(name, kind) for name, kind in found.items()])
    if options.json_schema is None:
        raise BadArgument(
            "the format 'json' needs to know the columns: give .schema(\"…\") or the option 'json_schema', "
            'as in "sensor string, degrees double"'
        )
    return ", ".join(
        [options.json_schema, *(f"`{name}` {kind.simpleString()}" for name, kind in (corrupt | ours).items())]
    )


def check_schema(options: SourceOptions, schema: StructType) -> None:
    """Refuse columns that the source does not have, or that have another type."""
    known = _OURS | (_FUTOIN if options.format == "futoin" else {})
    if options.format != "raw" and options.keep_corrupt:
        known[CORRUPT] = StringType()
    elif CORRUPT in schema.fieldNames():
        raise BadArgument(f"the column {CORRUPT!r} comes with on_corrupt=column, of the formats 'json' and 'futoin'")
    of_json = _json_names(options, schema)
    for column in schema.fields:
        if schema.fieldNames().count(column.name) > 1:
            raise BadArgument(f"there is more than one column {column.name!r}: name each once")
        if not _is_nullable(column):
            raise BadArgument(
                f"the column {column.name!r} cannot be NOT NULL: a row that lacks it would end the query in Java. "
                "Leave that out, and filter or check behind"
            )
        if column.name in known and column.name not in of_json:
            if column.dataType != known[column.name]:
                wanted = known[column.name].simpleString()
                raise BadArgument(
                    f"the column {column.name!r} is of type {wanted}, not {column.dataType.simpleString()}"
                )
        elif column.name not in of_json:
            names = ", ".join([*known, *sorted(of_json)])
            raise BadArgument(f"a source of format {options.format!r} has no column {column.name!r}: there are {names}")
        elif not _is_in_json(column.dataType):
            raise BadArgument(
                f"the column {column.name!r} cannot be read from JSON as {column.dataType.simpleString()}: use texts, "
                "numbers, booleans, dates, timestamps, and arrays and structs of them"
            )


def _json_names(options: SourceOptions, schema: StructType) -> set[str]:
    """Return the columns that are JSON fields: those of 'json_schema', or without it all that are not ours."""
    if options.format != "json":
        return set()
    if options.json_schema is not None:
        return set(names_in(options.json_schema))
    names = [name for name in schema.fieldNames() if name != CORRUPT]
    for name in names:
        if name in _OURS:
            raise BadArgument(
                f"the column {name!r} of .schema() may be the stream's, or a field of the JSON: name those of the JSON "
                "in the option 'json_schema', too"
            )
    return set(names)


def names_in(ddl: str) -> Iterator[str]:
    """Return the names of columns in a declaration like "a int, `b c` struct<d: int>"."""
    depth, is_next = 0, True
    for quoted, word, sign in _TOKENS.findall(ddl):
        if is_next and (quoted or word):
            yield quoted[1:-1].replace("``", "`") if quoted else word
            is_next = False
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(sign, 0)
        is_next = is_next or (sign == "," and not depth)


def _is_nullable(field: StructField) -> bool:
    """Return whether a column, and everything nested in it, is nullable."""
    kind = field.dataType
    while isinstance(kind, ArrayType):
        if not kind.containsNull:
            return False
        kind = kind.elementType
    return field.nullable and (not isinstance(kind, StructType) or all(map(_is_nullable, kind.fields)))


def _is_in_json(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _is_in_json(kind.elementType)
        case StructType():
            return all(_is_in_json(field.dataType) for field in kind.fields)
        case StringType() | NumericType() | BooleanType() | DateType() | TimestampType() | TimestampNTZType():
            return True
    return False


class Rows:
    """Builds the rows of one partition.

    ``time`` is the writers' promise at the end of the micro-batch. It is the same for all rows, because segments are
    read at different speeds. Outside of a micro-batch (``in_batch`` false) a row has the time of its own position.
    """

    def __init__(
        self,
        store: Store,
        options: SourceOptions,
        schema: StructType,
        stream: str | None,
        *,
        time: int | None = None,
        in_batch: bool = False,
        zone: str = "UTC",
    ) -> None:
        self._store, self._options, self._time, self._in_batch = store, options, time, in_batch
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._stream = stream or ""  # without events, there are only watermark-only rows
        scope, _, name = self._stream.partition("/")
        self._makers: dict[str, Callable[[pa.RecordBatch], pa.Array]] = {
            "event": self._events,
            "key": lambda batch: batch.column("key"),
            "timestamp": lambda batch: batch.column("timestamp"),
            "headers": lambda batch: batch.column("headers"),
            "scope": _Same(scope).of,
            "stream": _Same(name).of,
            "segment_id": lambda batch: batch.column("segment_id"),
            "offset": lambda batch: batch.column("offset"),
            "size": self._sizes,
            "pointer": self._pointers,
            "mark_time": self._times,
        }
        of_json = _json_names(options, schema)
        self._json = JsonColumns(
            [field for field in self._schema if field.name in of_json], keep_corrupt=options.keep_corrupt, zone=zone
        )

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of events."""
        found = self._payload(batch)
        arrays = [
            found[field.name] if field.name in found else self._makers[field.name](batch) for field in self._schema
        ]
        cast = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, self._schema, strict=True)
        ]
        return pa.record_batch(cast, self._schema)

    def mark(self) -> pa.RecordBatch:
        """Return a watermark-only row."""
        arrays = [
            pa.array([self._time], pa.timestamp("ms", "UTC")).cast(field.type)
            if field.name == "mark_time"
            else pa.nulls(1, field.type)
            for field in self._schema
        ]
        return pa.record_batch(arrays, self._schema)

    def _events(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the events, with null for those above the limit; the store omits only those in chunks."""
        events = batch.column("event")
        is_large = pc.greater(pc.binary_length(events), self._options.max_event_size)
        return pc.if_else(is_large, None, events) if pc.any(is_large).as_py() else events

    def _payload(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns that are parsed from the events."""
        if self._options.format == "raw":
            return {}
        where, events, offsets = self._segment(batch), self._events(batch), batch.column("offset")
        if events.null_count and not self._options.keep_corrupt:
            self._refuse_large(batch, events)
        if self._options.format == "json":
            found = self._json.of(events, offsets, where=where, corrupt=CORRUPT)
        else:
            keep_corrupt = self._options.keep_corrupt
            found = futoin_columns(events, offsets, where=where, corrupt=CORRUPT, keep_corrupt=keep_corrupt)
        if events.null_count:
            notes = pc.binary_join_element_wise("larger than max_event_size: ", self._pointers(batch), "")
            found[CORRUPT] = pc.if_else(pc.is_null(events), notes, found[CORRUPT])
        return found

    def _refuse_large(self, batch: pa.RecordBatch, events: pa.Array) -> None:
        """Raise an error for an event that is too large to parse; a row of nulls would look like an empty event."""
        first = pc.index(pc.is_null(events), True).as_py()
        size, limit = self._sizes(batch.slice(first, 1))[0], self._options.max_event_size
        reason = f"it has {size} bytes, above max_event_size, {limit}: raise max_event_size"
        raise EventMalformed(str(self._pointers(batch)[first]), wanted="row", reason=reason)

    def _sizes(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the sizes of the events; the store knows those of events that were not read."""
        events = batch.column("event")
        sizes = pc.binary_length(events).cast(pa.int64())
        if not events.null_count:
            return sizes
        is_large = pc.is_null(events)
        places = batch.select(["segment_id", "offset"]).filter(is_large).to_pylist()
        return pc.replace_with_mask(sizes, is_large, pa.array([self._size(**place) for place in places], pa.int64()))

    def _size(self, segment_id: int, offset: int) -> int:
        with self._store.fetch_event_as_stream(EventPointer(self._stream, segment_id, offset)) as event:
            return event.size

    def _pointers(self, batch: pa.RecordBatch) -> pa.Array:
        return _prefixed(f"{self._segment(batch)}@".encode(), batch.column("offset").cast(pa.string()))

    def _segment(self, batch: pa.RecordBatch) -> str:
        """Return the segment of all events of a batch, as in pointers."""
        return f"{self._stream}:{batch.column('segment_id')[0]}"

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        if not self._in_batch:
            return batch.column("mark_time")
        return pa.repeat(pa.scalar(self._time, pa.timestamp("ms", "UTC")), len(batch))


class _Same:
    """A column with one value: built once, for the largest batch so far."""

    def __init__(self, text: str) -> None:
        self._text, self._rows = text, pa.repeat(text, 0)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column for the rows of a batch."""
        rows = self._rows  # another thread may replace it
        if len(rows) < len(batch):
            rows = self._rows = pa.repeat(self._text, len(batch))
        return rows[: len(batch)]


def _prefixed(prefix: bytes, texts: pa.StringArray) -> pa.StringArray:
    """Put a prefix before every text; texts of equal length, as offsets mostly are, are handled together."""
    count, width = len(texts), len(texts[0].as_buffer()) if len(texts) else 0
    _, ends, data = texts.buffers()
    if not count or (np.frombuffer(ends, np.int32, count + 1) != np.arange(0, count + 1) * width).any():
        return pc.binary_join_element_wise(prefix.decode(), texts, "")
    rows = np.empty((count, len(prefix) + width), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    rows[:, len(prefix) :] = np.frombuffer(data, np.uint8, count * width).reshape(count, width)
    new_ends = np.arange(count + 1, dtype=np.int32) * rows.shape[1]
    return pa.StringArray.from_buffers(count, pa.py_buffer(new_ends), pa.py_buffer(rows.reshape(-1)))
