"""How fast a store is copied, next to reading and writing the same events in the same run.

Run it on an otherwise idle machine: ``python -m bench.copy [FOLDER]``; the folder is made, filled and removed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench._measure import Figure, compare, rate, report
from penstock.copying import copy_streams
from penstock.embedded import open_store
from penstock.model import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stream import Engine

MIB = 1 << 20
ROUNDS = 5
WATERMARKS = 3_000
_numbers = count()


def fill(store: Engine, name: str, *, size: int, total: int) -> int:
    """Write events of one size under a thousand keys; return how many bytes they have."""
    store.create_stream(name, segments=2)
    events = total // size
    batch = min(events, MIB // size)
    data = os.urandom(batch * size)
    bounds = np.arange(batch + 1, dtype=np.int32) * size
    array = pa.Array.from_buffers(pa.binary(), batch, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    keys = pa.array([f"key-{number % 1000}" for number in range(batch)])
    with store.writer(name) as writer:
        for _ in range(events // batch):
            writer.write_batch(array, keys)
    return events // batch * batch * size


def read_and_write(source: Engine, target: Engine, name: str, size: int) -> int:
    """Read all events and write them to a new stream; return how many bytes they have."""
    there = f"bench/plain-{next(_numbers)}"
    target.create_stream(there, segments=2)
    with target.writer(there) as writer:
        for batch in source.read(name):
            writer.write_batch(batch["event"], batch["key"], None)
    drop(target, there)
    return size


def copied(source: Engine, target: Engine, name: str, size: int) -> int:
    """Copy a stream and check the copy; return how many bytes its events have."""
    copy_streams(source, target, [name])
    for stream in (name, f"{name}.copy"):
        drop(target, stream)
    return size


def drop(store: Engine, name: str) -> None:
    """Free all that a stream holds."""
    store.seal_stream(name)
    store.delete_stream(name)


def throughput(source: Engine, target: Engine, size: int, total: int) -> Figure:
    """Compare the copy of a stream with reading and writing its events."""
    name = f"bench/events-{size}"
    written = fill(source, name, size=size, total=total)
    works: list[Callable[[], int]] = [partial(work, source, target, name, written) for work in (copied, read_and_write)]
    ratio, ours, theirs, spread = compare(*(partial(rate, work) for work in works), rounds=ROUNDS)
    detail = {"copy and check, MB/s": ours / 1e6, "read and write, MB/s": theirs / 1e6}
    return Figure(f"copy events of {size:,} bytes", ratio, detail=detail, spread=spread)


def watermarks(source: Engine, target: Engine) -> Figure:
    """Measure a stream with a watermark behind every event: the steps of its copy are as small as they get."""
    name = "bench/times"
    source.create_stream(name)
    with source.writer(name) as writer:
        for time in range(1, WATERMARKS + 1):
            writer.write_event(b"event").result()
            source.add_watermarks(name, [Watermark(time, time, source.tail(name))])
    steps = rate(lambda: copy_streams(source, target, [name]).streams[0].watermarks)
    return Figure("copy a stream with a watermark behind each event", detail={"watermarks a second": steps})


def main() -> None:
    """Measure, and print what was measured."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with open_store(folder / "from") as source, open_store(folder / "to") as target:
            figures = [throughput(source, target, 100, 64 * MIB), throughput(source, target, 10_000, 256 * MIB)]
            figures.append(watermarks(source, target))
        report("copies", figures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
