"""Penstock itself, as it can be run: in this process, in another one, behind a server, replicated, in a bucket.

All of them acknowledge an event when it is synced, which is the only way that Penstock has; in a bucket it is as
durable as the bucket makes it.
"""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

import penstock
from penstock.bench._bucket import SeaweedBucket, find_weed
from penstock.bench._process import HOST, ServerProcess, free_port, start_with_port
from penstock.bench._system import WAIT_S, SystemUnderTest, need_package, tail_times
from penstock.client import RemoteStore
from penstock.cpo import open_cpo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.bench._system import EventLoad
    from penstock.store import Store

__all__ = [
    "BucketPenstock",
    "EmbeddedPenstock",
    "PenstockSystem",
    "ReplicatedPenstock",
    "SentPenstock",
    "ServedPenstock",
    "SharedPenstock",
]

_MIB: Final = 1 << 20
_SCOPE: Final = "bench"
_BATCHES: Final = "Arrow arrays of up to 10,000 events or 4 MiB"
_READS: Final = "Arrow batches, views of mapped files where this process may open them; no Python objects"
_IN_FLIGHT: Final = "all events of a round"
_GROUP: Final = "main"
_REPLICAS: Final = 3


class PenstockSystem(SystemUnderTest):
    """Every kind of Penstock: the store has the same API in all of them."""

    is_synced = True
    is_default = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._stack = ExitStack()
        self._opened: Store | None = None
        self._is_over = False

    @classmethod
    def check(cls) -> None:
        """Need nothing but Penstock."""

    def start(self) -> None:
        """Start the processes that it needs, and connect."""
        with ExitStack() as stack:
            address = self._start(stack)
            self._opened = stack.enter_context(penstock.connect(address))
            self._opened.streams()
            self._stack = stack.pop_all()

    @abstractmethod
    def _start(self, stack: ExitStack) -> str:
        """Start what is needed, to be ended by the stack; return the address of the store."""

    def stop(self) -> None:
        """Close the store, then end the processes."""
        self._opened = None
        self._stack.close()

    def close(self) -> None:
        """Close the store, then end the processes at once."""
        self._is_over = True
        self.stop()

    def _end(self, process: ServerProcess) -> None:
        if self._is_over:
            process.discard()
        else:
            process.stop()

    @property
    def store(self) -> Store:
        """The store, while it is started."""
        assert self._opened is not None, "start() comes first"
        return self._opened

    def new_name(self) -> str:
        """Create a stream of one segment, as peers have it."""
        name = f"{_SCOPE}/{super().new_name()}"
        self.store.create_stream(name, segments=1)
        return name

    def _remove(self, name: str) -> None:
        self.store.seal_stream(name)
        self.store.delete_stream(name)

    def write_each(self, load: EventLoad) -> float:
        """Call ``write_event`` for each."""
        name = self.new_name()
        with self.store.writer(name) as writer:
            write, event = writer.write_event, load.event
            start = time.perf_counter()
            for _ in range(load.count):
                write(event)
            writer.flush()
            took = time.perf_counter() - start
        self._remove(name)
        return took

    def write_batches(self, load: EventLoad) -> float:
        """Call ``write_batch`` for each batch, and wait for the acknowledgements of all in the end."""
        name = self.new_name()
        took = self._write_batches(name, load)
        self._remove(name)
        return took

    def fill(self, load: EventLoad) -> str:
        """Write in batches."""
        name = self.new_name()
        self._write_batches(name, load)
        return name

    def _write_batches(self, name: str, load: EventLoad) -> float:
        batch = pa.array([load.event] * load.batch_size, pa.binary())
        with self.store.writer(name) as writer:
            start = time.perf_counter()
            acks = [writer.write_batch(batch[:size]) for size in load.batch_sizes()]
            for ack in acks:
                ack.result(WAIT_S)
            return time.perf_counter() - start

    def read_each(self, stream: str, load: EventLoad) -> float:
        """Call ``read_next_event`` for each."""
        group = self.store.create_reader_group(f"group-{next(self._numbers)}", [stream])
        with group.reader("reader") as reader:
            read, size = reader.read_next_event, len(load.event)
            start = time.perf_counter()
            for _ in range(load.count):
                found = read(WAIT_S)
                if found is None or len(found.event) != size:
                    raise TimeoutError(f"no event of {size} bytes within {WAIT_S:g} s")
            took = time.perf_counter() - start
        group.delete()
        return took

    def read_batches(self, stream: str, load: EventLoad) -> float:
        """Call ``read_batch`` until all have come."""
        group = self.store.create_reader_group(f"group-{next(self._numbers)}", [stream])
        with group.reader("reader") as reader:
            found = 0
            start = time.perf_counter()
            while found < load.count:
                batch = reader.read_batch(timeout=WAIT_S)
                if batch is None:
                    raise TimeoutError(f"no event within {WAIT_S:g} s")
                found += len(batch)
            took = time.perf_counter() - start
        group.delete()
        return took * load.count / found  # the last batch may have more

    def write_singly(self, load: EventLoad) -> list[float]:
        """Wait for the acknowledgement of each."""
        name, times = self.new_name(), []
        with self.store.writer(name) as writer:
            for _ in range(load.count):
                start = time.perf_counter()
                writer.write_event(load.event).result(WAIT_S)
                times.append(time.perf_counter() - start)
        self._remove(name)
        return times

    def tail(self, load: EventLoad) -> list[float]:
        """Read in another thread, over a connection of its own where there are connections."""
        name = self.new_name()
        group = self.store.create_reader_group(f"group-{next(self._numbers)}", [name])
        with self.store.writer(name) as writer, group.reader("reader") as reader:

            def read() -> None:
                if reader.read_next_event(WAIT_S) is None:
                    raise TimeoutError(f"no event within {WAIT_S:g} s")

            times = tail_times(lambda: writer.write_event(load.event).result(WAIT_S), read, load.count)
        group.delete()
        self._remove(name)
        return times

    def large(self, size: int) -> tuple[float, float]:
        """Write and read it as a file, in pieces of 1 MiB."""
        name, piece, buffer = self.new_name(), bytes(_MIB), bytearray(_MIB)
        with self.store.writer(name) as writer:
            start = time.perf_counter()
            with writer.begin_write_event("key") as out:
                for done in range(0, size, _MIB):
                    out.write(piece[: min(_MIB, size - done)])
            written = time.perf_counter() - start
        start = time.perf_counter()
        with self.store.fetch_event_as_stream(out.pointer) as event:
            found = 0
            while got := event.readinto(buffer):
                found += got
        took = time.perf_counter() - start
        if found != size:
            raise RuntimeError(f"{found:,} of {size:,} bytes came back")
        self._remove(name)
        return written, took

    def create_streams(self, number: int, *, seconds_max: float) -> tuple[int, float]:
        """Open a writer for each."""
        names: list[str] = []
        start = time.perf_counter()
        while len(names) < number and time.perf_counter() - start < seconds_max:
            names.append(self.new_name())
            with self.store.writer(names[-1]) as writer:
                writer.write_event(b"event").result(WAIT_S)
        took = time.perf_counter() - start
        for name in names:
            self._remove(name)
        return len(names), took


def _settings(**more: str) -> Mapping[str, str]:
    return {"acknowledged": "when synced", "batch": _BATCHES, "in flight": _IN_FLIGHT, "read": _READS, **more}


class EmbeddedPenstock(PenstockSystem):
    """A folder that this process owns."""

    name = "embedded"
    key = "penstock-embedded"
    title = "Penstock embedded"
    settings = _settings(address="a folder, opened by the process that measures")

    def _start(self, stack: ExitStack) -> str:
        del stack
        return str(self.folder / "store")


_OWNER: Final = """
import signal, sys
import penstock
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with penstock.connect(sys.argv[1]):
    print("owner", flush=True)
    signal.sigwait([signal.SIGTERM])
"""


class SharedPenstock(PenstockSystem):
    """A folder that another process owns, and serves through the socket in it."""

    name = "shared"
    key = "penstock-shared"
    title = "Penstock, shared folder"
    settings = _settings(address="a folder that another process owns")

    def _start(self, stack: ExitStack) -> str:
        store = self.folder / "store"
        owner = ServerProcess([sys.executable, "-c", _OWNER, store], self.folder)
        stack.callback(self._end, owner)
        owner.wait(lambda: "owner" in owner.said)
        return str(store)


class ServedPenstock(PenstockSystem):
    """A server on loopback."""

    name = "served"
    key = "penstock-served"
    title = "Penstock served"
    settings = _settings(address="penstock serve on loopback, without TLS")

    @classmethod
    def check(cls) -> None:
        """Need what the server needs."""
        need_package("starlette")

    def _start(self, stack: ExitStack) -> str:
        return self._serve(stack, [])

    def _serve(self, stack: ExitStack, options: list[str], environment: Mapping[str, str] | None = None) -> str:
        def start(port: int) -> ServerProcess:
            command = [sys.executable, "-m", "penstock", "serve", str(self.folder / "store"), "--anonymous", *options]
            ports = ["--host", HOST, "--port", str(port), "--http-port", "0"]
            return ServerProcess([*command, *ports], self.folder, environment=environment)

        server, port = start_with_port(start, lambda process, _: "server serving" in process.said)
        stack.callback(self._end, server)
        return f"penstock://{HOST}:{port}"


class SentPenstock(ServedPenstock):
    """A server whose files its clients cannot open, as if they were on another machine: it sends what they read."""

    key = "penstock-sent"
    title = "Penstock served, files not reachable"
    is_default = False
    is_reader = True
    settings = _settings(
        address="penstock serve on loopback, without TLS",
        read="Arrow batches that the server sends over a socket, as peers send; no Python objects",
    )

    def start(self) -> None:
        """Connect, and go without the files of the server, which are on this machine."""
        super().start()
        assert isinstance(self.store, RemoteStore)
        self.store.connection.give_up(None, "")


class ReplicatedPenstock(ServedPenstock):
    """A server whose plogs are on three plog servers of this machine."""

    name = "replicated"
    key = "penstock-replicated"
    title = "Penstock replicated"
    settings = _settings(address="penstock serve on three plog servers, which share this disk", replicas="3")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._cluster: ExitStack | None = None

    def _start(self, stack: ExitStack) -> str:
        cpo = f"sqlite:{self.folder}/cpo.db"
        if self._cluster is None:  # a restart is that of the server that clients talk to
            with ExitStack() as cluster:
                self._start_cluster(cluster, cpo)
                self._cluster = cluster.pop_all()
        return self._serve(stack, ["--plogs", f"cluster:{_SCOPE}", "--cpo", cpo])

    def _start_cluster(self, stack: ExitStack, cpo: str) -> None:
        addresses = [f"{HOST}:{free_port()}" for _ in range(_REPLICAS)]
        with open_cpo(cpo) as oracle:
            oracle.register_cluster(_SCOPE, {_GROUP: addresses})
        servers = []
        for number, address in enumerate(addresses):
            folder = self.folder / f"plogs-{number}"
            folder.mkdir()
            options = ["--dir", str(folder / "data"), "--listen", address, "--cluster", _SCOPE, "--group", _GROUP]
            command = [sys.executable, "-m", "penstock", "plog-server", *options, "--cpo", cpo]
            servers.append(ServerProcess(command, folder))
            stack.callback(servers[-1].discard)
        for server in servers:
            server.wait(lambda: "serving" in server.said)  # noqa: B023 - called before the next

    def close(self) -> None:
        """End the plog servers, too."""
        super().close()
        if self._cluster is not None:
            self._cluster.close()


class BucketPenstock(ServedPenstock):
    """A server whose plogs are in a bucket of a SeaweedFS server on this machine."""

    name = "bucket"
    key = "penstock-bucket"
    title = "Penstock in a bucket"
    is_synced = False
    written_events_min: ClassVar[int] = 20_000  # a group of blocks waits for 20 ms, then for the bucket
    settings: ClassVar[Mapping[str, str]] = {
        "acknowledged": "when the bucket has it; SeaweedFS on loopback does not sync",
        "batch": _BATCHES,
        "in flight": _IN_FLIGHT,
        "read": _READS,
        "address": "penstock serve, plogs in an S3 bucket of SeaweedFS",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._bucket: SeaweedBucket | None = None

    @classmethod
    def check(cls) -> None:
        """Need SeaweedFS, and a client for buckets."""
        super().check()
        need_package("obstore")
        find_weed()

    def _start(self, stack: ExitStack) -> str:
        if self._bucket is None:
            self._bucket = SeaweedBucket(self.folder)
        options = ["--plogs", f"s3://{self._bucket.name}/store", "--cpo", f"sqlite:{self.folder}/cpo.db"]
        return self._serve(stack, options, self._bucket.environment)

    def close(self) -> None:
        """End SeaweedFS, too."""
        super().close()
        if self._bucket is not None:
            self._bucket.stop()
