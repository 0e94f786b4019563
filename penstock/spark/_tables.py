"""Tables that jobs write, a micro-batch at a time: one that is written again replaces itself.

A batch is known by its job, which is as old as the job's checkpoint, and its number. Parquet has a folder for each
date, and in it one for each batch, which is replaced as a whole. Delta is the same files, and a log that says which of
them count, and the last batch of each job.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.errors import BadArgument
from penstock.model import EventPointer
from penstock.spark._stores import shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deltalake.transaction import RemoveAction
    from pyspark.sql import DataFrame, Row

    from penstock.spark._options import Address

    Write = Callable[[DataFrame, int], bool]  # a batch, by its number; False if it was there before

__all__ = ["LARGE", "Archive", "delta_writer", "parquet_writer"]

LARGE: Final = "_large"  # what begins so is no partition for those who read the table
_NEW: Final = "_new"
_COPY_SIZE: Final = 1 << 20
_NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"  # as Spark calls the folder


def parquet_writer(table: str, job: str) -> Write:
    """Return what writes a batch to a table of Parquet, under the name of a job."""

    def write(df: DataFrame, batch: int) -> bool:
        _write_files(df, table, f"{job}-{batch}")
        return True

    return write


def _write_files(df: DataFrame, table: str, batch: str) -> list[Path]:
    """Write a batch as files of Parquet, in place of those of an attempt that was not finished; return them.

    They are written elsewhere, and put in their places then: Spark would take what tasks of a driver that was killed
    have left, and that of other jobs that write to the table, for its own.
    """
    new = Path(table, _NEW, batch)
    for before in (new, *Path(table).glob(f"date=*/batch={batch}")):
        if before.exists():
            shutil.rmtree(before)
    df.withColumn("batch", F.lit(batch)).write.partitionBy("date", "batch").parquet(str(new))
    for folder in new.glob("date=*/batch=*"):
        place = Path(table, folder.relative_to(new))
        place.parent.mkdir(exist_ok=True)
        folder.rename(place)
    shutil.rmtree(new)
    return sorted(Path(table).glob(f"date=*/batch={batch}/*.parquet"))


def delta_writer(table: str, job: str) -> Write:
    """Return what writes a batch to a Delta table, under the name of a job."""
    try:
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction  # noqa: PLC0415
        from deltalake.transaction import AddAction  # noqa: PLC0415
    except ModuleNotFoundError:
        raise BadArgument("a Delta table needs the package deltalake: pip install 'penstock[delta]'") from None

    def write(df: DataFrame, batch: int) -> bool:
        is_there = DeltaTable.is_deltatable(table)
        done = DeltaTable(table).transaction_version(job) if is_there else None
        if done is not None and done >= batch:
            return False
        added: list[AddAction | RemoveAction] = []
        added += [AddAction(**_added(table, file)) for file in _write_files(df, table, f"{job}-{batch}")]
        schema = Schema.from_json(df.schema.json())
        numbered = CommitProperties(app_transactions=[Transaction(job, batch)])
        if not is_there:
            DeltaTable.create(table, schema, mode="ignore", partition_by=["date"])
        DeltaTable(table).create_write_transaction(added, "append", schema, ["date"], commit_properties=numbered)
        return True

    return write


def _added(table: str, file: Path) -> dict[str, Any]:
    """Return what Delta's log says of a file."""
    date, found = file.parents[1].name.removeprefix("date="), file.stat()
    return {
        "path": file.relative_to(table).as_posix(),
        "size": found.st_size,
        "partition_values": {"date": None if date == _NO_DATE else date},
        "modification_time": int(found.st_mtime * 1000),
        "data_change": True,
        "stats": json.dumps({"numRecords": pq.read_metadata(file).num_rows}),
    }


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
