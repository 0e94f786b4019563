"""The oracle in a relational database: one table, plain SQL."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import sqlalchemy as sa

from penstock.cpo import _root
from penstock.cpo._cpo import Cpo, Versioned
from penstock.cpo._entry import Entry, whole
from penstock.cpo._root import ROOT_KEY, Root
from penstock.errors import CpoCorrupt, CpoUnavailable, FormatUnknown, StoreClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from penstock.cpo._cpo import CpoRows

_T = TypeVar("_T")

TABLE: Final = "penstock_cpo"
_SCHEMA: Final = sa.MetaData()
# By bytes: PostgreSQL's other orders change with the system's library, and an index does not find its rows then.
_KEY: Final = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_TABLE: Final = sa.Table(
    TABLE,
    _SCHEMA,
    sa.Column("key", _KEY, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("value", sa.LargeBinary, nullable=False),
    sa.Column("check", sa.BigInteger, nullable=False),
)
_ALL_ROWS: Final = sa.select(_TABLE)
_ROW: Final = sa.select(_TABLE).where(_TABLE.c.key == sa.bindparam("name"))
_ADD_ROW: Final = sa.insert(_TABLE)
_REPLACE_ROW: Final = sa.update(_TABLE).where(_TABLE.c.key == sa.bindparam("name"))
_ERASE_ROW: Final = sa.delete(_TABLE).where(_TABLE.c.key == sa.bindparam("name"))


class Database(Protocol):
    """The parts that differ between databases."""

    url: str
    """For messages: without credentials."""
    path: str

    def transact(self, step: Callable[[Connection, float], _T], *, write: bool) -> _T:
        """Run a step in a transaction, and commit it; the step gets the time by the clock that all processes share.

        Transactions that write run one after another; all others read one snapshot. The step may run again if its
        transaction was certainly not committed. Errors of SQLAlchemy or the driver are translated into ours.
        """

    def check(self, connection: Connection) -> None:
        """Raise an error if the database cannot hold an oracle, or finds damage in its own files."""

    def is_new(self, connection: Connection) -> bool:
        """Return whether there is no table. A file that lost its table is not new."""

    def close(self) -> None:
        """Close the connections."""


class SqlCpo(Cpo):
    """The oracle in a relational database; a single lock, because calls are few and correctness matters most."""

    def __init__(self, database: Database, *, create: bool) -> None:
        super().__init__(database.path)
        self._database = database
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._open(create=create)
        except BaseException:
            self.close()
            raise

    def _open(self, *, create: bool) -> None:
        if self._transact(self._is_new, write=False):
            if not create:
                raise CpoUnavailable(self._database.url, reason=f"it has no table {TABLE}")
            self._transact(self._create, write=True)
        self._run(_SqlRows.entries, write=False)

    def _is_new(self, connection: Connection, _now: float) -> bool:
        self._database.check(connection)
        return self._database.is_new(connection)

    def _create(self, connection: Connection, now: float) -> None:
        if self._database.is_new(connection):  # checked again: another process may have been first
            _SCHEMA.create_all(connection, checkfirst=False)
            _SqlRows(connection, self._path, now).create_root()

    def _read(self, step: Callable[[CpoRows], _T]) -> _T:
        return self._run(step, write=False)

    def _change(self, step: Callable[[CpoRows], _T]) -> _T:
        return self._run(step, write=True)

    def _run(self, step: Callable[[_SqlRows], _T], *, write: bool) -> _T:
        return self._transact(lambda connection, now: step(_SqlRows(connection, self._path, now)), write=write)

    def _transact(self, step: Callable[[Connection, float], _T], *, write: bool) -> _T:
        with self._lock:
            if self._closed:
                raise StoreClosed(f"the control plane oracle {self._database.url}")
            return self._database.transact(step, write=write)

    def close(self) -> None:
        """Wait for the present call, then close the database."""
        with self._lock:
            self._closed = True
            self._database.close()


class _SqlRows:
    """The rows inside one transaction, each read once: no other transaction changes them meanwhile."""

    def __init__(self, connection: Connection, path: str, now: float) -> None:
        self._connection, self._path, self.now = connection, path, now
        self._seen: dict[str, Entry | None] = {}

    def get(self, key: str) -> Versioned | None:
        """Return the row, checked."""
        entry = self._find(key)
        return None if entry is None else Versioned(entry.value, entry.version)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys, after a check that none is missing."""
        return sorted(entry.key for entry in self.entries() if entry.key.startswith(prefix))

    def put(self, key: str, value: bytes) -> int:
        """Create or replace a row."""
        new = Entry(key, self._root_entry().version + 1, value)
        self._replace(key, new)
        return new.version

    def remove(self, key: str) -> None:
        """Remove a row."""
        self._replace(key, None)

    def create_root(self) -> None:
        """Write the root of an empty table."""
        self._write(Entry(ROOT_KEY, 0, _root.encode(Root())))

    def entries(self) -> list[Entry]:
        """Return all rows except the root, checked, after a check that none is missing."""
        entries = [self._whole(row) for row in self._connection.execute(_ALL_ROWS)]
        others = [entry for entry in entries if entry.key != ROOT_KEY]
        if Root.of(others) != _root.decode(self._root_entry().value):
            raise self._damaged("rows are missing, or older than they should be")
        return others

    def _find(self, key: str) -> Entry | None:
        entry = self._look_up(key)
        # A damaged index may hide a row, so an absence is checked too.
        if entry is None and any(other.key == key for other in self.entries()):
            raise self._damaged(f"the index does not find {key!r}")
        return entry

    def _look_up(self, key: str) -> Entry | None:
        if key not in self._seen:
            row = self._connection.execute(_ROW, {"name": key}).one_or_none()
            self._seen[key] = None if row is None else self._whole(row)
        return self._seen[key]

    def _root_entry(self) -> Entry:
        entry = self._look_up(ROOT_KEY)
        if entry is None:
            raise self._damaged("the root is missing")
        actual = _root.format_of(entry.value)
        if actual != _root.FORMAT:
            raise FormatUnknown(self._path, actual=f"cpo format {actual}", known=f"cpo format {_root.FORMAT}")
        return entry

    def _replace(self, key: str, new: Entry | None) -> None:
        """Change one row, and the root with it."""
        root_entry = self._root_entry()
        root = _root.decode(root_entry.value)
        old = self._look_up(key)
        if old is not None:
            root = root.minus(old)
        if new is not None:
            self._write(new)
            root = root.plus(new)
        elif old is not None:
            self._connection.execute(_ERASE_ROW, {"name": key})
            self._seen[key] = None
        self._write(Entry(ROOT_KEY, root_entry.version + 1, _root.encode(root)))

    def _write(self, entry: Entry) -> None:
        row = {"key": entry.key, "version": entry.version, "value": entry.value, "check": entry.check}
        if self._look_up(entry.key) is None:
            self._connection.execute(_ADD_ROW, row)
        else:
            self._connection.execute(_REPLACE_ROW, {**row, "name": entry.key})
        self._seen[entry.key] = entry

    def _whole(self, row: Sequence[object]) -> Entry:
        entry = whole(row)
        if entry is None:
            raise self._damaged(f"the row of {row[0]!r} fails its check")
        return entry

    def _damaged(self, reason: str) -> CpoCorrupt:
        return CpoCorrupt(self._path, offset=None, reason=reason)
