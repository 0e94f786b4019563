"""A server that other machines can reach: compressed messages do not get to gRPC, and everything else does."""

from __future__ import annotations

import gzip
import logging
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.client._address import _Identification
from penstock.errors import NotAuthenticated, StoreUnreachable
from penstock.ports import copied_socket
from penstock.server import Config, Server
from penstock.server._frames import FrameFollower
from penstock.server._front import Front
from penstock.server._front_connection import READ_SIZE, FrontConnection
from penstock.server._limits import UNLIMITED, IdleFrameLimit, Limits
from penstock.server._users import USERS_FILE, Users
from tests.server.apart import eventually, memory_peak, server_apart
from tests.server.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    Call,
    frame,
)
from tests.server.raw_put import field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client import RemoteStore

STREAM: Final = "plant/readings"
MIB: Final = 1 << 20
REACHABLE: Final[dict[str, Any]] = {"host": "0.0.0.0", "tls": False, "allow_plain": True}
LOST: Final = (flight.FlightError, pa.ArrowException, AttributeError)  # the last if there is no answer to be read
BOMB: Final = 256 * MIB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    users = Users.open(tmp_path / "data" / USERS_FILE)
    users.add("anna", "secret")
    users.grant("anna", "admin", "*")
    return tmp_path / "data"


@pytest.fixture
def token(folder: Path) -> str:
    return Users.open(folder / USERS_FILE).token("anna", 600)


def serving(folder: Path, **settings: Any) -> Server:  # noqa: ANN401 - whatever there is to set
    return Server(Config(**{"store": str(folder), "port": 0, "http_port": 0, **REACHABLE, **settings}))


def opened(port: int, **options: Any) -> RemoteStore:  # noqa: ANN401 - what connect takes
    return penstock.connect(f"penstock://127.0.0.1:{port}", **options)  # type: ignore[return-value]


def plain_client(port: int, token: str) -> flight.FlightClient:
    return flight.connect(f"grpc://127.0.0.1:{port}", middleware=[_Identification(f"Bearer {token}")])


def put(client: flight.FlightClient, batch: pa.RecordBatch, options: flight.FlightCallOptions | None = None) -> bytes:
    """Append events, as any Flight client does; return the answer."""
    writer, answers = client.do_put(flight.FlightDescriptor.for_path(STREAM), batch.schema, options)
    with writer:
        writer.write_batch(batch)
        writer.done_writing()
        answer: bytes = answers.read().to_pybytes()
    return answer


def send_packed(call: Call, message: bytes) -> None:
    """Send a compressed message, and wait for the answer."""
    call.send_message(message, compressed=True)
    call.wait_until_ended()


def wait_until_closed(one: socket.socket) -> None:
    with suppress(ConnectionError):
        while one.recv(4096):
            pass


# Compressed messages


def test_a_message_that_grpc_would_unpack_ends_the_connection(folder: Path, token: str) -> None:
    """2 MB of gzip took the server 2 GiB, even from an unauthenticated client."""
    bomb = gzip.compress(bytes(BOMB), 1)
    encoded: dict[str, str] = {"grpc-encoding": "gzip"}
    with server_apart(folder, **REACHABLE) as (port, pid), opened(port, token=token) as store:
        before = memory_peak(pid)
        with Call(port, **encoded) as call, pytest.raises(ConnectionError):
            send_packed(call, bomb)
        assert memory_peak(pid) - before < BOMB // 4
        assert store.streams() == []


def test_a_batch_that_arrow_would_unpack_ends_the_connection(folder: Path, token: str) -> None:
    """128 KiB of zstd became 4 GiB before the service was asked, for every user that may write."""
    batch = pa.record_batch({"event": pa.array([bytes(BOMB)])})
    packed = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    with server_apart(folder, **REACHABLE) as (port, pid), opened(port, token=token) as store:
        store.create_stream(STREAM)
        before = memory_peak(pid)
        with (
            plain_client(port, token) as client,
            pytest.raises((flight.FlightError, pa.ArrowException, AttributeError)),
        ):
            put(client, batch, packed)
        assert memory_peak(pid) - before < BOMB // 4
        assert store.stream(STREAM).size_bytes == 0


def test_the_log_says_whose_connection_is_closed_and_why(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The client only sees that it is lost. A proxy on this machine may have clients elsewhere."""
    caplog.set_level(logging.INFO, "penstock.server")
    with (
        serving(folder, host="127.0.0.1", refuse_compressed=True) as server,
        Call(server.port) as call,
        pytest.raises(ConnectionError),
    ):
        send_packed(call, b"")
    (line,) = (record for record in caplog.records if record.msg == "closing a connection")
    assert vars(line)["reason"] == "a compressed message"
    assert vars(line)["peer"].startswith("127.0.0.1:")


@pytest.mark.parametrize("settings", [{"host": "127.0.0.1"}, {"refuse_compressed": False}])
def test_users_of_this_machine_have_no_front(folder: Path, token: str, settings: dict[str, Any]) -> None:
    """They could take its memory in other ways, and a single event takes longer; who wants it so, has none either."""
    batch = pa.record_batch({"event": [b"abc" * 1000]})
    packed = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    with serving(folder, **settings) as server, opened(server.port, token=token) as store:
        store.create_stream(STREAM)
        with plain_client(server.port, token) as client:
            assert put(client, batch, packed) == b"1"
        assert "penstock-front" not in {thread.name for thread in threading.enumerate()}


# Everything else


@pytest.fixture(params=["plain", "tls"])
def fronted(request: pytest.FixtureRequest, folder: Path, token: str) -> Iterator[tuple[Server, RemoteStore]]:
    """A server with a front, and a client of it that reads no files."""
    uses_tls = request.param == "tls"
    options = {"tls_ca": folder / "server.crt"} if uses_tls else {}
    with serving(folder, tls=uses_tls) as server, opened(server.port, token=token, **options) as store:
        store.connection.give_up(None, "")
        store.create_stream(STREAM, segments=2)
        yield server, store


def test_a_client_writes_and_reads_through_the_front(fronted: tuple[Server, RemoteStore]) -> None:
    """Much at a time, so that buffers on the way are full in both directions, and single events."""
    _, store = fronted
    session = store.connection.channel
    events = [number.to_bytes(4, "big") * 5000 for number in range(3000)]
    with store.writer(STREAM) as writer:
        writer.write_batch(events, ["a"] * len(events))
        for number in range(20):
            writer.write_event(b"%d" % number, "a").result()
    found = [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
    assert found == events + [b"%d" % number for number in range(20)]
    assert store.connection.channel is session


def test_a_client_that_reads_nothing_holds_nobody_up(folder: Path, token: str) -> None:
    """One thread passes the bytes of all on."""
    with serving(folder) as server, opened(server.port, token=token) as store, ExitStack() as stack:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_batch([bytes(100_000)] * 600)
        lazy = stack.enter_context(plain_client(server.port, token))
        readers = [lazy.do_get(flight.Ticket(b'{"stream": "%s"}' % STREAM.encode())) for _ in range(5)]
        for reader in readers:
            reader.read_chunk()
        with plain_client(server.port, token) as client:
            assert put(client, pa.record_batch({"event": [b"event"]})) == b"1"
            assert client.do_get(flight.Ticket(b'{"stream": "%s"}' % STREAM.encode())).read_all().num_rows == 601
        for reader in readers:
            reader.cancel()


def test_the_server_ends_though_a_client_reads_nothing(
    folder: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no thread of the front."""
    monkeypatch.setattr("penstock.server._service._HANG_UP_S", 0.5)
    monkeypatch.setattr("penstock.server._front._HANG_UP_S", 0.5)
    with ExitStack() as stack:
        with serving(folder) as server:
            with opened(server.port, token=token) as store:
                store.create_stream(STREAM)
                with store.writer(STREAM) as writer:
                    writer.write_batch([bytes(100_000)] * 1000)
            lazy = stack.enter_context(plain_client(server.port, token))
            reader = lazy.do_get(flight.Ticket(b'{"stream": "%s"}' % STREAM.encode()))
            reader.read_chunk()
        assert "penstock-front" not in {thread.name for thread in threading.enumerate()}
        reader.cancel()


def test_no_other_process_can_get_past_the_front(folder: Path, token: str) -> None:
    """The socket of gRPC has no name by the time that a client can connect, and a server that is killed leaves none."""
    with serving(folder) as server, opened(server.port, token=token) as store:
        assert store.streams() == []
        names = set()
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError), copied_socket(int(number)) as one:
                if one.family == socket.AF_UNIX and "/penstock-" in str(one.getsockname()):
                    names.add(one.getsockname())
        (name,) = names
        assert not os.path.exists(os.path.dirname(name))


def test_no_other_user_can_take_the_names_of_the_fronts_sockets(folder: Path) -> None:
    """Names are listed for every user of the machine: a process that takes a client's name locks it out."""
    with serving(folder) as server, socket.socket() as first, socket.socket() as second:

        def is_answered(client: socket.socket) -> bool:
            client.settimeout(30)
            client.connect(("127.0.0.1", server.port))
            client.sendall(PREFACE + frame(SETTINGS, 0, b""))
            return bool(client.recv(1))

        assert is_answered(first)
        lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
        (name,) = [line.split()[-1] for line in lines if line.endswith("/{}:{}".format(*first.getsockname()))]
        second.bind(("127.0.0.1", 0))
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind("\0{}/{}:{}".format(name[1:].partition("/")[0], *second.getsockname()))
            assert is_answered(second)


def test_a_client_of_very_small_messages_has_short_turns() -> None:
    """To follow them takes long, and meanwhile no other client's bytes are passed on."""
    ours, client = socket.socketpair()
    theirs, server = socket.socketpair()
    with ours, client, theirs, server, select.epoll() as epoll:
        for one in (client, server):
            one.setblocking(False)
            epoll.register(one, select.EPOLLIN)
        limit = IdleFrameLimit("idle_frames", at_once=10, per_s=1)
        connection = FrontConnection(client, "a:1", epoll, memoryview(bytearray(READ_SIZE)), limit)
        connection.connected(server)
        messages = (struct.pack(">BI", 0, 6) + field(1, b"") + field(2, b"") + field(3, b"")) * 1400
        ours.sendall(PREFACE + frame(HEADERS, 1, b"", END_HEADERS) + frame(DATA, 1, messages) * 8)
        turns = list[int]()
        while sum(turns) < 8 * len(messages):
            connection.on_client(select.EPOLLIN)
            turns.append(len(theirs.recv(READ_SIZE)))
        assert max(turns) < READ_SIZE // 4


def test_all_unauthenticated_clients_together_have_one_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has short ones, but 800 of them made a known client wait for six seconds."""
    flood = PREFACE + frame(HEADERS, 1, b"", END_HEADERS) + frame(DATA, 1, b"") * 900
    order, is_over, count = list[str](), threading.Event(), 20
    left = count * len(flood)
    followed = FrameFollower.feed

    def feed(follower: FrameFollower, data: memoryview) -> None:
        nonlocal left
        followed(follower, data)
        if b"known" in bytes(data):
            order.append("known")
        else:
            order.append("unknown")
            left -= len(data)
            known.sendall(frame(PING, 0, b"known..."))  # it is there for the next turn
        if not left:
            is_over.set()

    with ExitStack() as parts:
        server = parts.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(tmp_path / "sock"))
        server.listen(2 * count)  # it accepts none: what they are sent waits there
        listener = parts.enter_context(socket.create_server(("127.0.0.1", 0)))
        known, *others = [
            parts.enter_context(socket.create_connection(listener.getsockname())) for _ in range(1 + count)
        ]
        address = "{}:{}".format(*known.getsockname())
        known.sendall(PREFACE + frame(PING, 0, b"known..."))
        for other in others:
            other.sendall(flood)
        monkeypatch.setattr(FrameFollower, "feed", feed)
        front = Front(listener, str(tmp_path / "sock"), None, lambda peer: "" if peer == address else None, UNLIMITED)
        assert is_over.wait(60)
        server.close()  # which closes what it has not accepted
        front.end()
    assert order.count("known") > order.count("unknown") // 2


class Fronted:
    """A front between a client and a server that are both sockets of the test."""

    def __init__(self, parts: ExitStack, path: Path, user: str | None, limits: Limits) -> None:
        listener = parts.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()
        port = parts.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.front = Front(port, str(path), None, lambda _: user, limits)
        parts.callback(self.front.end)
        self.client = parts.enter_context(socket.create_connection(port.getsockname(), timeout=30))
        self.client.sendall(PREFACE + frame(PING, 0, bytes(8)))
        self.server = parts.enter_context(listener.accept()[0])
        self.server.settimeout(0.2)

    def passed_on(self, size: int = 1 << 20) -> bytes:
        """Return what reaches the server, until nothing more does."""
        data = b""
        with suppress(TimeoutError):
            while len(data) < size and (part := self.server.recv(READ_SIZE)):
                data += part
        return data


@pytest.mark.parametrize(("user", "calls_max"), [(None, 16), ("anna", 150), ("", 200)])
def test_calls_above_the_limit_wait_until_others_end(tmp_path: Path, user: str | None, calls_max: int) -> None:
    """Any number is taken by gRPC: 70 MB of beginnings of calls took 6.9 GiB, and no other client was answered."""
    calls = [frame(HEADERS, stream, bytes(20), END_HEADERS) for stream in range(1, 4000, 2)]
    with ExitStack() as parts:
        fronted = Fronted(parts, tmp_path / "sock", user, Limits(max_calls=100, header_timeout_s=600.0))
        fronted.client.sendall(b"".join(calls))
        begun = fronted.passed_on().count(calls[0][:4])
        assert calls_max < begun < calls_max + 150, "what is read at a time is not much"
        ends = [frame(HEADERS, stream, b"", END_STREAM) for stream in range(1, 2 * begun, 2)]
        fronted.server.sendall(b"".join(ends))
        assert fronted.passed_on(1)
        fronted.server.shutdown(socket.SHUT_RDWR)


def test_frames_without_end_and_without_an_accepted_call_end_the_connection(tmp_path: Path) -> None:
    """Each keeps the front busy, and clients need some ten of them before they are known."""
    with ExitStack() as parts:
        fronted = Fronted(parts, tmp_path / "sock", None, UNLIMITED)
        with suppress(ConnectionError):
            fronted.client.sendall(frame(PING, 0, bytes(8)) * 100_000)
            wait_until_closed(fronted.client)
        assert len(fronted.passed_on()) < 50_000


@pytest.mark.parametrize("kind", [PING, WINDOW_UPDATE, SETTINGS, DATA, "piece"])
def test_frames_without_content_end_the_connection_of_a_user(tmp_path: Path, kind: int | str) -> None:
    """Ten connections of one user that sent nothing else left other users half of their speed."""
    large = struct.pack(">BI", 0, 1 << 29) + b"\x0a\x80\x80\x80\x80\x01"  # the head of a message, and of its only field
    begun = frame(HEADERS, 1, bytes(20), END_HEADERS) + frame(DATA, 1, large)
    idle = frame(DATA, 1, b"x") if kind == "piece" else frame(int(kind), int(kind == DATA), b"")
    with ExitStack() as parts:
        fronted = Fronted(parts, tmp_path / "sock", "anna", UNLIMITED)
        with suppress(ConnectionError):
            fronted.client.sendall(begun + idle * 100_000)
            wait_until_closed(fronted.client)
        assert len(fronted.passed_on()) < 200_000
        use = fronted.front.use()
        assert (use.kind, use.used, use.refused) == ("idle_frames", use.limit, 1)


def test_frames_that_go_with_content_are_no_flood(tmp_path: Path) -> None:
    """A client that makes thousands of calls in a second sends three or four other frames for each."""
    with ExitStack() as parts:
        fronted = Fronted(parts, tmp_path / "sock", "anna", UNLIMITED)
        window, end = frame(WINDOW_UPDATE, 0, struct.pack(">I", 1)), frame(DATA, 1, b"", END_STREAM)
        for stream in range(1, 2_000, 2):
            begun = frame(HEADERS, stream, bytes(20), END_HEADERS)
            said = frame(DATA, stream, struct.pack(">BI", 0, 0)) + end[:5] + struct.pack(">I", stream)
            fronted.client.sendall(begun + said + window * 2)
            fronted.server.sendall(frame(DATA, stream, b"answer") + frame(HEADERS, stream, b"", END_STREAM))
            assert fronted.passed_on(1)
        assert fronted.front.use().refused == 0
        fronted.server.shutdown(socket.SHUT_RDWR)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="Python cannot send key updates")
def test_a_flood_of_key_updates_does_not_stop_the_front(folder: Path, token: str) -> None:
    """OpenSSL reads them all before it returns: two such clients stopped all others for as long as they liked."""
    with serving(folder, tls=True) as server, ExitStack() as parts:
        for _ in range(2):
            command = ["openssl", "s_client", "-tls1_3", "-connect", f"127.0.0.1:{server.port}"]
            flood = subprocess.Popen(["yes", "K"], stdout=subprocess.PIPE)
            client = subprocess.Popen(command, stdin=flood.stdout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for process in (client, flood):
                parts.enter_context(process)
                parts.callback(process.kill)
            assert client.stdout is not None
            assert any(b"KEYUPDATE" in line for line in client.stdout)
        with opened(server.port, token=token, tls_ca=str(folder / "server.crt")) as store:
            store.create_stream(STREAM)
            with store.writer(STREAM) as writer:
                for _ in range(20):
                    writer.write_event(b"event").result(timeout=30)


@pytest.mark.parametrize("said", [b"", PREFACE])
def test_a_client_that_ends_its_side_is_closed(folder: Path, said: bytes) -> None:
    """Half of a connection is of no use to gRPC, and would be kept for ever."""
    with serving(folder) as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
        one.sendall(said)
        one.shutdown(socket.SHUT_WR)
        wait_until_closed(one)


def test_a_handshake_that_does_not_come_is_not_waited_for(folder: Path) -> None:
    """The front is in the middle of it for as long as the client likes."""
    with (
        serving(folder, tls=True, header_timeout_s=0.2) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as one,
    ):
        one.sendall(b"\x16\x03\x01")
        wait_until_closed(one)


def test_a_connection_costs_no_descriptor_when_it_is_over(folder: Path, token: str) -> None:
    """There are two for each, and those of gRPC."""
    with serving(folder) as server:
        with opened(server.port, token=token) as store:
            assert store.streams() == []
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
                one.sendall(PREFACE + b"x")
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_client_of_another_protocol_is_answered(folder: Path) -> None:
    """Or a client with TLS could not say that the server has none."""
    with serving(folder) as server:
        with pytest.raises(StoreUnreachable, match="the server does not use TLS"):
            opened(server.port, tls=True, user="anna", password="secret")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert one.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_a_failed_login_is_that_of_the_clients_address(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Addresses take turns at the check of passwords; the front has none of its own."""
    with serving(folder) as server, pytest.raises(NotAuthenticated):
        opened(server.port, user="anna", password="wrong")
    (line,) = (record for record in caplog.records if record.msg == "failed login")
    assert vars(line)["address"] == "127.0.0.1"


def test_a_client_that_sends_too_much_is_closed_at_the_front(folder: Path, token: str) -> None:
    """What gRPC holds is measured at the client's side of the front, as it is without one."""
    small: dict[str, Any] = {"max_message_bytes": 2 * MIB, "max_inflight_bytes": 4 * MIB}
    with server_apart(folder, **REACHABLE, **small) as (port, pid), opened(port, token=token) as store:
        before = memory_peak(pid)
        with Call(port) as call:
            call.declare(0xFFFF_FFFF, b"\x12\xf0\xff\xff\xff\x0f")  # the body of an action, of nearly 4 GiB
            assert call.send(4096 * MIB) < 4096 * MIB
        assert memory_peak(pid) - before < 1024 * MIB
        assert store.streams() == []
