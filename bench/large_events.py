"""How fast large events and transactions are, next to bare system calls on the same disk in the same run.

Run it on an otherwise idle machine: ``python -m bench.large_events [--part PART]... [FOLDER]``; the folder is made,
filled and removed.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench._measure import Figure, compare, middle, rate, run_parts
from penstock.embedded import open_store
from penstock.errors import EventTooLarge
from penstock.plog import FilePlogs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model import EventPointer
    from penstock.stream import Engine

MIB = 1 << 20
LARGE, SMALL = 1 << 30, 16 << 20
_numbers = count()


@contextmanager
def fresh_stream(store: Engine, segments: int = 1) -> Iterator[str]:
    """Make a stream and, in the end, free all it holds."""
    name = f"bench/stream-{next(_numbers)}"
    store.create_stream(name, segments=segments)
    yield name
    store.seal_stream(name)
    store.delete_stream(name)


def write_event(store: Engine, name: str, size: int) -> EventPointer:
    """Write an event of this size in pieces of 1 MiB."""
    block = os.urandom(MIB)
    with store.writer(name) as writer, writer.begin_write_event("key") as out:
        for _ in range(size // MIB):
            out.write(block)
    return out.pointer


def large_write_rate(store: Engine, size: int) -> float:
    """Return bytes/s of writing an event, from its beginning until it is part of the stream."""
    with fresh_stream(store) as name:
        return rate(lambda: size * bool(write_event(store, name, size)))


def bare_write_rate(folder: Path, size: int) -> float:
    """Return bytes/s of a pwrite loop with one fdatasync at the end."""
    path, block = folder / f"bare-{next(_numbers)}", os.urandom(MIB)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:

        def work() -> int:
            for start in range(0, size, MIB):
                os.pwrite(fd, block, start)
            os.fdatasync(fd)
            return size

        return rate(work)
    finally:
        os.close(fd)
        path.unlink()


def writing(folder: Path) -> Iterator[Figure]:
    """Compare writing."""
    with open_store(folder / "writing") as store:
        ratio, ours, bare, spread = compare(
            lambda: large_write_rate(store, LARGE), lambda: bare_write_rate(folder, LARGE), rounds=5
        )
    detail = {"MB/s": ours / 1e6, "bare": bare / 1e6}
    yield Figure("write 1 GiB, against pwrite and fdatasync at the end", ratio, 0.8, detail, spread)


def reading(folder: Path) -> Iterator[Figure]:
    """Compare reading, and show the memory that writing and reading take."""
    with open_store(folder / "reading") as store, fresh_stream(store) as name:
        before = anonymous_memory()
        highest = [before]
        block = os.urandom(MIB)
        with store.writer(name) as writer, writer.begin_write_event("key") as out:
            for _ in range(LARGE // MIB):
                out.write(block)
                highest.append(anonymous_memory())
        path = folder / "bare"
        path.write_bytes(b"")
        fd = os.open(path, os.O_RDWR)
        for start in range(0, LARGE, MIB):
            os.pwrite(fd, block, start)
        buffer = bytearray(MIB)

        def read_ours() -> int:
            with store.fetch_event_as_stream(out.pointer) as event:
                found = 0
                while got := event.readinto(buffer):
                    found += got
                highest.append(anonymous_memory())
                return found

        def read_bare() -> int:
            return sum(os.preadv(fd, [buffer], start) for start in range(0, LARGE, MIB))

        ratio, ours, bare, spread = compare(lambda: rate(read_ours), lambda: rate(read_bare), rounds=5)
        os.close(fd)
        path.unlink()
    yield Figure("read 1 GiB, against pread", ratio, 0.8, {"MB/s": ours / 1e6, "bare": bare / 1e6}, spread)
    yield Figure("memory above idle, writing and reading 1 GiB", detail={"MiB at most": (max(highest) - before) / MIB})


def anonymous_memory() -> int:
    """Return the process's own memory; pages of mapped files are the page cache's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def commits(folder: Path) -> Iterator[Figure]:
    """Show that committing, and passing by, cost the same for any size."""
    with open_store(folder / "commits") as store:
        for what, measure in (("commit", commit_seconds), ("skip", skip_seconds)):
            pairs = [(measure(store, SMALL), measure(store, LARGE)) for _ in range(5)]
            ratio, spread = middle([small / large for small, large in pairs])
            detail = {
                "ms, 16 MiB": statistics.median(small for small, _ in pairs) * 1e3,
                "ms, 1 GiB": statistics.median(large for _, large in pairs) * 1e3,
            }
            yield Figure(f"{what}: 16 MiB against 1 GiB", ratio, 0.5, detail, spread)
        with counted_reads() as reads:
            skip_seconds(store, LARGE)
        yield Figure("bytes read to skip 1 GiB", detail={"bytes": sum(reads)})


def commit_seconds(store: Engine, size: int) -> float:
    """Return how long the commit takes of a transaction with one event of this size, all of which is durable."""
    block = os.urandom(MIB)
    with fresh_stream(store) as name:
        transaction = store.transactional_writer(name).begin()
        with transaction.begin_write_event("key") as out:
            for _ in range(size // MIB):
                out.write(block)
        start = time.perf_counter()
        transaction.commit()
        return time.perf_counter() - start


def skip_seconds(store: Engine, size: int) -> float:
    """Return how long a reader takes to pass by an event of this size."""
    with fresh_stream(store) as name:
        write_event(store, name, size)
        group = store.create_reader_group(f"group-{next(_numbers)}", [name])
        with group.reader("reader") as reader:
            _reads.clear()
            start = time.perf_counter()
            with suppress(EventTooLarge):
                assert reader.read_next_event(0.0) is None, "it is too large"
            taken = time.perf_counter() - start
        group.delete()
    return taken


_reads: list[int] = []


@contextmanager
def counted_reads() -> Iterator[list[int]]:
    """Count the bytes of blocks that are read; the list is emptied when a reader begins."""
    real = FilePlogs.blocks

    def blocks(self: FilePlogs, *args: object) -> object:
        found = real(self, *args)  # type: ignore[arg-type]
        _reads.append(sum(len(view) for _, view in found))
        return found

    FilePlogs.blocks = blocks  # type: ignore[assignment, method-assign]
    try:
        yield _reads
    finally:
        FilePlogs.blocks = real  # type: ignore[method-assign]


def transactions(folder: Path) -> Iterator[Figure]:
    """Compare small transactions with bare syncs."""
    with open_store(folder / "transactions") as store:
        for segments in (1, 4):
            with fresh_stream(store, segments) as name:
                ours_of = partial(transaction_rate, store, name, 500)
                ratio, ours, bare, spread = compare(ours_of, lambda: sync_rate(folder, 500), rounds=7)
            what = f"small transactions, {segments} segment{'s' * (segments > 1)}, against bare syncs"
            yield Figure(what, ratio, 0.6 / segments**0.5, {"transactions/s": ours, "syncs/s": bare}, spread)


def transaction_rate(store: Engine, name: str, times: int) -> float:
    """Return how many transactions of three events can be committed in a second."""
    writer = store.transactional_writer(name)

    def work() -> int:
        for _ in range(times):
            transaction = writer.begin()
            for key in ("a", "b", "c"):
                transaction.write_event(b"event", key)
            transaction.commit()
        return times

    return rate(work)


def sync_rate(folder: Path, times: int) -> float:
    """Return how many times in a second a small write can be synced."""
    path = folder / f"syncs-{next(_numbers)}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, bytes(MIB), 0)
        os.fsync(fd)

        def work() -> int:
            for number in range(times):
                os.pwrite(fd, b"event", number * 512)
                os.fdatasync(fd)
            return times

        return rate(work)
    finally:
        os.close(fd)
        path.unlink()


if __name__ == "__main__":
    run_parts("large events and transactions", (writing, reading, commits, transactions))
