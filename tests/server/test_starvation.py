"""One client that takes whatever it can get: the server survives with bounded memory, and another user works."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.client._address import _Identification
from penstock.errors import LimitReached
from penstock.server._users import USERS_FILE, Users
from penstock.wire import PROTOCOL, pack, unpack
from penstock.wire.operations import writers
from tests.server.apart import eventually, figures_of, free_port, memory_peak, server_apart, threads_of
from tests.server.http2 import unread_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.client import RemoteStore

STREAM: Final = "plant/readings"
MIB: Final = 1 << 20
LIMIT: Final = 20
TRIES: Final = 100


class Hostile:
    """A server in a process of its own, with small limits, and two users."""

    def __init__(self, port: int, http_port: int, pid: int, tokens: dict[str, str]) -> None:
        self.port, self.http_port, self.pid, self.tokens = port, http_port, pid, tokens
        self.memory_before = 0

    def connect(self, user: str) -> RemoteStore:
        return penstock.connect(f"penstock://127.0.0.1:{self.port}", token=self.tokens[user])  # type: ignore[return-value]

    def figure(self, name: str) -> float:
        return figures_of(self.http_port, self.tokens["anna"])[name]

    @property
    def memory_taken(self) -> int:
        return memory_peak(self.pid) - self.memory_before

    def assert_serves(self, user: str, name: str) -> None:
        """Let a user do everything once."""
        with self.connect(user) as store:
            store.create_stream(name)
            with store.writer(name) as writer:
                writer.write_event(b"event").result(timeout=60)
            with store.transactional_writer(name).begin() as transaction:
                transaction.write_event(b"another")
            group = store.create_reader_group(name.replace("/", "-"), [name])
            with group.reader("reader") as reader:
                assert reader.read_next_event(timeout=60) is not None
            assert sum(map(len, store.read(name))) == 2
            assert name in [info.name for info in store.streams()]


@contextmanager
def attacked(folder: Path, **limits: int) -> Iterator[Hostile]:
    users = Users.open(folder / USERS_FILE)
    for name in ("mallory", "anna"):
        users.add(name, "secret")
        users.grant(name, "admin", "*")
    tokens = {name: users.token(name, 600) for name in ("mallory", "anna")}
    http_port = free_port()
    with server_apart(folder, None, http_port=http_port, **limits) as (port, pid):
        server = Hostile(port, http_port, pid, tokens)
        with server.connect("anna") as store:
            store.create_stream(STREAM, segments=2)
            with store.writer(STREAM) as writer:
                writer.write_batch([bytes(100_000)] * 100, [str(key) for key in range(100)])
        server.memory_before = memory_peak(pid)
        yield server


def _transactions(store: RemoteStore, _number: int) -> object:
    transaction = store.transactional_writer(STREAM).begin()
    transaction.write_event(bytes(250_000))
    return transaction


def _prepared(store: RemoteStore, _number: int) -> object:
    transaction = store.transactional_writer(STREAM).begin()
    transaction.write_event(b"event")
    transaction.prepare()
    return transaction


def _streams(store: RemoteStore, number: int) -> object:
    return store.create_stream(f"mallory/stream-{number}")


def _segments(store: RemoteStore, number: int) -> object:
    return store.create_stream(f"mallory/stream-{number}", segments=LIMIT // 2)


def _groups(store: RemoteStore, number: int) -> object:
    return store.create_reader_group(f"mallory-{number}", [STREAM])


def _consumers(store: RemoteStore, number: int) -> object:
    store.register_consumer(STREAM, f"mallory-{number}")
    return number


def _handles(store: RemoteStore, number: int) -> object:
    return store.connection.call(writers.OpenWriter(STREAM, None, f"token-{number}", False, None))


def _uploads(store: RemoteStore, number: int) -> object:
    writer = store.connection.call(writers.OpenWriter(STREAM, None, f"token-{number}", False, None))[0]
    upload = store.connection.call(writers.OpenUpload(writer))
    store.connection.call(writers.WriteUpload(writer, upload, bytes(MIB)))
    return upload


ATTACKS: Final[dict[str, Callable[[RemoteStore, int], object]]] = {
    "transactions": _transactions,
    "prepared": _prepared,
    "streams": _streams,
    "segments": _segments,
    "groups": _groups,
    "consumers": _consumers,
    "handles": _handles,
    "uploads": _uploads,
}


INDEPENDENT: Final = ("streams", "groups", "consumers", "transactions", "handles")  # others need some of these, too


@pytest.mark.parametrize("kinds", [INDEPENDENT, *([kind] for kind in ATTACKS if kind not in INDEPENDENT)], ids=" ".join)
def test_one_user_takes_no_more_than_its_share(tmp_path: Path, kinds: Sequence[str]) -> None:
    """However often it tries, over as many connections as it likes; the memory of the server stays as it is."""
    with attacked(tmp_path / "data", **{f"max_{kind}": LIMIT for kind in kinds}) as server:
        kept: list[object] = []
        with server.connect("mallory") as one, server.connect("mallory") as other:
            for kind in kinds:
                refused = 0
                for number in range(TRIES):
                    try:
                        kept.append(ATTACKS[kind]((one, other)[number % 2], number))
                    except LimitReached as error:
                        refused += error.setting == f"max_{kind}"
                assert refused >= TRIES - LIMIT, kind
            assert server.memory_taken < 64 * MIB
            server.assert_serves("anna", "plant/alarms")


def test_reads_that_the_client_does_not_read_are_few(tmp_path: Path) -> None:
    """Each holds megabytes that gRPC has read ahead, and a thread that waits to send them."""
    ticket = b'{"stream": "%s"}' % STREAM.encode()
    message = b"\x0a" + bytes([len(ticket)]) + ticket
    with (
        attacked(tmp_path / "data", max_reads=LIMIT) as server,
        unread_calls(server.port, "DoGet", message, count=400, token=server.tokens["mallory"]),
    ):
        eventually(lambda: server.figure("penstock_refused_total reads") > 300)
        assert server.memory_taken < 128 * MIB
        server.assert_serves("anna", "plant/alarms")


def test_calls_whose_answers_the_client_does_not_read_are_few(tmp_path: Path) -> None:
    """Each has a thread until its answer is sent; when there can be no more threads, gRPC ends the process."""
    with (
        attacked(tmp_path / "data", max_calls=4 * LIMIT) as server,
        unread_calls(server.port, "ListFlights", b"", count=1000, token=server.tokens["mallory"]),
    ):
        server.assert_serves("anna", "plant/alarms")
        # How many of the 1,000 are refused at once depends on what the sockets take: the client does not read.
        eventually(lambda: server.figure("penstock_refused_total calls") > 4 * LIMIT)
        assert server.figure("penstock_used calls") <= 4 * LIMIT
        assert server.memory_taken < 256 * MIB


def test_calls_whose_answers_grpc_holds_keep_no_other_user_out(tmp_path: Path) -> None:
    """An answer in one message is gRPC's from the moment it is made: the call is over, and counts no longer.

    So how many of them are refused depends on how many came at once, and is no matter here.
    """
    path = STREAM.encode()
    message = b"\x08\x01\x1a" + bytes([len(path)]) + path
    with (
        attacked(tmp_path / "data", max_calls=4 * LIMIT) as server,
        unread_calls(server.port, "GetFlightInfo", message, count=1000, token=server.tokens["mallory"]),
    ):
        server.assert_serves("anna", "plant/alarms")
        eventually(lambda: server.figure("penstock_used calls") == 0)
        assert server.memory_taken < 256 * MIB


def test_threads_are_as_few_as_calls_where_others_can_reach_the_server(tmp_path: Path) -> None:
    """There the front counts calls before gRPC has a thread for each, also for those that are about to be refused.

    Without it, a thread ends when the client has taken the refusal: how many there are depends on the sockets.
    """
    with attacked(tmp_path / "data", max_calls=4 * LIMIT, refuse_compressed=True) as server:
        quiet = threads_of(server.pid)
        with unread_calls(server.port, "ListFlights", b"", count=2000, token=server.tokens["mallory"]):
            eventually(lambda: threads_of(server.pid) - quiet > LIMIT)
            server.assert_serves("anna", "plant/alarms")
            assert threads_of(server.pid) - quiet <= 4 * LIMIT


def test_a_client_that_asks_for_notifications_and_reads_none_is_disconnected(tmp_path: Path) -> None:
    """They wait in the memory of the server, and their number has no other limit."""
    with attacked(tmp_path / "data") as server:
        identification = _Identification(f"Bearer {server.tokens['mallory']}")
        window = [
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", 65_535),
        ]  # gRPC reads little ahead
        address = f"grpc://127.0.0.1:{server.port}"
        with flight.connect(address, middleware=[identification], generic_options=window) as client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(pack(["session", PROTOCOL, None])))
            _, session, *_ = unpack(reader.read_chunk().app_metadata.to_pybytes())

            def watch(number: int) -> None:
                body = pack([session, [f"plant/{'x' * 400}-{number}", 0]])
                list(client.do_action(flight.Action("watch", body)))

            with pytest.raises(flight.FlightUnavailableError, match="session is over"):
                list(map(watch, range(100_000)))
            with suppress(flight.FlightError, pa.ArrowException, OSError):
                writer.close()
        assert server.memory_taken < 64 * MIB
        server.assert_serves("anna", "plant/alarms")


KILLED: Final = """
    import sys, time
    import penstock
    from penstock.wire.operations import streams
    store = penstock.connect(sys.argv[1], token=sys.argv[2])
    keep = [store.writer("plant/readings", str(number)) for number in range(5)]
    keep += [store.create_reader_group("mallory", ["plant/readings"]).reader("reader")]
    transaction = store.transactional_writer("plant/readings").begin(lease=2)
    keep += [transaction.begin_write_event(), store.writer("plant/readings").begin_write_event()]
    for event in keep[-2:]:
        event.write(bytes(3 << 20))
    store.connection.call(streams.Watch("plant/readings", 0))
    batches = store.read("plant/readings")
    next(batches)
    print("ready", flush=True)
    while True:
        transaction.ping()
        time.sleep(0.1)
"""


def test_what_a_killed_client_had_is_given_back(tmp_path: Path) -> None:
    """It cannot close anything itself."""
    kinds = ("clients", "calls", "reads", "handles", "uploads", "watches", "transactions")
    with attacked(tmp_path / "data") as server:
        arguments = [f"penstock://127.0.0.1:{server.port}", server.tokens["mallory"]]
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED), *arguments], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == "ready\n"
            used = figures_of(server.http_port, server.tokens["anna"])
            assert [kind for kind in kinds if not used[f"penstock_used {kind}"]] == ["reads"]
            process.kill()
            process.wait()
        eventually(lambda: not any(server.figure(f"penstock_used {kind}") for kind in kinds))
