"""What it costs that another process has the store: over the socket in the folder, and over TCP on this machine.

Run it on an otherwise idle machine: ``python -m bench.server [--part PART]... [FOLDER]``; the folder is made, filled
and removed.
"""

from __future__ import annotations

import os
import statistics
import struct
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import flight

import penstock
from bench._measure import Figure, median_us, middle, rate, run_parts
from penstock.client import RemoteStore, ServerFinder
from penstock.embedded import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock import Store

BATCH, BATCHES, ROUNDS = 160_000, 6, 5  # of 100 B: 16 MB a batch
TAIL_EVENTS = 20
_numbers = count()

SERVE = """
import sys
from penstock.server import Config, run
run(Config(store=sys.argv[1], port=0, http_port=0, anonymous=True),
    ready=lambda server: print(server.port, flush=True))
"""
BARE = """
import os, sys
import pyarrow as pa
from pyarrow import flight

file = None
if len(sys.argv) > 1:
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(1 << 20), 0)
    os.fsync(file)

class Bare(flight.FlightServerBase):
    def do_put(self, context, descriptor, reader, writer):
        place = 0
        for chunk in reader:
            if file is not None:
                os.pwrite(file, bytes(100), place)
                os.fdatasync(file)
                place += 100
            if chunk.app_metadata is not None:
                writer.write(pa.py_buffer(b"ok"))

    def do_get(self, context, ticket):
        batch = pa.record_batch({"event": pa.array([bytes(100)] * 10_000)})
        return flight.GeneratorStream(batch.schema, (batch for _ in range(int(ticket.ticket))))

server = Bare("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
"""

COUNTED = """
import sys, threading
from penstock.plog import FilePlogs
from penstock.server import Config, run

reads = 0
def counted(method):
    def call(*args):
        global reads
        reads += 1
        return method(*args)
    return call

def ready(server):
    FilePlogs.blocks, FilePlogs.locate = counted(FilePlogs.blocks), counted(FilePlogs.locate)
    print(server.port, flush=True)
    threading.Thread(target=lambda: [print(reads, flush=True) for _ in sys.stdin], daemon=True).start()

run(Config(store=sys.argv[1], port=0, http_port=0, anonymous=True, maintenance_interval_s=3600), ready=ready)
"""
TAILS = """
import struct, sys, threading, time
import penstock
port, name, readers, events, reaches = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
store = penstock.connect(f"penstock://127.0.0.1:{port}")
if not reaches:
    store.connection.give_up(None, "")
late = [[] for _ in range(events)]
tail = store.tail("bench/tail")
groups = [store.create_reader_group(f"{name}-{number}", ["bench/tail"], tail) for number in range(readers)]
ready = threading.Barrier(readers + 1)

def follow(group):
    with group.reader("reader") as reader:
        reader.read_next_event(timeout=0)
        ready.wait()
        for number in range(events):
            begun, = struct.unpack("d", reader.read_next_event(timeout=60).event)
            late[number].append(time.perf_counter() - begun)

threads = [threading.Thread(target=follow, args=(group,)) for group in groups]
for thread in threads:
    thread.start()
ready.wait()
print(0, flush=True)
for thread in threads:
    thread.join()
print(*(max(one) for one in late), flush=True)
store.close()
"""


@contextmanager
def process(code: str, *args: str) -> Iterator[int]:
    """Run a server in a process of its own; give its port."""
    with started(code, *args) as one:
        yield int(said(one))


@contextmanager
def started(code: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process of our own, and end it."""
    one = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with one:
        try:
            yield one
        finally:
            one.terminate()


def said(one: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert one.stdout is not None
    return one.stdout.readline()


def write_rate(store: Store, batch: pa.Array) -> float:
    """Return events/s of writing batches to a stream of its own."""
    name = f"bench/stream-{next(_numbers)}"
    store.create_stream(name)

    def work() -> int:
        for _ in range(BATCHES):
            writer.write_batch(batch)
        writer.flush()
        return BATCHES * len(batch)

    with store.writer(name) as writer:
        found = rate(work)
    store.seal_stream(name)
    store.delete_stream(name)
    return found


def read_rate(store: Store, name: str) -> float:
    """Return events/s of reading a stream as Arrow batches."""
    return rate(lambda: sum(len(batch) for batch in store.read(name)))


def bare_write_rate(client: flight.FlightClient, batch: pa.Array) -> float:
    """Return events/s of putting the same to a server that throws it away, in pieces as large as ours."""
    pieces = [pa.record_batch({"event": batch[start : start + 10_000]}) for start in range(0, len(batch), 10_000)]

    def work() -> int:
        writer, answers = client.do_put(flight.FlightDescriptor.for_command(b"x"), pieces[0].schema)
        with writer:
            for _ in range(BATCHES):
                for piece in pieces[:-1]:
                    writer.write_batch(piece)
                writer.write_with_metadata(pieces[-1], b"last")
                answers.read()
            writer.done_writing()
        return BATCHES * len(batch)

    return rate(work)


def bare_read_rate(client: flight.FlightClient) -> float:
    """Return events/s of getting prepared batches."""
    pieces = BATCHES * BATCH // 10_000
    return rate(lambda: sum(len(chunk.data) for chunk in client.do_get(flight.Ticket(str(pieces).encode()))))


def throughput(folder: Path) -> Iterator[Figure]:
    """Compare batches over the wire with those in this process, and with a bare Flight server."""
    batch = pa.array([os.urandom(100) for _ in range(1000)] * (BATCH // 1000), pa.binary())
    served, own = folder / "served", folder / "own"
    with process(SERVE, str(served)) as port, process(BARE) as bare_port, open_store(own) as embedded:
        near, far = penstock.connect(served), penstock.connect(f"penstock://127.0.0.1:{port}")
        bare = flight.connect(f"grpc://127.0.0.1:{bare_port}")
        with near, far, bare:
            writes = [
                (
                    write_rate(near, batch),
                    write_rate(far, batch),
                    write_rate(embedded, batch),
                    bare_write_rate(bare, batch),
                )
                for _ in range(ROUNDS)
            ]
            for store in (near, embedded):
                store.create_stream("bench/long")
                with store.writer("bench/long") as writer:
                    for _ in range(BATCHES):
                        writer.write_batch(batch)
            with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{port}")) as sent:
                sent.connection.give_up(None, "")
                reads = [
                    (
                        read_rate(near, "bench/long"),
                        read_rate(far, "bench/long"),
                        read_rate(sent, "bench/long"),
                        read_rate(embedded, "bench/long"),
                        bare_read_rate(bare),
                    )
                    for _ in range(ROUNDS)
                ]
    yield from compared("batch writes", {"through another process's folder": 0.5, "over TCP": 0.5}, writes)
    ways = {
        "through another process's folder": 0.5,
        "over TCP, files reachable": 0.5,
        "over TCP, files not reachable": 0.3,
    }
    yield from compared("Arrow reads", ways, reads)


def compared(what: str, floors: Mapping[str, float], found: Sequence[Sequence[float]]) -> Iterator[Figure]:
    """Compare rates of several ways with those embedded, and the last way with a bare Flight server: the last two.

    The first round warms up, and does not count.
    """
    _, *rounds = found
    rates = [statistics.median(column) for column in zip(*rounds, strict=True)]
    for number, (way, floor) in enumerate(floors.items()):
        ratio, spread = middle([row[number] / row[-2] for row in rounds])
        detail = {"/s": rates[number], "embedded/s": rates[-2]}
        yield Figure(f"{what} {way}, against embedded", ratio, floor, detail, spread)
    if what == "batch writes":
        bound, spread = middle([row[-2] / row[-1] for row in rounds])
        yield Figure("  embedded, which syncs, against a bare Flight server, which discards", bound, spread=spread)
    ratio, spread = middle([row[len(floors) - 1] / row[-1] for row in rounds])
    name = f"{what} {list(floors)[-1]}, against a bare Flight server"
    yield Figure(name, ratio, 0.8, {"bare Flight/s": rates[-1]}, spread)


def latency(folder: Path) -> Iterator[Figure]:
    """Compare one durable event with a bare Flight round trip and one and a half syncs."""
    served, path = folder / "latency", folder / "bare"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(1 << 20), 0)
    os.fsync(fd)
    places = iter(range(0, 1 << 20, 100))
    piece = pa.record_batch({"event": pa.array([bytes(100)])})

    def sync() -> None:
        os.pwrite(fd, bytes(100), next(places))
        os.fdatasync(fd)

    with ExitStack() as stack:
        port = stack.enter_context(process(SERVE, str(served)))
        far = stack.enter_context(RemoteStore(ServerFinder(f"penstock://127.0.0.1:{port}")))
        far.create_stream("bench/latency")
        writer = stack.enter_context(far.writer("bench/latency"))
        trip, synced_trip = (
            stack.enter_context(bare_trip(stack.enter_context(process(BARE, *args)), piece))
            for args in ((), (str(folder / "bare-synced"),))
        )
        found = [
            (
                median_us(trip),
                median_us(sync),
                median_us(synced_trip),
                median_us(lambda: writer.write_event(bytes(100), "key").result()),
            )
            for _ in range(7)
        ]
    os.close(fd)
    del found[0]  # of the round that warms up
    trips, syncs, synced_trips, ours = (statistics.median(column) for column in zip(*found, strict=True))
    ratio, spread = middle([(trip + 1.5 * sync) / mine for trip, sync, _, mine in found])
    detail = {"us": ours, "bare round trip": trips, "bare sync": syncs}
    yield Figure("one durable event, p50: a bare round trip and 1.5 syncs against it", ratio, 1.0, detail, spread)
    ratio, spread = middle([synced / mine for _, _, synced, mine in found])
    detail = {"us": synced_trips}
    yield Figure("  a bare Flight server that syncs each message against it", ratio, None, detail, spread)


@contextmanager
def bare_trip(port: int, piece: pa.RecordBatch) -> Iterator[Callable[[], None]]:
    """Give what sends one batch to a bare server and waits for the answer."""
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        put, answers = client.do_put(flight.FlightDescriptor.for_command(b"x"), piece.schema)

        def trip() -> None:
            put.write_with_metadata(piece, b"one")
            answers.read()

        yield trip
        put.done_writing()
        put.close()


def tails(folder: Path) -> Iterator[Figure]:
    """Show how often the owner reads a block that many follow, and when the last of them has it."""
    for reaches in (1, 0):
        way = "files reachable" if reaches else "files not reachable"
        for readers in (1, 20, 200):
            reads, last = followed(folder / f"tail-{reaches}-{readers}", readers, reaches)
            detail = {"reads or look-ups a block": reads, "ms until the last has it, p50": last}
            yield Figure(f"{readers} readers at the tail, {way}", detail=detail)


def followed(folder: Path, readers: int, reaches: int) -> tuple[float, float]:
    """Return both for readers in up to four processes, each in a group of its own."""
    processes = min(readers, 4)
    with started(COUNTED, str(folder)) as server, ExitStack() as stack:
        port = int(said(server))
        store = stack.enter_context(RemoteStore(ServerFinder(f"penstock://127.0.0.1:{port}")))
        store.create_stream("bench/tail")
        writer = stack.enter_context(store.writer("bench/tail"))
        writer.write_event(bytes(8)).result()
        args = (str(readers // processes), str(TAIL_EVENTS), str(reaches))
        clients = [stack.enter_context(started(TAILS, str(port), str(name), *args)) for name in range(processes)]
        for client in clients:
            said(client)
        before = count_of(server)
        for _ in range(TAIL_EVENTS):
            writer.write_event(struct.pack("d", time.perf_counter())).result()
            time.sleep(0.2)
        late = [[float(one) for one in said(client).split()] for client in clients]
        reads = count_of(server) - before
    return reads / TAIL_EVENTS, statistics.median(map(max, zip(*late, strict=True))) * 1e3


def count_of(server: subprocess.Popen[str]) -> int:
    """Return how often the server has read blocks, or told where they are."""
    assert server.stdin is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return int(said(server))


def opening(folder: Path) -> Iterator[Figure]:
    """Show what it takes to open a folder: alone, as an owner that can be asked, and as a user of another's."""
    where = folder / "opening"
    open_store(where).close()

    def milliseconds(open_one: Callable[[], Store]) -> float:
        found = []
        for _ in range(15):
            start = time.perf_counter()
            store = open_one()
            found.append(time.perf_counter() - start)
            store.close()
        return statistics.median(found) * 1e3

    alone, owner = milliseconds(lambda: open_store(where)), milliseconds(lambda: penstock.connect(where))
    with process(SERVE, str(where)):
        user = milliseconds(lambda: penstock.connect(where))
    yield Figure("open a folder", detail={"ms alone": alone, "ms as owner": owner, "ms as user": user})


if __name__ == "__main__":
    run_parts("server", (opening, latency, throughput, tails))
