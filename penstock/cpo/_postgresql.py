"""PostgreSQL as the oracle's database, for processes on several machines.

- Transactions that write take one lock, which ends with them, so they run one after another in all processes. The
  time of a lease is read after that, from the server's clock.
- A call is repeated when its transaction was certainly not committed: the connection was lost before COMMIT was sent,
  or the server says that it rolled back. If the answer to COMMIT is lost, the server is asked what became of the
  transaction, by its id, under the lock: the transaction is over then, so the answer is final.
- Every wait is bounded here, because a server that is stopped does not bound it.
- Nothing depends on the session: a proxy may run each transaction on another connection. Settings are those of the
  transaction, and no statement is prepared.
"""

from __future__ import annotations

import logging
import random
import re
import time
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from penstock.cpo import _root
from penstock.cpo._sql import TABLE
from penstock.errors import BadArgument, CpoCorrupt, CpoUnavailable, DiskFull, FormatUnknown, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg.abc import PQGen
    from sqlalchemy import Connection

_T = TypeVar("_T")

CALL_S: Final = 10.0
"""How long a call is repeated; the attempt that is under way then is the last one."""
ANSWER_S: Final = 3.0
"""The longest wait for the answer to one statement."""
CONNECT_S: Final = 3
"""The longest wait for a connection to one host; libpq counts in seconds, and waits for two at least."""
LOCK_S: Final = 2.0
"""The longest wait for the transactions of other processes, each of a few milliseconds; shorter than for an answer."""
IDLE_S: Final = 5
"""When the server ends the transaction of a process that is stopped, and would keep all others waiting."""
VERSION_MIN: Final = 13
"""The first one with ``pg_xact_status`` and its 64-bit ids."""

_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 0.5
_jitter: Final = random.Random()
_logger: Final = logging.getLogger("penstock.cpo")

_LOCK: Final = 0x50454E53544F434B  # "PENSTOCK": all oracles of one database share it
_COLUMNS: Final = {"key": "character varying", "version": "bigint", "value": "bytea", "check": "bigint"}
_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
# statement_timeout would end the wait for a synchronous standby as well, and call that a commit.
_BEGIN_WRITE: Final = f"""
    BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL statement_timeout = 0;
    SET LOCAL lock_timeout = '{LOCK_S * 1000:.0f}ms';
    SET LOCAL idle_in_transaction_session_timeout = '{IDLE_S}s';
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
    SELECT pg_advisory_xact_lock({_LOCK});
    SELECT {_NOW}, pg_is_in_recovery(), pg_current_xact_id()::text"""
_BEGIN_READ: Final = f"""
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL idle_in_transaction_session_timeout = '{IDLE_S}s';
    SELECT {_NOW}, pg_is_in_recovery(), ''"""

# SQLSTATE codes, or the classes that they begin with.
_PASSING: Final = (
    "08",  # the connection is lost
    "40",  # rolled back: a serialization failure, a deadlock
    "25P03",  # this process was stopped for too long
    "53300",  # too many connections
    "55P03",  # the lock was not free in time
    "57014",  # cancelled
    "57P",  # the server stops, or starts
)
_UNANSWERED: Final = ("08", "40003", "57P")
_DAMAGED: Final = ("42P01", "42703", "XX001", "XX002")  # the table or a column is gone, or PostgreSQL finds damage
_DISK_FULL: Final = "53100"


class _Begun(NamedTuple):
    connection: Connection
    now: float
    transaction_id: str


class _CommitUnanswered(Exception):
    """No answer came to COMMIT."""

    def __init__(self, transaction_id: str, result: object, cause: Exception) -> None:
        super().__init__(transaction_id)
        self.transaction_id, self.result, self.cause = transaction_id, result, cause


class PostgresqlDatabase:
    """A database of a PostgreSQL server, or of several of which one is the primary."""

    def __init__(self, url: str) -> None:
        parameters = _parameters(url)
        self.url = self.path = _public_url(parameters)
        self._was_reached = False
        self.engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: _ImpatientConnection.connect(autocommit=True, prepare_threshold=None, **parameters),
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            hide_parameters=True,
            use_native_hstore=False,
        )

    def transact(self, step: Callable[[Connection, float], _T], *, write: bool) -> _T:
        """Run a step until it is certain what became of it, for a while.

        A server that was never reached is not waited for: more often than it is away, its address is wrong.
        """
        until = time.monotonic() + (CALL_S if self._was_reached else 0.0)

        def attempt() -> _T:
            try:
                return self._attempt(step, write=write)
            except _CommitUnanswered as error:
                if self._is_committed(error.transaction_id, until):
                    return cast("_T", error.result)
                raise error.cause from None  # rolled back, so there may be another attempt

        return self._repeat(attempt, until)

    def _repeat(self, attempt: Callable[[], _T], until: float, *, outcome_unknown: bool = False) -> _T:
        """Make attempts until one succeeds, fails for good, or time is up."""
        pause_s = _PAUSE_S
        while True:
            try:
                result = attempt()
            except (DBAPIError, psycopg.Error) as error:
                if not _may_pass(error) or time.monotonic() >= until:
                    raise self._explain(error, outcome_unknown=outcome_unknown) from error
                if pause_s == _PAUSE_S:  # the first one of this call
                    _logger.warning("the control plane oracle at %s: %s; trying again", self.url, _reason(error))
            else:
                self._was_reached = True
                return result
            time.sleep(pause_s * _jitter.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def _attempt(self, step: Callable[[Connection, float], _T], *, write: bool) -> _T:
        with self._transaction(write=write) as (connection, now, transaction_id):
            result = step(connection, now)
            try:
                connection.commit()
            except (DBAPIError, psycopg.Error) as error:
                if write and _state(error).startswith(_UNANSWERED):
                    raise _CommitUnanswered(transaction_id, result, error) from error
                raise
            return result

    def _is_committed(self, transaction_id: str, until: float) -> bool:
        """Find out what became of a transaction. It had the lock, so it is over when another one has it."""

        def attempt() -> str | None:
            with self._transaction(write=True) as (connection, _, _):
                query = text("SELECT pg_xact_status(CAST(:id AS xid8))")
                return cast("str | None", connection.execute(query, {"id": transaction_id}).scalar_one())

        status = self._repeat(attempt, until, outcome_unknown=True)
        if status not in ("committed", "aborted"):
            reason = f"the server does not know transaction {transaction_id}"
            raise CpoUnavailable(self.url, reason=reason, outcome_unknown=True)
        return status == "committed"

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[_Begun]:
        """Begin a transaction; it is rolled back unless the block commits it."""
        with self.engine.connect() as connection:
            try:
                yield self._begin(connection, write=write)
            except PenstockError:
                raise
            except BaseException:
                connection.invalidate()  # its state is unknown
                raise

    def _begin(self, connection: Connection, *, write: bool) -> _Begun:
        """Send BEGIN, and what belongs to it, in one round trip."""
        cursor = _driver(connection).execute(_BEGIN_WRITE if write else _BEGIN_READ)
        while cursor.nextset():
            pass  # on to the last statement
        [(now, is_standby, transaction_id)] = cursor
        if is_standby:  # a proxy may lead to one, whatever the connection was at first
            raise psycopg.OperationalError("the server is a standby: its answers may be out of date")
        return _Begun(connection, now, transaction_id)

    def check(self, connection: Connection) -> None:
        """Look at the server's version, the encoding, and whether a table of our name has our columns."""
        version = _driver(connection).info.server_version // 10_000
        if version < VERSION_MIN:
            raise CpoUnavailable(self.url, reason=f"PostgreSQL {version} is too old: use {VERSION_MIN} or newer")
        encoding = connection.execute(text("SELECT current_setting('server_encoding')")).scalar_one()
        if encoding != "UTF8":
            raise CpoUnavailable(self.url, reason=f"the encoding of the database is {encoding}: create one with UTF8")
        query = text(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
            f"WHERE attrelid = to_regclass('{TABLE}') AND attnum > 0 AND NOT attisdropped"
        )
        columns = {str(name): str(kind) for name, kind in connection.execute(query)}
        if columns and columns != _COLUMNS:
            actual = f"another table {TABLE} with the columns {', '.join(columns)}"
            raise FormatUnknown(self.url, actual=actual, known=f"cpo format {_root.FORMAT}")

    def is_new(self, connection: Connection) -> bool:
        """Return whether there is no table. A table that was dropped looks like one that never was."""
        return cast("bool", connection.execute(text(f"SELECT to_regclass('{TABLE}') IS NULL")).scalar_one())

    def close(self) -> None:
        """Close the connection."""
        self.engine.dispose()

    def _explain(self, error: Exception, *, outcome_unknown: bool) -> PenstockError:
        reason, state = _reason(error), _state(error)
        if state == _DISK_FULL and not outcome_unknown:
            return DiskFull(self.path)
        if state in _DAMAGED:
            return CpoCorrupt(self.path, offset=None, reason=reason)
        return CpoUnavailable(self.url, reason=reason, outcome_unknown=outcome_unknown)


class _ImpatientConnection(psycopg.Connection[Any]):
    """Waits for an answer for some time only: a server that is stopped keeps its connections open."""

    def wait(self, gen: PQGen[_T], *args: Any, **kwargs: Any) -> _T:  # noqa: ANN401 - as in the base class
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: PQGen[_T]) -> PQGen[_T]:
        until = time.monotonic() + ANSWER_S
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() >= until:
                    self.close()
                    raise psycopg.OperationalError(f"the server did not answer within {ANSWER_S:g} s")
                state = gen.send(ready)
        except StopIteration as end:
            return cast("_T", end.value)


def _driver(connection: Connection) -> _ImpatientConnection:
    return cast("_ImpatientConnection", connection.connection.driver_connection)


def _cause(error: Exception) -> BaseException:
    return error if not isinstance(error, DBAPIError) or error.orig is None else error.orig


def _reason(error: Exception) -> str:
    """Return the message of the server or of libpq, in one line; neither of them repeats a password."""
    return " ".join(str(_cause(error)).split())


def _state(error: Exception) -> str:
    """Return the SQLSTATE of the server's answer; 08 if there was none."""
    cause = _cause(error)
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if state is None and isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return "08"
    return state or ""


def _may_pass(error: Exception) -> bool:
    return _state(error).startswith(_PASSING)


def _parameters(url: str) -> dict[str, Any]:
    """Return the parameters of libpq. An unescaped '@' or '/' in a password makes the rest of it a host or a database.

    Of several hosts the primary is chosen. A standby is refused: its answers may be out of date.
    """
    advice = "use 'postgresql://USER:PASSWORD@HOST:PORT/DATABASE', with '%40' for '@' and '%2F' for '/' in a password"
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        raise BadArgument(f"invalid PostgreSQL address: {advice}") from None
    host, port, database = (str(parameters.get(name, "")) for name in ("host", "port", "dbname"))
    if "@" in host or not re.fullmatch(r"[\d,]*", port) or re.search("[@/]", database):
        raise BadArgument(f"invalid PostgreSQL address: {advice}")
    return {
        "fallback_application_name": "penstock",
        **parameters,
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_S,
        "target_session_attrs": "read-write",
    }


def _public_url(parameters: dict[str, Any]) -> str:
    """Return the address for messages: hosts, ports and the database, and no credentials."""
    hosts, ports = str(parameters.get("host", "")), str(parameters.get("port", ""))
    database = parameters.get("dbname", "")
    if hosts.startswith("/"):
        return f"postgresql:///{database}?host={hosts}"
    pairs = zip(hosts.split(","), cycle(ports.split(",")), strict=False)  # one port may be that of all hosts
    return f"postgresql://{','.join(f'{host}:{port}' if port else host for host, port in pairs)}/{database}"
