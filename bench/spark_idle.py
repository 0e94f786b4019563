"""What a streaming query of Spark costs while nothing happens, next to a source in Python that never has anything.

Run it on an otherwise idle machine: ``python -m bench.spark_idle [FOLDER]``. Each figure is the processor time of the
driver, of its Python processes and of the process that owns the store, in percent of one core: the median of four
samples of 5 seconds, or of two that are longer for windows. The interval between watermarks without an event is set
there: by default it is 5 seconds at first, and 60 seconds once a stream has been silent for ten minutes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import penstock
from bench._measure import Figure, middle, report
from bench._processes import TICKS_S, family, times_of
from penstock.spark import register, with_writer_watermark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from penstock import Store

SAMPLES, SAMPLE_S, SETTLE_S = 4, 5.0, 15.0
WINDOWS_SAMPLES, WINDOWS_SAMPLE_S = 2, 30.0  # or as long as the interval, so that there is one watermark in each
INTERVALS_S = (0, 5, 60)
IDLE_PERCENT_MAX = 7.0
ONE, MANY = "idle/one", "idle/many"


class EmptySource(DataSource):
    """A source that never has anything."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format()``."""
        return "empty"

    def schema(self) -> str:
        """Return a column."""
        return "event binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads nothing."""
        del schema
        return EmptyReader()


class EmptyReader(DataSourceStreamReader):
    """Stays where it is."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the only offset."""
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the only offset."""
        del limit
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return nothing to read."""
        del start, end
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        """Return nothing."""
        del partition
        return iter(())


def main(folder: Path) -> None:
    """Measure, and print."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    register(spark)
    spark.dataSource.register(EmptySource)
    with penstock.connect(folder / "data") as store:
        for name, segments in ((ONE, 1), (MANY, 100)):
            store.create_stream(name, segments=segments)
            with store.writer(name) as writer:
                writer.write_batch([b"x"] * segments, [str(number) for number in range(segments)])
        report("Spark, idle", list(figures(spark, store, folder)))
    spark.stop()


def figures(spark: SparkSession, store: Store, folder: Path) -> Iterator[Figure]:
    """Measure one kind of query after another."""
    nothing, _ = middle(percents_of(0.0, []))
    empty = spark.readStream.format("empty").load()
    one, many = (source(spark, folder, name) for name in (ONE, MANY))
    percents_of(nothing, [one], folder)  # the first query of a session is slower
    empty_percent, spread = middle(percents_of(nothing, [empty], folder))
    yield Figure("no query", detail={"%": nothing})
    yield Figure("a source that never has anything", detail=described(empty_percent, spread))
    for what, queries in (("1 segment", [one]), ("100 segments", [many]), ("four queries, each", [one] * 4)):
        percents = [percent / len(queries) for percent in percents_of(nothing, queries, folder)]
        percent, spread = middle(percents)
        detail = described(percent, spread) | {"times the empty source": percent / empty_percent}
        ratio, of_ratios = middle([IDLE_PERCENT_MAX / max(percent, 0.1) for percent in percents])
        yield Figure(f"{IDLE_PERCENT_MAX:g} % of a core, to idle, {what}", ratio, 1.0, detail, of_ratios)
    for interval_s in INTERVALS_S:
        timed = windows(source(spark, folder, ONE, watermark_interval=f"{interval_s} seconds"))
        with noting_time(store):
            sample_s = max(WINDOWS_SAMPLE_S, interval_s)
            percents = percents_of(nothing, [timed], folder, samples=WINDOWS_SAMPLES, sample_s=sample_s)
        percent, spread = middle(percents)
        what = f"{IDLE_PERCENT_MAX:g} %, to idle windows, time noted every second, a watermark every {interval_s} s"
        detail = described(percent, spread) | {"times the empty source": percent / empty_percent}
        ratio, of_ratios = middle([IDLE_PERCENT_MAX / max(percent, 0.1) for percent in percents])
        yield Figure(what, ratio, 1.0, detail, of_ratios)


def described(percent: float, spread: tuple[float, float]) -> dict[str, float]:
    """Return a percentage with its spread."""
    return {"%": percent, "low": spread[0], "high": spread[1]}


def source(spark: SparkSession, folder: Path, name: str, **options: str) -> DataFrame:
    """Return the stream as it is loaded."""
    reader = spark.readStream.format("penstock").option("store", str(folder / "data")).option("stream", name)
    return reader.options(**options).load()


def windows(df: DataFrame) -> DataFrame:
    """Count events by window, with the watermark of the writers."""
    timed = with_writer_watermark(df, "at", F.col("timestamp"))
    return timed.groupBy(F.window("at", "1 hour")).count()


def percents_of(
    nothing: float,
    queries: Sequence[DataFrame],
    folder: Path | None = None,
    *,
    samples: int = SAMPLES,
    sample_s: float = SAMPLE_S,
) -> list[float]:
    """Return what queries cost while they wait, in percent of a core, above what it costs to run nothing: samples."""
    writers = [df.writeStream.format("noop") for df in queries]
    if folder is not None:
        writers = [
            writer.option("checkpointLocation", tempfile.mkdtemp(dir=folder)).outputMode("append") for writer in writers
        ]
    running = [writer.start() for writer in writers]
    for query in running:
        query.processAllAvailable()
    time.sleep(SETTLE_S)  # Java compiles what is new to it
    percents = [cpu_percent(sample_s) for _ in range(samples)]
    for query in running:
        assert query.exception() is None, query.exception()
        query.stop()
    return [percent - nothing for percent in percents]


@contextmanager
def noting_time(store: Store) -> Iterator[None]:
    """Note the time every second, without an event."""
    stop = threading.Event()

    def note() -> None:
        with store.writer(ONE, "clock") as writer:
            while not stop.wait(1.0):
                writer.note_time(round(time.time() * 1000))

    thread = threading.Thread(target=note)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cpu_percent(seconds: float) -> float:
    """Return the share of a core that this process, and all that it has started, take for a while."""
    before, start = cpu_s(), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s() - before) / (time.monotonic() - start)


def cpu_s() -> float:
    """Return the processor time of this process and all that it has started, with those that have ended."""
    found = 0
    for pid in family(os.getpid()):
        with suppress(OSError):  # it has ended, and its parent has its time
            found += sum(times_of(pid)[1])
    return found / TICKS_S


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        main(Path(made))
