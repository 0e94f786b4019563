"""What one client may cost on the Flight port: large messages, bytes under way, silence."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.errors import AddressUnusable, BadArgument
from penstock.server import Config, Server
from penstock.server._service import FlightService
from penstock.server._users import USERS_FILE, Users
from penstock.wire import PROTOCOL, pack, unpack
from penstock.wire.operations import streams
from tests.server.apart import memory_peak, server_apart
from tests.server.http2 import Call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.client import RemoteStore
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
MIB: Final = 1 << 20
SMALL: Final[dict[str, Any]] = {"anonymous": True, "max_message_bytes": 2 * MIB, "max_inflight_bytes": 4 * MIB}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def serving(folder: Path, **settings: Any) -> Server:  # noqa: ANN401 - whatever there is to set
    return Server(Config(**{"store": str(folder), "port": 0, "http_port": 0, "anonymous": True, **settings}))


def opened(port: int, host: str = "127.0.0.1", **options: Any) -> RemoteStore:  # noqa: ANN401 - what connect takes
    return penstock.connect(f"penstock://{host}:{port}", **options)  # type: ignore[return-value]


def put(client: flight.FlightClient, batch: pa.RecordBatch) -> None:
    """Append events, as any Flight client does."""
    writer, _ = client.do_put(flight.FlightDescriptor.for_path(STREAM), batch.schema)
    with suppress(flight.FlightError):  # which is told again at the end
        writer.write_batch(batch)
    writer.close()


def drain(reader: flight.FlightStreamReader) -> None:
    """Read what comes, for as long as something does."""
    while True:
        reader.read_chunk()


# Messages that are too large


def test_a_message_that_is_too_large_is_refused_with_its_size(folder: Path) -> None:
    """The client that sends it learns which setting it is about, and the connection goes on."""
    with serving(folder, **SMALL) as server, flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        assert list(client.list_flights()) == []  # before any accepted call such a message ends the connection
        with pytest.raises(flight.FlightServerError, match=r"3145728 bytes: .* max_message_bytes"):
            list(client.do_action(flight.Action("head", bytes(3 * MIB))))
        with opened(server.port) as store:
            with pytest.raises(BadArgument, match="max_message_bytes"):
                store.connection.call(streams.Head("x" * (3 * MIB)))
            store.create_stream(STREAM)
        batch = pa.record_batch({"event": pa.array([bytes(MIB)] * 3)})
        with pytest.raises(flight.FlightServerError, match="max_message_bytes"):
            put(client, batch)
        with opened(server.port) as store:
            assert store.stream(STREAM).size_bytes == 0


def test_a_length_that_is_only_declared_costs_nothing(folder: Path) -> None:
    """Memory is taken for what comes, not for what is said to come."""
    with server_apart(folder, anonymous=True) as (port, pid):
        before = memory_peak(pid)
        calls = [Call(port) for _ in range(100)]
        for call in calls:
            call.declare(0xFFFF_FFFF)
        with opened(port) as store:
            assert store.streams() == []
        assert memory_peak(pid) - before < 64 * MIB
        for call in calls:
            call.__exit__(None, None, None)


def test_a_message_without_end_is_broken_off(folder: Path) -> None:
    """GRPC keeps all of it before the client is authenticated; so the server closes the connection."""
    with server_apart(folder, **SMALL) as (port, pid):
        before = memory_peak(pid)
        with Call(port) as call:
            call.declare(0xFFFF_FFFF)
            assert call.send(4096 * MIB) < 4096 * MIB
        assert memory_peak(pid) - before < 1024 * MIB
        with opened(port) as store:
            assert store.streams() == []


def test_a_client_that_sends_where_the_server_does_not_read_is_disconnected(folder: Path) -> None:
    """A channel is for listening, and the server reads nothing there: gRPC would keep gigabytes for many of them."""
    batch = pa.record_batch({"event": pa.array([bytes(MIB)])})
    with server_apart(folder, **SMALL) as (port, pid), flight.connect(f"grpc://127.0.0.1:{port}") as client:
        before = memory_peak(pid)

        def flood(_number: int) -> int:
            """Return how many batches went out: the first flood ends the connection, and with it the others."""
            sent = 0
            with suppress(flight.FlightError, pa.ArrowException, OSError):
                _, writer, _reader = silent_client(client)
                writer.begin(batch.schema)
                while True:
                    writer.write_batch(batch)
                    sent += 1
            return sent

        with ThreadPoolExecutor(10) as threads:
            assert sum(threads.map(flood, range(10))) > 0
        assert memory_peak(pid) - before < 1024 * MIB
        with opened(port) as store:
            assert store.streams() == []


# Bytes under way


def test_a_client_with_many_writers_keeps_to_what_it_may_have_under_way(folder: Path) -> None:
    """It is not hung up on for writing as fast as it can: it waits for budget, as the server said."""
    with server_apart(folder, **SMALL) as (port, _), opened(port) as store:
        store.create_stream(STREAM, segments=2)
        session = store.connection.channel

        def write(number: int) -> None:
            with store.writer(STREAM, f"writer-{number}") as writer:
                writer.write_batch([bytes(100_000)] * 200, [str(key) for key in range(200)])

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(write, range(6)))
        assert sum(map(len, store.read(STREAM))) == 1200
        assert store.connection.channel is session
        assert not session.is_lost


# Silence


def wait_until_closed(one: socket.socket) -> None:
    with suppress(ConnectionError):
        while one.recv(4096):
            pass


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_a_connection_that_says_nothing_useful_is_closed(folder: Path, said: bytes) -> None:
    """Thousands of them would keep others out."""
    with (
        serving(folder, header_timeout_s=0.2) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as one,
    ):
        one.sendall(said)
        wait_until_closed(one)


def test_pings_are_of_no_use(folder: Path) -> None:
    """Nor is anything else that is sent without a call that is let in."""
    with serving(folder, header_timeout_s=0.2) as server, Call(server.port) as call:
        call.ping_until_closed()


def test_the_oldest_unauthenticated_connections_go_when_there_are_too_many(folder: Path) -> None:
    """And those who have called something stay."""
    with serving(folder, max_connections=3) as server, opened(server.port) as store:
        session = store.connection.channel
        unauthenticated = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(4)]
        for one in unauthenticated[:2]:
            wait_until_closed(one)
        store.create_stream(STREAM)
        assert store.connection.channel is session
        for one in unauthenticated:
            one.close()


def silent_client(client: flight.FlightClient) -> tuple[str, Any, Any]:
    """Connect as a client that never answers: its session, and the two ends of its channel."""
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(pack(["session", PROTOCOL, None])))
    _, session_id, *_ = unpack(reader.read_chunk().app_metadata.to_pybytes())
    return session_id, writer, reader


def test_a_silent_client_is_let_go_and_a_live_one_is_not(folder: Path) -> None:
    """What the silent one had is free for others; the live one says that it is there, and keeps its session."""
    with serving(folder, idle_timeout_s=2) as server, opened(server.port) as store:
        store.create_stream(STREAM)
        group = store.create_reader_group("group", [STREAM])
        session, writer = store.connection.channel, store.writer(STREAM, "live")
        for number in range(2):
            with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
                session_id, hello, reader = silent_client(client)
                call = pack([session_id, ["group", f"reader-{number}"]])
                list(client.do_action(flight.Action("reader.open", call)))
                with suppress(StopIteration, flight.FlightError, pa.ArrowException, OSError):
                    drain(reader)
                with suppress(flight.FlightError, pa.ArrowException, OSError):
                    hello.close()
            assert group.readers() == []
        writer.write_event(b"event").result()
        assert store.connection.channel is session


def test_a_client_that_could_not_answer_goes_on_in_another_session(folder: Path) -> None:
    """It was stopped, or its machine slept: its writer loses nothing, and writes nothing twice."""
    with serving(folder, idle_timeout_s=2) as server, opened(server.port) as store:
        store.create_stream(STREAM)
        writer = store.writer(STREAM, "writer")
        writer.write_event(b"before", "key").result()
        session = store.connection.channel
        session._push = lambda _: None  # as if it slept
        session._listener.join(60)
        assert session.is_lost
        writer.write_event(b"behind", "key").result()
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == [b"before", b"behind"]


def test_a_read_that_is_broken_off_ends_on_the_server(folder: Path) -> None:
    """Or it would keep a thread there for as long as the client is connected."""
    with serving(folder) as server, opened(server.port) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_batch([bytes(100_000)] * 600)
        part = store.segment_ranges(STREAM)[0]
        session = store.connection.channel
        session.client = keeping = _Keeping(session.client)  # type: ignore[misc]
        blocks = store.connection.get(session, streams.GetBlocks(STREAM, 0, 0, part.end))
        next(blocks)
        del blocks
        with pytest.raises(flight.FlightCancelledError):
            drain(keeping.readers[0])


class _Keeping:
    """Holds on to what it reads, as the traceback of an error may."""

    def __init__(self, client: flight.FlightClient) -> None:
        self._client = client
        self.readers: list[flight.FlightStreamReader] = []

    def do_get(self, *args: Any) -> flight.FlightStreamReader:  # noqa: ANN401 - as a client takes them
        self.readers.append(self._client.do_get(*args))
        return self.readers[-1]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        return getattr(self._client, name)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::"])
def test_who_is_known_stays_so_however_addresses_are_written(folder: Path, host: str) -> None:
    """The kernel and gRPC write an address in different ways; who is not found would look unauthenticated."""
    token = token_of_anna(folder)
    settings = {"host": host, "anonymous": False, "tls": False, "allow_plain": True}
    try:
        server = serving(folder, header_timeout_s=0.3, **settings).__enter__()
    except AddressUnusable:
        pytest.skip(f"this machine has no {host}")
    near = "[::1]" if host.startswith("::") else "127.0.0.1"
    with ExitStack() as stack:
        stack.callback(server.__exit__, None, None, None)
        store = stack.enter_context(opened(server.port, near, token=token))
        session = store.connection.channel
        for _ in range(2):  # which takes longer than an unauthenticated client may stay
            with socket.create_connection((near.strip("[]"), server.port), timeout=60) as one:
                wait_until_closed(one)
        assert store.streams() == []
        assert store.connection.channel is session


def token_of_anna(folder: Path) -> str:
    users = Users.open(folder / USERS_FILE)
    users.add("anna", "secret")
    return users.token("anna", 600)


def test_a_client_over_tls_is_counted_as_any_other(folder: Path) -> None:
    """What TLS adds to its bytes is little."""
    settings = {**SMALL, "tls": True}
    with serving(folder, **settings) as server, opened(server.port, tls_ca=folder / "server.crt") as store:
        session = store.connection.channel
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_batch([bytes(100_000)] * 500)
        assert sum(map(len, store.read(STREAM))) == 500
        assert store.connection.channel is session


@pytest.mark.parametrize("at", ["grpc://127.0.0.1:0", "grpc+unix://{}/flight.sock"])
def test_who_does_not_read_does_not_keep_the_server_from_ending(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A thread that sends to a client that is gone keeps the process from ending."""
    monkeypatch.setattr("penstock.server._service._HANG_UP_S", 0.5)
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_batch([bytes(100_000)] * 1000)
    at = at.format(tmp_path)
    service = FlightService(store, at)
    with flight.connect(at.replace(":0", f":{service.port}")) as lazy:
        reader = lazy.do_get(flight.Ticket(b'{"stream": "%s"}' % STREAM.encode()))
        reader.read_chunk()
        service.shutdown()
        assert "penstock-shutdown" not in {thread.name for thread in threading.enumerate()}
        reader.cancel()


def test_a_read_that_is_broken_off_leaves_no_thread_on_the_server(store: Engine) -> None:
    """However much was left to send."""
    ended = threading.Event()

    class Service(FlightService):
        def _blocks(self, session: Any, *args: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - as it is
            try:
                yield from super()._blocks(session, *args)
            finally:
                ended.set()

    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_batch([bytes(100_000)] * 1000)
    service = Service(store, "grpc://127.0.0.1:0")
    with opened(service.port) as far:
        end = store.segments.get(STREAM, 0).tail
        blocks = far.connection.get(far.connection.channel, streams.GetBlocks(STREAM, 0, 0, end))
        next(blocks)
        assert not ended.is_set()
        del blocks
        assert ended.wait(60)
    service.shutdown()
