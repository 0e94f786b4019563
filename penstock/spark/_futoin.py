"""FutoIn events as columns: they are kept as ``{"type": "…", "ts": "…", "data": …}``, in this order.

So the fields are found without a parser, in all events of a batch at once; the data stays JSON.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EventMalformed
from penstock.stream._block import LENGTH_SIZE

__all__ = ["futoin_columns"]

_EVENT: Final = (
    r'(?s)\A\s*\{\s*"type"\s*:\s*"(?P<type>[A-Za-z0-9_]+)"\s*,\s*"ts"\s*:\s*"(?P<ts>[0-9TZ:-]+)"\s*,'
    r'\s*"data"\s*:\s*(?P<data>\S.*?)\s*\}\s*\z'
)


def futoin_columns(
    events: pa.Array, offsets: pa.Array, *, where: str, corrupt: str, keep_corrupt: bool
) -> dict[str, pa.Array]:
    """Return the fields of events, and a column with those that are none; null where there is no event.

    An event's id is the place just behind it.
    """
    texts = pc.if_else(pc.is_valid(events), events, None).cast(pa.string(), safe=False)
    parts = pc.extract_regex(texts, _EVENT)
    times = pc.strptime(pc.struct_field(parts, "ts"), "%Y-%m-%dT%H:%M:%SZ", "us", error_is_null=True)
    wrong = pc.and_(pc.is_valid(events), pc.is_null(times))
    if not keep_corrupt and (first := pc.index(wrong, True).as_py()) >= 0:
        raise EventMalformed(
            f"{where}@{offsets[first]}", wanted="event of FutoIn", reason="type, ts and data are needed"
        )
    ends = pc.add(offsets, pc.add(pc.binary_length(events), LENGTH_SIZE).cast(pa.int64()))
    return {
        "id": ends,
        "type": pc.if_else(wrong, None, pc.struct_field(parts, "type")),
        "data": pc.if_else(wrong, None, pc.struct_field(parts, "data")),
        "ts": pc.assume_timezone(times, "UTC"),
        corrupt: pc.if_else(wrong, texts, None),
    }
