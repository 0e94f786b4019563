"""Jobs run as processes of their own, so that they can be killed; see ``main`` for what they are called with."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.spark import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

PASSED = 1 << 20


def main(what: str, master: str, folder: str, *args: str) -> None:
    """Run ``read``, ``copy``, ``stream`` or ``serve`` at a master of Spark, in a folder."""
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.log.level", "WARN")
        .config("spark.ui.showConsoleProgress", "false")
        .config(map=json.loads(os.environ.get("SETTINGS", "{}")))
        .getOrCreate()
    )
    register(spark)
    jobs: dict[str, Callable[..., None]] = {"read": read, "copy": copy, "stream": stream, "serve": serve}
    jobs[what](spark, folder, *args)


def read(spark: SparkSession, folder: str, output: str) -> None:
    """Read plant/in, and leave what was read in a file."""
    import pyarrow.feather  # noqa: PLC0415 - only here

    rows = spark.read.format("penstock").option("store", folder).option("stream", "plant/in").load()
    pyarrow.feather.write_feather(rows.toArrow(), output)


def copy(spark: SparkSession, folder: str, gates: str) -> None:
    """Copy plant/in to plant/out at once, through a shuffle."""
    rows = spark.read.format("penstock").option("store", folder).option("stream", "plant/in").load()
    sink = through(rows, gates).write.format("penstock").mode("append").option("store", folder)
    sink.option("stream", "plant/out").option("key", "key").save()


def stream(spark: SparkSession, folder: str, gates: str, checkpoint: str, events: str) -> None:
    """Copy all that plant/in has to plant/out, a few events at a time, through a shuffle."""
    bucket = json.loads(os.environ.get("BUCKET", "{}"))
    source = spark.readStream.format("penstock").option("store", folder).option("stream", "plant/in").options(**bucket)
    rows = through(source.option("max_events_per_trigger", events).load(), gates)
    if bucket:
        rows.explain(extended=True)
    sink = rows.writeStream.format("penstock").option("store", folder).option("stream", "plant/out").options(**bucket)
    sink = sink.option("key", "key").option("checkpointLocation", checkpoint)
    sink.trigger(availableNow=True).start().awaitTermination()


def serve(spark: SparkSession, folder: str) -> None:
    """Copy what a server has, as those who are in the environment, and fail at that; say all there is to say."""
    spark.sparkContext.setLogLevel("INFO")
    source, sink = json.loads(os.environ["OPTIONS"])
    rows = spark.readStream.format("penstock").options(**source).load().selectExpr("nullif(event, event) AS event")
    rows.explain(extended=True)
    writer = rows.writeStream.format("penstock").options(**sink).option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def through(rows: DataFrame, gates: str) -> DataFrame:
    """Return events by their keys, behind a gate that may be shut."""
    keyed = rows.where("event IS NOT NULL").selectExpr("event", "substr(event, 1, 3) AS key").repartition(2, "key")

    def stop_at_gates(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed = 0
        for batch in batches:
            yield batch
            passed += batch.nbytes
            if passed > PASSED:  # the sink has got some by now, however much is in buffers
                wait_at(Path(gates))

    return keyed.mapInArrow(stop_at_gates, keyed.schema)


def wait_at(gates: Path) -> None:
    """Wait if a gate is shut, until somebody writes."""
    here = gates / f"at-{os.getpid()}"
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    for path in (*gates.glob("shut-any-*"), *gates.glob(f"shut-{batch}-*")):
        with suppress(FileNotFoundError):  # somebody else was there first
            path.unlink()
            os.mkfifo(here)
            here.read_bytes()
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
