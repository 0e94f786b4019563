"""JSON events as columns, many at once.

Arrow's reader takes lines. Events become lines of one text; that they stay one row each is sure if every one of them
begins with a brace and ends with one: then no line can go on in the next, because a comma would have to come between.
Events that are not JSON, or of other types than the columns, are found by halving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from penstock.errors import EventMalformed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["JsonColumns"]

_OBJECT: Final = r"(?s)\A\s*\{.*\}\s*\z"


class JsonColumns:
    """Reads columns out of events; with ``keep_corrupt``, what cannot be read is kept in a column of its own."""

    def __init__(self, fields: Sequence[pa.Field], *, where: str, keep_corrupt: bool) -> None:
        self._fields, self._where, self._keep_corrupt = fields, where, keep_corrupt
        self._schema = pa.schema([pa.field(one.name, _as_read(one.type)) for one in fields])

    def of(self, events: pa.Array, offsets: pa.Array, *, corrupt: str) -> dict[str, pa.Array]:
        """Return a column for each field, and one with the events that are none; null where there is no event."""
        there = pc.is_valid(events)
        table = self._read(events.filter(there), offsets.filter(there), corrupt)
        if events.null_count:
            table = table.take(pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None))
        found = {one.name: _whole(table.column(one.name)).cast(one.type) for one in self._fields}
        return found | {corrupt: _whole(table.column(corrupt))}

    def _read(self, events: pa.Array, offsets: pa.Array, corrupt: str) -> pa.Table:
        """Return a row for each event."""
        try:
            table = self._parse(events)
        except pa.ArrowInvalid as error:
            if len(events) == 1:
                if not self._keep_corrupt:
                    raise EventMalformed(
                        f"{self._where}@{offsets[0]}", wanted="JSON of the schema", reason=str(error)
                    ) from None
                return self._corrupt(events, corrupt)
            half = len(events) // 2
            parts = (slice(None, half), slice(half, None))
            return pa.concat_tables([self._read(events[part], offsets[part], corrupt) for part in parts])
        return table.append_column(corrupt, pa.nulls(len(events), pa.string()))

    def _parse(self, events: pa.Array) -> pa.Table:
        if not len(events):
            return self._schema.empty_table()
        if not pc.all(pc.match_substring_regex(events, _OBJECT)).as_py():
            raise pa.ArrowInvalid("no object")
        events.cast(pa.string())  # the reader takes any bytes for text, Spark does not
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
        for one in self._fields:
            table.column(one.name).cast(one.type)
        return table

    def _corrupt(self, event: pa.Array, corrupt: str) -> pa.Table:
        text = event[0].as_py().decode(errors="replace")
        table = pa.table([pa.nulls(1, one.type) for one in self._schema], self._schema)
        return table.append_column(corrupt, pa.array([text], pa.string()))


def _as_read(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's reader makes of JSON; it has no dates."""
    return pa.string() if pa.types.is_date(kind) else kind


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
