"""The columns of events that are read as Arrow batches."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.stream.format._columns import HEADERS_TYPE

__all__ = ["READ_SCHEMA", "TIME_TYPE"]

TIME_TYPE: Final = pa.timestamp("ms", "UTC")
READ_SCHEMA: Final = pa.schema(
    [
        pa.field("event", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("timestamp", TIME_TYPE, nullable=False),
        pa.field("headers", HEADERS_TYPE),
        pa.field("segment_id", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("mark_time", TIME_TYPE),
    ]
)
