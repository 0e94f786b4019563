"""How fast plogs and log streams are, next to bare system calls on the same disk in the same run.

Run it on an otherwise idle machine: ``python -m bench.plog [--part PART]... [FOLDER]``; the folder is made, filled and
removed.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING

from bench._measure import Figure, compare, rate, run_parts
from penstock.checksums import crc32c
from penstock.cpo import open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.ports import OsDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.log import LogStream
    from penstock.ports import File

ROUND_SIZE = 32 << 20
_numbers = count()


class SlowFile:
    """A file whose syncs take longer than its disk needs; all else is the disk's own."""

    def __init__(self, file: File, *, slower_ms: float) -> None:
        self._datasync, self._slower_s = file.datasync, slower_ms / 1e3
        self.pwritev, self.view, self.size = file.pwritev, file.view, file.size
        self.reserve, self.truncate, self.close = file.reserve, file.truncate, file.close

    def datasync(self) -> None:
        """Wait, then sync."""
        time.sleep(self._slower_s)
        self._datasync()


class SlowDisk(OsDisk):
    """A folder of this machine's disk, with slower syncs."""

    def __init__(self, folder: Path, *, slower_ms: float) -> None:
        super().__init__(folder)
        self._slower_ms = slower_ms

    def create(self, name: str) -> File:  # type: ignore[override]
        """Make a new file."""
        return SlowFile(super().create(name), slower_ms=self._slower_ms)

    def open(self, name: str) -> File:  # type: ignore[override]
        """Open a file."""
        return SlowFile(super().open(name), slower_ms=self._slower_ms)


@contextmanager
def partition(folder: Path, sizes: PlogSizes | None = None, *, slower_ms: float = 0) -> Iterator[MetadataManager]:
    """Open the partition in ``folder``."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        disk = SlowDisk(folder / "plogs", slower_ms=slower_ms) if slower_ms else OsDisk(folder / "plogs")
        plogs = stack.enter_context(FilePlogs(disk))
        cpo = stack.enter_context(open_cpo(f"sqlite:{folder / 'cpo.db'}"))
        yield stack.enter_context(MetadataManager.open(plogs, cpo, "bench", sizes=sizes))


@contextmanager
def bare_file(folder: Path, size: int) -> Iterator[int]:
    """Make a file with its budget allocated, as plogs have it, and remove it."""
    path = folder / f"bare-{next(_numbers)}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(fd, 0, size)
        os.fsync(fd)
        yield fd
    finally:
        os.close(fd)
        path.unlink()


def bare_appends(folder: Path, block: bytes, times: int) -> float:
    """Return the rate of pwrite + fdatasync, one after another, in one file."""
    with bare_file(folder, len(block) * times) as fd:

        def work() -> int:
            for number in range(times):
                os.pwrite(fd, block, number * len(block))
                os.fdatasync(fd)
            return times

        return rate(work)


def log_appends(manager: MetadataManager, block: bytes, times: int, *, threads: int = 1) -> float:
    """Return the rate of durable appends, each thread to a log of its own."""
    logs = [manager.log(f"log-{next(_numbers)}") for _ in range(threads)]
    for log in logs:
        log.append(b"begins the log, which is not what is measured")

    def work() -> int:
        workers = [threading.Thread(target=append_many, args=(log, block, times)) for log in logs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return threads * times

    done = rate(work)
    for log in logs:
        manager.delete_log(log.name)
    return done


def append_many(log: LogStream, block: bytes, times: int) -> None:
    """Append the block again and again."""
    for _ in range(times):
        log.append(block)


def durable_appends(folder: Path) -> Iterator[Figure]:
    """Compare the durable append of blocks with the bare loop."""
    for size, floor in ((4 << 10, None), (64 << 10, 0.85), (1 << 20, 0.85)):
        yield durable_append(folder, size, floor)


def durable_append(folder: Path, size: int, floor: float | None) -> Figure:
    """Compare for one size of block."""
    block, times = os.urandom(size), min(2000, ROUND_SIZE // size)
    with partition(folder / f"append-{size}", PlogSizes(first=16 << 20)) as manager:
        ratio, ours, bare, spread = compare(
            lambda: log_appends(manager, block, times), lambda: bare_appends(folder, block, times), rounds=7
        )
    detail = {"appends/s": ours, "bare": bare, "MB/s": ours * size / 1e6}
    return Figure(f"durable append, {size >> 10} KiB, against pwrite + fdatasync", ratio, floor, detail, spread)


def parallel_appends(folder: Path) -> Iterator[Figure]:
    """Compare 8 threads on 8 logs with one, on this disk and where a sync takes longer, and with 8 bare ones."""
    yield from eight_against_one(folder, 1000, floor=4.0)
    yield from eight_against_one(folder, 300, slower_ms=1, floor=4.0)
    yield from eight_against_one(folder, 100, slower_ms=4)
    block = os.urandom(4 << 10)
    with partition(folder / "threads-0", PlogSizes(first=16 << 20)) as manager:
        ratio, ours, bare, spread = compare(
            lambda: log_appends(manager, block, 500, threads=8), lambda: bare_parallel(folder, block, 500, 8), rounds=7
        )
    detail = {"appends/s": ours, "bare": bare}
    yield Figure("8 threads on 8 logs, 4 KiB, against 8 bare ones", ratio, None, detail, spread)


def eight_against_one(
    folder: Path, times: int, *, slower_ms: float = 0, floor: float | None = None
) -> Iterator[Figure]:
    """Compare 8 threads with one, ours and bare ones."""
    block, where = os.urandom(4 << 10), folder / f"threads-{slower_ms}"
    with partition(where, PlogSizes(first=16 << 20), slower_ms=slower_ms) as manager:
        ratio, eight, one, spread = compare(
            lambda: log_appends(manager, block, times // 2, threads=8),
            lambda: log_appends(manager, block, times),
            rounds=7,
        )
    name = "8 threads on 8 logs, 4 KiB, against one thread" + (f", sync {slower_ms} ms slower" if slower_ms else "")
    yield Figure(name, ratio, floor, {"appends/s": eight, "one": one}, spread)
    ratio, eight, one, spread = compare(
        lambda: bare_parallel(folder, block, times // 2, 8, slower_ms=slower_ms),
        lambda: bare_parallel(folder, block, times, 1, slower_ms=slower_ms),
        rounds=7,
    )
    detail = {"appends/s": eight, "one": one}
    yield Figure("  the same with bare pwrite + fdatasync, 8 files", ratio, None, detail, spread)


def bare_parallel(folder: Path, block: bytes, times: int, threads: int, *, slower_ms: float = 0) -> float:
    """Return the rate of bare loops in as many threads, each on a file of its own."""
    with ExitStack() as stack:
        files = [stack.enter_context(bare_file(folder, len(block) * times)) for _ in range(threads)]

        def loop(fd: int) -> None:
            for number in range(times):
                os.pwrite(fd, block, number * len(block))
                if slower_ms:
                    time.sleep(slower_ms / 1e3)
                os.fdatasync(fd)

        def work() -> int:
            workers = [threading.Thread(target=loop, args=(fd,)) for fd in files]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            return threads * times

        return rate(work)


def sequential_reads(folder: Path) -> Iterator[Figure]:
    """Compare reading a log with bare pread of as many bytes; both look at every byte they get."""
    size, block, where = 256 << 20, os.urandom(1 << 20), folder / "read"
    with bare_file(folder, size) as fd:

        def read_file() -> int:
            return sum(look_at(os.pread(fd, len(block), offset)) for offset in range(0, size, len(block)))

        def read_log(log: LogStream) -> int:
            return sum(look_at(view) for view in log.read(log.plogs()[0][0], 0, size))

        def read_fresh() -> float:
            with partition(where) as manager:
                log = manager.log("log")
                return rate(lambda: read_log(log))

        with partition(where, PlogSizes(first=16 << 20)) as manager:
            log = manager.log("log")
            for number in range(size // len(block)):
                log.append(block)
                os.pwrite(fd, block, number * len(block))
            again = compare(lambda: rate(lambda: read_log(log)), lambda: rate(read_file), rounds=7)
        first = compare(read_fresh, lambda: rate(read_file), rounds=5)
    for name, found in (
        ("sequential read, against pread", again),
        ("  the first read after opening, which checks every checksum", first),
    ):
        detail = {"GB/s": found.ours / 1e9, "bare": found.theirs / 1e9}
        yield Figure(name, found.ratio, 0.8, detail, found.spread)


def look_at(data: bytes | memoryview) -> int:
    """Touch every byte, as a reader would; other threads run meanwhile, of which a log's own check checksums."""
    crc32c(0, data)
    return len(data)


def opening(folder: Path) -> Iterator[Figure]:
    """Show what opening costs as the number of logs, and of plogs in a log, grows."""
    sizes = PlogSizes(first=4096, largest=4096)
    for logs in (100, 1000, 10_000):
        where = with_logs(folder, logs)
        yield timed_open(f"open a store with {logs:,} logs", where, sizes, per=logs)
    for plogs in (100, 1000, 10_000):
        where = folder / f"plogs-{plogs}"
        with partition(where, PlogSizes(first=16, largest=16)) as manager:
            log = manager.log("log")
            for _ in range(plogs - 1):
                log.append(b"sixteen bytes...")
        yield timed_open(f"open a store with a log of {plogs:,} plogs", where, sizes, per=plogs)


def with_logs(folder: Path, logs: int) -> Path:
    """Make a store with so many logs, if it is not there."""
    where = folder / f"logs-{logs}"
    if not where.exists():
        with partition(where, PlogSizes(first=4096, largest=4096)) as manager:
            for number in range(logs):
                manager.log(f"log-{number}")
    return where


def timed_open(name: str, where: Path, sizes: PlogSizes, *, per: int) -> Figure:
    """Open a store three times; return the best."""
    best = min(_timed(lambda: open_and_read_a_byte(where, sizes)) for _ in range(3))
    return Figure(name, detail={"ms": best * 1e3, "us each": best * 1e6 / per})


def open_and_read_a_byte(where: Path, sizes: PlogSizes) -> None:
    """Open a store as far as it takes to use one log."""
    with partition(where, sizes) as manager:
        assert manager.log(manager.logs()[-1]).length >= 0


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def idle_memory(folder: Path) -> Iterator[Figure]:
    """Show what an open log that nobody uses costs: as the store knows it, and once somebody has asked for it."""
    logs = 10_000
    where = with_logs(folder, logs)
    tracemalloc.start()
    with partition(where, PlogSizes(first=4096, largest=4096)) as manager:
        gc.collect()
        known = tracemalloc.get_traced_memory()[0]
        handles = [manager.log(name) for name in manager.logs()]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        detail = {"bytes known": known // logs, "bytes with a handle": held // logs, "logs": len(handles)}
    tracemalloc.stop()
    yield Figure("memory of an open idle log", detail=detail)


if __name__ == "__main__":
    run_parts("plogs and log streams", (durable_appends, parallel_appends, sequential_reads, opening, idle_memory))
