"""The oracle on PostgreSQL: what is stored, whose clock counts, and what the world does to the server."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import Versioned, _postgresql, open_cpo
from penstock.cpo._entry import Entry
from penstock.errors import BadArgument, CpoCorrupt, CpoUnavailable, DiskFull, FormatUnknown, LeaseHeld
from penstock.testing import ManualClock
from tests.postgres import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tests.cpo.conftest import ServerClock
    from tests.postgres import Postgres

SECRET: Final = "s3cr3t"


@pytest.fixture
def locked(admin: psycopg.Connection) -> Iterator[str]:
    """A user that needs a password, and may not create tables."""
    admin.execute(f"CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'")
    yield "locked"
    admin.execute("DROP ROLE locked")


def address(postgres: Postgres, *, user: str = "postgres", password: str = "", database: str = "postgres") -> str:
    return f"postgresql://{user}:{password}@/{database}?host={postgres.folder}"


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_clock_of_a_client_neither_keeps_nor_loses_a_lease(
    timed_postgresql: str, server_clock: ServerClock, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Clocks of machines differ, also by hours; all processes have the server's in common."""
    with open_cpo(timed_postgresql) as wrong, open_cpo(timed_postgresql) as right:
        held = right.acquire("x", "right", seconds=10)
        monkeypatch.setattr(time, "time", lambda: server_clock.now() + hours * 3600)
        with pytest.raises(LeaseHeld) as raised:
            wrong.acquire("x", "wrong", seconds=10)
        assert raised.value.seconds_left == 10
        assert wrong.lease("x") == held
        server_clock.advance(10)
        taken = wrong.acquire("x", "wrong", seconds=10)
        assert (taken.epoch, taken.expires) == (2, 1_020.0)
        assert right.lease("x") == taken


def test_a_proxy_that_leads_to_a_standby_meanwhile_is_noticed(
    timed_postgresql: str, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change the server behind an open connection, and what a standby answers may be out of date."""
    with open_cpo(timed_postgresql) as cpo:
        admin.execute("CREATE FUNCTION manual.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true'")
        monkeypatch.setattr(_postgresql, "CALL_S", 0.05)
        with pytest.raises(CpoUnavailable, match="standby"):
            cpo.get("a")


def test_a_clock_of_the_callers_is_refused(postgresql: str) -> None:
    """It would be ignored, and a test that moves it would wait for nothing."""
    with pytest.raises(BadArgument, match="clock"):
        open_cpo(postgresql, clock=ManualClock())


def test_nothing_is_left_in_the_session(postgresql: str) -> None:
    """A proxy that pools connections runs every transaction in another session."""
    with open_cpo(postgresql) as cpo:
        for _ in range(7):  # psycopg prepares what it has run five times
            cpo.get("a")
        for n in range(7):
            cpo.cas(str(n), b"", expected=0)
            cpo.acquire(str(n), "me", seconds=10)
        with vars(cpo)["_database"].engine.connect() as connection:
            left = connection.exec_driver_sql(
                "SELECT count(*) FROM pg_prepared_statements UNION ALL "
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' UNION ALL "
                "SELECT count(*) FROM pg_settings WHERE source = 'session' AND name LIKE '%%timeout'"
            )
            assert left.scalars().all() == [0, 0, 0]


def test_a_change_is_on_the_disk_also_where_the_server_would_not_wait(postgres: Postgres, postgresql: str) -> None:
    """A server for data that may be lost has it off; the newest plog of a partition may not be."""
    with open_cpo(f"{postgresql}&options=-csynchronous_commit%3Doff") as cpo:
        setting = vars(cpo)["_database"].transact(
            lambda connection, _: connection.exec_driver_sql("SHOW synchronous_commit").scalar_one(), write=True
        )
    assert setting == "on"


def test_of_several_hosts_one_that_answers_is_used(postgres: Postgres, postgresql: str) -> None:
    """After a failover the address is still right."""
    with open_cpo(f"postgresql://postgres@/postgres?host=/nowhere,{postgres.folder}") as cpo:
        assert cpo.cas("a", b"one", expected=0) == 1
    assert postgresql


def test_a_wrong_password_is_said_at_once_and_shown_nowhere(
    postgres: Postgres, locked: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors and logs are read by more people than the configuration is."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CpoUnavailable, match="password authentication failed") as raised:
        open_cpo(address(postgres, user=locked, password=SECRET))
    shown = "".join(traceback.format_exception(raised.value))
    assert raised.value.url == f"postgresql:///postgres?host={postgres.folder}"
    assert SECRET not in f"{shown}{raised.value!r}{vars(raised.value)}{caplog.text}"


def test_credentials_are_not_shown_by_an_open_oracle(
    postgres: Postgres, postgresql: str, locked: str, admin: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Places and objects are printed, too."""
    caplog.set_level(logging.DEBUG)
    open_cpo(postgresql).close()
    admin.execute(f"GRANT SELECT ON penstock_cpo TO {locked}")
    try:
        with open_cpo(address(postgres, user=locked, password=PASSWORD)) as cpo:
            engine = vars(cpo)["_database"].engine
            shown = f"{cpo!r}{cpo.where()}{engine!r}{engine.url.render_as_string(hide_password=False)}"
            with pytest.raises(CpoUnavailable, match="permission denied for table penstock_cpo") as raised:
                cpo.cas("a", b"one", expected=0)
    finally:
        admin.execute("DROP TABLE penstock_cpo")
    assert not raised.value.outcome_unknown
    assert PASSWORD not in shown + caplog.text + "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    "rest",
    [
        f"me:{SECRET}/x@host/db",
        f"me:12/{SECRET}@host/db",
        f"me:x@{SECRET}@host/db",
        f"me:{SECRET}%zz@host/db",
        f"host:{SECRET}/db",
        f"host/db?{SECRET}",
        f"host/db {SECRET}",
    ],
)
def test_an_invalid_postgresql_address_is_refused_and_not_repeated(rest: str) -> None:
    """A password with a special character is the most likely mistake, and a part of it would be taken for a host."""
    with pytest.raises(BadArgument, match="%40") as raised:
        open_cpo(f"postgresql://{rest}")
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_without_psycopg_postgresql_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most users need no PostgreSQL, so it is an extra."""
    monkeypatch.delitem(sys.modules, "penstock.cpo._postgresql")
    monkeypatch.delattr("penstock.cpo._postgresql")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadArgument, match=r"\.\[postgresql\]"):
        open_cpo("postgresql://host/db")


def test_a_database_that_does_not_exist_is_unavailable(postgres: Postgres) -> None:
    """It is not created: a misspelt name would give every lease away again."""
    with pytest.raises(CpoUnavailable, match='database "missing" does not exist'):
        open_cpo(address(postgres, database="missing"))


def test_a_postgresql_database_without_our_table_stays_as_it_is_if_it_is_only_looked_at(
    postgres: Postgres, admin: psycopg.Connection
) -> None:
    """An empty table would look like an oracle that has forgotten its partitions: their owners would give up."""
    admin.execute("DROP TABLE IF EXISTS penstock_cpo")
    with pytest.raises(CpoUnavailable, match="no table penstock_cpo"):
        open_cpo(address(postgres), create=False)
    assert admin.execute("SELECT to_regclass('penstock_cpo')").fetchall() == [(None,)]


def test_a_postgresql_user_that_may_not_create_the_table_is_told_so(
    postgres: Postgres, postgresql: str, locked: str
) -> None:
    """Since PostgreSQL 15 this is how a new user starts."""
    assert postgresql
    with pytest.raises(CpoUnavailable, match="permission denied for schema public"):
        open_cpo(address(postgres, user=locked, password=PASSWORD))


def test_a_postgresql_database_that_cannot_hold_all_names_is_refused(
    postgres: Postgres, admin: psycopg.Connection
) -> None:
    """It would take most keys, and fail at the first in another script."""
    admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(CpoUnavailable, match="encoding of the database is LATIN1"):
            open_cpo(address(postgres, database="latin"))
    finally:
        admin.execute("DROP DATABASE latin")


def test_a_postgresql_that_is_too_old_is_refused(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not say what became of a transaction."""
    monkeypatch.setattr(_postgresql, "VERSION_MIN", 99)
    with pytest.raises(CpoUnavailable, match="use 99 or newer"):
        open_cpo(postgresql)


@pytest.mark.parametrize("columns", ["id int", "key varchar, version int, value bytea, check_ bigint"])
def test_a_postgresql_table_that_is_not_ours_is_left_alone(
    postgresql: str, admin: psycopg.Connection, columns: str
) -> None:
    """Another program may have had the same idea for a name."""
    admin.execute(f"CREATE TABLE penstock_cpo ({columns})")
    with pytest.raises(FormatUnknown, match="another table penstock_cpo"):
        open_cpo(postgresql)
    assert admin.execute("SELECT * FROM penstock_cpo").fetchall() == []


def test_a_postgresql_table_of_a_newer_penstock_is_refused(postgresql: str, admin: psycopg.Connection) -> None:
    """Going on would undo what the newer release relies on, also under an oracle that is open."""
    newer = Entry("", 100, b"\x92\x02\xa3new")
    with open_cpo(postgresql) as cpo:
        admin.execute('UPDATE penstock_cpo SET version = 100, value = %s, "check" = %s', [newer.value, newer.check])
        with pytest.raises(FormatUnknown, match="cpo format 2"):
            cpo.cas("a", b"one", expected=0)
        with pytest.raises(FormatUnknown, match="cpo format 2"):
            open_cpo(postgresql)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE penstock_cpo SET value = '\\x00' WHERE key = 'kv/a'", "fails its check"),
        ("UPDATE penstock_cpo SET version = 7 WHERE key = 'kv/a'", "fails its check"),
        ("DELETE FROM penstock_cpo WHERE key = 'kv/a'", "rows are missing"),
        ("DELETE FROM penstock_cpo WHERE key = ''", "root is missing"),
        ("DROP TABLE penstock_cpo", "does not exist"),
    ],
)
def test_damage_in_postgresql_is_noticed_at_the_next_call(
    postgresql: str, admin: psycopg.Connection, statement: str, reason: str
) -> None:
    """A wrong version would let two owners write; a key that vanished would be created again."""
    with open_cpo(postgresql) as cpo:
        version = cpo.cas("a", b"one", expected=0)
        admin.execute(statement.encode())
        with pytest.raises(CpoCorrupt, match=reason) as raised:
            cpo.cas("a", b"two", expected=version)
        assert raised.value.path == cpo.where()


def test_a_full_disk_of_postgresql_is_said_and_passes(postgresql: str, admin: psycopg.Connection) -> None:
    """Nothing was changed, and space may come back."""
    with open_cpo(postgresql) as cpo:
        admin.execute("""
            CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql
                AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$;
            CREATE TRIGGER fill BEFORE INSERT ON penstock_cpo EXECUTE FUNCTION fill()""")
        with pytest.raises(DiskFull):
            cpo.cas("a", b"one", expected=0)
        admin.execute("DROP FUNCTION fill CASCADE")
        assert cpo.cas("a", b"one", expected=0) == 1
        assert cpo.get("a") == Versioned(b"one", 1)
