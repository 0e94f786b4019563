"""Events that belong to a database transaction: they are added to a stream if it commits, and only then.

:func:`add_xfer_event` writes an event into a table of the caller's own database, inside the caller's transaction.
:class:`OutboxRelay` moves committed rows to a stream: exactly once, in the order of the commits, also after a crash.

On PostgreSQL a row gets its position when its transaction commits, by a deferred trigger, under a lock that ends with
the commit. So positions become visible in the order of the commits, and transactions wait for each other only while
they commit. On SQLite transactions that write come one after the other anyway. The relay writes with the position as
the number of the event, which a stream takes once. The positions of a new table begin with the time of its creation, in
microseconds, so they are above those of a table of the same name that was there before.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import sqlalchemy as sa

from penstock.errors import BadArgument, WriterFenced
from penstock.events._outage import Outage
from penstock.events._store_events import packed_event

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from penstock.store import Store

__all__ = ["OutboxRelay", "add_xfer_event", "create_outbox"]

TABLE: Final = "evt_outbox"
_DATABASES: Final = ("postgresql", "sqlite")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")
_BATCH: Final = 1_000  # rows that are moved at once
_LONGEST_S: Final = 5.0
_SHORTEST_S: Final = 0.05
_STEP_S: Final = 0.5  # how soon a relay ends that waits for PostgreSQL


def add_xfer_event(connection: sa.Connection, type: str, data: object, table: str = TABLE) -> None:  # noqa: A002
    """Add an event within the caller's transaction; it reaches the stream after the commit, or never.

    ``data`` is any JSON value. The table is made by :func:`create_outbox`.
    """
    event = packed_event(type, data)
    connection.execute(sa.insert(_table(table)).values(event=event.decode()))


def create_outbox(connection: sa.Connection, table: str = TABLE) -> None:
    """Create the table of events to be moved, and on PostgreSQL its trigger; nothing is done if it exists."""
    known = _table(table)
    _check_database(connection)
    if sa.inspect(connection).has_table(table):
        return
    known.create(connection)
    start = time.time_ns() // 1000
    if connection.dialect.name == "postgresql":
        for statement in _postgresql(table, start):
            connection.exec_driver_sql(statement)
    else:
        counts = sa.table("sqlite_sequence", sa.column("name"), sa.column("seq"))
        connection.execute(sa.insert(counts).values(name=table, seq=start))


def _check_database(database: sa.Engine | sa.Connection) -> None:
    if database.dialect.name not in _DATABASES:
        raise BadArgument(f"an outbox needs PostgreSQL or SQLite: {database.dialect.name} is not supported")


def _check_file(engine: sa.Engine) -> None:
    """Refuse an SQLite database that does not exist: connecting would leave an empty file behind."""
    file = engine.url.database
    if engine.dialect.name != "sqlite" or not file or file.startswith(("file:", ":")):
        return
    if not Path(file).exists():
        raise BadArgument(f"there is no database {file}: check the path")


def _table(name: str) -> sa.Table:
    if not _NAME.fullmatch(name):
        raise BadArgument(f"invalid table name {name!r}: use letters, digits and '_', at most 48")
    whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # which counts in this type only
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("id", whole, sa.Identity(), primary_key=True),
        sa.Column("position", sa.BigInteger(), unique=True),
        sa.Column("event", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )


def _postgresql(table: str, start: int) -> tuple[str, ...]:
    """Return what gives rows their positions: when they are committed, in the order of the commits."""
    return (
        f'CREATE SEQUENCE "{table}_positions" START WITH {start}',
        f"""
        CREATE FUNCTION "{table}_commit"() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock(hashtext('{table}'), TG_RELID::integer);
            UPDATE "{table}" SET position = nextval('"{table}_positions"') WHERE id = NEW.id;
            PERFORM pg_notify('{table}', '');
            RETURN NULL;
        END $$""",
        f"""
        CREATE CONSTRAINT TRIGGER "{table}_commit" AFTER INSERT ON "{table}"
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "{table}_commit"()""",
    )


class OutboxRelay:
    """Moves the committed rows of an outbox to a stream. Several may run: the newest one moves, the others end.

    ``store`` is any store, ``engine`` the application's database. The relay is the writer ``outbox.<table>`` of the
    stream; several databases that feed one stream need tables of different names.
    """

    def __init__(self, engine: sa.Engine, store: Store, stream: str, table: str = TABLE) -> None:
        self._engine, self._table = engine, _table(table)
        _check_database(engine)
        _check_file(engine)
        if not sa.inspect(engine).has_table(table):
            raise BadArgument(f"the database has no table {table}: create it with penstock.events.outbox.create_outbox")
        self._position = self._table.c.position if engine.dialect.name == "postgresql" else self._table.c.id
        self._writer = store.writer(stream, writer_id=f"outbox.{table}")
        self._written = self.moved = 0

    def move(self) -> int:
        """Move the rows that are there, at most 1,000, and return how many; rows are deleted once they are durable."""
        with self._engine.connect() as connection:
            wanted = sa.select(self._position, self._table.c.event).where(self._position.is_not(None))
            rows: Sequence[Any] = connection.execute(wanted.order_by(self._position).limit(_BATCH)).all()
        if not rows:
            return 0
        acks = [
            self._writer.write_event(event.encode(), _type_of(event), number=position)
            for position, event in rows
            if position > self._written  # those up to it are in the stream, and only their deletion failed
        ]
        for ack in acks:
            ack.result()
        self._written = rows[-1][0]
        with self._engine.begin() as connection:
            connection.execute(sa.delete(self._table).where(self._position <= rows[-1][0]))
        self.moved += len(rows)
        return len(rows)

    def run(self, stop: threading.Event) -> None:
        """Move rows until ``stop`` is set; PostgreSQL wakes the relay, on other databases it looks again and again.

        A database that is out of reach is waited for, up to ten minutes. ``WriterFenced`` if another relay has taken
        over.
        """
        outage = Outage("the database of an outbox")
        lost = (sa.exc.OperationalError, self._engine.dialect.loaded_dbapi.OperationalError)
        while not stop.is_set():
            try:
                with _Notifications.of(self._engine, self._table.name) as notifications:
                    self._run(stop, notifications, outage)
            except lost as error:
                stop.wait(outage.pause_after(error))

    def _run(self, stop: threading.Event, notifications: _Notifications, outage: Outage) -> None:
        delay_s = _SHORTEST_S
        while not stop.is_set():
            count = self.move()
            outage.end()
            delay_s = _SHORTEST_S if count else min(2 * delay_s, _LONGEST_S)
            if count < _BATCH:
                notifications.wait(stop, delay_s)

    def close(self) -> None:
        """Write no more; the engine and the store stay open."""
        with suppress(WriterFenced):
            self._writer.close()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _type_of(event: str) -> str:
    """Return the type of an event, which is its key, as of those that are added over the network."""
    return event[9 : event.index('"', 9)]


class _Notifications:
    """Waits for the next rows: until PostgreSQL notifies, or just for a while."""

    def __init__(self, connection: sa.Connection | None = None, driver: Any = None) -> None:  # noqa: ANN401
        self._connection, self._driver = connection, driver

    @classmethod
    def of(cls, engine: sa.Engine, table: str) -> _Notifications:
        """Listen, if the database and its driver can."""
        if engine.dialect.name != "postgresql" or engine.dialect.driver != "psycopg":
            return cls()
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        driver = connection.connection.driver_connection
        connection.detach()  # one that listens does not go back to the pool
        connection.exec_driver_sql(f'LISTEN "{table}"')
        return cls(connection, driver)

    def wait(self, stop: threading.Event, seconds: float) -> None:
        """Return when there may be new rows, at the latest after so many seconds, or soon after ``stop`` is set."""
        if self._driver is None:
            stop.wait(seconds)
            return
        for _ in range(max(1, int(_LONGEST_S / _STEP_S))):
            if stop.is_set() or list(self._driver.notifies(timeout=_STEP_S, stop_after=1)):
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
