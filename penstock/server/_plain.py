"""Any Flight client: streams are flights, which can be listed, read as Arrow batches and appended to.

A stream's path is its name. Its ticket is JSON: ``{"stream": "plant/readings", "start": PLACE, "end": PLACE}``. A place
is a cut as text, or a time at which events were appended, in milliseconds since 1970; each may be left out. What is put
has a column ``event``, and maybe one ``key`` and one ``headers``; when the call returns, all of it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from penstock.errors import BadArgument
from penstock.model import StreamCut
from penstock.server._permissions import check_stream
from penstock.stream import READ_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server._permissions import Principal
    from penstock.stream import Engine

__all__ = ["append", "flight_of", "flights", "is_ticket", "name_in", "read"]


class _Ticket(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    start: str | int | None = None
    end: str | int | None = None


def flights(store: Engine, principal: Principal) -> Iterator[flight.FlightInfo]:
    """Return the streams that a principal may read."""
    return (_info(info.name, info.size_bytes) for info in store.streams() if principal.may("read", info.name))


def flight_of(store: Engine, principal: Principal, name: str) -> flight.FlightInfo:
    """Return one stream."""
    check_stream(principal, "read", name)
    return _info(name, store.stream(name).size_bytes)


def _info(name: str, size: int) -> flight.FlightInfo:
    ticket = flight.Ticket(msgspec.json.encode({"stream": name}))
    descriptor = flight.FlightDescriptor.for_path(name)
    return flight.FlightInfo(READ_SCHEMA, descriptor, [flight.FlightEndpoint(ticket, [])], -1, size)


def is_ticket(data: bytes) -> bool:
    """Whether a ticket is one of these."""
    return data.startswith(b"{")


def read(store: Engine, principal: Principal, data: bytes) -> Iterator[pa.RecordBatch]:
    """Return the events that a ticket asks for."""
    try:
        ticket = msgspec.json.decode(data, type=_Ticket)
    except msgspec.MsgspecError as error:
        raise BadArgument(f'this is no ticket, which looks like {{"stream": "scope/name"}}: {error}') from error
    check_stream(principal, "read", ticket.stream)
    start, end = (StreamCut.parse(place) if isinstance(place, str) else place for place in (ticket.start, ticket.end))
    return store.read(ticket.stream, start, end)


def name_in(descriptor: flight.FlightDescriptor) -> str:
    """Return the stream that a descriptor names."""
    path = [part.decode(errors="replace") for part in descriptor.path or []]
    if not path:
        raise BadArgument("the path of a descriptor is the name of a stream: scope/name")
    return "/".join(path)


def append(store: Engine, principal: Principal, name: str, reader: Any) -> int:  # noqa: ANN401 - of Flight
    """Append batches of events, with their keys and headers; return how many, once all are durable."""
    check_stream(principal, "write", name)
    count = 0
    with store.writer(name) as writer:
        for chunk in reader:
            batch: pa.RecordBatch | None = chunk.data
            names = [] if batch is None else batch.schema.names
            if batch is None or names.count("event") != 1 or names.count("key") > 1 or names.count("headers") > 1:
                raise BadArgument("what is put is batches with a column event, and maybe one key and one headers")
            keys, headers = (batch.column(name) if name in names else None for name in ("key", "headers"))
            writer.write_batch(batch.column("event"), keys, headers)
            count += len(batch)
    return count
