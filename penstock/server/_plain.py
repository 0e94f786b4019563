"""Any Flight client: streams are flights, which can be listed, read as Arrow batches and appended to.

A stream's path is its name. Its ticket is JSON: ``{"stream": "plant/readings", "start": PLACE, "end": PLACE}``. A place
is a cut as text, or a time at which events were appended, in milliseconds since 1970; each may be left out. What is put
has a column ``event``, and maybe one ``key`` and one ``headers``; when the call returns, all of it is durable.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight

from penstock.errors import BadArgument
from penstock.model import UNDECODABLE, StreamCut
from penstock.server._permissions import check_stream
from penstock.stream import READ_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.server._limits import MessageLimit
    from penstock.server._permissions import Principal
    from penstock.server._ports import PlainStore

_OFFSET: Final = 4
_VIEW: Final = 4  # words of a view, of which the first is the length
_PLAIN: Final = (
    pa.types.is_null,
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
)
__all__ = ["append", "flight_of", "flights", "is_ticket", "name_in", "read"]


class _Ticket(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    start: str | int | None = None
    end: str | int | None = None


def flights(store: PlainStore, principal: Principal) -> Iterator[flight.FlightInfo]:
    """Return the streams that a principal may read."""
    return (_info(info.name, info.size_bytes) for info in store.selected_streams(partial(principal.may, "read")))


def flight_of(store: PlainStore, principal: Principal, name: str) -> flight.FlightInfo:
    """Return the Flight description of one stream."""
    check_stream(principal, "read", name)
    return _info(name, store.stream(name).size_bytes)


def _info(name: str, size: int) -> flight.FlightInfo:
    ticket = flight.Ticket(msgspec.json.encode({"stream": name}))
    descriptor = flight.FlightDescriptor.for_path(name)
    return flight.FlightInfo(READ_SCHEMA, descriptor, [flight.FlightEndpoint(ticket, [])], -1, size)


def is_ticket(data: bytes) -> bool:
    """Whether a ticket is one of these."""
    return data.startswith(b"{")


def read(store: PlainStore, ask: Callable[[], Principal], data: bytes) -> Iterator[pa.RecordBatch]:
    """Return the events that a ticket asks for, as long as the principal may read them."""
    try:
        ticket = msgspec.json.decode(data, type=_Ticket)
    except UNDECODABLE as error:
        raise BadArgument(f'invalid ticket: use JSON such as {{"stream": "scope/name"}} ({error})') from error
    check_stream(ask(), "read", ticket.stream)
    start, end = (StreamCut.parse(place) if isinstance(place, str) else place for place in (ticket.start, ticket.end))
    return _while_permitted(ask, ticket.stream, store.read(ticket.stream, start, end))


def _while_permitted(
    ask: Callable[[], Principal], stream: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        check_stream(ask(), "read", stream)
        yield batch


def name_in(descriptor: flight.FlightDescriptor) -> str:
    """Return the stream that a descriptor names."""
    path = [part.decode(errors="replace") for part in descriptor.path or []]
    if not path:
        raise BadArgument("the path of a descriptor is the name of a stream: scope/name")
    return "/".join(path)


def append(store: PlainStore, ask: Callable[[], Principal], name: str, reader: Any, messages: MessageLimit) -> int:  # noqa: ANN401 - of Flight
    """Append batches of events, with their keys and headers; return how many, once all are durable."""
    check_stream(ask(), "write", name)
    count = 0
    with store.writer(name) as writer:
        for chunk in reader:
            check_stream(ask(), "write", name)  # again: a call may last for days
            batch: pa.RecordBatch | None = chunk.data
            names = [] if batch is None else batch.schema.names
            if batch is None or names.count("event") != 1 or names.count("key") > 1 or names.count("headers") > 1:
                raise BadArgument("invalid batch: send a column 'event', optionally 'key' and 'headers'")
            _check_decoded(batch, messages)
            keys, headers = (batch.column(name) if name in names else None for name in ("key", "headers"))
            writer.write_batch(batch.column("event"), keys, headers)
            count += len(batch)
    return count


def _check_decoded(batch: pa.RecordBatch, messages: MessageLimit) -> None:
    """Refuse a batch that becomes larger than a message may be once it is decoded, as a dictionary does."""
    names = batch.schema.names
    messages.check(_OFFSET * len(batch))  # first: what follows takes memory for each row
    size = sum(_decoded_size(batch.column(name)) for name in ("event", "key") if name in names)
    messages.check(size)
    if "headers" in names and not _is_plain(batch.schema.field("headers").type):
        raise BadArgument(
            f"invalid headers of type {batch.schema.field('headers').type}: send maps of string to binary"
        )


def _decoded_size(column: pa.Array) -> int:
    """Return how many bytes the values of a column have, with four for each offset."""
    if pa.types.is_null(column.type):
        return _OFFSET * len(column)
    try:
        if pa.types.is_binary_view(column.type) or pa.types.is_string_view(column.type):
            views = np.frombuffer(column.buffers()[1], np.int32, _VIEW * len(column), 4 * _VIEW * column.offset)
            return int(views[::_VIEW].sum(dtype=np.int64)) + _OFFSET * len(column)
        if pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
        else:
            lengths = pc.binary_length(column)
    except pa.ArrowException as error:
        raise BadArgument(f"a column of type {column.type}: send events and keys as binary or string") from error
    return (pc.sum(lengths).as_py() or 0) + _OFFSET * len(column)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column takes in memory what it takes in a message: no value is there once and referred to often."""
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_struct(kind):
        return all(_is_plain(kind.field(index).type) for index in range(kind.num_fields))
    return any(check(kind) for check in _PLAIN)
