"""SQLite as the oracle's database, opened so that every acknowledged change is on the disk.

- ``journal_mode=DELETE`` and ``synchronous=EXTRA``: a commit returns once the database, and the removal of the journal
  from the folder, are on the disk. WAL would be faster, but there is little to write, and WAL is one more file to lose.
- Python's driver begins transactions by itself, after the first read and only for some statements. With
  ``isolation_level=None`` it does not, and we begin them: IMMEDIATE to write, so that nothing read before the write is
  out of date.
- One connection, protected by the oracle's lock.
- Leases expire by the clock of the machine, which all processes that share the file have in common.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from penstock.errors import CpoCorrupt, CpoUnavailable, DiskFull, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from penstock.ports import Clock

_T = TypeVar("_T")

BUSY_SECONDS_MAX: Final = 10.0
"""The longest wait for the transactions of other processes, each of a few milliseconds."""

_PRAGMAS: Final = (
    "PRAGMA journal_mode=DELETE",
    "PRAGMA synchronous=EXTRA",
    "PRAGMA fullfsync=ON",  # on macOS only this flushes to the disk
    "PRAGMA cell_size_check=ON",  # check each page for damage when it is read, not only when opened
    "PRAGMA trusted_schema=OFF",  # a file from elsewhere must not run functions
)

# Errors of an intact database. Our statements are few and tested, so any other error means damage.
_UNAVAILABLE: Final = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


class SqliteDatabase:
    """A SQLite database in a file, or in memory if it has no path."""

    def __init__(self, url: str, path: str | None, clock: Clock) -> None:
        self.url, self._clock = url, clock
        self.path = url if path is None else str(Path(path).absolute())
        if path is not None:
            _make_private(self.path)
        self.engine = _engine(":memory:" if path is None else self.path)

    def transact(self, step: Callable[[Connection, float], _T], *, write: bool) -> _T:
        """Run a step once: SQLite waits for other processes by itself."""
        try:
            with self.engine.execution_options(write=write).begin() as connection:
                return step(connection, self._clock.now())
        # Python's driver fails with the second on a message of SQLite that quotes damaged text.
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            raise self._explain(error, write=write) from error

    def check(self, connection: Connection) -> None:
        """Let SQLite read every page, and compare the table with its index."""
        result = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if result != "ok":
            raise CpoCorrupt(self.path, offset=None, reason=str(result))

    def is_new(self, connection: Connection) -> bool:
        """Return whether it has no page but the first, which BEGIN IMMEDIATE creates; every table has one more.

        A file truncated to nothing looks like a new one.
        """
        pages: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return pages <= 1

    def close(self) -> None:
        """Close the connection."""
        self.engine.dispose()

    def _explain(self, error: Exception, *, write: bool) -> PenstockError:
        """Distinguish damage from errors that may pass."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        name = getattr(cause, "sqlite_errorname", type(cause).__name__)
        if code & 0xFF == sqlite3.SQLITE_FULL:  # the transaction was rolled back
            return DiskFull(self.path)
        if code & 0xFF in _UNAVAILABLE:  # the higher bits are an extended code, which is in the name
            outcome_unknown = write and code & 0xFF == sqlite3.SQLITE_IOERR
            return CpoUnavailable(self.url, reason=f"{cause} ({name})", outcome_unknown=outcome_unknown)
        return CpoCorrupt(self.path, offset=None, reason=f"{cause} ({name})")


def _make_private(path: str) -> None:
    """Create the file, if there is none, closed to other users; SQLite would let them read it, and so hold its lock."""
    with suppress(OSError):  # it is there, or SQLite says why it cannot be
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _engine(path: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite+pysqlite", database=path),
        poolclass=StaticPool,
        connect_args={"isolation_level": None, "check_same_thread": False, "timeout": BUSY_SECONDS_MAX},
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: sqlite3.Connection, _record: object) -> None:
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma).close()
    except BaseException:
        connection.close()  # the pool never got it
        raise


def _begin(connection: Connection) -> None:
    write = connection.get_execution_options()["write"]
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
