"""What a thousand streams cost; a part of :mod:`bench.streams`."""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import time
import tracemalloc
from typing import TYPE_CHECKING

from bench._measure import Figure, middle
from penstock.embedded import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.stream import Engine

__all__ = ["many_streams"]

ROUNDS = 3
LIMITS = (
    ("write", 2.0, "writing to all of them"),
    ("list", 0.2, "listing them, in a store just opened"),
)
"""What takes how many seconds at most."""


def many_streams(folder: Path) -> Iterator[Figure]:
    """Show what a thousand streams of ten segments cost, next to as many files that are only created and allocated."""
    streams, segments = 1000, 10
    rounds = []
    for number in range(ROUNDS):
        bare = bare_files(folder / f"files-{number}", streams, segments)
        rounds.append({"bare": bare, **many_costs(folder / f"many-{number}", streams, segments)})
        shutil.rmtree(folder / f"files-{number}")
        shutil.rmtree(folder / f"many-{number}")
    seconds = {name: statistics.median(costs[name] for costs in rounds) for name in rounds[0]}
    what = f"{streams:,} streams of {segments} segments"
    ratio, spread = middle([costs["bare"] / costs["write"] for costs in rounds])
    detail = {f"s, {name}": seconds[name] for name in ("write", "bare", "create", "open")}
    yield Figure(f"{what}: as many bare files, two syncs a stream, to writing to all", ratio, 0.3, detail, spread)
    for name, limit, act in LIMITS:
        ratio, spread = middle([limit / costs[name] for costs in rounds])
        detail = {"s": seconds[name]} | ({"again": seconds["list again"]} if name == "list" else {})
        yield Figure(f"  {limit} s, to {act}", ratio, 1.0, detail, spread)
    tracemalloc.start()
    with open_store(folder / "some") as store:
        create_many(store, streams // 10, segments)
        write_to_all(store, streams // 10)
        gc.collect()
        memory = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    yield Figure(f"  memory of a tenth of them, in use: {memory:.1f} MB")


def many_costs(where: Path, streams: int, segments: int) -> dict[str, float]:
    """Return how many seconds it takes to create so many streams, to write to all, to open them and to list them."""
    with open_store(where) as store:
        found = {
            "create": seconds_of(lambda: create_many(store, streams, segments)),
            "write": seconds_of(lambda: write_to_all(store, streams)),
        }
    start = time.perf_counter()
    with open_store(where) as store:
        found["open"] = time.perf_counter() - start
        found["list"] = seconds_of(store.streams)
        found["list again"] = seconds_of(store.streams)
        assert len(store.streams()) == streams
    return found


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def create_many(store: Engine, streams: int, segments: int) -> None:
    """Create streams of so many segments each."""
    for number in range(streams):
        store.create_stream(f"many/stream-{number}", segments=segments)


def write_to_all(store: Engine, streams: int) -> None:
    """Write to all segments of each stream."""
    keys = [f"key {key}" for key in range(100)]
    for number in range(streams):
        with store.writer(f"many/stream-{number}") as writer:
            writer.write_batch([b"event"] * len(keys), keys)


def bare_files(folder: Path, streams: int, segments: int) -> float:
    """Return how long it takes to create and allocate a file for each segment, with two syncs for each stream."""
    folder.mkdir()
    journal = os.open(folder / "journal", os.O_RDWR | os.O_CREAT)
    os.pwrite(journal, bytes(1 << 20), 0)
    os.fsync(journal)
    start = time.perf_counter()
    for number in range(streams):
        for segment in range(segments):
            fd = os.open(folder / f"{number}-{segment}", os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.posix_fallocate(fd, 0, 68 << 10)
            os.pwrite(fd, bytes(532), 0)
            os.close(fd)
        for sync in range(2):
            os.pwrite(journal, bytes(1000), 1000 * sync)
            os.fdatasync(journal)
    took = time.perf_counter() - start
    os.close(journal)
    return took
