"""Four jobs at once, each in a thread, in a process of their own that can be killed; or in that of the tests."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.spark import aggregate, archive, windows
from tests.spark.copy_job import wait_at
from tests.warm_python import warm_python

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHECKPOINTS", "COUNTED", "IN", "MERGED", "OTHER", "WINDOW_S", "run_jobs"]

IN, OTHER = "plant/in", "plant/other"
MERGED, COUNTED = "plant/merged", "plant/counted"
WINDOW_S: Final = 10
CHECKPOINTS: Final = {  # of each job, seen from where they keep what they have done
    "archive": "archive/_checkpoint",
    "aggregate": "aggregate",
    "windows": "windows/_checkpoint",
    "counted": "counted",
}
_PASSED: Final = 120  # rows of a task, of which Spark hands on a hundred at a time
_COLUMNS: Final = {"format": "json", "json_schema": "at bigint, kind string"}
_OF_A_BATCH: Final = {"max_bytes_per_trigger": "700k"}


def main(folder: str, root: str, gates: str) -> None:
    """Run all jobs over a folder; whatever they make is in another, and their gates in a third."""
    with warm_python(Path(root)) as executable:  # in the session of this process, with which it is killed
        os.environ["PYSPARK_PYTHON"] = str(executable)
        _run_gated_jobs(folder, root, gates)


def _run_gated_jobs(folder: str, root: str, gates: str) -> None:
    spark = (
        SparkSession.builder.master("local[8]")  # so many tasks may wait
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        .config("spark.log.level", "WARN")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.udf.register("through", through(Path(gates)), "string")
    run_jobs(spark, Path(folder), Path(root), "cast(through('{job}', cast({value} AS string)) AS {kind})")


def run_jobs(spark: SparkSession, folder: Path, root: Path, gated: str = "{value}") -> None:
    """Run all jobs to the end; ``gated`` is what one column of each is put through."""

    def of(job: str, kind: str, value: str) -> str:
        return gated.format(job=job, kind=kind, value=value)

    def add_up(job: str, table: Path | None, into: str | None) -> None:
        windows(
            spark, folder, IN, time="timestamp_millis(at)", length=f"{WINDOW_S} seconds", group_by=["kind"],
            values=[f"{of(job, 'bigint', 'count(*)')} AS events"], table=table, into=into,
            checkpoint=root / CHECKPOINTS[job], options=_OF_A_BATCH | _COLUMNS,
        )  # fmt: skip

    def merge() -> None:
        key = of("aggregate", "string", "concat(scope, '/', stream)")
        place = root / CHECKPOINTS["aggregate"]
        aggregate(spark, folder, [IN, OTHER], MERGED, key=key, checkpoint=place, options=_OF_A_BATCH)

    def keep() -> None:
        date = of("archive", "string", "date'2026-11-15'")
        archive(spark, folder, IN, root / "archive", date=date, options=_OF_A_BATCH | {"max_event_size": "64k"})

    with ThreadPoolExecutor() as threads:
        jobs = [threads.submit(keep), threads.submit(merge)]
        jobs.append(threads.submit(add_up, "windows", root / "windows", None))
        jobs.append(threads.submit(add_up, "counted", None, COUNTED))
        for one in jobs:
            one.result()


def through(gates: Path) -> Callable[[str, str], str]:
    """Return what hands on a value; in the middle of a task of a later batch, behind the gate of its job."""
    passed: Counter[int] = Counter()

    def hand_on(job: str, value: str) -> str:
        context = TaskContext.get()
        assert context is not None, "it runs in a task"
        passed[context.taskAttemptId()] += 1
        is_later = context.getLocalProperty("streaming.sql.batchId") not in (None, "0")
        if is_later and passed[context.taskAttemptId()] == _PASSED:
            wait_at(gates / job)
        return value

    return hand_on


if __name__ == "__main__":
    main(*sys.argv[1:])
