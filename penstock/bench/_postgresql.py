"""PostgreSQL: a stream is a table, psycopg 3, over a Unix socket in a folder that only its user may enter.

It syncs before it acknowledges by default (``synchronous_commit = on``), so there is one setting of it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, LiteralString

from penstock.bench._process import ServerProcess, find_program
from penstock.bench._system import (
    WAIT_S,
    NotOffered,
    SystemMissing,
    SystemUnderTest,
    need_package,
    tail_times,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.bench._system import EventLoad

__all__ = ["PostgreSQL"]

_USER: Final = "postgres"
_COMMIT_EVENTS: Final = 1000
_FETCH_EVENTS: Final = 10_000
_LARGEST: Final = (1 << 30) - (1 << 20)
_SOCKET_PATH_MAX: Final = 107 - len("/.s.PGSQL.5432")
_INSTALL: Final = "on Debian, apt-get install postgresql"


class PostgreSQL(SystemUnderTest):
    """A server of its own; as root, it runs as the user postgres, as it insists on."""

    name = "postgresql"
    key = "postgresql"
    title = "PostgreSQL"
    is_synced = True
    is_default = True
    settings: ClassVar[Mapping[str, str]] = {
        "client": "psycopg 3, binary, over a Unix socket",
        "acknowledged": "when synced (synchronous_commit = on, its default)",
        "batch": "COPY of up to 10,000 events or 4 MiB; event by event: transactions of 1,000 inserts",
        "in flight": "event by event, all events of a round in a pipeline; a COPY, which no pipeline takes",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server: ServerProcess | None = None
        self._user = _USER if os.geteuid() == 0 else None

    @classmethod
    def check(cls) -> None:
        """Need the server and the client, and a user that it may run as."""
        need_package("psycopg")
        _find_server()
        if os.geteuid() == 0:
            try:
                pwd.getpwnam(_USER)
            except KeyError:
                reason = f"it does not run as root, and there is no user {_USER}: {_INSTALL}"
                raise SystemMissing(reason) from None

    def start(self) -> None:
        """Make the database at first; then start the server, and wait until it answers."""
        data = self.folder / "data"
        if not data.exists():
            if self._user is not None:
                closed = [parent for parent in self.folder.parents if not parent.stat().st_mode & 0o001]
                if closed:
                    raise SystemMissing(f"the user {self._user} may not enter {closed[-1]}: use another --dir")
                shutil.chown(self.folder, self._user)
            self._make(data)
        options = ["-c", "listen_addresses=", "-k", str(self.folder), "-c", "unix_socket_permissions=0777"]
        if len(str(self.folder)) > _SOCKET_PATH_MAX:
            raise SystemMissing(f"the path {self.folder} is too long for a Unix socket: use a shorter --dir")
        server = ServerProcess([_find_server(), "-D", data, *options], self.folder, stop_signal="INT", user=self._user)
        try:
            server.wait(self._answers)
        except BaseException:
            server.stop()
            raise
        self._server = server

    def _make(self, data: Path) -> None:
        command = [str(_find_server().with_name("initdb")), "-D", str(data), "-U", _USER, "--auth=trust", "-E", "UTF8"]
        done = subprocess.run(
            command, cwd=self.folder, user=self._user, capture_output=True, text=True, check=False, timeout=WAIT_S
        )
        if done.returncode:
            raise SystemMissing(f"initdb failed: {' '.join(done.stderr.split())[-300:]}")

    def _answers(self) -> bool:
        import psycopg

        try:
            with self._connection():
                return True
        except psycopg.OperationalError:
            return False

    def stop(self) -> None:
        """End the server in order, without waiting for clients."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def close(self) -> None:
        """End the server without a checkpoint; unlike after SIGKILL, it leaves no shared memory behind."""
        if self._server is not None:
            self._server.discard("QUIT")
            self._server = None

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(host=str(self.folder), user=_USER, dbname="postgres", autocommit=True) as connection:
            yield connection

    def _create(self, connection: Any) -> str:  # noqa: ANN401 - a connection of psycopg
        name = self.new_name().replace("-", "_")
        connection.execute(f"CREATE TABLE {name} (id bigserial PRIMARY KEY, event bytea NOT NULL)")
        connection.execute(f"ALTER TABLE {name} ALTER event SET STORAGE EXTERNAL")  # peers do not compress, either
        return name

    def write_each(self, load: EventLoad) -> float:
        """Insert each, in one pipeline, with a commit every 1,000."""
        with self._connection() as connection:
            name = self._create(connection)
            statement = f"INSERT INTO {name} (event) VALUES (%b)"
            start = time.perf_counter()
            with connection.pipeline():
                for first in range(0, load.count, _COMMIT_EVENTS):
                    with connection.transaction(), connection.cursor() as cursor:
                        for _ in range(min(_COMMIT_EVENTS, load.count - first)):
                            cursor.execute(statement, (load.event,))
            took = time.perf_counter() - start
            connection.execute(f"DROP TABLE {name}")
            return took

    def write_batches(self, load: EventLoad) -> float:
        """Copy batches into the table, with a commit for each."""
        with self._connection() as connection:
            name = self._create(connection)
            took = _copy(connection, name, load)
            connection.execute(f"DROP TABLE {name}")
            return took

    def fill(self, load: EventLoad) -> str:
        """Copy batches into the table."""
        with self._connection() as connection:
            name = self._create(connection)
            _copy(connection, name, load)
            return name

    def read_each(self, stream: str, load: EventLoad) -> float:
        """Go through a cursor of the server."""
        with self._connection() as connection, connection.transaction():
            start = time.perf_counter()
            with connection.cursor("events", binary=True) as cursor:
                cursor.itersize = min(_FETCH_EVENTS, load.count)
                cursor.execute(_select(stream), (load.count,))
                found = sum(1 for _ in cursor)
            took = time.perf_counter() - start
        _check(found, load.count)
        return took

    def read_batches(self, stream: str, load: EventLoad) -> float:
        """Fetch 10,000 at a time from a cursor of the server."""
        with self._connection() as connection, connection.transaction():
            found = 0
            start = time.perf_counter()
            with connection.cursor("events", binary=True) as cursor:
                cursor.execute(_select(stream), (load.count,))
                while rows := cursor.fetchmany(_FETCH_EVENTS):
                    found += len(rows)
            took = time.perf_counter() - start
        _check(found, load.count)
        return took

    def write_singly(self, load: EventLoad) -> list[float]:
        """Insert and commit each."""
        times = []
        with self._connection() as connection:
            name = self._create(connection)
            statement = f"INSERT INTO {name} (event) VALUES (%b)"
            for _ in range(load.count):
                start = time.perf_counter()
                connection.execute(statement, (load.event,))
                times.append(time.perf_counter() - start)
            connection.execute(f"DROP TABLE {name}")
        return times

    def tail(self, load: EventLoad) -> list[float]:
        """Insert and notify in one transaction; another connection listens, then reads the event."""
        with self._connection() as connection, self._connection() as other:
            name = self._create(connection)
            other.execute(f"LISTEN {name}")
            last = 0

            def write() -> None:
                with connection.pipeline(), connection.transaction():
                    connection.execute(f"INSERT INTO {name} (event) VALUES (%b)", (load.event,))
                    connection.execute(f"NOTIFY {name}")

            def read() -> None:
                nonlocal last
                if next(other.notifies(timeout=WAIT_S, stop_after=1), None) is None:
                    raise TimeoutError(f"no event within {WAIT_S:g} s")
                rows = f"SELECT id, event FROM {name} WHERE id > %s ORDER BY id LIMIT 1"
                ((last, _),) = other.execute(rows, (last,)).fetchall()

            times = tail_times(write, read, load.count)
            connection.execute(f"DROP TABLE {name}")
        return times

    def large(self, size: int) -> tuple[float, float]:
        """Write it as one value."""
        if size > _LARGEST:
            raise NotOffered("a value has at most 1 GB")
        event = bytes(size)
        with self._connection() as connection:
            name = self._create(connection)
            start = time.perf_counter()
            connection.execute(f"INSERT INTO {name} (event) VALUES (%b)", (event,))
            written = time.perf_counter() - start
            start = time.perf_counter()
            with connection.cursor(binary=True) as cursor:
                ((found,),) = cursor.execute(f"SELECT event FROM {name}").fetchall()
            took = time.perf_counter() - start
            connection.execute(f"DROP TABLE {name}")
        _check(len(found), size)
        return written, took

    def create_streams(self, number: int, *, seconds_max: float) -> tuple[int, float]:
        """Create a table and insert into it."""
        with self._connection() as connection:
            names: list[str] = []
            start = time.perf_counter()
            while len(names) < number and time.perf_counter() - start < seconds_max:
                names.append(self._create(connection))
                connection.execute(f"INSERT INTO {names[-1]} (event) VALUES (%b)", (b"event",))
            took = time.perf_counter() - start
            with connection.pipeline():
                for name in names:
                    connection.execute(f"DROP TABLE {name}")
            return len(names), took


def _select(name: str) -> LiteralString:
    statement: Any = f"SELECT event FROM {name} ORDER BY id LIMIT %s"
    return statement  # type: ignore[no-any-return]


def _copy(connection: Any, name: str, load: EventLoad) -> float:  # noqa: ANN401 - a connection of psycopg
    start = time.perf_counter()
    for size in load.batch_sizes():
        with connection.cursor() as cursor, cursor.copy(f"COPY {name} (event) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["bytea"])
            for _ in range(size):
                copy.write_row((load.event,))
    return time.perf_counter() - start


def _check(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found:,} of {wanted:,} came back")


def _find_server() -> Path:
    """Return the program of the newest version; Debian does not put it into the path."""
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))[-1:]
    if newest and (newest[0] / "postgres").exists():
        return newest[0] / "postgres"
    return find_program("postgres", how_to_get=_INSTALL).resolve()
