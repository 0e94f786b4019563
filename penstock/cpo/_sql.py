"""The oracle in a relational database: one table, plain SQL."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, String, Table, bindparam, delete, insert, select
from sqlalchemy.exc import SQLAlchemyError

from penstock.cpo import _root
from penstock.cpo._cpo import Cpo, Versioned
from penstock.cpo._entry import Entry, whole
from penstock.cpo._root import ROOT_KEY, Root
from penstock.errors import CpoCorrupt, FormatUnknown, StoreClosed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Engine

    from penstock.errors import PenstockError
    from penstock.ports import Clock


_SCHEMA: Final = MetaData()
_TABLE: Final = Table(
    "penstock_cpo",
    _SCHEMA,
    Column("key", String, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("check", BigInteger, nullable=False),
)
_ALL_ROWS: Final = select(_TABLE)
_ROW: Final = select(_TABLE).where(_TABLE.c.key == bindparam("name"))
_ADD_ROW: Final = insert(_TABLE)
_ERASE_ROW: Final = delete(_TABLE).where(_TABLE.c.key == bindparam("name"))


class Database(Protocol):
    """The parts that differ between databases."""

    url: str
    path: str
    engine: Engine
    """Transactions with the execution option ``write`` run one after another; all others read one snapshot."""

    def is_new(self, connection: Connection) -> bool:
        """Return whether it never held anything. A database that lost its table is not new."""

    def find_damage(self, connection: Connection) -> str | None:
        """Return the damage that the database finds in its own files; None if there is none."""

    def explain(self, error: Exception) -> PenstockError:
        """Translate an error of SQLAlchemy or the driver into one of ours."""


class SqlCpo(Cpo):
    """The oracle in a relational database; a single lock, because calls are few and correctness matters most."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database.path, clock)
        self._database = database
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with self._transaction(write=False) as connection:
            damage = self._database.find_damage(connection)
            if damage is not None:
                raise CpoCorrupt(self._path, offset=None, reason=damage)
            is_new = self._database.is_new(connection)
        if is_new:
            self._create()
        with self._rows(write=False) as rows:
            rows.entries()

    def _create(self) -> None:
        with self._transaction(write=True) as connection:
            if self._database.is_new(connection):  # checked again: another process may have been first
                _SCHEMA.create_all(connection, checkfirst=False)
                _SqlRows(connection, self._path).create_root()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Connection]:
        with self._lock:
            if self._closed:
                raise StoreClosed(f"the control plane oracle {self._database.url}")
            try:
                with self._database.engine.execution_options(write=write).begin() as connection:
                    yield connection
            # Python's driver fails with this on a message of SQLite that quotes damaged text.
            except (SQLAlchemyError, UnicodeDecodeError) as error:
                raise self._database.explain(error) from error

    @contextmanager
    def _rows(self, *, write: bool) -> Iterator[_SqlRows]:
        with self._transaction(write=write) as connection:
            yield _SqlRows(connection, self._path)

    def close(self) -> None:
        """Wait for the present call, then close the database."""
        with self._lock:
            self._closed = True
            self._database.engine.dispose()


class _SqlRows:
    """The rows inside one transaction."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection, self._path = connection, path

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
        self._add(Entry(ROOT_KEY, 0, _root.encode(Root())))

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
        row = self._connection.execute(_ROW, {"name": key}).one_or_none()
        return None if row is None else self._whole(row)

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
            self._erase(key)
            root = root.minus(old)
        if new is not None:
            self._add(new)
            root = root.plus(new)
        self._erase(ROOT_KEY)
        self._add(Entry(ROOT_KEY, root_entry.version + 1, _root.encode(root)))

    def _add(self, entry: Entry) -> None:
        row = {"key": entry.key, "version": entry.version, "value": entry.value, "check": entry.check}
        self._connection.execute(_ADD_ROW, row)

    def _erase(self, key: str) -> None:
        self._connection.execute(_ERASE_ROW, {"name": key})

    def _whole(self, row: Sequence[object]) -> Entry:
        entry = whole(row)
        if entry is None:
            raise self._damaged(f"the row of {row[0]!r} fails its check")
        return entry

    def _damaged(self, reason: str) -> CpoCorrupt:
        return CpoCorrupt(self._path, offset=None, reason=reason)
