"""What grows, and how: each cost at n against the same cost at 10 n, in one run; 1 is no growth, 0.1 is growth with n.

Run it on an otherwise idle machine: ``python -m bench.growth [FOLDER]``; the folder is made, filled and removed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench._measure import Figure, compare, report
from penstock.embedded import open_store
from penstock.log import PlogSizes
from penstock.model import BySize, StreamConfig
from penstock.plog._files import OPEN_FILES_MAX
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.stream import Engine

STREAM = "bench/stream"
GROWTH_MAX = 1.5  # a cost that should not grow may be so many times larger at 10 n; times are noisy


def curve(what: str, unit: str, few: Callable[[], float], many: Callable[[], float], count: int) -> Figure:
    """Return how a cost at some number compares with that at ten times the number: medians of rounds in turns."""
    ratio, at_few, at_many, spread = compare(few, many, rounds=9)
    detail = {f"{unit} at {count:,}": at_few, f"at {10 * count:,}": at_many}
    return Figure(what, ratio, 1 / GROWTH_MAX, detail, spread)


def milliseconds(work: Callable[[], object]) -> float:
    """Return how long the work takes."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def allocated(folder: Path) -> int:
    """Return how many bytes the plogs of a store take of the disk."""
    return sum(file.stat().st_blocks * 512 for file in (folder / "plogs").glob("*.plog"))


def scale(store: Engine) -> None:
    """Let the one segment of the stream be followed by another."""
    [segment] = store.stream(STREAM).segments
    store.scale_stream(STREAM, [segment.segment_id], [(0.0, 1.0)])


def scales(folder: Path) -> Iterator[Figure]:
    """Measure a scale, and the first write after reopening, behind so many segments with an event each."""
    count = 100
    places = {number: folder / f"scales-{number}" for number in (count, 10 * count)}
    with ExitStack() as opened:
        stores = {number: opened.enter_context(open_store(place)) for number, place in places.items()}
        for number, store in stores.items():
            store.create_stream(STREAM)
            with store.writer(STREAM, "w") as writer:
                for _ in range(number):
                    writer.write_event(b"event").result()
                    scale(store)
        few, many = (partial(milliseconds, partial(scale, store)) for store in stores.values())
        yield curve("a scale, behind so many", "ms", few, many, count)
    few, many = (partial(first_write, place) for place in places.values())
    yield curve("the first write after reopening, behind so many segments", "ms", few, many, count)


def first_write(place: Path) -> float:
    """Return how long opening a writer and writing an event takes in a store that was just opened."""
    with open_store(place) as store:

        def write() -> None:
            with store.writer(STREAM, "w") as writer:
                writer.write_event(b"event").result()

        return milliseconds(write)


def sealed_segments(folder: Path) -> Iterator[Figure]:
    """Measure what a store with many ended segments takes of the disk."""
    with open_store(folder / "sealed") as store:
        store.create_stream(STREAM)
        event = os.urandom(1 << 20)
        for _ in range(10):
            with store.writer(STREAM) as writer:
                for _ in range(10):
                    writer.write_event(event)
            scale(store)
        data = store.stream(STREAM).size_bytes
    taken = allocated(folder / "sealed")
    yield Figure("bytes of data against bytes of the disk, ten ended segments", data / taken, 0.8, {"MiB": taken >> 20})


def prepared(folder: Path) -> Iterator[Figure]:
    """Measure how many files prepared transactions leave."""
    few, many = (files_of_prepared(folder / f"prepared-{count}", count) for count in (50, 500))
    detail = {"files at 50": few, "at 500": many}
    yield Figure("files, behind so many prepared transactions", few / many, 0.3, detail)


def files_of_prepared(place: Path, count: int) -> int:
    """Return how many plogs a store has behind so many prepared transactions of three segments each."""
    with open_store(place) as store:
        store.create_stream(STREAM, 3)
        for _ in range(count):
            transaction = store.transactional_writer(STREAM).begin()
            transaction.write_batch([b"event"] * 3, keys=["a", "b", "c"])
            transaction.prepare()
            transaction.commit()
        store.maintain()
    return len(list((place / "plogs").glob("*.plog")))


def streams_with_time(folder: Path) -> Iterator[Figure]:
    """Measure a maintenance run over streams whose writers have all noted time, by stream."""
    count = 50
    with ExitStack() as opened:
        few, many = (opened.enter_context(noting(folder / f"time-{number}", number)) for number in (count, 10 * count))
        yield curve("a maintenance run over streams that note time, a stream", "ms", few, many, count)


@contextmanager
def noting(place: Path, count: int) -> Iterator[Callable[[], float]]:
    """Open streams with a writer each; give what lets all note time, and tells what a run then costs for each."""
    clock = ManualClock()
    with open_store(place, clock=clock, maintenance_interval_s=3600) as store:
        names = [f"bench/s{number}" for number in range(count)]
        for name in names:
            store.create_stream(name)
        writers = [store.writer(name, "w") for name in names]

        def measure() -> float:
            clock.advance(3600)
            for writer in writers:
                writer.write_event(b"event")
                writer.note_time(int(clock.now() * 1000))
                writer.flush()
            return milliseconds(store.maintain) / count

        measure()
        measure()
        yield measure


def marks_on_record(folder: Path) -> Iterator[Figure]:
    """Measure how many bytes of catalog a maintenance run writes for many writers on many segments."""
    few, many = (catalog_bytes(folder / f"marks-{count}", count) for count in (20, 200))
    detail = {"bytes at 20": few, "at 200": many}
    yield Figure("bytes of catalog a run, so many writers on as many segments", few / many, None, detail)


def catalog_bytes(place: Path, count: int) -> float:
    """Return how many bytes a run puts into the catalog if so many writers have noted time on as many segments."""
    clock, found = ManualClock(), []
    with open_store(place, clock=clock, maintenance_interval_s=3600) as store:
        store.create_stream(STREAM, count)
        writers, catalog = (
            [store.writer(STREAM, f"w{number}") for number in range(count)],
            store._manager.log("catalog"),
        )
        for _ in range(3):
            clock.advance(3600)
            for writer in writers:
                writer.write_batch([b"event"] * 50, keys=[str(number) for number in range(50)])
                writer.note_time(int(clock.now() * 1000))
                writer.flush()
            before = catalog.length
            store.maintain()
            found.append(catalog.length - before)
    return statistics.median(found)


def small_blocks(folder: Path) -> Iterator[Figure]:
    """Measure reading blocks of one event each in batches, against blocks of a hundred."""
    with ExitStack() as opened:
        ones = opened.enter_context(blocks(folder / "blocks-1", count=5_000, events=1))
        hundreds = opened.enter_context(blocks(folder / "blocks-100", count=50, events=100))
        ratio, many, one, spread = compare(hundreds, ones, rounds=5)
    detail = {"us": one, "us of 100": many}
    yield Figure("read 100 B, blocks of 100 against blocks of one", ratio, 0.02, detail, spread)


@contextmanager
def blocks(place: Path, *, count: int, events: int) -> Iterator[Callable[[], float]]:
    """Write so many blocks of so many events; give what reads them, and tells how many microseconds an event takes."""
    with open_store(place) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            for _ in range(count):
                writer.write_batch([b"x" * 100] * events).result()

        def measure() -> float:
            return milliseconds(lambda: sum(batch.num_rows for batch in store.read(STREAM))) / count / events * 1e3

        yield measure


def retention(folder: Path) -> Iterator[Figure]:
    """Measure what a stream that is kept by size takes of the disk."""
    kept, place = 1_000_000, folder / "retention"
    with open_store(place, maintenance_interval_s=3600) as store:
        store.create_stream(STREAM, config=StreamConfig(retention=BySize(kept)))
        with store.writer(STREAM) as writer:
            for _ in range(20):
                writer.write_batch([bytes(1000)] * 1000)
                writer.flush()
                store.maintain()
    taken = allocated(place)
    yield Figure("bytes to be kept against bytes of the disk, by size", kept / taken, 0.4, {"kB": taken / 1000})


def remembered_keys(folder: Path) -> Iterator[Figure]:
    """Measure the memory of a writer that meets each key once, for short, long and very long keys."""
    for size, count in ((10, 100_000), (1_000, 20_000), (10_000, 2_000)):  # each more than a writer remembers
        few, many = (memory_of_keys(folder / f"keys-{size}-{number}", size, number) for number in (count, 10 * count))
        detail = {f"MB at {count:,}": few, f"at {10 * count:,}": many}
        yield Figure(f"memory of a writer, so many keys of {size:,} B", few / many, 0.5, detail)


def memory_of_keys(place: Path, size: int, count: int) -> float:
    """Return how many megabytes Python had at most while a writer wrote under so many keys of a size."""
    with open_store(place, maintenance_interval_s=3600) as store:
        store.create_stream(STREAM, config=StreamConfig(keep_keys=False))
        tracemalloc.start()
        try:
            with store.writer(STREAM) as writer:
                for number in range(count):
                    writer.write_event(b"event", key=f"{number:0{size}}")
            return tracemalloc.get_traced_memory()[1] / 1e6
        finally:
            tracemalloc.stop()


def open_files(folder: Path) -> Iterator[Figure]:
    """Measure how many files a store has open that has written, or read, many plogs."""
    count = 2 * OPEN_FILES_MAX
    found = [files_of_plogs(folder / f"files-{number}", number) for number in (count, 10 * count)]
    for what, few, many in zip(("written", "read"), *found, strict=True):
        detail = {f"files at {count:,}": few, f"at {10 * count:,}": many}
        yield Figure(f"open files, so many plogs {what}", few / many, 0.5, detail)


def files_of_plogs(place: Path, count: int) -> tuple[int, int]:
    """Return how many files this process has open after it wrote so many plogs, and after it read them all."""
    event, small = bytes(1000), PlogSizes(first=1024, largest=1024)  # a plog an event

    def still_open() -> int:
        return len(os.listdir("/proc/self/fd"))

    with open_store(place, sizes=small, maintenance_interval_s=3600) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            for _ in range(count):
                writer.write_event(event).result()
        written = still_open()
    with open_store(place, sizes=small, maintenance_interval_s=3600) as store:
        assert sum(batch.num_rows for batch in store.read(STREAM)) == count
        return written, still_open()


def main() -> None:
    """Measure everything and print it."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="penstock-bench-", dir=Path.cwd()))
    folder.mkdir(exist_ok=True, parents=True)
    parts = (
        scales,
        sealed_segments,
        prepared,
        retention,
        streams_with_time,
        marks_on_record,
        small_blocks,
        remembered_keys,
        open_files,
    )
    try:
        report("what grows", [figure for part in parts for figure in part(folder)])
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
