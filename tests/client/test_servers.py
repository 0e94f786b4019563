"""Clients that are given the addresses of several servers, of which one owns the store."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.client import _servers
from penstock.client._address import ADDRESSES_MAX, split_addresses
from penstock.embedded import open_store
from penstock.errors import BadArgument, StoreUnreachable
from penstock.server._service import FlightService
from tests.server.apart import free_port, server_apart, suspend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import Engine

STREAM = "plant/readings"


@pytest.fixture
def store() -> Iterator[Engine]:
    with open_store("memory:") as store:
        store.create_stream(STREAM)
        yield store


def served(store: Engine, port: int = 0) -> FlightService:
    return FlightService(store, f"grpc://127.0.0.1:{port}")


def events(store: penstock.Store) -> list[bytes]:
    return [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


def test_each_address_counts_once_in_the_order_given() -> None:
    """A list that was pasted together is no mistake, and the first in it is asked first."""
    addresses = "penstock://b:1,a,b:1,[::1]:2,a:7367"
    assert split_addresses(addresses) == ["penstock://b:1", "penstock://a", "penstock://[::1]:2"]
    assert split_addresses("penstock://localhost/") == ["penstock://localhost/"]


@pytest.mark.parametrize(
    "address",
    [
        "penstock://a,",
        "penstock://,a",
        "penstock://a,,b",
        "penstock://a,b:nothing",
        "penstock://a,penstock://b",
        "penstock://a/x,b",
        "penstock://" + ",".join(f"host-{number}" for number in range(ADDRESSES_MAX + 1)),
    ],
)
def test_a_list_with_an_invalid_address_is_refused(address: str) -> None:
    """A server that is left out in silence would be missed only when it is needed."""
    with pytest.raises(BadArgument, match="server"):
        penstock.connect(address)


def test_a_password_in_a_list_is_refused_without_being_shown() -> None:
    """Errors end in logs."""
    with pytest.raises(BadArgument, match="user and password") as raised:
        penstock.connect("penstock://a,anna:secret@b:nothing")
    assert "secret" not in str(raised.value)


def test_addresses_without_a_server_of_penstock_do_not_matter_while_one_works(store: Engine) -> None:
    """Servers come and go; the list stays the same."""
    service = served(store)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:  # accepts, and never answers
        addresses = f"127.0.0.1:{free_port()},unknown.invalid:1,127.0.0.1:{silent.getsockname()[1]}"
        with penstock.connect(f"penstock://{addresses},127.0.0.1:{service.port}", tls=False) as far:
            assert [info.name for info in far.streams()] == [STREAM]
    service.shutdown()


def test_an_error_names_every_server_and_what_is_wrong_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user corrects the one that should have worked."""
    monkeypatch.setattr(_servers.ServersFinder, "patience_s", 0.0)
    closed = free_port()
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        quiet = silent.getsockname()[1]
        with pytest.raises(StoreUnreachable) as raised:
            penstock.connect(f"penstock://127.0.0.1:{closed},127.0.0.1:{quiet}")
    assert f"127.0.0.1:{closed}: no server listens there" in raised.value.reason
    assert f"127.0.0.1:{quiet}: it does not answer" in raised.value.reason


def test_a_client_waits_for_a_hand_over_and_goes_on_at_the_next_server(store: Engine) -> None:
    """Every event once, in order, whatever server has the store meanwhile; readers continue where they were."""
    ports = [free_port(), free_port()]
    service = served(store, ports[0])
    with penstock.connect("penstock://" + ",".join(f"127.0.0.1:{port}" for port in ports)) as far:
        group = far.create_reader_group("all", [STREAM])
        with far.writer(STREAM, writer_id="w") as writer, group.reader("r") as reader:
            expected = []
            for number in range(6):
                if number in {2, 4}:
                    service.shutdown()
                    service = served(store, ports[number // 2 % 2])
                expected.append(b"%d" % number)
                writer.write_event(expected[-1], key="k").result(60)
                read = reader.read_next_event(timeout=60)
                assert read is not None
                assert read.event == expected[-1]
            assert events(far) == expected
    service.shutdown()


def test_a_server_that_is_stopped_is_left_once_another_answers(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open, and gRPC would wait for it for ever."""
    monkeypatch.setattr(_servers, "CHECK_S", 0.05)
    monkeypatch.setattr(_servers, "ANSWER_S", 0.3)
    other = free_port()
    with (
        server_apart(tmp_path / "data", anonymous=True) as (port, pid),
        penstock.connect(f"penstock://127.0.0.1:{port},127.0.0.1:{other}") as far,
    ):
        far.create_stream(STREAM)
        with far.writer(STREAM, writer_id="w") as writer:
            writer.write_event(b"0", key="k").result(60)
            suspend(pid)
            under_way = writer.write_event(b"1", key="k")
            service = served(store, other)
            under_way.result(60)
            assert events(far) == [b"1"], "the other server has another store here"
    service.shutdown()
