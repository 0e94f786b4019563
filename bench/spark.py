"""What Spark's source and micro-batches cost, next to the least that a data source in Python can do.

Run it on an otherwise idle machine: ``python -m bench.spark [FOLDER]``; the folder is made, filled and removed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import penstock
from bench._measure import Figure, compare, rate, report
from bench._processes import family
from penstock.spark import register

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock import Store

EVENT, EVENTS, ROUNDS = 100, 5_000_000, 5
SHORT, LONG, BATCH_EVENTS, BATCHES = 200_000, 2_000_000, 2_000, 25
STREAM = "bench/events"
FUTOIN_EVENT = b'{"type":"READING","ts":"2024-12-31T23:59:59Z","data":{"sensor":"hall-7","degrees":21.5,"valid":true}}'
COLUMNS = (
    "event binary, scope string, stream string, segment_id bigint, offset bigint, size bigint, pointer string, "
    "mark_time timestamp"
)
_numbers = count()


def main(folder: Path) -> None:
    """Measure, and print."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    register(spark)
    with penstock.connect(folder / "data") as store:
        figures = [*source(spark, store, folder / "data"), *futoin(spark, store, folder / "data")]
        figures += micro_batches(spark, store, folder)
        figures += many_segments(spark, store, folder)
    report("Spark", figures)
    spark.stop()


def fill(store: Store, stream: str, events: int, *, event: bytes | None = None, segments: int = 2) -> None:
    """Write a stream, of an event again and again or of random bytes."""
    store.create_stream(stream, segments=segments)
    size = 50_000
    data = event * size if event else np.random.default_rng(0).integers(0, 256, size * EVENT, np.uint8).tobytes()
    offsets = pa.py_buffer(np.arange(size + 1, dtype=np.int32) * (len(data) // size))
    batch = pa.Array.from_buffers(pa.binary(), size, [None, offsets, pa.py_buffer(data)])
    keys = [str(number) for number in range(size)]
    with store.writer(stream) as writer:
        for _ in range(events // size):
            writer.write_batch(batch, keys)


class PreparedSource(DataSource):
    """The least that a data source in Python can do: one batch, made once, given again and again."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format()``."""
        return "prepared"

    def schema(self) -> str:
        """Return the same columns."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads."""
        del schema
        return PreparedReader([int(rows) for rows in self.options["rows"].split(",")], int(self.options["batch"]))


@dataclass(frozen=True)
class PreparedPart(InputPartition):
    """How many rows a task gives."""

    rows: int


class PreparedReader(DataSourceReader):
    """Gives so many rows in each task, in batches of the same size."""

    def __init__(self, rows: list[int], size: int) -> None:
        self._rows, self._size = rows, size

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        return [PreparedPart(rows) for rows in self._rows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give a batch as often as it takes."""
        assert isinstance(partition, PreparedPart)
        size = self._size
        numbers = pa.array(range(size), pa.int64())
        columns = {
            "event": pa.array([os.urandom(100)] * size, pa.binary()),
            "scope": pa.repeat("bench", size),
            "stream": pa.repeat("events", size),
            "segment_id": pa.repeat(0, size).cast(pa.int64()),
            "offset": numbers,
            "size": pa.repeat(100, size).cast(pa.int64()),
            "pointer": pa.array([f"bench/events:0@{number * 104 + 100_000_000}" for number in range(size)]),
            "mark_time": pa.nulls(size, pa.timestamp("us", "UTC")),
        }
        batch = pa.record_batch(columns)
        for _ in range(partition.rows // size):
            yield batch
        if partition.rows % size:
            yield batch[: partition.rows % size]


def run_all(df: DataFrame) -> None:
    """Let all rows come to the JVM, and do nothing with them."""
    df.write.format("noop").mode("overwrite").save()


def measured(df: DataFrame) -> float:
    """Return how many of all events a second come."""

    def work() -> int:
        run_all(df)
        return EVENTS

    return rate(work)


def source(spark: SparkSession, store: Store, folder: Path) -> Iterator[Figure]:
    """Compare a stream with prepared batches: as many tasks, of as many rows, in batches that are as large."""
    fill(store, STREAM, EVENTS)
    spark.dataSource.register(PreparedSource)
    ours = spark.read.format("penstock").option("store", str(folder)).option("stream", STREAM).load()
    tasks = ours.rdd.getNumPartitions()
    batch = max(len(one) for one in store.read(STREAM))
    rows = ",".join(str(EVENTS // tasks + (number < EVENTS % tasks)) for number in range(tasks))
    theirs = spark.read.format("prepared").option("rows", rows).option("batch", str(batch)).load()

    for df in (ours, theirs):
        measured(df)  # the first run starts the workers
    with memory() as peaks:
        measured(ours)
    ratio, mine, other, spread = compare(lambda: measured(ours), lambda: measured(theirs), rounds=ROUNDS)
    detail = {"/s": mine, "prepared/s": other, "tasks": tasks, "rows a batch": batch}
    yield Figure("source, all columns, against a source of prepared batches", ratio, 0.8, detail, spread)
    yield Figure("memory while it reads, MiB at the most", detail=peaks)


def futoin(spark: SparkSession, store: Store, folder: Path) -> Iterator[Figure]:
    """Compare events as columns with the same events as bytes."""
    fill(store, "bench/futoin", EVENTS, event=FUTOIN_EVENT)
    reader = spark.read.format("penstock").option("store", str(folder)).option("stream", "bench/futoin")
    columns, whole = (reader.option("format", kind).load() for kind in ("futoin", "raw"))
    measured(columns), measured(whole)
    ratio, mine, other, spread = compare(lambda: measured(columns), lambda: measured(whole), rounds=ROUNDS)
    yield Figure("source, futoin against raw", ratio, None, {"/s": mine, "raw/s": other}, spread)


@contextmanager
def memory() -> Iterator[dict[str, float]]:
    """Note how much memory Spark's processes take at the most, in MiB; files that are mapped are no memory of ours."""
    found: dict[str, float] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            for name, own, all_of_it in map(_memory_of, family(os.getpid())[1:]):
                found[name] = max(found.get(name, 0), own)
                if name == "a worker":
                    found["with mapped files"] = max(found.get("with mapped files", 0), all_of_it)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def _memory_of(pid: int) -> tuple[str, float, float]:
    """Return what a process is, its own memory, and with the files that it has mapped."""
    fields: dict[str, str] = {}
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    own, all_of_it = (float(fields.get(name, "0 kB").split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))
    return ("the JVM" if fields.get("Name") == "java" else "a worker"), own, all_of_it


def micro_batches(spark: SparkSession, store: Store, folder: Path) -> Iterator[Figure]:
    """Compare micro-batches of a short and of a long stream, from its start and at its end; and of several sinks."""
    for name, events in (("bench/short", SHORT), ("bench/long", LONG)):
        fill(store, name, events)
    behind = BATCH_EVENTS * (BATCHES + 20)
    starts = {
        name: store.next_cut(name, store.head(name), None, max_events=events - behind).cut
        for name, events in (("bench/short", SHORT), ("bench/long", LONG))
    }
    for what, start in (("to come", {}), ("behind it", starts)):
        found = [
            tuple(
                batch_ms(spark, folder, name, "noop", str(start.get(name, "earliest")))
                for name in ("bench/short", "bench/long")
            )
            for _ in range(3)
        ]
        ratio = statistics.median(short["all"] / long["all"] for short, long in found)
        detail = {
            f"{name}, {part}": statistics.median(row[side][part] for row in found)
            for side, name in enumerate(("short", "long"))
            for part in ("all", "plan", "run")
        }
        yield Figure(f"micro-batch, ms: short against 10 x as many events {what}", ratio, 0.8, detail)
    store.create_stream("bench/copy", segments=2)
    kinds = ("noop", "parquet", "penstock")
    rounds = [[batch_ms(spark, folder, "bench/short", kind)["all"] for kind in kinds] for _ in range(3)]
    detail = {kind: statistics.median(column) for kind, column in zip(kinds, zip(*rounds, strict=True), strict=True)}
    ratio = statistics.median(row[1] / row[2] for row in rounds)
    yield Figure("micro-batch of 2,000 events, ms: into Parquet against our sink", ratio, detail=detail)


def many_segments(spark: SparkSession, store: Store, folder: Path) -> Iterator[Figure]:
    """Compare micro-batches of as many events in one segment and in a hundred."""
    for segments in (1, 100):
        fill(store, f"bench/of-{segments}", SHORT, segments=segments)
    rounds = [[batch_ms(spark, folder, f"bench/of-{segments}", "noop")["all"] for segments in (1, 100)] for _ in (1, 2)]
    one, many = (statistics.median(column) for column in zip(*rounds, strict=True))
    detail = {"1 segment": one, "100 segments": many}
    yield Figure("micro-batch of 2,000 events, ms: of 1 segment against 100", one / many, 1 / 1.5, detail)


def batch_ms(spark: SparkSession, folder: Path, stream: str, kind: str, start: str = "earliest") -> dict[str, float]:
    """Return how long a micro-batch takes: all of it, to plan it, and to run it; the first few do not count."""
    reader = spark.readStream.format("penstock").option("store", str(folder / "data")).option("stream", stream)
    rows = reader.option("max_events_per_trigger", str(BATCH_EVENTS)).option("start", start).load()
    path = folder / f"query-{next(_numbers)}"
    writer = rows.select("event").writeStream.format(kind).option("checkpointLocation", str(path / "checkpoint"))
    if kind == "penstock":
        writer = writer.option("store", str(folder / "data")).option("stream", "bench/copy")
    elif kind == "parquet":
        writer = writer.option("path", str(path / "rows"))
    query = writer.start()
    while len(query.recentProgress) < BATCHES:
        query.awaitTermination(1)
    found = [one.durationMs for one in query.recentProgress[5:BATCHES]]
    query.stop()
    shutil.rmtree(path, ignore_errors=True)  # Spark may still be ending a batch
    planning = ("latestOffset", "getBatch", "queryPlanning")
    return {
        "all": statistics.median(one["triggerExecution"] for one in found),
        "plan": statistics.median(sum(one.get(name, 0) for name in planning) for one in found),
        "run": statistics.median(one["addBatch"] for one in found),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        main(Path(made))
