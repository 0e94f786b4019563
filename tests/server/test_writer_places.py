"""How many places the writers of clients take in the table of writers, which has not many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.client import RemoteStore, ServerFinder
from penstock.server._service import FlightService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine

STREAM: Final = "plant/readings"


@pytest.fixture
def client(store: Engine) -> Iterator[RemoteStore]:
    store.create_stream(STREAM)
    service = FlightService(store, "grpc://127.0.0.1:0")
    with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as client:
        yield client
    service.shutdown()


def places(store: Engine) -> int:
    table = store.segments.get(STREAM, 0).writers()
    return len(table.own) + len(table.anonymous)


def test_a_writer_without_an_id_takes_no_place_once_it_is_closed(store: Engine, client: RemoteStore) -> None:
    """Or a program that opens one for every event would have those forgotten who write exactly once."""
    for number in range(5):
        with client.writer(STREAM) as writer:
            writer.write_event(b"%d" % number).result()
            assert places(store) == 1
    assert places(store) == 0
    events = [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
    assert events == [b"0", b"1", b"2", b"3", b"4"]


def test_a_writer_with_an_id_keeps_its_place(store: Engine, client: RemoteStore) -> None:
    """It comes again, and sends again what it does not know to be durable."""
    with client.writer(STREAM, "writer") as writer:
        writer.write_event(b"event").result()
    assert places(store) == 1
