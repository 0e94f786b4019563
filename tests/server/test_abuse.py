"""What is thrown at the Flight port: the server stays up and serves others."""

from __future__ import annotations

import logging
import os
import resource
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.client import RemoteStore
from penstock.errors import BadArgument, PenstockError, ServerError
from penstock.local import raise_file_limit
from penstock.server import Config, Server
from penstock.stream.format._block import StreamBlockHeader
from penstock.wire import PROTOCOL, pack, unpack, unpack_error
from penstock.wire.operations import writers
from tests.server.http2 import Call
from tests.server.raw_put import HEADER, field

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM = "plant/readings"
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    raise_file_limit()
    config = Config(store=str(tmp_path / "data"), port=0, http_port=0, anonymous=True)
    with Server(config) as server:
        with penstock.connect(server.address) as store:
            store.create_stream(STREAM)
            with store.writer(STREAM) as writer:
                writer.write_batch([bytes(1000)] * 2000)
        yield server


def assert_serves(server: Server) -> None:
    with penstock.connect(server.address) as store:
        assert sum(map(len, store.read(STREAM))) == 2000


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
        pytest.param(bytes(range(256)) * 64, id="noise"),
        pytest.param(HTTP2_PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", id="a frame of 16 MiB that never comes"),
        pytest.param(HTTP2_PREFACE + os.urandom(4096), id="noise behind a good beginning"),
    ],
)
def test_garbage_does_not_harm_other_clients(server: Server, garbage: bytes) -> None:
    """The client that sends it is disconnected, or waited for, and costs a connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as one:
        with suppress(OSError):
            one.sendall(garbage)
        assert_serves(server)


@pytest.mark.parametrize("method", ["DoPut", "DoExchange"])
def test_a_call_without_a_descriptor_is_refused(server: Server, caplog: pytest.LogCaptureFixture, method: str) -> None:
    """Flight refuses some of them itself; what gets to the service must not fill its log with tracebacks."""
    schema = pa.ipc.read_message(pa.schema([]).serialize()).metadata.to_pybytes()
    with Call(server.port, method) as call:
        call.send_message(field(HEADER, schema))
        call.wait_until_ended()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert_serves(server)


def test_very_many_idle_connections_do_not_keep_clients_out(server: Server) -> None:
    """Each is a file of the process, and no more."""
    count = min(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    with ExitStack() as idle:
        for _ in range(count):
            idle.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
        assert_serves(server)
    assert_serves(server)


def test_a_client_that_stops_reading_does_not_hold_up_others(server: Server) -> None:
    """What it asked for waits where it is, in the files."""
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as lazy:
        readers = [lazy.do_get(flight.Ticket(b'{"stream": "plant/readings"}')) for _ in range(5)]
        assert_serves(server)
        for reader in readers:
            reader.cancel()


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", pack([]), pack(["no session", []]), pack([1, 2, 3]), pytest.param(os.urandom(64), id="noise")],
)
def test_calls_that_make_no_sense_are_errors(server: Server, body: bytes) -> None:
    """For the client that makes them, and for no other."""
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        for kind in ("head", "no such operation", ""):
            with pytest.raises((flight.FlightError, pa.ArrowException)):
                list(client.do_action(flight.Action(kind, body)))
    assert_serves(server)


@pytest.mark.parametrize(
    ("name", "args"),
    [("stream", []), ("reader.open", [1, 2, 3, 4, 5, 6]), ("reader.sync", ["x"]), ("scale_stream", [STREAM, 1, 2, 3])],
)
def test_a_call_that_makes_no_sense_is_told_nothing_of_the_inside(
    server: Server, name: str, args: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    """Where the server is installed, and how it is made, is for its log."""
    with penstock.connect(server.address) as store:
        assert isinstance(store, RemoteStore)
        session = store.connection.channel
        client = session.client
        with pytest.raises(flight.FlightServerError, match=f"invalid .*{name}: ") as told:
            list(client.do_action(flight.Action(name, pack([session.id, args]))))
        assert isinstance(unpack_error(told.value.extra_info), BadArgument)
        for body in (pack([session.id]), pack(5), b"\x91" * 10_000, b"\x92\xa1\xff\x90"):
            with pytest.raises(flight.FlightServerError, match="cannot decode") as told:
                list(client.do_action(flight.Action(name, body)))
            assert "Traceback" not in str(told.value)
            assert isinstance(unpack_error(told.value.extra_info), ServerError)
        for what in (["blocks", session.id, args], [], 5):
            with pytest.raises(flight.FlightServerError) as told:
                client.do_get(flight.Ticket(pack(what))).read_all()
            assert "Traceback" not in str(told.value)
            assert isinstance(unpack_error(told.value.extra_info), PenstockError)
    assert not caplog.records, "what a client has sent fills no log"


def test_another_version_of_the_protocol_is_told_so(server: Server) -> None:
    """Rather than misunderstood."""
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(pack(["session", 999, None])))
        with pytest.raises(flight.FlightServerError, match="version"):
            reader.read_chunk()
        with suppress(flight.FlightError, pa.ArrowException):
            writer.close()


def test_a_writer_is_opened_by_a_name_and_a_token(server: Server) -> None:
    """They are what the server recognises it by."""
    with penstock.connect(server.address) as store:
        call = store.connection.call  # type: ignore[attr-defined]
        with pytest.raises(BadArgument, match="writer"):
            call(writers.OpenWriter(STREAM, 7, "token", False, None))  # type: ignore[arg-type]
        with pytest.raises(BadArgument, match="token"):
            call(writers.OpenWriter(STREAM, None, b"token", False, None))  # type: ignore[arg-type]


def test_a_client_cannot_give_time_without_an_id(server: Server) -> None:
    """It is kept under that."""
    with penstock.connect(server.address) as store:
        call = store.connection.call  # type: ignore[attr-defined]
        number = call(writers.OpenWriter(STREAM, None, "token", False, None))[0]
        with pytest.raises(BadArgument, match="with an id"):
            call(writers.Mark(number, 1))


@pytest.mark.parametrize("before", [None, "gone"])
def test_whatever_session_a_client_had_before_it_gets_one(server: Server, before: object) -> None:
    """It may be gone, or never have been."""
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(pack(["session", PROTOCOL, before])))
        assert unpack(reader.read_chunk().app_metadata.to_pybytes())[0] == "welcome"
        reader.cancel()
        with suppress(flight.FlightError, pa.ArrowException):
            writer.close()


def test_a_client_cannot_append_what_is_no_block(server: Server) -> None:
    """Blocks are checked before they are part of a stream: lengths, kind, and whose they are."""
    with penstock.connect(server.address) as store:
        tail = store.tail(STREAM)
        writer = store.writer(STREAM)
        header = StreamBlockHeader(
            count=3, time_ms=0, writer=writer._numbers.writer, last_number=3, flush_last=3, durable_floor=1
        )
        block = writer._lanes.open[0].segment.submit(header, (1).to_bytes(4, "big"), b"too many bytes for one")
        with pytest.raises(PenstockError, match="do not add up"):
            block.result()
        assert store.tail(STREAM) == tail
    assert_serves(server)
