"""What time costs: a pass over many writers, noting it while writing, finding a cut by it.

Run it on an otherwise idle machine: ``python -m bench.watermarks [FOLDER]``; the folder is made, filled and removed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench._measure import Figure, compare, rate, report
from penstock.embedded import open_store
from penstock.model import StreamCut, Watermark
from penstock.stream.segment import watermark_log
from penstock.stream.time._marks import WriterMark
from penstock.stream.time._watermark_log import WATERMARK_LOG_SIZES, pack_watermark
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine

WRITERS, SEGMENTS = 10_000, 1_000
EVENTS, EVENTS_A_MARK = 2_000_000, 1_000
MARKS = (1_000, 10_000, 100_000, 1_000_000)
START = 1_700_000_000_000
_numbers = count()


def one_pass(folder: Path) -> Iterator[Figure]:
    """Measure a pass over many writers, each with a position in many segments, all of them changed since the last."""
    name, clock = "bench/many", ManualClock()
    with open_store(folder / "pass", maintenance_interval_s=3600, clock=clock) as store:
        store.create_stream(name, segments=SEGMENTS)
        state = store.catalog.stream(name)
        segments = tuple(state.segments)
        times = []
        for round_ in range(4):
            for number in range(WRITERS):
                offsets = np.full(SEGMENTS, round_, np.int64)
                mark = WriterMark(START + 1_000 * round_ + number, segments, offsets)
                store.marks.take(name, state.uid, f"writer-{number}", mark)
            clock.advance(3600)
            start = time.perf_counter()
            with store.catalog.lock:
                store.time.run(state)
            times.append(time.perf_counter() - start)
        if len(store.watermarks(name)) != len(times) - 1:  # the first pass waits for more writers
            raise AssertionError("a pass wrote no watermark")
    seconds = statistics.median(times[1:])
    what = (
        f"a second against a maintenance run over {WRITERS:,} writers and {SEGMENTS:,} segments, "
        "all marks new and put on record"
    )
    yield Figure(what, 1 / seconds, 1.0, {"s": seconds})


def noting(folder: Path) -> Iterator[Figure]:
    """Compare writing with time noted every so many events with writing without."""
    event = os.urandom(100)
    with open_store(folder / "noting") as store:
        ratio, with_time, without, spread = compare(
            lambda: write_rate(store, event, noted=True), lambda: write_rate(store, event, noted=False), rounds=7
        )
    detail = {"events/s": with_time, "without": without}
    yield Figure(f"write_event, 100 B, note_time every {EVENTS_A_MARK:,}, against without", ratio, 0.95, detail, spread)


def write_rate(store: Engine, event: bytes, *, noted: bool) -> float:
    """Return events/s of writing to a stream of its own."""
    name = f"bench/stream-{next(_numbers)}"
    store.create_stream(name)

    def work() -> int:
        for number in range(EVENTS // EVENTS_A_MARK):
            for _ in range(EVENTS_A_MARK):
                writer.write_event(event, "key")
            if noted:
                writer.note_time(START + number)
        writer.flush()
        return EVENTS

    with store.writer(name, f"writer-{name[6:]}") as writer:
        found = rate(work)
    store.seal_stream(name)
    store.delete_stream(name)
    return found


def cuts_by_time(folder: Path) -> Iterator[Figure]:
    """Show that finding a cut by time costs the logarithm of how many watermarks there are."""
    costs = {marks: cut_costs(folder / f"marks-{marks}", marks) for marks in MARKS}
    for what in ("first", "again"):
        few, many = costs[MARKS[0]][what], costs[MARKS[-1]][what]
        detail = {f"us, {marks:,} marks": cost[what] for marks, cost in costs.items()}
        yield Figure(f"cut_at_time, {what}: {MARKS[0]:,} marks against {MARKS[-1]:,}", few / many, None, detail)


def cut_costs(folder: Path, marks: int) -> dict[str, float]:
    """Return what it takes to find a cut, in microseconds: for the first time since the store was opened, and again."""
    with open_store(folder) as store:
        store.create_stream("bench/marked")
        log = store._logs.open(watermark_log(store.catalog.stream("bench/marked").uid), WATERMARK_LOG_SIZES)
        cut = StreamCut("bench/marked", ((0, 0),))
        pending = [log.submit(pack_watermark(Watermark(START + one, START + one, cut))) for one in range(marks)]
        pending[-1].result()
    times = [START + int(place) for place in np.linspace(0, marks - 1, 100)]
    firsts, later = [], []
    for _ in range(5):
        with open_store(folder) as store:
            firsts.append(microseconds(store, times[37:38]))
            microseconds(store, times)
            later.append(microseconds(store, times))
    return {"first": statistics.median(firsts), "again": statistics.median(later)}


def microseconds(store: Engine, times: list[int]) -> float:
    """Return how long one call takes, the median of some."""
    found = []
    for one in times:
        start = time.perf_counter()
        store.cut_at_time("bench/marked", one)
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e6


def main() -> None:
    """Measure everything and print it."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="penstock-bench-", dir=Path.cwd()))
    folder.mkdir(exist_ok=True, parents=True)
    try:
        report("watermarks", [figure for part in (one_pass, noting, cuts_by_time) for figure in part(folder)])
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
