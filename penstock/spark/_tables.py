"""Tables that jobs write, a micro-batch at a time: one that is written again replaces itself.

Parquet has a folder for each date, and in it one for each batch, which is replaced as a whole. Delta has its own log,
which says the last batch that is in it.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.errors import BadArgument
from penstock.model import EventPointer
from penstock.spark._stores import shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, Row

    from penstock.spark._options import Address

__all__ = ["LARGE", "delta_writer", "large_copier", "parquet_writer"]

LARGE: Final = "_large"  # what begins so is no partition for those who read the table
_COPY_SIZE: Final = 1 << 20

Write = "Callable[[DataFrame, int], None]"


def parquet_writer(table: str) -> Callable[[DataFrame, int], None]:
    """Return what writes a batch to a table of Parquet."""

    def write(df: DataFrame, batch: int) -> None:
        numbered = df.withColumn("batch", F.lit(batch))
        writer = numbered.write.partitionBy("date", "batch").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").parquet(table)

    return write


def delta_writer(table: str, job: str) -> Callable[[DataFrame, int], None]:
    """Return what writes a batch to a Delta table, under the name of a job."""
    try:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake  # noqa: PLC0415
    except ModuleNotFoundError:
        raise BadArgument("a Delta table needs the package deltalake: pip install 'penstock[delta]'") from None

    def write(df: DataFrame, batch: int) -> None:
        is_there = DeltaTable.is_deltatable(table)
        done = DeltaTable(table).transaction_version(job) if is_there else None
        if done is not None and done >= batch:
            return
        properties = CommitProperties(app_transactions=[Transaction(job, batch)])
        write_deltalake(table, df.toArrow(), mode="append", partition_by=["date"], commit_properties=properties)

    return write


def large_copier(
    write: Callable[[DataFrame, int], None], table: str, address: Address
) -> Callable[[DataFrame, int], None]:
    """Return what writes a batch, and copies events that are too large for a row to files beside the table."""

    def write_all(df: DataFrame, batch: int) -> None:
        seen = Observation()
        write(df.observe(seen, F.count(F.when(F.col("file").isNotNull(), 1)).alias("large")), batch)
        if seen.get["large"]:
            if "://" in table:
                raise BadArgument(f"{table} has large events, which are copied to files: name a folder of this machine")
            Path(table, LARGE).mkdir(parents=True, exist_ok=True)
            rows = df.where("file IS NOT NULL").select("pointer", "file")
            rows.foreachPartition(partial(_copy_large, address, table))

    return write_all


def _copy_large(address: Address, table: str, rows: Iterable[Row]) -> None:
    """Copy events to files, in a task; a file is there whole or not at all."""
    for row in rows:
        place = Path(table, row["file"])
        part = place.with_suffix(".part")
        with (
            shared(address).fetch_event_as_stream(EventPointer.parse(row["pointer"])) as event,
            part.open("wb") as file,
        ):
            shutil.copyfileobj(event, file, _COPY_SIZE)
        part.replace(place)
