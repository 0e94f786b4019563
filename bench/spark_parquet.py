"""What Spark's sink costs, and JSON that is aggregated, next to Parquet; with the processor time of each process.

Run it on an otherwise idle machine: ``python -m bench.spark_parquet [FOLDER]``; the folder is made, filled and removed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

import penstock
from bench._measure import Figure, middle, report
from bench._processes import TICKS_S, family, times_of
from penstock.spark import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock import Store

    _Job = Callable[[], Callable[[], object]]  # makes something ready, and returns what is to be measured

ROWS, EVENTS, DISTINCT, ROUNDS = 3_000_000, 4_000_000, 50_000, 5
FIELDS = "sensor string, degrees double"
EVENT = '{"sensor":"hall-%d","degrees":%.3f,"at":%d,"valid":true,"unit":"celsius","note":"as it was measured by hand"}'
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
    for kind in (DroppingSink, PreparedSource):
        spark.dataSource.register(kind)
    with penstock.connect(folder / "data") as store:
        figures = [*sink(spark, store, folder), *aggregated_json(spark, store, folder)]
    load = dict(zip(("1 minute", "5 minutes", "15 minutes"), os.getloadavg(), strict=True))
    report("Spark and Parquet", [*figures, Figure("load of the machine", detail=load)])
    spark.stop()


class DroppingSink(DataSource):
    """The least that a sink in Python can do: it drops all rows."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format()``."""
        return "dropping"

    def schema(self) -> str:
        """Return the column that is written."""
        return "event string"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what drops the rows."""
        del schema, overwrite
        return DroppingWriter()


class PreparedSource(DataSource):
    """The least that a source in Python can do: two columns, made once, given again and again."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format()``."""
        return "two_columns"

    def schema(self) -> str:
        """Return the columns that are aggregated."""
        return FIELDS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads."""
        del schema
        return PreparedReader()


class PreparedReader(DataSourceReader):
    """Gives as many rows as there are events, in eight tasks."""

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        return [InputPartition(number) for number in range(8)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give a batch as often as it takes."""
        del partition
        sensors, degrees = [f"hall-{number % 97}" for number in range(10_000)], [float(n) for n in range(10_000)]
        batch = pa.record_batch({"sensor": pa.array(sensors), "degrees": pa.array(degrees)})
        for _ in range(EVENTS // 8 // len(batch)):
            yield batch


class DroppingWriter(DataSourceArrowWriter):
    """Takes the rows from Spark, and does nothing with them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the rows of a task."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def sink(spark: SparkSession, store: Store, folder: Path) -> Iterator[Figure]:
    """Compare our sink and one that drops all rows with Parquet: the same rows, which are in memory before."""
    rows = spark.range(ROWS, numPartitions=4).selectExpr("concat(sha2(string(id), 256), lpad(id, 36, '0')) AS event")
    rows = rows.cache()
    rows.count()

    def ours() -> Callable[[], object]:
        name = f"bench/out-{next(_numbers)}"
        store.create_stream(name, segments=2)
        writer = rows.write.format("penstock").mode("append").option("store", str(folder / "data"))
        return writer.option("stream", name).save

    def parquet() -> Callable[[], object]:
        path = folder / f"parquet-{next(_numbers)}"
        return lambda: rows.write.parquet(str(path))

    def end() -> None:
        for name in [stream.name for stream in store.streams("bench")]:
            assert sum(map(len, store.read(name))) == ROWS
            store.seal_stream(name)
            store.delete_stream(name)
        for path in folder.glob("parquet-*"):
            shutil.rmtree(path)

    jobs = {"ours": ours, "dropping": lambda: rows.write.format("dropping").mode("append").save, "Parquet": parquet}
    yield from in_turns("sink, 100 B", ROWS, jobs, floors={"ours": 0.9}, end=end)
    rows.unpersist()


def aggregated_json(spark: SparkSession, store: Store, folder: Path) -> Iterator[Figure]:
    """Compare an aggregation of two fields of JSON with that of columns that are there, and with Spark's parser."""
    fill(store, "bench/json")
    stream = {"store": str(folder / "data"), "stream": "bench/json"}

    def typed(fields: str) -> DataFrame:
        reader = spark.read.format("penstock").options(**stream, format="json", json_schema=fields)
        return reader.schema(fields).load()

    typed(f"{FIELDS}, at bigint, valid boolean, unit string, note string").write.parquet(str(folder / "typed"))
    raw = spark.read.format("penstock").options(**stream).schema("event binary").load()
    tables = {
        "ours": typed(FIELDS),
        "prepared": spark.read.format("two_columns").load(),
        "from_json": raw.selectExpr(f"from_json(string(event), '{FIELDS}') AS row").select("row.*"),
        "Parquet": spark.read.parquet(str(folder / "typed")),
    }
    jobs = {kind: partial(averages, df) for kind, df in tables.items()}
    yield from in_turns("JSON, two fields aggregated", EVENTS, jobs, floors={"ours": 0.4})


def averages(df: DataFrame) -> Callable[[], object]:
    """Return a new query: Spark does not run the shuffle of one that it has run before."""
    return df.groupBy("sensor").avg("degrees").collect


def fill(store: Store, stream: str) -> None:
    """Write readings of 110 bytes or so."""
    store.create_stream(stream, segments=2)
    events = [EVENT % (number % 97, 20 + number / 7919, 1_793_520_000_000 + number) for number in range(DISTINCT)]
    batch, keys = pa.array(events).cast(pa.binary()), [str(number) for number in range(DISTINCT)]
    with store.writer(stream) as writer:
        for _ in range(EVENTS // DISTINCT):
            writer.write_batch(batch, keys)


def in_turns(
    what: str,
    rows: int,
    jobs: Mapping[str, _Job],
    *,
    floors: Mapping[str, float],
    end: Callable[[], None] = lambda: None,
) -> Iterator[Figure]:
    """Run jobs in turns, the first two rounds for Java's compiler; compare all with the one that is Parquet's."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in jobs}
    for _ in range(2 + ROUNDS):
        for kind, job in jobs.items():
            found[kind].append(spent(job()))
        end()
    rounds = {kind: costs[2:] for kind, costs in found.items()}
    for kind in jobs.keys() - {"Parquet"}:
        ratios = [theirs["s"] / ours["s"] for ours, theirs in zip(rounds[kind], rounds["Parquet"], strict=True)]
        ratio, spread = middle(ratios)
        yield Figure(f"{what}: {kind} against Parquet", ratio, floors.get(kind), spread=spread)
    for kind, costs in rounds.items():
        medians = {name: statistics.median(cost[name] for cost in costs) for name in costs[0]}
        yield Figure(
            f"{what}: {kind}, seconds, and those of the processor", detail=medians | {"/s": rows / medians["s"]}
        )


def spent(work: Callable[[], object]) -> dict[str, float]:
    """Return how long the work takes, and the processor time by process."""
    before, start = cpu_s(), time.perf_counter()
    work()
    passed = time.perf_counter() - start
    found = {name: total - before[name] for name, total in cpu_s().items()}
    return {"s": passed, **found, "together": sum(found.values())}


def cpu_s() -> dict[str, float]:
    """Return the processor time so far: of this process, which owns the store, of the JVM, and of Python's workers."""
    found = dict.fromkeys(("java", "workers", "owner"), 0.0)
    for pid in family(os.getpid()):
        with suppress(OSError):
            name, times = times_of(pid)
            kind = "owner" if pid == os.getpid() else "java" if name == "java" else "workers"
            found[kind] += sum(times[:2] if kind == "owner" else times) / TICKS_S
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as made:
        main(Path(made))
