"""Tables that jobs write, one micro-batch at a time: a batch that is already there is not written again.

A batch is identified by its job, whose id is stored in the checkpoint, and its number. A Parquet table has a folder for
each date, with a folder for each batch, and a record of the last batch of each job. A Delta table has the same files,
and a log that says which of them count, and the last batch of each job.
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

from penstock.checkpoints import sync
from penstock.errors import BadArgument, PenstockError
from penstock.model import EventPointer
from penstock.spark._stores import shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deltalake.transaction import RemoveAction
    from pyspark.sql import DataFrame, Row

    from penstock.spark._options import Address

    Write = Callable[[DataFrame, int], int | None]  # a batch, by its number; how many rows, None if it was there before

__all__ = ["LARGE", "Archive", "clear_attempts", "delta_writer", "parquet_writer"]

LARGE: Final = "_large"  # readers of the table ignore names with this prefix
_NEW: Final = "_new"
_LAST: Final = "_last"
_COPY_SIZE: Final = 1 << 20
_NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"  # as Spark calls the folder
_DELTA_LOG: Final = "_delta_log"
_LOG_FILES: Final = 8  # that may be new: ours, that of the table itself, those of other jobs


def clear_attempts(table: str, job: str) -> None:
    """Remove the remains of a job that was killed; the caller holds its lock."""
    for before in (*Path(table, _NEW).glob(f"{job}-*"), *Path(table, LARGE).glob(f"{job}-*.part")):
        shutil.rmtree(before) if before.is_dir() else before.unlink()


def parquet_writer(table: str, job: str) -> Write:
    """Return a batch writer to a Parquet table, for a job."""
    if Path(table, _DELTA_LOG).exists():
        raise BadArgument(f"{table} is a Delta table, whose log would not contain other files: use delta")
    last = Path(table, _LAST, job)

    def write(df: DataFrame, batch: int) -> int | None:
        if last.exists() and int(last.read_text()) >= batch:
            return None
        files = _write_files(df, table, f"{job}-{batch}")
        last.parent.mkdir(exist_ok=True)
        new = last.with_suffix(".part")
        new.write_text(str(batch))
        sync(new)
        new.replace(last)
        sync(last.parent, last.parent.parent)
        return sum(files.values())

    return write


def delta_writer(table: str, job: str) -> Write:
    """Return a batch writer to a Delta table, for a job."""
    try:
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction  # noqa: PLC0415
        from deltalake.transaction import AddAction  # noqa: PLC0415
    except ModuleNotFoundError:
        raise BadArgument(
            "a Delta table needs the package deltalake: in a clone of Penstock, run pip install '.[delta]'"
        ) from None
    if Path(table, _LAST).exists():
        raise BadArgument(f"{table} is a Parquet table, whose files a Delta log would not contain: leave out delta")

    def write(df: DataFrame, batch: int) -> int | None:
        schema = Schema.from_json(df.schema.json())
        known = DeltaTable.create(table, schema, mode="ignore", partition_by=["date"])
        if (known.schema(), known.metadata().partition_columns) != (schema, ["date"]):
            raise BadArgument(f"the table in {table} has other columns: archive to another one, or with its options")
        done = known.transaction_version(job)
        if done is not None and done >= batch:
            return None
        files = _write_files(df, table, f"{job}-{batch}")
        added: list[AddAction | RemoveAction] = [AddAction(**_added(table, *file)) for file in files.items()]
        numbered = CommitProperties(app_transactions=[Transaction(job, batch)])
        known.create_write_transaction(added, "append", schema, ["date"], commit_properties=numbered)
        log = Path(table, _DELTA_LOG)
        sync(*sorted(log.glob("*.json"))[-_LOG_FILES:], log, log.parent)
        return sum(files.values())

    return write


def _write_files(df: DataFrame, table: str, batch: str) -> dict[Path, int]:
    """Write a batch as Parquet files, replacing those of an unfinished attempt; return the number of rows.

    The files are written to another folder and then moved: Spark would include files that tasks of a killed driver, or
    other jobs, write to the table.
    """
    seen, new = Observation(), Path(table, _NEW, f"{batch}-{uuid.uuid4().hex}")
    named = df.observe(seen, F.count(F.lit(1)).alias("rows")).withColumn("batch", F.lit(batch))
    named.write.partitionBy("date", "batch").parquet(f"file://{new}")
    files = {file: pq.read_metadata(file).num_rows for file in new.glob("date=*/batch=*/*.parquet")}
    wanted, found = seen.get["rows"], sum(files.values())
    if wanted != found:
        raise PenstockError(f"{found} of {wanted} rows are in {new}: driver and executors must share that folder")
    for before in Path(table).glob(f"date=*/batch={batch}"):
        shutil.rmtree(before)
    for folder in new.glob("date=*/batch=*"):
        place = Path(table, folder.relative_to(new))
        place.parent.mkdir(exist_ok=True)
        folder.rename(place)
        sync(*place.glob("*.parquet"), place, place.parent)
    sync(Path(table), Path(table).parent)
    shutil.rmtree(new)
    return {Path(table, file.relative_to(new)): rows for file, rows in files.items()}


def _added(table: str, file: Path, rows: int) -> dict[str, Any]:
    """Return the entry of a file in Delta's log."""
    date, found = file.parents[1].name.removeprefix("date="), file.stat()
    return {
        "path": file.relative_to(table).as_posix(),
        "size": found.st_size,
        "partition_values": {"date": None if date == _NO_DATE else date},
        "modification_time": int(found.st_mtime * 1000),
        "data_change": True,
        "stats": json.dumps({"numRecords": rows}),
    }


class Archive:
    """Writes batches with events of any size: those too large for a row are copied to files in the table's folder.

    ``rows`` is the number of rows written.
    """

    def __init__(self, write: Write, table: str, address: Address) -> None:
        self._write, self._table, self._address = write, table, address
        self.rows = 0

    def add(self, df: DataFrame, batch: int) -> None:
        """Write a batch."""
        seen = Observation()
        rows = self._write(df.observe(seen, F.count("file").alias("large")), batch)
        if rows is None or seen.get["large"]:  # of what was there before, files may be missing
            self._copy(df.where("file IS NOT NULL").select("pointer", "file"))
        self.rows += rows or 0

    def _copy(self, rows: DataFrame) -> None:
        folder = Path(self._table, LARGE)
        folder.mkdir(exist_ok=True)
        rows.foreachPartition(partial(_copy_large, self._address, self._table))
        sync(folder, folder.parent)


def _copy_large(address: Address, table: str, rows: Iterable[Row]) -> None:
    """Copy events to files, in a task; a file appears when it is complete."""
    for row in rows:
        place = Path(table, row["file"])
        if place.exists():
            continue
        part = place.with_suffix(f".{uuid.uuid4()}.part")  # another attempt may be at it, too
        with (
            shared(address).fetch_event_as_stream(EventPointer.parse(row["pointer"])) as event,
            part.open("wb") as file,
        ):
            shutil.copyfileobj(event, file, _COPY_SIZE)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
