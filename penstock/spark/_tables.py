"""Tables that jobs write, a micro-batch at a time: one that is written again replaces itself.

A batch is known by its job, which is as old as the job's checkpoint, and its number. Parquet has a folder for each
date, and in it one for each batch, which is replaced as a whole. Delta has its own log, which says the last batch of
each job that is in it.
"""

from __future__ import annotations

import os
import shutil
import uuid
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

    Write = Callable[[DataFrame, int], bool]  # a batch, by its number; False if it was there before

__all__ = ["LARGE", "Archive", "delta_writer", "parquet_writer"]

LARGE: Final = "_large"  # what begins so is no partition for those who read the table
_COPY_SIZE: Final = 1 << 20


def parquet_writer(table: str, job: str) -> Write:
    """Return what writes a batch to a table of Parquet, under the name of a job."""

    def write(df: DataFrame, batch: int) -> bool:
        name = f"{job}-{batch}"
        for before in Path(table).glob(f"date=*/batch={name}"):  # of an attempt that was not finished
            shutil.rmtree(before)
        df.withColumn("batch", F.lit(name)).write.partitionBy("date", "batch").mode("append").parquet(table)
        return True

    return write


def delta_writer(table: str, job: str) -> Write:
    """Return what writes a batch to a Delta table, under the name of a job."""
    try:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake  # noqa: PLC0415
    except ModuleNotFoundError:
        raise BadArgument("a Delta table needs the package deltalake: pip install 'penstock[delta]'") from None

    def write(df: DataFrame, batch: int) -> bool:
        is_there = DeltaTable.is_deltatable(table)
        done = DeltaTable(table).transaction_version(job) if is_there else None
        if done is not None and done >= batch:
            return False
        properties = CommitProperties(app_transactions=[Transaction(job, batch)])
        write_deltalake(table, df.toArrow(), mode="append", partition_by=["date"], commit_properties=properties)
        return True

    return write


class Archive:
    """Writes batches with events of any size: those too large for a row are copied to files beside the table.

    ``rows`` counts what was written.
    """

    def __init__(self, write: Write, table: str, address: Address) -> None:
        self._write, self._table, self._address = write, table, address
        self.rows = 0

    def add(self, df: DataFrame, batch: int) -> None:
        """Write a batch."""
        seen = Observation()
        rows, large = F.count("offset").alias("rows"), F.count("file").alias("large")
        is_new = self._write(df.observe(seen, rows, large), batch)
        if not is_new or seen.get["large"]:  # of what was there before, files may be missing
            self._copy(df.where("file IS NOT NULL").select("pointer", "file"))
        self.rows += seen.get["rows"] if is_new else 0

    def _copy(self, rows: DataFrame) -> None:
        Path(self._table, LARGE).mkdir(parents=True, exist_ok=True)
        rows.foreachPartition(partial(_copy_large, self._address, self._table))


def _copy_large(address: Address, table: str, rows: Iterable[Row]) -> None:
    """Copy events to files, in a task; a file is there whole or not at all."""
    for row in rows:
        place = Path(table, row["file"])
        part = place.with_suffix(f".{uuid.uuid4()}.part")  # another attempt may be at it, too
        with (
            shared(address).fetch_event_as_stream(EventPointer.parse(row["pointer"])) as event,
            part.open("wb") as file,
        ):
            shutil.copyfileobj(event, file, _COPY_SIZE)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
