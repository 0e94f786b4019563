"""SQLite under the oracle: how it is opened, so that what it acknowledges is on the disk.

- ``journal_mode=DELETE`` and ``synchronous=EXTRA``: a commit returns after the database, and the folder without the
  journal in it, are on the disk. WAL would be faster, but there is little to write, and WAL is one more file to lose.
- Python's driver begins transactions by itself, after the first read and only for some statements. It is
  told not to (``isolation_level=None``); we begin them: IMMEDIATE to write, so that nothing read before the
  write can be out of date.
- One connection, which the oracle's lock passes from thread to thread.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from penstock.errors import CpoCorrupt, CpoUnavailable, DiskFull, PenstockError

if TYPE_CHECKING:
    from sqlalchemy import Engine

BUSY_SECONDS_MAX: Final = 10.0
"""How long to wait for other processes to finish their transactions, each of a few milliseconds."""

_PRAGMAS: Final = (
    "PRAGMA journal_mode=DELETE",
    "PRAGMA synchronous=EXTRA",
    "PRAGMA fullfsync=ON",  # on macOS only this reaches the disk
    "PRAGMA cell_size_check=ON",  # look for damage in each page read, not only when opened
    "PRAGMA trusted_schema=OFF",  # a file from elsewhere may not run functions of ours
)

# What the world does to a sound database. Our statements are few and tested: any other error is the database's.
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

    def __init__(self, url: str, path: str | None) -> None:
        self.url = url
        self.path = url if path is None else str(Path(path).absolute())
        self.engine = _engine(":memory:" if path is None else self.path)

    def is_new(self, connection: Connection) -> bool:
        """Whether it has no page but its first, which is there from BEGIN IMMEDIATE on; every table has one more.

        A file cut to nothing cannot be told from a new one.
        """
        pages: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return pages <= 1

    def find_damage(self, connection: Connection) -> str | None:
        """Ask SQLite to read every page, and to compare the table with its index."""
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        return None if found == "ok" else str(found)

    def explain(self, error: Exception) -> PenstockError:
        """Tell damage from what may pass."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        name = getattr(cause, "sqlite_errorname", type(cause).__name__)
        if code & 0xFF == sqlite3.SQLITE_FULL:  # the transaction was undone
            return DiskFull(self.path)
        if code & 0xFF in _UNAVAILABLE:  # the bits above say more, and are in the name
            return CpoUnavailable(self.url, reason=f"{cause} ({name})")
        return CpoCorrupt(self.path, offset=None, reason=f"{cause} ({name})")


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
