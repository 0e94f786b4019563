"""FutoIn events as columns: one of FTN18 is kept as ``{"type": "…", "ts": "…", "data": …}``; the data stays JSON."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec looks it up
from typing import Annotated, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EventMalformed
from penstock.spark._texts import readable, texts_of
from penstock.stream._block import LENGTH_SIZE

__all__ = ["futoin_columns"]


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_]+$")]
    ts: Annotated[datetime, msgspec.Meta(tz=True)]
    data: msgspec.Raw


_TIME: Final = pa.timestamp("us", "UTC")
_decoder: Final = msgspec.json.Decoder(_Event)


def futoin_columns(
    events: pa.Array, offsets: pa.Array, *, where: str, corrupt: str, keep_corrupt: bool
) -> dict[str, pa.Array]:
    """Return the fields of events, and a column with those that are none; null where there is no event.

    An event's id is the place just behind it.
    """
    found = [_decoded(one) for one in events.to_pylist()]
    data = texts_of(pa.array([None if one is None else bytes(one.data) for one in found], pa.binary()))
    good = pc.is_valid(data)
    wrong = pc.and_not(pc.is_valid(events), good)
    if not keep_corrupt and (first := pc.index(wrong, True).as_py()) >= 0:
        raise EventMalformed(
            f"{where}@{offsets[first]}",
            wanted="event of FutoIn",
            reason="it needs a type, a ts like 2024-12-31T23:59:59Z, and data",
        )
    return {
        "id": pc.add(offsets, pc.add(pc.binary_length(events), LENGTH_SIZE).cast(pa.int64())),
        "type": pc.if_else(good, pa.array([None if one is None else one.type for one in found], pa.string()), None),
        "data": pc.if_else(good, data, None),
        "ts": pc.if_else(good, pa.array([None if one is None else one.ts for one in found], _TIME), None),
        corrupt: readable(pc.if_else(wrong, events, None)),
    }


def _decoded(event: bytes | None) -> _Event | None:
    """Return the fields of an event, None if it has not all of them."""
    try:
        return None if event is None else _decoder.decode(event)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, too deep
        return None
