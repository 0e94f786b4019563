"""Archives as Iceberg tables: a batch and the cut behind it are one commit.

The cut is a property of the table, so the catalog says how far the archive is, and no file beside it can disagree. The
table is created with its first batch. A run that is killed before its commit leaves data files that no snapshot names,
as any writer of Iceberg does; the next run writes the batch again. One process at a time archives to a folder:
pyiceberg repeats a commit that was overtaken by another one, so a second process could add the same rows twice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.errors import BadArgument
from penstock.events._archived_rows import BATCH_SIZE, ArchivedRows
from penstock.model import StreamCut

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table, Transaction

    from penstock.events._job_folder import JobFolder
    from penstock.store import Store

__all__ = ["IcebergCatalog"]

_FILE: Final = "catalog.db"
_CUT: Final = "penstock.cut"
_JOB: Final = "penstock.job"


class IcebergCatalog:
    """The SQL catalog of an archive, whose tables are in a folder."""

    def __init__(self, folder: Path, address: str | None) -> None:
        try:
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - importing it takes a second
        except ModuleNotFoundError:
            raise BadArgument(
                "an Iceberg table needs the package pyiceberg: pip install 'penstock-stream[iceberg]'"
            ) from None
        self._folder = folder.absolute()
        uri = address or f"sqlite:///{self._folder / _FILE}"
        try:
            sa.make_url(uri)
        except sa.exc.ArgumentError:
            raise BadArgument(
                f"invalid catalog {uri!r}: use an address for SQLAlchemy, such as sqlite:///file"
            ) from None
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._catalog = SqlCatalog("penstock", uri=uri, warehouse=self._folder.as_uri())
        except (sa.exc.SQLAlchemyError, ModuleNotFoundError) as error:
            raise BadArgument(f"cannot open the catalog {sa.make_url(uri)!r}: {error}") from error

    def open(self, store: Store, stream: str, job: JobFolder) -> IcebergArchive:
        """Return the archive of a stream."""
        return IcebergArchive(self, store, stream, job)

    @property
    def folder(self) -> Path:
        """The folder of the archive."""
        return self._folder

    def load(self, stream: str) -> Table | None:
        """Return the table of a stream; None if there is none."""
        name = tuple(stream.split("/"))
        return self._catalog.load_table(name) if self._catalog.table_exists(name) else None

    def begin(self, stream: str, schema: pa.Schema) -> Transaction:
        """Begin to create the table of a stream, which is partitioned by date; it exists with the first commit."""
        scope, name = stream.split("/")
        self._catalog.create_namespace_if_not_exists((scope,))
        transaction = self._catalog.create_table_transaction((scope, name), schema)
        with transaction.update_spec() as spec:
            spec.add_identity("date")
        return transaction


class IcebergArchive:
    """A run of the job."""

    def __init__(self, catalog: IcebergCatalog, store: Store, stream: str, job: JobFolder) -> None:
        self._catalog, self._store, self._stream, self._job = catalog, store, stream, job
        self._rows = ArchivedRows(store, stream, catalog.folder, job.name)
        self._table = catalog.load(stream)
        cut = None
        if self._table is not None:
            if self._table.properties.get(_JOB) != job.name:
                raise BadArgument(
                    f"the Iceberg table of {stream} is not of this archive: use another folder or catalog"
                )
            cut = self._table.properties.get(_CUT)
        self._cut = store.head(stream) if cut is None else StreamCut.parse(cut)

    def copy_batch(self) -> int | None:
        """Copy the next events; return how many there were, None if there were none."""
        end = self._store.next_cut(self._stream, self._cut, max_bytes=BATCH_SIZE).cut
        if end == self._cut:
            return None
        batches = self._store.read(self._stream, self._cut, end)
        rows = _with_date(pa.concat_tables(map(self._rows.of, batches)))
        begun = self._catalog.begin(self._stream, rows.schema) if self._table is None else self._table.transaction()
        with begun as transaction:
            transaction.set_properties({_JOB: self._job.name, _CUT: str(end)})
            transaction.append(rows)
        self._table = self._catalog.load(self._stream)
        self._cut = end
        self._store.register_consumer(self._stream, self._job.consumer, end)
        return len(rows)


def _with_date(rows: pa.Table) -> pa.Table:
    """Add the day of the watermark, or today, by which the table is partitioned."""
    today = pa.scalar(datetime.now(UTC).date(), pa.date32())
    return rows.append_column("date", pc.coalesce(rows["mark_time"].cast(pa.timestamp("ms")).cast(pa.date32()), today))
