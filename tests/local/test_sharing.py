"""One folder, many processes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.client import RemoteStore, _connection
from penstock.errors import DiskFailed, StoreLocked, StoreUnreachable
from penstock.server import _service
from penstock.server._service import FlightService
from penstock.stream import Engine
from tests.server.following import Following, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import Store
    from penstock.stream import Reader

STREAM: Final = "plant/readings"
SECONDS_MAX: Final = 60

OWNER: Final = """
    import sys, threading
    import penstock
    store = penstock.connect(sys.argv[1])
    store.create_stream("plant/readings", segments=2, exist_ok=True)
    print("owner", flush=True)
    threading.Event().wait()
"""


class Process:
    """A Python process that says something when it is ready."""

    def __init__(self, code: str, *args: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *args], stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def lines(self) -> list[str]:
        """Return all that it prints until it ends."""
        assert self._process.stdout is not None
        return self._process.stdout.read().splitlines()

    def kill(self) -> None:
        """End it without a word."""
        self._process.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Return how it ended."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(SECONDS_MAX)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Process]:
    """Another process that owns the folder ``data``, with a stream."""
    process = Process(OWNER, str(tmp_path / "data"))
    assert process.line() == "owner"
    yield process
    process.kill()


def events_of(store: Store) -> list[bytes]:
    return [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


def test_a_folder_that_another_process_has_open_is_served_by_it(owner: Process, tmp_path: Path) -> None:
    """The same API, whichever process owns the folder."""
    assert owner.pid
    with penstock.connect(tmp_path / "data") as store:
        assert isinstance(store, RemoteStore)
        with store.writer(STREAM) as writer:
            pointer = writer.write_event(b"event", key="key").result()
        assert pointer is not None
        assert store.fetch_event(pointer) == b"event"
        group = store.create_reader_group("group", [STREAM])
        with group.reader("reader") as reader:
            read = reader.read_next_event(timeout=SECONDS_MAX)
            assert read is not None
            assert (read.event, read.pointer) == (b"event", pointer)


def test_two_stores_of_one_process_share_a_folder(tmp_path: Path) -> None:
    """No process has to know which one opened it first."""
    with penstock.connect(tmp_path / "data") as first, penstock.connect(tmp_path / "data") as second:
        assert (type(first), type(second)) == (Engine, RemoteStore)
        second.create_stream(STREAM)
        with first.writer(STREAM) as writer:
            writer.write_event(b"event")
        assert events_of(second) == [b"event"]


def test_the_owner_socket_accepts_again_when_there_are_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many may be open for a moment; and an owner that runs for days could never be reached again."""
    accept, failed = socket.socket.accept, threading.Event()

    def fail(one: socket.socket) -> tuple[socket.socket, Any]:
        if failed.is_set():
            return accept(one)
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", fail)
    with penstock.connect(tmp_path / "data") as owner:
        assert failed.wait(SECONDS_MAX)
        owner.create_stream(STREAM)
        with penstock.connect(tmp_path / "data") as user:
            assert [info.name for info in user.streams()] == [STREAM]


def test_who_wants_to_be_alone_is_told_who_is_there(owner: Process, tmp_path: Path) -> None:
    """The one way to be sure that no other process writes."""
    with pytest.raises(StoreLocked, match=f"data is in use by process {owner.pid} "):
        penstock.connect(tmp_path / "data", exclusive=True)


def test_an_exclusive_owner_accepts_no_clients(tmp_path: Path) -> None:
    """They are told who that is, at once."""
    with (
        penstock.connect(tmp_path / "data", exclusive=True),
        pytest.raises(StoreLocked, match=f"process {os.getpid()} "),
    ):
        penstock.connect(tmp_path / "data")


def test_when_the_owner_is_killed_another_takes_over_by_itself(owner: Process, tmp_path: Path) -> None:
    """What was acknowledged is there, and the writer and the reader that were open go on."""
    with penstock.connect(tmp_path / "data") as store:
        group = store.create_reader_group("group", [STREAM])
        with store.writer(STREAM, "writer") as writer, group.reader("reader") as reader:
            for number in range(100):
                writer.write_event(b"%d" % number, key="key")
            writer.flush()
            seen = [_next(reader) for _ in range(50)]
            owner.kill()
            for number in range(100, 200):
                writer.write_event(b"%d" % number, key="key")
            writer.flush()
            seen += [_next(reader) for _ in range(150)]
        expected = [b"%d" % number for number in range(200)]
        assert seen == expected
        assert events_of(store) == expected
        assert writer.last_number == 199


def _next(reader: Reader) -> bytes:
    read = reader.read_next_event(timeout=SECONDS_MAX)
    assert read is not None
    event: bytes = read.event
    return event


def test_when_the_owner_closes_its_store_another_takes_over(tmp_path: Path) -> None:
    """The ordinary way: the process that came first is done first."""
    first = penstock.connect(tmp_path / "data")
    first.create_stream(STREAM)
    with penstock.connect(tmp_path / "data") as second, second.writer(STREAM) as writer:
        writer.write_event(b"before").result()
        first.close()
        writer.write_event(b"after").result()
        assert events_of(second) == [b"before", b"after"]


def test_a_store_that_was_removed_is_not_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or its clients would find it empty, and go on writing, where a disk was only not mounted."""
    monkeypatch.setattr(_connection, "_PATIENCE_S", 0.1)
    first = penstock.connect(tmp_path / "data")
    first.create_stream(STREAM)
    with penstock.connect(tmp_path / "data") as second:
        first.close()
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnreachable, match=r"data: the store is not in its folder any more$"):
            second.stream(STREAM)
        assert not (tmp_path / "data").exists()
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        assert second.stream(STREAM).name == STREAM


def test_other_users_do_not_reach_the_sockets_not_even_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What gRPC makes is for everybody, and listens before anything could be done about it."""
    folder, seen = tmp_path / "data", []

    class Service(FlightService):
        def __init__(self, store: Engine, location: str, block_listener: socket.socket) -> None:
            super().__init__(store, location, block_listener)
            at = Path(location.removeprefix("grpc+unix://"))
            seen.append((stat.S_ISSOCK(at.stat().st_mode), stat.S_IMODE(at.parent.stat().st_mode)))
            assert stat.S_IMODE((at.parent / "blocks").stat().st_mode) == 0o600

    monkeypatch.setattr(_service, "FlightService", Service)
    with penstock.connect(folder) as first, penstock.connect(folder):
        first.create_stream(STREAM)
        assert stat.S_IMODE((folder / "owner.sock").stat().st_mode) == 0o600
    assert seen == [(True, 0o700)]
    assert not [path for path in folder.rglob("*") if path.is_socket()]


def test_a_socket_in_a_deep_folder_is_found(tmp_path: Path) -> None:
    """The system allows a socket's path little more than a hundred bytes."""
    folder = tmp_path / ("deep" * 30) / ("er" * 60)
    with penstock.connect(folder) as first, penstock.connect(folder) as second:
        first.create_stream(STREAM)
        assert [info.name for info in second.streams()] == [STREAM]
        assert open_block_sockets(second)


def open_block_sockets(store: penstock.Store) -> int:
    """Write an event as a client; return how many connections for blocks the client has then."""
    assert isinstance(store, RemoteStore)
    with store.writer(STREAM) as writer:
        writer.write_event(b"event").result()
    return len(store.connection.channel.sockets._open)


def test_blocks_of_a_client_take_the_socket_for_blocks(tmp_path: Path) -> None:
    """Over Flight one durable event takes half as long again."""
    with penstock.connect(tmp_path) as first, penstock.connect(tmp_path) as second:
        first.create_stream(STREAM)
        assert open_block_sockets(second) == 1


def test_blocks_go_over_flight_where_the_socket_for_blocks_is_gone(tmp_path: Path) -> None:
    """Somebody may tidy up a folder."""
    with penstock.connect(tmp_path) as first, penstock.connect(tmp_path) as second:
        first.create_stream(STREAM)
        assert second.stream(STREAM).name == STREAM  # the owner has begun to serve
        (tmp_path / "flight/blocks").unlink()
        assert open_block_sockets(second) == 0
        assert first.stream(STREAM).size_bytes


WRITER: Final = """
    import sys
    import penstock
    folder, name = sys.argv[1:]
    with penstock.connect(folder) as store:
        with store.writer("plant/readings", name) as writer:
            acks = []
            print("ready", flush=True)
            for number in range(3000):
                acks.append((number, writer.write_event(b"%s:%d" % (name.encode(), number), key=name)))
                if len(acks) == 20:
                    for one, ack in acks:
                        ack.result()
                        print(one, flush=True)
                    acks = []
            for one, ack in acks:
                ack.result()
                print(one, flush=True)
"""


def test_nothing_acknowledged_is_lost_or_doubled_when_the_owner_is_killed_under_load(
    owner: Process, tmp_path: Path
) -> None:
    """It is killed while three processes write; one of them takes over, and the others find it."""
    folder = str(tmp_path / "data")
    writers = [Process(WRITER, folder, f"w{number}") for number in range(3)]
    for writer in writers:
        assert writer.line() == "ready"
    acked = [[writer.line() for _ in range(40)] for writer in writers]  # all of them are at it

    def listen(number: int) -> None:
        acked[number] += writers[number].lines()

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    owner.kill()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    with penstock.connect(folder) as store:
        found = events_of(store)
    for number in range(3):
        mine = [int(event.split(b":")[1]) for event in found if event.startswith(b"w%d:" % number)]
        assert mine == list(range(3000)), "each once, in order"
        assert [int(one) for one in acked[number]] == list(range(3000))


def test_readers_of_a_group_are_given_nothing_again_when_the_owner_is_killed(owner: Process, tmp_path: Path) -> None:
    """The new owner is one of them, and waits for the other before it reads what that one had."""
    folder, seen = tmp_path / "data", Seen()
    with penstock.connect(folder) as store, store.writer(STREAM, "writer") as writer:
        store.create_reader_group("group", [STREAM])
        readers = [Following(folder, name, seen, 4000) for name in ("a", "b")]
        for number in range(2000):
            writer.write_event(b"%d" % number, key=f"key-{number % 50}")
        writer.flush()
        seen.wait_for(1000)
        owner.kill()
        for number in range(2000, 4000):
            writer.write_event(b"%d" % number, key=f"key-{number % 50}")
        writer.flush()
        for reader in readers:
            reader.join(SECONDS_MAX)
    assert seen.counts == Counter(b"%d" % number for number in range(4000))


READ_ALL: Final = """
    import sys
    import penstock
    from penstock.errors import DiskFailed
    with penstock.connect(sys.argv[1]) as store:
        print(sum(map(len, store.read("plant/readings"))), store.stream("plant/readings").events)
        with store.reader_group("group").reader("reader") as reader:
            count = 0
            while count < 1000:
                count += len(reader.read_batch(timeout=60))
            print(count, store.reader_group("group").lag().events)
            try:
                reader.commit()
            except DiskFailed:
                print("refused")
"""


DYING_OWNER: Final = """
    import os, sys, threading
    import penstock
    from penstock.server._readers import ClientReader
    from penstock.server._writers import ClientWriter
    store = penstock.connect(sys.argv[1])
    store.create_stream("plant/readings", segments=2)
    if sys.argv[2] == "reader":
        ClientReader.open = lambda reader: os._exit(9)
    else:
        ClientWriter.__init__ = lambda *args, **kwargs: os._exit(9)
    print("owner", flush=True)
    threading.Event().wait()
"""


def test_a_reader_is_opened_though_the_owner_dies_meanwhile(tmp_path: Path) -> None:
    """A process that is just opening a reader goes on as all others do; there is nothing yet that could be lost."""
    dying = Process(DYING_OWNER, str(tmp_path / "data"), "reader")
    assert dying.line() == "owner"
    with penstock.connect(tmp_path / "data") as store:
        with store.writer(STREAM) as writer:
            writer.write_event(b"event").result()
        group = store.create_reader_group("group", [STREAM])
        with group.reader("reader") as reader:
            assert dying.wait() == 9
            read = reader.read_next_event(timeout=SECONDS_MAX)
            assert read is not None
            assert read.event == b"event"


@pytest.mark.parametrize("writer_id", [None, "w"])
def test_a_writer_is_opened_though_the_owner_dies_meanwhile(tmp_path: Path, writer_id: str | None) -> None:
    """An error that is none of Penstock's reached the caller, who had written nothing yet."""
    dying = Process(DYING_OWNER, str(tmp_path / "data"), "writer")
    assert dying.line() == "owner"
    with penstock.connect(tmp_path / "data") as store:
        with store.writer(STREAM, writer_id) as writer:
            assert dying.wait() == 9
            writer.write_event(b"event").result()
        assert store.stream(STREAM).events == 1


def test_another_process_reads_everything_from_an_owner_whose_sync_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any process can still save what was acknowledged, while the owner still runs on the broken disk."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = penstock.connect(tmp_path)
    store.create_stream(STREAM, segments=2)
    store.create_reader_group("group", [STREAM])
    with store.writer(STREAM) as writer:
        for number in range(1000):
            writer.write_event(b"%d" % number, key=str(number))
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(DiskFailed):
        store.create_stream("other/stream")
    other = Process(READ_ALL, str(tmp_path))
    assert other.lines() == ["1000 1000", "1000 0", "refused"]
    assert other.wait() == 0
    with pytest.raises(DiskFailed):
        store.close()


UNCLOSED: Final = """
    import subprocess, sys
    import penstock

    store = penstock.connect(sys.argv[1])
    store.create_stream("plant/readings")
    command = [sys.executable, "-c", sys.argv[2], sys.argv[1]]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert client.stdout.readline() == b"connected\\n"
    print(client.pid)
"""
CLIENT: Final = """
    import signal, sys
    import penstock

    store = penstock.connect(sys.argv[1], own=False)
    writer = store.writer("plant/readings")
    writer.write_event(b"first").result()
    print("connected", flush=True)
    while {writes}:
        writer.write_event(b"next").result()
    signal.pause()
"""


@pytest.mark.parametrize("writes", [False, True])
def test_a_program_that_does_not_close_its_store_ends_though_others_use_it(tmp_path: Path, *, writes: bool) -> None:
    """Scripts and notebooks seldom close a store: theirs hung at the end until all clients had gone."""
    owner, client = (textwrap.dedent(text) for text in (UNCLOSED, CLIENT.replace("{writes}", str(writes))))
    command = [sys.executable, "-c", owner, str(tmp_path), client]
    process = subprocess.run(command, capture_output=True, timeout=60, check=False)
    os.kill(int(process.stdout), signal.SIGKILL)
    assert (process.returncode, process.stderr) == (0, b"")
