"""Decoders of events in the jobs on Spark: a batch gives the same as its two halves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.spark._futoin import futoin_columns
from penstock.spark._json import JsonColumns
from tests.fuzz import futoin

if TYPE_CHECKING:
    from collections.abc import Callable

_FIELDS: Final = [
    pa.field("id", pa.int64()),
    pa.field("name", pa.string()),
    pa.field("value", pa.float64()),
    pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("list", pa.list_(pa.int32())),
]
_json_columns: Final = JsonColumns(_FIELDS, keep_corrupt=True)


def futoin_events(data: bytes) -> None:
    """Read the lines of the input as events of FutoIn."""
    _in_parts(data, lambda *rows: futoin_columns(*rows, where="a/b:0", corrupt="corrupt", keep_corrupt=True))


def json_events(data: bytes) -> None:
    """Read the lines of the input as events of JSON."""
    _in_parts(data, lambda *rows: _json_columns.of(*rows, where="a/b:0", corrupt="corrupt"))


def _in_parts(data: bytes, read: Callable[[pa.Array, pa.Array], dict[str, pa.Array]]) -> None:
    events = pa.array(data.split(b"\n"), pa.binary())
    offsets = pa.array([70 * number for number in range(len(events))])
    middle = len(events) // 2
    first, last = read(events[:middle], offsets[:middle]), read(events[middle:], offsets[middle:])
    for name, column in read(events, offsets).items():
        assert column.to_pylist() == first[name].to_pylist() + last[name].to_pylist()


def futoin_batches() -> list[bytes]:
    """Return events of FutoIn, plain ones and others."""
    plain = [b'{"type": "DEMO", "ts": "2024-12-31T23:59:59Z", "data": {"a": %d}}' % number for number in range(2)]
    return [b"\n".join([*plain, *futoin.events()[:2]]), *plain]


def json_batches() -> list[bytes]:
    """Return rows of JSON."""
    rows = [
        b'{"id": 1, "name": "a", "value": 2.5, "at": "2024-12-31T23:59:59Z", "list": [1, 2]}',
        b'{"id": null}',
        b"{}",
    ]
    return [b"\n".join(rows), *rows]
