"""How fast streams are, next to Kafka, RabbitMQ and the bare disk in the same run; and what grows with what.

Run it on an otherwise idle machine: ``python -m bench.streams [--part PART]... [FOLDER]``; the folder is made, filled
and removed. The peers are what :mod:`bench._peers` says; one that is missing is left out, and said to be.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from bench._many_streams import many_streams
from bench._measure import Figure, compare, median_us, middle, rate, run_parts
from bench._peers import PeerMissing, kafka_documented_rate, kafka_write_rate, rabbitmq
from penstock.cpo import open_cpo
from penstock.embedded import open_store
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.ports import OsDisk
from penstock.stream import Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from _typeshed import FileDescriptorLike

    from bench._peers import RabbitMQ
    from penstock.model import EventPointer

_numbers = count()
EVENT_COUNTS = {100: 300_000, 10 << 10: 20_000}
ROUNDS = 5
OPEN_S_MAX = 0.15


@contextmanager
def fresh_stream(store: Engine) -> Iterator[str]:
    """Make a stream and, in the end, free all it holds."""
    name = f"bench/stream-{next(_numbers)}"
    store.create_stream(name)
    yield name
    store.seal_stream(name)
    store.delete_stream(name)


def event_writes(store: Engine, event: bytes, times: int) -> float:
    """Return events/s of ``write_event``, from the first to the last one's acknowledgement."""
    with fresh_stream(store) as name, store.writer(name) as writer:

        def work() -> int:
            write = writer.write_event
            for _ in range(times):
                write(event, "key")
            writer.flush()
            return times

        return rate(work)


def batch_writes(store: Engine, batch: pa.Array, times: int) -> float:
    """Return events/s of ``write_batch`` into a new stream, every batch durable before the next."""
    with fresh_stream(store) as name:
        return batches_into(store, name, batch, times)


def batches_into_grown(store: Engine, name: str, batch: pa.Array, times: int) -> float:
    """Return the same for a stream whose plogs have grown, which is most of the time of most streams."""
    found = batches_into(store, name, batch, times)
    store.truncate_stream(name, store.tail(name))
    return found


def batches_into(store: Engine, name: str, batch: pa.Array, times: int) -> float:
    """Return events/s of ``write_batch``, every batch durable before the next."""
    with store.writer(name) as writer:

        def work() -> int:
            for _ in range(times):
                writer.write_batch(batch).result()
            return times * len(batch)

        return rate(work)


def raw_disk(folder: Path, size: int, total: int) -> float:
    """Return bytes/s of pwrite and one fdatasync every ``size`` bytes, in a file with its budget allocated."""
    path, block = folder / f"raw-{next(_numbers)}", os.urandom(1 << 20)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(fd, 0, total)
        os.fsync(fd)

        def work() -> int:
            for start in range(0, total, len(block)):
                os.pwrite(fd, block, start)
                if (start + len(block)) % size == 0:
                    os.fdatasync(fd)
            return total

        return rate(work)
    finally:
        os.close(fd)
        path.unlink()


def against(name: str, ours: Callable[[], float], peer: Callable[[], float], floor: float | None) -> Figure:
    """Compare with a peer, or say that it is missing."""
    try:
        ratio, mine, theirs, spread = compare(ours, peer, rounds=ROUNDS)
    except PeerMissing as missing:
        return Figure(f"{name}: {missing}")
    return Figure(name, ratio, floor, {"events/s": mine, "peer": theirs}, spread)


def writes(folder: Path) -> Iterator[Figure]:
    """Compare writing."""
    with open_store(folder / "writes") as store, ExitStack() as stack:
        server = running_rabbitmq(stack, folder)
        for size, times in EVENT_COUNTS.items():
            event = os.urandom(size)
            label = f"{size} B" if size < 1024 else f"{size >> 10} KiB"
            singly = partial(event_writes, store, event, times)
            kafka = partial(kafka_documented_rate, event, times)
            yield against(f"write_event, {label}, against Kafka, a report for each event", singly, kafka, 1.5)
            yield against("  against Kafka, tuned", singly, partial(kafka_write_rate, event, times), 1.2)
            if server is not None:
                slow, fast = (partial(server.write_rate, event, times // 4, tuned=tuned) for tuned in (False, True))
                yield against("  against RabbitMQ, event by event", singly, slow, 6.0)
                yield against("  against RabbitMQ, tuned", singly, fast, None)
            batch = pa.array([event] * min(times, 200_000), pa.binary())
            many = partial(batch_writes, store, batch, 3)
            yield against(f"write_batch, {label}, against Kafka, a report for each event", many, kafka, 10.0)
            yield against_disk("  batches into a new stream, to the raw disk, synced every 16 MiB", many, size, folder)
            with fresh_stream(store) as name:
                grown = partial(batches_into_grown, store, name, batch, 3)
                yield against_disk("  batches into a grown stream, to the raw disk", grown, size, folder)


def against_disk(name: str, ours: Callable[[], float], size: int, folder: Path) -> Figure:
    """Compare batches of events of one size with the raw disk, byte by byte; the first round grows the plogs."""
    found = compare(lambda: ours() * (size + 4), lambda: raw_disk(folder, 16 << 20, 64 << 20), rounds=ROUNDS)
    detail = {"MB/s": found.ours / 1e6, "raw": found.theirs / 1e6}
    return Figure(name, found.ratio, 0.85, detail, found.spread)


def running_rabbitmq(stack: ExitStack, folder: Path) -> RabbitMQ | None:
    """Start RabbitMQ for as long as the stack lives; None, and a line, if it is missing."""
    try:
        return stack.enter_context(rabbitmq(folder))
    except PeerMissing as missing:
        print(missing, file=sys.stderr)
        return None


def latency(folder: Path) -> Iterator[Figure]:
    """Compare one durable event with one bare pwrite + fdatasync, on this disk and on one that syncs more slowly."""
    yield from one_event(folder, times=300)
    with slower_syncs(0.001):
        yield from one_event(folder, times=50, where=", sync 1 ms slower")


def one_event(folder: Path, *, times: int, where: str = "") -> Iterator[Figure]:
    """Compare one durable event with one bare pwrite + fdatasync: in the middle, and of ten the slowest."""
    event, path = os.urandom(100), folder / "bare"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(4 << 20), 0)
    os.fsync(fd)
    places = iter(range(0, 4 << 20, len(event)))
    with open_store(folder / "latency") as store, fresh_stream(store) as name, store.writer(name) as writer:

        def bare() -> None:
            os.pwrite(fd, event, next(places))
            os.fdatasync(fd)

        def ours() -> None:
            writer.write_event(event, "key").result()

        _, *pairs = [(tenths_us(bare, times), tenths_us(ours, times)) for _ in range(15)]  # the first one warms up
    os.close(fd)
    for tenth, limit in ((5, 1.3), (9, 1.5)):
        ratio, spread = middle([theirs[tenth - 1] / mine[tenth - 1] for theirs, mine in pairs])
        mine, theirs = (statistics.median(pair[side][tenth - 1] for pair in pairs) for side in (1, 0))
        name = f"one durable event, p{tenth}0: bare pwrite + fdatasync against it{where}"
        yield Figure(name, ratio, 1 / limit, {"us": mine, "bare": theirs}, spread)


def tenths_us(work: Callable[[], object], times: int) -> list[float]:
    """Return the times, in microseconds, that one to nine of ten calls take at most."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append((time.perf_counter() - start) * 1e6)
    return statistics.quantiles(found, n=10)


@contextmanager
def slower_syncs(seconds: float) -> Iterator[None]:
    """Let every fdatasync of this process take longer."""
    before = os.fdatasync

    def slower(fd: FileDescriptorLike) -> None:
        time.sleep(seconds)
        before(fd)

    os.fdatasync = slower
    try:
        yield
    finally:
        os.fdatasync = before


def reads(folder: Path) -> Iterator[Figure]:
    """Compare reading."""
    with open_store(folder / "reads") as store, ExitStack() as stack:
        server = running_rabbitmq(stack, folder)
        for size, times in EVENT_COUNTS.items():
            event = os.urandom(size)
            label = f"{size} B" if size < 1024 else f"{size >> 10} KiB"
            name = stack.enter_context(fresh_stream(store))
            with store.writer(name) as writer:
                writer.write_batch([event] * times)
            singly, batches = partial(read_singly, store, name, times), partial(read_batches, store, name, times)
            if server is None:
                yield Figure(f"read_next_event, {label}", detail={"events/s": singly()})
                yield Figure(f"read_batch, {label}", detail={"events/s": batches()})
                continue
            for how, tuned in (("AMQP messages", False), ("plain bytes", True)):
                peer = partial(server.read_rate, event, times // 4, tuned=tuned)
                yield against(
                    f"read_next_event, {label}, against RabbitMQ, {how}", singly, peer, None if tuned else 3.0
                )
                yield against(f"read_batch, {label}, against RabbitMQ, {how}", batches, peer, None if tuned else 30.0)


def read_singly(store: Engine, name: str, times: int) -> float:
    """Return events/s of ``read_next_event``."""
    group = store.create_reader_group(f"group-{next(_numbers)}", [name])
    with group.reader("reader") as reader:

        def work() -> int:
            read = reader.read_next_event
            for _ in range(times):
                assert read(1.0) is not None
            return times

        done = rate(work)
    group.delete()
    return done


def read_batches(store: Engine, name: str, times: int) -> float:
    """Return events/s of ``read_batch``; the bytes of every event are summed up, so that all are looked at."""
    group = store.create_reader_group(f"group-{next(_numbers)}", [name])
    with group.reader("reader") as reader:

        def work() -> int:
            found = 0
            while found < times:
                batch = reader.read_batch(timeout=1.0)
                assert batch is not None
                found += len(batch)
            return found

        done = rate(work)
    group.delete()
    return done


def tail_latency(folder: Path) -> Iterator[Figure]:
    """Show how long after its acknowledgement an event reaches a reader that waits for it."""
    with open_store(folder / "tail") as store, fresh_stream(store) as name, store.writer(name) as writer:
        group = store.create_reader_group("tail", [name])
        waits, ready = [], threading.Semaphore(0)
        arrived: list[float] = []

        def follow() -> None:
            with group.reader("reader") as reader:
                for _ in range(500):
                    ready.release()
                    assert reader.read_next_event(30.0) is not None
                    arrived.append(time.perf_counter())

        thread = threading.Thread(target=follow)
        thread.start()
        for number in range(500):
            ready.acquire()
            time.sleep(0.002)  # the reader is idle by now
            writer.write_event(b"event", "key").result()
            acked = time.perf_counter()
            while len(arrived) <= number:
                time.sleep(0.0002)
            waits.append(max(0.0, arrived[number] - acked))
        thread.join()
        group.delete()
    yield Figure("an idle reader gets an event after its ack, p50", detail={"ms": statistics.median(waits) * 1e3})


def curves(folder: Path) -> Iterator[Figure]:
    """Show that what a user does with a stream costs the same however many plogs it has."""
    costs = {plogs: stream_costs(folder / f"plogs-{plogs}", plogs) for plogs in (100, 10_000, 100_000)}
    opened = {plogs: cost.pop("open the store") for plogs, cost in costs.items()}
    for what in costs[100]:
        few, many = costs[100][what], costs[100_000][what]
        detail = {f"us, {plogs:,} plogs": cost[what] for plogs, cost in costs.items()}
        yield Figure(f"{what}: 100 plogs against 100,000", few / many, 0.5, detail)
    detail = {f"us, {plogs:,} plogs": cost for plogs, cost in opened.items()}
    yield Figure(
        f"{OPEN_S_MAX} s, to opening a store of 100,000 plogs", OPEN_S_MAX * 1e6 / opened[100_000], 1.0, detail
    )


def stream_costs(folder: Path, plogs: int) -> dict[str, float]:
    """Return what it takes, in microseconds, in a stream of so many plogs."""
    sizes = PlogSizes(first=128, largest=128)
    with open_store(folder, sizes=sizes) as store:
        store.create_stream("bench/long")
        pointers = fill(store, plogs)
    opened = opening_us(folder, sizes)
    with open_store(folder, sizes=sizes) as store:
        group = store.create_reader_group("group", ["bench/long"], start=store.tail("bench/long"))
        costs = {
            "seek by pointer, as a store just opened finds it": median_us(seek_with(store, pointers), 100),
            "open a writer": median_us(lambda: store.writer("bench/long").close(), 50),
            "open a reader": median_us(lambda: group.reader("reader").close(), 50),
            "write at the tail": median_us(append_with(store), 50),
        }
        median_us(seek_with(store, pointers), 100)  # which opens their plogs
        costs["seek by pointer, its plog open"] = median_us(seek_with(store, pointers), 100)
        with group.reader("poll") as reader:
            while reader.read_next_event(0.0) is not None:
                pass
            costs["poll at the tail"] = median_us(lambda: reader.read_next_event(0.0), 50)
    with store_with_few_files(folder, sizes) as store:
        costs["seek by pointer, its plog not open"] = median_us(seek_with(store, pointers * 2), 200)
    return costs | {"open the store": opened}


def opening_us(folder: Path, sizes: PlogSizes) -> float:
    """Return the median of the times until a store is open; closing it waits for what maintenance has begun."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        store = open_store(folder, sizes=sizes)
        times.append(time.perf_counter() - start)
        store.close()
    return statistics.median(times) * 1e6


@contextmanager
def store_with_few_files(folder: Path, sizes: PlogSizes) -> Iterator[Engine]:
    """Open a store that keeps so few files open that hardly any seek finds one."""
    with ExitStack() as resources:
        plogs = resources.enter_context(FilePlogs(OsDisk(folder / "plogs"), open_files_max=4))
        cpo = resources.enter_context(open_cpo(f"sqlite:{folder / 'cpo.db'}"))
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, "main", sizes=sizes))
        with Engine(manager, resources=resources) as store:
            yield store


def fill(store: Engine, plogs: int) -> list[EventPointer]:
    """Write one event a plog; return some of the pointers."""
    found = []
    with store.writer("bench/long") as writer:
        for number in range(plogs):
            pointer = writer.write_event(b"event of a plog of its own, it fills more than a half", "key").result()
            if number % (plogs // 100) == 0 and pointer is not None:
                found.append(pointer)
    return found


def append_with(store: Engine) -> Callable[[], object]:
    """Return a function that appends one event durably."""
    writer = store.writer("bench/long")
    return lambda: writer.write_event(b"event", "key").result()


def seek_with(store: Engine, pointers: list[EventPointer]) -> Callable[[], object]:
    """Return a function that fetches one event after another, from all over the stream."""
    places = iter(pointers)
    return lambda: store.fetch_event(next(places))


def idle(folder: Path) -> Iterator[Figure]:
    """Show what an open store takes of a core while nothing happens: with writers, readers and maintenance."""
    with open_store(folder / "idle") as store, ExitStack() as opened:
        names = [f"idle/stream-{number}" for number in range(10)]
        for name in names:
            store.create_stream(name, 4)
            writer = opened.enter_context(store.writer(name, "writer"))
            writer.write_event(b"event", "key")
            writer.note_time(1)
            writer.flush()
        group, is_over = store.create_reader_group("idle", names), threading.Event()

        def follow(number: int) -> None:
            with group.reader(f"reader-{number}") as reader:
                while not is_over.is_set():
                    reader.read_next_event(1.0)

        threads = [threading.Thread(target=follow, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        used, start = time.process_time(), time.perf_counter()
        time.sleep(10)
        share = (time.process_time() - used) / (time.perf_counter() - start)
        is_over.set()
        for thread in threads:
            thread.join()
    detail = {"percent": 100 * share}
    yield Figure("0.5 % of a core against an idle store with 10 writers and 4 readers", 0.005 / share, 1.0, detail)


if __name__ == "__main__":
    run_parts("streams", (writes, latency, reads, tail_latency, curves, many_streams, idle))
