"""The archive of a stream as a continuation of the stream before its head: events by offset.

A job copies a stream in batches, in order, so the batch of an offset is found by bisection: the footers of a few files
are read, however many there are. Only batches that the job has noted are read, because it may write the next one again
under the same name. So a file does not change; one that does, after a backup was restored, is noticed by its inode, its
time and its size.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.checkpoints import read_job
from penstock.errors import CorruptData
from penstock.events._job_folder import load_progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ARCHIVE_KIND", "CHECKPOINT", "ArchiveProgress", "ArchivedEvents"]

ARCHIVE_KIND: Final = "archive-local"
CHECKPOINT: Final = "_checkpoint"
_COMMITS: Final = "commits"  # where a query of Spark notes which batches are done
_EVENTS: Final = pa.schema({"event": pa.binary(), "offset": pa.int64()})
_DECODED_ROWS: Final = 256
_FOOTERS_MAX: Final = 1_024  # files

_Batch = tuple["Path", ...]
"""The folders of a batch: one for each date of its events."""


class ArchiveProgress(msgspec.Struct, frozen=True):
    """The last batch that a job without Spark has written, and the cut behind it."""

    batch: int
    cut: str


class _RowGroup(NamedTuple):
    """A row group of a file of the table, with the offsets of its first and of its last event."""

    first: int
    last: int
    file: Path
    number: int


class ArchivedEvents:
    """The events of one archived stream with one segment, by offset; threads may share it."""

    def __init__(self, table: Path, stream: str, uid: int) -> None:
        self._table, self._stream, self._uid = table, stream, uid
        self._lock = threading.Lock()
        self._listed: tuple[str, int] | None = None  # the job, and the last batch that it had noted then
        self._batches: list[_Batch] = []
        self._footers: OrderedDict[Path, tuple[object, list[_RowGroup]]] = OrderedDict()

    @classmethod
    def of(cls, table: Path, stream: str, uid: int) -> Self | None:
        """Return the archive of a stream; None if the table is not there, or that of an earlier stream of this name."""
        job = read_job(table / CHECKPOINT)
        return None if job is None or job.streams.get(stream) != uid else cls(table, stream, uid)

    def between(self, start: int, end: int, *, events_max: int, size_max: int) -> tuple[pa.Table, int] | None:
        """Return the next events from an offset on, and up to where all were looked at; None if there are none.

        They are at most so many, and have at most so many bytes, unless it is one.
        """
        batches = self._batches_up_to(end)
        found: list[pa.Table] = []
        last = start
        for group in self._row_groups(batches, start):
            if group.first >= end:
                break
            if group.first > last and sum(map(len, found)) > events_max:
                break
            with suppress(FileNotFoundError), _intact(group.file):  # it may be deleted, from its oldest date on
                found.append(_read_rows(group, start, rows_max=events_max + 1))
            last = max(last, group.last)
        if not found:
            return None
        table = pa.concat_tables(found).sort_by("offset")
        offsets = table["offset"].to_numpy()
        sizes = np.cumsum(pc.fill_null(pc.binary_length(table["event"]), 0).to_numpy())
        rows = min(events_max, max(1, bisect_right(sizes, size_max)), bisect_left(offsets, end))
        return table.slice(0, rows), min(end, int(offsets[rows])) if rows < len(table) else end

    def _batches_up_to(self, end: int) -> list[_Batch]:
        """Return the batches in order; they are listed again if they end before an offset and the job has gone on."""
        with self._lock:
            batches = self._batches
        if batches and self._last(batches[-1]) >= end:
            return batches
        job = read_job(self._table / CHECKPOINT)
        if job is None or job.streams.get(self._stream) != self._uid:
            return []
        noted = _noted(self._table / CHECKPOINT, job.kind)
        with self._lock:
            if self._listed != (job.name, noted):
                self._batches, self._listed = _list(self._table, job.name, noted), (job.name, noted)
            return self._batches

    def _row_groups(self, batches: list[_Batch], start: int) -> Iterator[_RowGroup]:
        """Yield the row groups that end at an offset or behind it, in order."""
        for batch in batches[bisect_left(batches, start, key=self._last) :]:
            yield from (group for group in self._groups_of(batch) if group.last >= start)

    def _last(self, batch: _Batch) -> int:
        return max((group.last for group in self._groups_of(batch)), default=-1)

    def _groups_of(self, batch: _Batch) -> list[_RowGroup]:
        files = (file for folder in batch for file in folder.glob("*.parquet"))
        return sorted(group for file in files for group in self._groups_of_file(file))

    def _groups_of_file(self, file: Path) -> list[_RowGroup]:
        try:
            status = file.stat()
            key = status.st_ino, status.st_mtime_ns, status.st_size
            with self._lock:
                known, groups = self._footers.get(file, (None, []))
            if known != key:
                with _intact(file):
                    groups = list(_read_groups(file))
        except FileNotFoundError:
            return []
        with self._lock:
            self._footers[file] = key, groups
            self._footers.move_to_end(file)
            if len(self._footers) > _FOOTERS_MAX:
                self._footers.popitem(last=False)
        return groups


def _noted(checkpoint: Path, kind: str) -> int:
    """Return the number of the last batch that a job has noted, -1 at its start."""
    if kind == ARCHIVE_KIND:
        progress = load_progress(checkpoint, ArchiveProgress)
        return -1 if progress is None else progress.batch
    return max((int(file.name) for file in (checkpoint / _COMMITS).glob("[0-9]*")), default=-1)


def _list(table: Path, job: str, noted: int) -> list[_Batch]:
    """Return the batches of a job up to a number; no file is opened."""
    folders = defaultdict[int, list["Path"]](list)
    for folder in table.glob(f"date=*/batch={job}-*"):
        number = int(folder.name.rpartition("-")[2])
        if number <= noted:
            folders[number].append(folder)
    return [tuple(folders[number]) for number in sorted(folders)]


def _read_rows(group: _RowGroup, start: int, *, rows_max: int) -> pa.Table:
    """Return the first events of a row group from an offset on; rows behind them are not decoded.

    A row group of Spark may have a million rows, which need not be in order.
    """
    with pq.ParquetFile(group.file) as file:
        offsets = file.read_row_group(group.number, columns=["offset"])["offset"].cast(pa.int64()).to_numpy()
        rows = np.flatnonzero(offsets >= start)
        rows = np.sort(rows[np.argsort(offsets[rows], kind="stable")[:rows_max]])
        decoded, first = list[pa.Array](), 0
        for batch in file.iter_batches(_DECODED_ROWS, row_groups=[group.number], columns=["event"]):
            if not len(rows) or first > rows[-1]:
                break
            inside = rows[bisect_left(rows, first) : bisect_left(rows, first + len(batch))]
            decoded.append(batch["event"].cast(pa.binary()).take(pa.array(inside - first)))
            first += len(batch)
    return pa.table({"event": pa.chunked_array(decoded, pa.binary()), "offset": offsets[rows]}, schema=_EVENTS)


def _read_groups(file: Path) -> Iterator[_RowGroup]:
    metadata = pq.read_metadata(file)
    columns = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    column = columns.index("offset")
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        if statistics is None or not isinstance(statistics.min, int) or not isinstance(statistics.max, int):
            raise ValueError("it does not say which offsets it has")
        yield _RowGroup(statistics.min, statistics.max, file, number)


@contextmanager
def _intact(file: Path) -> Iterator[None]:
    """Say which file is damaged."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptData(str(file), offset=None, reason=str(error)) from error
