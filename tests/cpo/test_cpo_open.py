"""Opening and closing: what a URL may be, and what the world does to the file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import Lease, Versioned, _sqlite, open_cpo
from penstock.errors import BadArgument, CasConflict, CpoUnavailable, StoreClosed
from penstock.model import PlogId
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.cpo import Cpo


def test_importing_the_package_does_not_import_the_database() -> None:
    """Every Spark worker imports the package, few of them open an oracle."""
    script = "import sys, penstock.cpo; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_an_oracle_keeps_what_was_set(url: str) -> None:
    """This is what it is for."""
    with open_cpo(url) as cpo:
        version = cpo.cas("a", b"one", expected=0)
    with open_cpo(url) as cpo:
        assert cpo.get("a") == Versioned(b"one", version)


def test_a_relative_path_is_relative_to_the_folder_it_was_opened_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that changes its folder later must not change its oracle."""
    monkeypatch.chdir(tmp_path)
    with open_cpo("sqlite:./cpo ?&#.db") as cpo:
        monkeypatch.chdir("/")
        cpo.cas("a", b"one", expected=0)
    assert (tmp_path / "cpo ?&#.db").stat().st_size > 0


def test_two_oracles_in_memory_are_two() -> None:
    """Tests run side by side."""
    with open_cpo("memory:") as one, open_cpo("memory:") as two:
        one.cas("a", b"one", expected=0)
        assert two.get("a") is None


def test_a_change_is_seen_by_others_at_once(url: str) -> None:
    """No process may act on what it remembers: the table is what all agree on."""
    with open_cpo(url) as one, open_cpo(url) as two:
        version = one.cas("a", b"one", expected=0)
        assert two.get("a") == Versioned(b"one", version)
        with pytest.raises(CasConflict):
            two.cas("a", b"two", expected=0)


def test_the_file_is_kept_as_durably_as_sqlite_can(path: Path) -> None:
    """A power cut may take nothing that was acknowledged; no test can cut the power, so it looks at the settings."""
    database = _sqlite.SqliteDatabase(f"sqlite:{path}", str(path), SystemClock())
    with database.engine.execution_options(write=False).begin() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "delete"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 3
    database.engine.dispose()


@pytest.mark.parametrize("url", ["", "cpo.db", "/var/cpo.db", "redis:", "memory", "memory:x", "SQLITE:x"])
def test_an_unknown_url_is_refused_with_those_that_are_known(url: str) -> None:
    """The message is the documentation that is at hand."""
    with pytest.raises(BadArgument, match=r"'sqlite:PATH'.*'memory:'"):
        open_cpo(url)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite::memory:", "sqlite:///cpo.db", "sqlite://cpo.db", "sqlite:a\0b"])
def test_a_path_that_means_something_else_elsewhere_is_refused(url: str) -> None:
    """SQLAlchemy's 'sqlite:///cpo.db' is a relative path: taken literally it would be a file in the root folder."""
    with pytest.raises(BadArgument, match=r"sqlite:\./cpo\.db"):
        open_cpo(url)


def test_a_folder_that_cannot_be_written_is_unavailable() -> None:
    """A missing permission is the most common fault of a new installation (/proc refuses root as well)."""
    with pytest.raises(CpoUnavailable, match="unable to open") as raised:
        open_cpo("sqlite:/proc/cpo.db")
    assert raised.value.url == "sqlite:/proc/cpo.db"


def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    """It is not made: a misspelt path would give an empty oracle, and everything away again."""
    with pytest.raises(CpoUnavailable):
        open_cpo(f"sqlite:{tmp_path}/missing/cpo.db")


def test_a_path_that_is_a_folder_is_unavailable(tmp_path: Path) -> None:
    """The store's folder is easily given in place of the file in it."""
    with pytest.raises(CpoUnavailable):
        open_cpo(f"sqlite:{tmp_path}")


def test_a_file_that_is_no_database_is_unavailable_and_left_alone(path: Path) -> None:
    """It is somebody's file, whatever it is."""
    text = b"shopping list\n" * 100
    path.write_bytes(text)
    with pytest.raises(CpoUnavailable, match="not a database"):
        open_cpo(f"sqlite:{path}")
    assert path.read_bytes() == text


def test_an_empty_file_becomes_an_oracle(path: Path) -> None:
    """This is what is left when the very first process is killed before its first commit."""
    path.touch()
    with open_cpo(f"sqlite:{path}") as cpo:
        assert cpo.keys() == []


def test_an_oracle_that_another_process_makes_meanwhile_is_not_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes start together: each sees that there is nothing, and all but one of them are mistaken by then."""
    with open_cpo(f"sqlite:{path}") as first:
        first.cas("a", b"one", expected=0)
        seen = iter([True])
        is_new = _sqlite.SqliteDatabase.is_new
        monkeypatch.setattr(_sqlite.SqliteDatabase, "is_new", lambda *args: next(seen, None) or is_new(*args))
        with open_cpo(f"sqlite:{path}") as second:
            assert second.keys() == ["a"]
    assert next(seen, None) is None


def test_a_database_locked_for_too_long_is_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs in a transaction must not make all others hang with it."""
    monkeypatch.setattr(_sqlite, "BUSY_SECONDS_MAX", 0.05)
    with open_cpo(f"sqlite:{path}") as cpo, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CpoUnavailable, match="locked"):
            cpo.get("a")
        with pytest.raises(CpoUnavailable, match="locked"):
            cpo.cas("a", b"one", expected=0)
        with pytest.raises(CpoUnavailable, match="locked"):
            open_cpo(f"sqlite:{path}")
        other.execute("ROLLBACK")
        assert cpo.get("a") is None


def test_a_change_that_could_not_be_committed_was_not_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that hangs stops the commit at its very end; what was prepared by then must be gone."""
    monkeypatch.setattr(_sqlite, "BUSY_SECONDS_MAX", 0.05)
    with open_cpo(f"sqlite:{path}") as cpo, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM penstock_cpo").fetchall()
        with pytest.raises(CpoUnavailable, match="locked"):
            cpo.cas("a", b"one", expected=0)
        other.execute("ROLLBACK")
        assert cpo.get("a") is None
        assert cpo.cas("a", b"one", expected=0) == 1


CALLS: dict[str, Callable[[Cpo], object]] = {
    "get": lambda cpo: cpo.get("a"),
    "cas": lambda cpo: cpo.cas("a", b"", expected=0),
    "delete": lambda cpo: cpo.delete("a", expected=1),
    "keys": lambda cpo: cpo.keys(),
    "acquire": lambda cpo: cpo.acquire("a", "me", seconds=1),
    "renew": lambda cpo: cpo.renew(Lease("a", "me", 1, 1.0), seconds=1),
    "release": lambda cpo: cpo.release(Lease("a", "me", 1, 1.0)),
    "lease": lambda cpo: cpo.lease("a"),
    "leases": lambda cpo: cpo.leases(),
    "register_cluster": lambda cpo: cpo.register_cluster("a", {"g": ["h:1"]}),
    "cluster": lambda cpo: cpo.cluster("a"),
    "clusters": lambda cpo: cpo.clusters(),
    "metadata_plog": lambda cpo: cpo.metadata_plog("a"),
    "set_metadata_plog": lambda cpo: cpo.set_metadata_plog("a", PlogId("c", "g", "0" * 32), expected=0),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_oracle_says_so(url: str, name: str) -> None:
    """A pool that silently opened the file again would outlive its owner."""
    cpo = open_cpo(url)
    cpo.close()
    cpo.close()
    with pytest.raises(StoreClosed):
        CALLS[name](cpo)
