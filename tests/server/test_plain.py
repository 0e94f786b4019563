"""Any Flight client lists streams, reads and appends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.errors import NotAuthenticated
from penstock.server._service import FlightService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.server._permissions import Principal
    from penstock.stream import Engine

STREAM = "plant/readings"


class Reader:
    """Somebody who may read one scope."""

    name = "anna"

    def may(self, permission: str, stream: str) -> bool:
        return permission == "read" and stream.startswith("plant/")


@pytest.fixture
def client(store: Engine) -> Iterator[flight.FlightClient]:
    service = FlightService(store, "grpc://127.0.0.1:0")
    with flight.connect(f"grpc://127.0.0.1:{service.port}") as client:
        yield client
    service.shutdown()


def put(client: flight.FlightClient, stream: str, batch: pa.RecordBatch) -> bytes:
    writer, answers = client.do_put(flight.FlightDescriptor.for_path(*stream.split("/")), batch.schema)
    with writer:
        writer.write_batch(batch)
        writer.done_writing()
        answer = answers.read()
    return b"" if answer is None else bytes(answer)


def test_streams_are_listed(store: Engine, client: flight.FlightClient) -> None:
    """With their size, and a ticket to read them by."""
    store.create_stream(STREAM)
    (info,) = client.list_flights()
    assert info.descriptor.path == [STREAM.encode()]
    assert client.get_flight_info(flight.FlightDescriptor.for_path(STREAM)).endpoints == info.endpoints


def test_what_is_put_is_durable_and_read_again(store: Engine, client: flight.FlightClient) -> None:
    """Ten lines in any language that Arrow has."""
    store.create_stream(STREAM)
    headers = pa.array([[("trace", b"1"), ("trace", b"2")], None], pa.map_(pa.string(), pa.binary()))
    batch = pa.record_batch({"event": pa.array([b"a", b"b"]), "key": ["one", "two"], "headers": headers})
    assert put(client, STREAM, batch) == b"2"
    (info,) = client.list_flights()
    table = client.do_get(info.endpoints[0].ticket).read_all()
    assert table["event"].to_pylist() == [b"a", b"b"]
    assert (table["key"].to_pylist(), table["headers"].to_pylist()) == ([b"one", b"two"], headers.to_pylist())
    assert table.schema.names == ["event", "key", "timestamp", "headers", "segment_id", "offset", "mark_time"]


def test_a_ticket_says_from_where_to_where(store: Engine, client: flight.FlightClient) -> None:
    """Cuts are texts, as everywhere."""
    store.create_stream(STREAM)
    put(client, STREAM, pa.record_batch({"event": pa.array([b"a"])}))
    cut = store.tail(STREAM)
    put(client, STREAM, pa.record_batch({"event": pa.array([b"b"])}))
    ticket = flight.Ticket(f'{{"stream": "{STREAM}", "start": "{cut}"}}'.encode())
    assert client.do_get(ticket).read_all()["event"].to_pylist() == [b"b"]


@pytest.mark.parametrize("ticket", [b"{", b'{"name": "a/b"}', b'{"stream": "no/such"}', b"garbage"])
def test_a_ticket_that_is_none_is_an_error(client: flight.FlightClient, ticket: bytes) -> None:
    """And the server goes on."""
    with pytest.raises((flight.FlightServerError, pa.ArrowException, flight.FlightUnavailableError)):
        client.do_get(flight.Ticket(ticket)).read_all()
    assert list(client.list_flights()) == []


def test_what_has_no_events_is_not_put(store: Engine, client: flight.FlightClient) -> None:
    """Nothing is written then."""
    store.create_stream(STREAM)
    events = pa.array([b"a"])
    for names in (["data"], ["event", "event"], ["event", "key", "key"]):
        with pytest.raises(flight.FlightServerError, match="column 'event'"):
            put(client, STREAM, pa.RecordBatch.from_arrays([events] * len(names), names=names))
    assert list(store.read(STREAM)) == []


def test_a_message_without_a_batch_is_not_put(store: Engine, client: flight.FlightClient) -> None:
    """Flight allows it, and we have no use for it."""
    store.create_stream(STREAM)
    schema = pa.schema([("event", pa.binary())])
    writer, answers = client.do_put(flight.FlightDescriptor.for_path(STREAM), schema)
    writer.write_metadata(b"nothing")
    writer.done_writing()
    assert answers.read() is None
    with pytest.raises(flight.FlightServerError, match="column 'event'"):
        writer.close()


def test_only_what_may_be_read_is_told(store: Engine) -> None:
    """Any client is asked who it is."""

    def guard(said: str | None, peer: str) -> Callable[[], Principal]:
        assert peer.startswith("ipv4:127.0.0.1:")
        if said != "Bearer anna":
            raise NotAuthenticated
        return Reader

    store.create_stream(STREAM)
    store.create_stream("other/readings")
    service = FlightService(store, "grpc://127.0.0.1:0", guard=guard)
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer anna")])
    with flight.connect(f"grpc://127.0.0.1:{service.port}") as client:
        assert [info.descriptor.path for info in client.list_flights(options=options)] == [[STREAM.encode()]]
        with pytest.raises(flight.FlightServerError, match="may not"):
            client.do_get(flight.Ticket(b'{"stream": "other/readings"}'), options).read_all()
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_flights())
    service.shutdown()
