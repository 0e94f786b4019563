"""Archives without Spark: a stream is copied to a Parquet or an Iceberg table.

A Parquet table is laid out as the Spark job ``archive`` does it: a folder for each date, in it one for each batch. A
batch is written beside the table and then moved into it; then the job notes how far it is. If it is killed between, the
next run removes the batch and writes it again. So every event is in the table once. ``_iceberg`` has Iceberg tables.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.checkpoints import sync
from penstock.errors import BadArgument
from penstock.events._archived_events import ARCHIVE_KIND, CHECKPOINT, ArchiveProgress
from penstock.events._archived_rows import BATCH_SIZE, ArchivedRows
from penstock.events._iceberg import IcebergCatalog
from penstock.events._job_folder import Copied, JobFolder, copy_batches
from penstock.model import ByConsumption, StreamCut

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from penstock.store import Store

__all__ = ["Copied", "archive"]

_ROWS: Final = 1_024  # that are read from a table at once
_POLL_S: Final = 0.5
_NEW: Final = "_new"
_KINDS: Final = {"parquet": ARCHIVE_KIND, "iceberg": "archive-iceberg"}


def archive(
    store: Store,
    stream: str,
    table: str | os.PathLike[str],
    *,
    discard: bool = False,
    consumer: str | None = None,
    follow: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    watch: Callable[[Copied], object] = lambda _: None,
    table_format: Literal["parquet", "iceberg"] = "parquet",
    catalog: str | None = None,
) -> Copied:
    """Copy the events of a stream to a table, partitioned by the day of the watermark, or today.

    An Iceberg table is that of the stream, ``scope.name``, in an SQL catalog: that at ``catalog``, an address for
    SQLAlchemy, or one in the file ``catalog.db`` of the folder ``table``, where its files are in both cases.

    The archive is a registered consumer of the stream. With ``discard`` the stream is switched to retention by
    consumption. Run again, it goes on where it was. With ``follow`` it runs until it is interrupted.
    """
    folder, kind = Path(table), _KINDS.get(table_format)
    if kind is None:
        raise BadArgument(f"invalid table_format {table_format!r}: use {' or '.join(_KINDS)}")
    if catalog is not None and table_format != "iceberg":
        raise BadArgument("only an Iceberg table has a catalog: leave it out, or use the table format iceberg")
    retention = store.stream(stream).config.retention
    if discard and retention is not None and not isinstance(retention, ByConsumption):
        raise BadArgument(f"stream {stream!r} is kept {type(retention).__name__}: change that, or leave out discard")
    catalogued = IcebergCatalog(folder, catalog) if table_format == "iceberg" else None
    place = Path(checkpoint) if checkpoint is not None else folder / CHECKPOINT
    with JobFolder.held(place, kind, store, [stream], consumer=consumer) as job:
        if job.consumer not in store.consumers(stream):
            store.register_consumer(stream, job.consumer)
        if discard and retention is None:
            config = msgspec.structs.replace(store.stream(stream).config, retention=ByConsumption())
            store.update_stream(stream, config)
        run = _Archive(store, stream, folder, job) if catalogued is None else catalogued.open(store, stream, job)
        return copy_batches(run.copy_batch, follow=follow, poll_s=_POLL_S, watch=watch)


class _Archive:
    """A run of the job."""

    def __init__(self, store: Store, stream: str, table: Path, job: JobFolder) -> None:
        self._store, self._stream, self._table, self._job = store, stream, table, job
        self._rows = ArchivedRows(store, stream, table, job.name)
        known = job.load(ArchiveProgress)
        self._batch = 0 if known is None else known.batch
        self._cut = store.head(stream) if known is None else StreamCut.parse(known.cut)
        shutil.rmtree(table / _NEW / job.name, ignore_errors=True)

    def copy_batch(self) -> int | None:
        """Copy the next events; return how many there were, None if there were none."""
        end = self._store.next_cut(self._stream, self._cut, max_bytes=BATCH_SIZE).cut
        if end == self._cut:
            return None
        number = self._batch + 1
        rows = self._write(f"{self._job.name}-{number}", self._store.read(self._stream, self._cut, end))
        self._job.store(ArchiveProgress(number, str(end)))
        self._batch, self._cut = number, end
        self._store.register_consumer(self._stream, self._job.consumer, end)
        return rows

    def _write(self, batch: str, events: Iterator[pa.RecordBatch]) -> int:
        """Write the files of a batch, and move them into the table, in place of those of an attempt before."""
        new, today, rows = self._table / _NEW / self._job.name, datetime.now(UTC).date(), 0
        writers: dict[str, pq.ParquetWriter] = {}
        try:
            for table in map(self._rows.of, events):
                rows += len(table)
                for date, first, length in _days(table["mark_time"], today.isoformat()):
                    if date not in writers:
                        folder = new / f"date={date}" / f"batch={batch}"
                        folder.mkdir(parents=True)
                        writers[date] = pq.ParquetWriter(folder / "part-0.parquet", table.schema, compression="snappy")
                    writers[date].write_table(pa.table(table.slice(first, length)), row_group_size=_ROWS)
        finally:
            for writer in writers.values():
                writer.close()
        for before in self._table.glob(f"date=*/batch={batch}"):
            shutil.rmtree(before)
        for date in writers:
            place = self._table / f"date={date}" / f"batch={batch}"
            place.parent.mkdir(exist_ok=True)
            sync(new / f"date={date}" / f"batch={batch}" / "part-0.parquet")
            (new / f"date={date}" / f"batch={batch}").rename(place)
            sync(place, place.parent)
        sync(self._table)
        shutil.rmtree(new, ignore_errors=True)
        return rows


def _days(times: pa.ChunkedArray, today: str) -> Iterator[tuple[str, int, int]]:
    """Return the days of rows with these times: for each run of one day, its first row and its length."""
    days = pc.coalesce(pc.strftime(times, "%Y-%m-%d"), pa.scalar(today)).to_pylist()
    first = 0
    for day, rows in groupby(days):
        length = sum(1 for _ in rows)
        yield day, first, length
        first += length
