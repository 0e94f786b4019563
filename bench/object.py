"""How fast plogs in an object store are, next to obstore alone on the same store in the same run, and what they cost.

``python -m bench.object [ADDRESS]``: at an address such as ``s3://bucket/prefix``, with credentials in the environment,
or with a server that it starts (SeaweedFS, in memory), where latency is a fraction of a millisecond and all share the
cores of this machine.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import obstore
from obstore.store import from_url

import penstock
from bench._measure import Figure, compare, rate, report
from penstock.plog import FilePlogs
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.plog.objects._cache import ObjectCache
from penstock.ports import Bucket, OsDisk
from tests.s3 import BUCKET, s3_server
from tests.server.cluster import Servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog import PlogId, Plogs

MIB: Final = 1 << 20
GIB: Final = 1 << 30
ROUNDS: Final = 5
PLOGS: Final = 8
BLOCK: Final = os.urandom(256 << 10)
ROUND_SIZE: Final = 64 * MIB
READ_SIZE: Final = 1 * MIB
RAW_READ_SIZE: Final = 4 * MIB
RAW_THREADS: Final = 4
EVENTS: Final = 100
TURN: Final = 10
MANY: Final = 10_000
EVENT_SIZE: Final = 4096
STREAM: Final = "plant/readings"


def new_address(base: str) -> str:
    """Return a place that no other measurement uses."""
    return f"{base}/{uuid4().hex}"


@contextmanager
def opened(
    address: str, *, folder: Path | None = None, settings: ObjectSettings | None = None
) -> Iterator[tuple[ObjectPlogs, Bucket]]:
    """Open plogs and their bucket."""
    bucket = Bucket(address)
    cache = ObjectCache(bucket, folder=folder, memory_max=64 * MIB, disk_max=GIB)
    with ObjectPlogs(bucket, settings=settings, cache=cache) as plogs:
        yield plogs, bucket


def write(plogs: Plogs, ids: list[PlogId], size: int) -> int:
    """Append blocks to several plogs in turn, and wait until all are durable; return the number of bytes."""
    offsets = dict.fromkeys(ids, 0)
    pending = []
    for number in range(size // len(BLOCK)):
        plog = ids[number % len(ids)]
        pending.append(plogs.submit(plog, offsets[plog], BLOCK))
        offsets[plog] += len(BLOCK)
    for append in pending:
        append.result()
    return size


def read(plogs: Plogs, ids: list[PlogId]) -> int:
    """Read plogs from their beginning to their end; return the number of bytes."""
    done = 0
    for plog in ids:
        length = plogs.info(plog).length
        for offset in range(0, length, READ_SIZE):
            done += sum(map(len, plogs.views(plog, offset, min(READ_SIZE, length - offset))))
    return done


def batched_writes(base: str) -> Iterator[Figure]:
    """Compare appends to several plogs with a multipart upload of as many bytes."""
    store, data = from_url(base), os.urandom(ROUND_SIZE)
    with opened(new_address(base)) as (plogs, bucket):
        before, written = bucket.counts.read()["put"].requests, 0

        def ours() -> float:
            nonlocal written
            ids = [plogs.create() for _ in range(PLOGS)]
            written += ROUND_SIZE
            return rate(lambda: write(plogs, ids, ROUND_SIZE)) / 1e6

        def raw() -> float:
            return rate(lambda: len(data) * bool(obstore.put(store, f"raw/{uuid4().hex}", data))) / 1e6

        ratio, mine, bare, spread = compare(ours, raw, rounds=ROUNDS)
        puts = bucket.counts.read()["put"]
    what, detail = "batched appends of 256 KiB, against a multipart upload", {"MB/s": mine, "raw": bare}
    yield Figure(what, ratio, 0.6, detail, spread)
    detail = {"puts/GiB": (puts.requests - before) * GIB / written, "bytes put/byte": puts.size / written}
    yield Figure("requests of writing", detail=detail)


def durable_events(base: str) -> Iterator[Figure]:
    """Compare one durable append with the group's wait and one and a half bare conditional puts, taking turns.

    A writer that appends again at once waits for the next group; one that comes to an idle store does not. The bare
    puts follow each other at once, too, so that they are as quick as they can be.
    """
    store, event, settings = from_url(base), os.urandom(100), ObjectSettings()
    times: dict[str, list[float]] = {"bare": [], "at once": [], "after a pause": []}
    with opened(new_address(base), settings=settings) as (plogs, _):
        plog, offset = plogs.create(), 0
        for _ in range(EVENTS // TURN):
            for _ in range(TURN):
                with timed(times["bare"]):
                    obstore.put(store, f"raw/{uuid4().hex}", event, mode="create", use_multipart=False)
            for kind in ("at once", "after a pause"):
                for _ in range(TURN):
                    if kind == "after a pause":
                        time.sleep(2 * settings.group_wait_s)
                    with timed(times[kind]):
                        offset = plogs.append(plog, offset, event)
    put = statistics.median(times.pop("bare"))
    for kind, ours in times.items():
        p50 = statistics.median(ours)
        detail = {"p50 ms": 1e3 * p50, "bare put ms": 1e3 * put, "group wait ms": 1e3 * settings.group_wait_s}
        name = f"one durable event {kind}, against group wait + 1.5 puts"
        yield Figure(name, (settings.group_wait_s + 1.5 * put) / p50, 1, detail)


@contextmanager
def timed(times: list[float]) -> Iterator[None]:
    """Add the seconds that the block takes."""
    began = time.perf_counter()
    yield
    times.append(time.perf_counter() - began)


def reads(base: str, folder: Path) -> Iterator[Figure]:
    """Compare reading plogs from the bucket with range reads, and from the cache with plogs in a folder."""
    address, store, size = new_address(base), from_url(base), 2 * ROUND_SIZE
    name = f"raw/{uuid4().hex}"
    obstore.put(store, name, os.urandom(size))
    with opened(address) as (plogs, _):
        ids = [plogs.create() for _ in range(PLOGS)]
        write(plogs, ids, size)
        for plog in ids:
            plogs.seal(plog, plogs.info(plog).length)
    requests = []

    def ours() -> float:
        with opened(address) as (plogs, bucket):
            before = bucket.counts.read()["get"].requests
            speed = rate(lambda: read(plogs, ids)) / 1e6
            requests.append(bucket.counts.read()["get"].requests - before)
            return speed

    def raw() -> float:
        def get(start: int) -> int:
            return len(memoryview(obstore.get_range(store, name, start=start, length=RAW_READ_SIZE)))

        with ThreadPoolExecutor(RAW_THREADS) as threads:
            return rate(lambda: sum(threads.map(get, range(0, size, RAW_READ_SIZE)))) / 1e6

    ratio, mine, bare, spread = compare(ours, raw, rounds=ROUNDS)
    yield Figure("sequential read, against range reads", ratio, 0.7, {"MB/s": mine, "raw": bare}, spread)
    yield Figure("requests of reading", detail={"gets/GiB": statistics.median(requests) * GIB / size})
    with opened(address, folder=folder / "cache") as (plogs, _):
        read(plogs, ids)
    with FilePlogs(OsDisk(folder / "plogs")) as files:
        copies = [files.create() for _ in range(PLOGS)]
        write(files, copies, size)

    def cached() -> float:
        with opened(address, folder=folder / "cache") as (plogs, bucket):
            before = bucket.counts.read()["get"].size
            speed = rate(lambda: read(plogs, ids)) / 1e6
            assert bucket.counts.read()["get"].size - before < MIB, "it was to be read from the cache"
            return speed

    def in_folder() -> float:
        with FilePlogs(OsDisk(folder / "plogs")) as files:
            return rate(lambda: read(files, copies)) / 1e6

    ratio, mine, bare, spread = compare(cached, in_folder, rounds=ROUNDS)
    detail = {"MB/s": mine, "folder": bare}
    yield Figure("read from the cache, against plogs in a folder", ratio, 0.8, detail, spread)


def direct_reads(base: str, folder: Path) -> Iterator[Figure]:
    """Compare a client that reads the bucket with one to which the server, a process of its own, sends everything.

    Either both have no copies, and the stream is larger than the memory of the server's cache, or both have all of it.
    """
    address, cpo = new_address(base), f"sqlite:{folder / 'cpo.db'}"
    with Servers(folder / "writing", 1, plogs=address, cpo=cpo) as servers:
        servers.owner()  # it serves now
        with penstock.connect(servers.address) as store:
            store.create_stream(STREAM, segments=4)
            writer = store.writer(STREAM)
            for _ in range(2 * ROUND_SIZE // MIB):
                writer.write_batch([os.urandom(EVENT_SIZE)] * (MIB // EVENT_SIZE))
            writer.flush()
    for name, settings, is_cached in (("the bucket", "?cache_folder=", False), ("a cache of the bucket", "", True)):
        with Servers(folder / f"cached-{is_cached}", 1, plogs=address + settings, cpo=cpo) as servers:

            def direct(servers: Servers = servers, *, is_cached: bool = is_cached) -> float:
                cache = folder / ("direct" if is_cached else uuid4().hex)
                return read_events(servers, f"{address}?cache_folder={cache}")

            def sent(servers: Servers = servers) -> float:
                return read_events(servers, None)

            servers.owner()  # the lease of the server before ends first
            direct(), sent()
            ratio, mine, theirs, spread = compare(direct, sent, rounds=ROUNDS)
        detail = {"MB/s": mine, "server": theirs}
        yield Figure(f"a client reads {name}, against a server that sends it", ratio, None, detail, spread)


def read_events(servers: Servers, plogs: str | None) -> float:
    """Read all events as a client, directly or from the server; return the rate, in MB/s."""
    with penstock.connect(servers.address, plogs=plogs) as store:
        before = servers.sent_bytes(0)
        speed = rate(lambda: EVENT_SIZE * sum(rows.num_rows for rows in store.read(STREAM))) / 1e6
        assert (servers.sent_bytes(0) - before < ROUND_SIZE) == (plogs is not None), "the bytes took another way"
        return speed


def opening(base: str) -> Iterator[Figure]:
    """Measure the opening of a store with many plogs: requests do not grow with their number."""
    address = new_address(base)
    with opened(address) as (plogs, _), ThreadPoolExecutor(64) as threads:
        list(threads.map(lambda _: plogs.append(plogs.create(), 0, b"x" * 100), range(MANY)))
    began = time.perf_counter()
    with opened(address) as (_, bucket):
        elapsed = time.perf_counter() - began
        counts = bucket.counts.read()
    requests = {f"{kind}s": float(count.requests) for kind, count in counts.items()}
    yield Figure(f"opening with {MANY:,} plogs", detail={"s": elapsed, **requests, "MB read": counts["get"].size / 1e6})


def measure(base: str, folder: Path) -> None:
    """Measure everything and print it."""
    parts = (batched_writes(base), durable_events(base), reads(base, folder), direct_reads(base, folder), opening(base))
    report(f"plogs in an object store, at {base}", [figure for part in parts for figure in part])


def main() -> None:
    """Measure at the address of the command line, or with a server of our own."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=Path.cwd()) as name:
        folder = Path(name)
        if len(sys.argv) > 1:
            measure(sys.argv[1].rstrip("/"), folder)
            return
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")  # where the server's data is
        with s3_server(folder / "s3") as environment:
            os.environ.update(environment)
            measure(f"s3://{BUCKET}/bench", folder)


if __name__ == "__main__":
    main()
