"""An oracle with a clock that a test moves, an address of one, and a place for one in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from penstock.cpo import open_cpo
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo
    from tests.postgres import Postgres

_CLOCK: Final = """
    DROP SCHEMA IF EXISTS manual CASCADE;
    CREATE SCHEMA manual;
    CREATE TABLE manual.clock (now float8);
    INSERT INTO manual.clock VALUES (0);
    CREATE FUNCTION manual.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS 'SELECT to_timestamp(now) FROM manual.clock'"""


class ServerClock(ManualClock):
    """The clock of a PostgreSQL server, as an oracle sees it through a search path with a schema of the test's."""

    def __init__(self, connection: psycopg.Connection, start: float) -> None:
        super().__init__(start)
        self._connection = connection
        connection.execute(_CLOCK)
        self.advance(0)

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._connection.execute("UPDATE manual.clock SET now = %s", [self.now()])


@pytest.fixture
def admin(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """A connection of the administrator's, for what is done behind the oracle's back."""
    with psycopg.connect(f"host={postgres.folder} user=postgres", autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgresql(postgres: Postgres, admin: psycopg.Connection) -> str:
    """The address of a database without an oracle."""
    admin.execute("DROP TABLE IF EXISTS penstock_cpo")
    return postgres.url


@pytest.fixture
def server_clock(admin: psycopg.Connection) -> ServerClock:
    return ServerClock(admin, start=1_000.0)


@pytest.fixture
def timed_postgresql(postgres: Postgres, server_clock: ServerClock) -> str:
    """The address of a database without an oracle, whose clock a test moves."""
    assert server_clock.now() == 1_000.0
    return f"{postgres.url}&options=-csearch_path%3Dmanual,pg_catalog"


@pytest.fixture(params=["memory", "postgresql"])
def clock(request: pytest.FixtureRequest) -> ManualClock:
    clock: ManualClock = (
        ManualClock(start=1_000.0) if request.param == "memory" else request.getfixturevalue("server_clock")
    )
    return clock


@pytest.fixture
def cpo(clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Cpo]:
    is_on_server = isinstance(clock, ServerClock)
    url = request.getfixturevalue("timed_postgresql") if is_on_server else "memory:"
    with open_cpo(url, clock=None if is_on_server else clock) as cpo:
        yield cpo


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cpo.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an oracle that does not exist yet."""
    match request.param:
        case "sqlite":
            return f"sqlite:{request.getfixturevalue('path')}"
        case "postgresql":
            return str(request.getfixturevalue("postgresql"))
        case other:
            return str(other)
