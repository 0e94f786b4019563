"""The port for blocks: what goes over it, who may use it, and what becomes of blocks when a connection is lost."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.client._block_sockets import IN_USE_MAX, BlockSocket, BlockSockets, _opened
from penstock.client._shared_appends import FlightStream
from penstock.client._store import RemoteStore
from penstock.embedded import open_store
from penstock.errors import BadArgument, ServerBusy
from penstock.frames import FrameConnection, pack_frame
from penstock.server._block_port import OF_SESSION_MAX
from penstock.server._limits import Limits
from penstock.server._service import FlightService
from penstock.stream.format import StreamBlockHeader
from penstock.wire import (
    PROTOCOL,
    AskBlocks,
    BlocksOpened,
    Greeting,
    OpenBlocks,
    PutBlock,
    PutShared,
    SmallBlock,
    pack_block_message,
    unpack_block_message,
)
from penstock.wire.operations.streams import GetBlocks
from tests.sampling import in_case
from tests.server.apart import eventually
from tests.stream.wire_harness import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.server._quotas import Quota
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
HOST: Final = "127.0.0.1"
WAIT_S: Final = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with open_store(tmp_path / "data") as store:
        store.create_stream(STREAM)
        yield store


@contextmanager
def served(store: Engine, listener: socket.socket | None = None, **limits: Any) -> Iterator[FlightService]:  # noqa: ANN401
    """Serve a store at two ports."""
    listener = listener or socket.create_server((HOST, 0))
    service = FlightService(store, f"grpc://{HOST}:0", block_listener=listener, limits=Limits(**limits))
    try:
        yield service
    finally:
        service.shutdown()


@contextmanager
def client_of(service: FlightService) -> Iterator[RemoteStore]:
    """Connect, without access to the files, so that blocks are sent."""
    with RemoteStore(Fixed(f"grpc://{HOST}:{service.port}")) as far:
        far.connection.give_up(None, "")
        yield far


def events_of(store: Any) -> list[bytes]:  # noqa: ANN401 - either kind
    return [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


def connections_of(service: FlightService) -> int:
    assert service._block_port is not None
    return len(service._block_port._open)


def frames_to(service: FlightService) -> FrameConnection:
    """Connect to the port for blocks as any program may."""
    assert service._block_port is not None
    connection = socket.create_connection((HOST, service._block_port.port), WAIT_S)
    return FrameConnection(connection, checks_data=False)


def is_closed(frames: FrameConnection) -> bool:
    """Wait until the server closes a connection, behind its greeting."""
    try:
        while True:
            while frames.receive() is not None:
                pass
            if not frames.wait(WAIT_S):
                return False
    except (EOFError, OSError):
        return True
    finally:
        frames.close()


# What goes over it


def test_small_blocks_large_blocks_and_reads_go_over_the_port(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are why it is there: the same events, in the same order, without gRPC."""
    used: list[str] = []

    def record(name: str) -> None:
        method = getattr(BlockSocket, name)

        def call(self: BlockSocket, *args: Any) -> Any:  # noqa: ANN401 - as the method
            used.append(name)
            return method(self, *args)

        monkeypatch.setattr(BlockSocket, name, call)

    for name in ("exchange", "put", "blocks"):
        record(name)
    large = [bytes([number]) * 300_000 for number in range(20)]
    with served(store) as service, client_of(service) as far, far.writer(STREAM) as writer:
        writer.write_event(b"small").result()
        writer.write_batch(pa.array(large)).result()
        writer.write_event(b"last").result()
        assert events_of(far) == [b"small", *large, b"last"] == events_of(store)
    assert set(used) == {"exchange", "put", "blocks"}


def test_an_event_that_is_waited_for_with_a_time_limit_is_sent_at_once(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread in the background sends it, which otherwise waits a moment for more."""
    monkeypatch.setattr("penstock.stream.write._flush.LINGER_S", 1000.0)
    with served(store) as service, client_of(service) as far, far.writer(STREAM) as writer:
        for event in (b"first", b"second"):
            writer.write_event(event).result(WAIT_S)
    assert events_of(store) == [b"first", b"second"]


def test_a_read_that_is_broken_off_leaves_nothing_for_the_next(store: Engine) -> None:
    """What the server still sends of it would be taken for the answer to another request."""
    with store.writer(STREAM) as writer:
        writer.write_batch(pa.array([bytes([number]) * 400_000 for number in range(40)])).result()
    expected = events_of(store)
    with served(store) as service, client_of(service) as far:
        for _ in range(3):
            reader = far.read(STREAM)
            assert reader.read_next_batch()["event"][0].as_py() == expected[0]
            del reader
        assert events_of(far) == expected
        eventually(lambda: connections_of(service) <= 2)


def test_more_readers_than_connections_read_over_flight(store: Engine) -> None:
    """A thread may read many segments in turn: it would wait for ever for a connection that it has itself."""
    with store.writer(STREAM) as writer:
        writer.write_batch(pa.array([bytes(400_000)] * 40)).result()
    with served(store) as service, client_of(service) as far:
        readers = [far.read(STREAM) for _ in range(IN_USE_MAX + 2)]
        firsts = [reader.read_next_batch().num_rows for reader in readers]
        assert [first + reader.read_all().num_rows for first, reader in zip(firsts, readers, strict=True)] == [40] * 10
        assert connections_of(service) <= IN_USE_MAX


# A port that cannot be used


def test_a_client_that_cannot_reach_the_port_uses_flight(store: Engine) -> None:
    """It may be closed by a firewall, or be another one behind a tunnel."""
    with served(store) as service:
        assert service._block_port is not None
        service._block_port.close()
        with client_of(service) as far, far.writer(STREAM) as writer:
            writer.write_event(b"event").result()
            assert events_of(far) == [b"event"]


def test_small_blocks_leave_flight_once_the_port_can_be_reached(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel may last for days, and one busy second at its beginning would make all of them slower."""
    now = 0.0
    with served(store) as service, client_of(service) as far, far.writer(STREAM) as writer:
        channel = far.connection.channel
        monkeypatch.setattr(channel.sockets, "_now", lambda: now)
        with monkeypatch.context() as away:
            away.setattr("penstock.client._block_sockets._opened", _unreachable)
            writer.write_event(b"over Flight").result()
        assert [type(stream) for stream in channel.appends._idle] == [FlightStream]
        writer.write_event(b"still over Flight").result()
        assert [type(stream) for stream in channel.appends._idle] == [FlightStream]
        now = 1.0
        writer.write_event(b"over a socket").result()
        assert [type(stream) for stream in channel.appends._idle] == [BlockSocket]
        eventually(lambda: connections_of(service) == 1)
    assert events_of(store) == [b"over Flight", b"still over Flight", b"over a socket"]


def _unreachable(*_: object) -> None:
    raise ConnectionRefusedError


def test_another_program_at_that_port_gets_neither_key_nor_blocks(store: Engine) -> None:
    """At the other end of a tunnel, the port that the server names belongs to somebody else."""
    received: list[bytes] = []
    with socket.create_server((HOST, 0)) as listener, served(store) as service:

        def pretend() -> None:
            connection, _ = listener.accept()
            frames = FrameConnection(connection, checks_data=False)
            frames.send(pack_frame(pack_block_message(Greeting(PROTOCOL, bytes(16)))), timeout_s=WAIT_S)
            received.append(frames.await_frame().header)
            frames.send(pack_frame(pack_block_message(BlocksOpened(bytes(32)))), timeout_s=WAIT_S)
            received.append(connection.recv(1 << 16))
            frames.close()

        thread = threading.Thread(target=pretend)
        thread.start()
        assert service._block_port is not None
        service._block_port.__dict__["port"] = listener.getsockname()[1]
        with client_of(service) as far, far.writer(STREAM) as writer:
            writer.write_event(b"event").result()
            thread.join(WAIT_S)
            [session] = service._sessions.values()
            assert session.block_key not in b"".join(received)
        assert received[1] == b""
    assert events_of(store) == [b"event"]


# Who may use it


def test_a_connection_that_proves_nothing_is_closed(store: Engine) -> None:
    """The name of a session, which others may hear, is not enough; nor is garbage."""
    with served(store) as service, client_of(service) as far:
        assert far.streams()
        [session] = service._sessions.values()
        for name in (session.block_name, "nobody"):
            frames = frames_to(service)
            opening = OpenBlocks(name, bytes(16), bytes(32))
            frames.send(pack_frame(pack_block_message(opening)), timeout_s=WAIT_S)
            assert is_closed(frames)
        for header in (b"\xc1", pack_block_message(PutShared()), b"x" * 60_000):
            frames = frames_to(service)
            frames.send(pack_frame(header), timeout_s=WAIT_S)
            assert is_closed(frames)
        frames = frames_to(service)
        frames._socket.sendall(b"GET / HTTP/1.1\r\nHost: plant\r\n\r\n")
        assert is_closed(frames)
        eventually(lambda: connections_of(service) == 0)


def test_a_connection_that_says_nothing_is_closed(store: Engine) -> None:
    """It has a thread of the server."""
    with served(store, header_timeout_s=0.1) as service:
        assert is_closed(frames_to(service))
        eventually(lambda: connections_of(service) == 0)


def test_a_session_has_so_many_connections(store: Engine) -> None:
    """Each has a thread of the server, and the memory for a block."""
    with served(store) as service, client_of(service) as far:
        access = far.connection.channel.sockets._place
        assert access is not None
        opened = [_opened(*access) for _ in range(OF_SESSION_MAX)]
        with pytest.raises(OSError, match="closed"):
            _opened(*access)
        for frames in opened:
            frames.close()
        eventually(lambda: connections_of(service) == 0)
        _opened(*access).close()


def test_connections_end_with_their_session(store: Engine) -> None:
    """What a client has open ends when it is gone, whatever its other connections do."""
    with served(store) as service, client_of(service) as far:
        access = far.connection.channel.sockets._place
        assert access is not None
        frames = _opened(*access)
        far.connection.channel.close()
        assert is_closed(frames)
        with pytest.raises(OSError, match="closed"):
            _opened(*access)


# Too much of something


def test_a_server_with_too_many_calls_does_not_cost_a_client_its_session(store: Engine) -> None:
    """It is busy for a moment: a client that took that for a lost connection would open all that it has again."""
    with store.writer(STREAM) as writer:
        writer.write_event(b"event").result()
    with served(store, max_calls=8) as service, client_of(service) as far:
        channel, calls = far.connection.channel, service._quotas["calls"]
        call = GetBlocks(STREAM, 0, 0, 9)
        with all_taken(calls):
            with pytest.raises(ServerBusy, match="max_calls"):
                list(far.connection.blocks(channel, call))
            assert calls.refused > 2, "at the port for blocks, and over Flight"
        assert len(list(far.connection.blocks(channel, call))) == 1
        assert not channel.is_lost
        assert len(service._sessions) == 1


@contextmanager
def all_taken(quota: Quota) -> Iterator[None]:
    """Take what is left of a quota within the block."""
    taken = 0
    with suppress(flight.FlightError):
        while True:
            quota.take(None)
            taken += 1
    yield
    for _ in range(taken):
        quota.give(None)


def test_connections_are_accepted_again_after_the_system_had_no_thread_for_one(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the system that is reached for a moment is not the end of the port."""
    with served(store) as service:
        start = threading.Thread.start

        def fail(thread: threading.Thread) -> None:
            if thread.name == "penstock-blocks":
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            assert is_closed(frames_to(service))
        frames = frames_to(service)
        assert isinstance(unpack_block_message(frames.await_frame().header), Greeting)
        frames.close()
        eventually(lambda: not service._block_port._threads)  # type: ignore[union-attr]


def test_a_client_that_sends_blocks_or_asks_for_them_is_not_silent(store: Engine) -> None:
    """As over Flight: a busy client that is late to say that it is there keeps its session."""
    with served(store) as service, client_of(service) as far, far.writer(STREAM) as writer:
        [session] = service._sessions.values()
        requests: dict[str, Callable[[], object]] = {
            "small": lambda: writer.write_event(b"small").result(),
            "large": lambda: writer.write_event(bytes(200_000)).result(),
            "read": lambda: list(far.connection.blocks(far.connection.channel, GetBlocks(STREAM, 0, 0, 9))),
        }
        for name, request in requests.items():
            request()  # which may make calls, too
            with in_case(name):
                session._seen_at = long_ago = -1.0
                request()
                assert session._seen_at > long_ago


# Bad requests


def test_a_request_that_is_refused_says_why_and_the_next_is_answered(store: Engine) -> None:
    """As on the other port: one error, and the connection goes on."""
    with served(store) as service, client_of(service) as far:
        access = far.connection.channel.sockets._place
        assert access is not None
        connection = BlockSocket(_opened(*access), lambda _: None)
        with pytest.raises(BadArgument, match="not blocks"):
            connection.exchange(b"garbage")
        with pytest.raises(BadArgument, match="nothing open"):
            connection.put(7, [[bytes(100)]])
        frames = connection._frames
        frames.send(pack_frame(pack_block_message(AskBlocks("no/stream", 0, 0, 9))), timeout_s=WAIT_S)
        with pytest.raises(BadArgument, match="no segment 0"):
            connection._received()
        frames.send(pack_frame(pack_block_message(BlocksOpened(bytes(32)))), timeout_s=WAIT_S)
        with pytest.raises(BadArgument, match="not a request"):
            connection._received()
        frames._socket.sendall(b"garbage, and not a frame")
        assert is_closed(frames)


def test_blocks_without_an_end_give_their_budget_back(store: Engine) -> None:
    """A client that goes in the middle of some blocks would else keep others of its session waiting for ever."""
    with served(store, max_inflight_bytes=1 << 20) as service, client_of(service) as far, far.writer(STREAM) as writer:
        writer.write_event(b"first").result()
        [host], [session] = far.hosts.values(), service._sessions.values()
        access = far.connection.channel.sockets._place
        assert access is not None
        frames = _opened(*access)
        header = StreamBlockHeader(count=1, writer=host.identity, last_number=2, flush_last=0).pack()
        block = SmallBlock.pack(1, 0, header, [bytes([0, 0, 0, 1]), b"x"])  # says that another one follows
        message = pack_frame(pack_block_message(PutBlock(host.number)), block, payload_crc=0)
        frames.send(message, timeout_s=WAIT_S)
        eventually(lambda: session.budget.used > 0)
        frames.send(pack_frame(pack_block_message(PutShared()), b"", payload_crc=0), timeout_s=WAIT_S)
        assert is_closed(frames)
        eventually(lambda: session.budget.used == 0)


# Lost connections


@pytest.mark.parametrize("size", [10, 200_000], ids=["small", "large"])
def test_events_are_there_once_and_in_order_however_often_connections_are_lost(store: Engine, size: int) -> None:
    """A block that was sent may have arrived or not: the writer asks, and sends only what is missing."""
    events = [number.to_bytes(4, "big") * (size // 4) for number in range(60)]
    with served(store) as service, client_of(service) as far:
        over = threading.Event()
        cuts = 0

        def cut() -> None:
            nonlocal cuts
            while not over.wait(0.005):
                assert service._block_port is not None
                for frames in list(service._block_port._open):
                    frames.shut_down()
                    cuts += 1
                    over.wait(0.02)  # time for something to get through

        cutter = threading.Thread(target=cut)
        cutter.start()
        try:
            with far.writer(STREAM, "writer") as writer:
                for event in events:
                    writer.write_event(event).result()
        finally:
            over.set()
            cutter.join(WAIT_S)
        assert cuts
        assert events_of(store) == events


def test_a_channel_that_ends_wakes_threads_that_wait_for_an_answer(store: Engine) -> None:
    """A server that hangs answers nothing; when another has taken over, its clients go there."""
    with served(store) as service, client_of(service) as far:
        sockets = far.connection.channel.sockets
        assert isinstance(sockets, BlockSockets)
        connection = sockets.take()
        assert connection is not None
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                connection._received()
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        sockets.close()
        thread.join(WAIT_S)
        connection.close()
        assert len(failed) == 1
        assert sockets.take() is None


def test_the_greeting_says_which_version_the_server_speaks(store: Engine) -> None:
    """So that a client of another version uses Flight, where an error says what to do."""
    with served(store) as service:
        frames = frames_to(service)
        greeting = unpack_block_message(frames.await_frame().header)
        assert isinstance(greeting, Greeting)
        assert greeting.protocol == PROTOCOL
        frames.close()
