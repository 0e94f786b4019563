"""Damage: whatever happens to the file, the oracle gives the right answer or none."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.cpo._entry import Entry
from penstock.errors import CpoCorrupt, CpoUnavailable, FormatUnknown
from penstock.model import PlogId

if TYPE_CHECKING:
    from pathlib import Path

KEYS: Final = ("alpha", "beta", "gamma")


def make(path: Path) -> None:
    """Make a small oracle, in small pages, in which something was changed and deleted too."""
    with open_cpo(f"sqlite:{path}") as cpo:
        versions = {key: cpo.cas(key, key.encode() * 3, expected=0) for key in (*KEYS, "gone")}
        cpo.cas("beta", b"newer", expected=versions["beta"])
        cpo.delete("gone", expected=versions["gone"])
        cpo.set_metadata_plog("p0", PlogId("main", "g", "0" * 32), expected=0)
    execute(path, "PRAGMA page_size=512", "VACUUM")


def answers(path: Path) -> object:
    with open_cpo(f"sqlite:{path}") as cpo:
        return cpo.keys(), [cpo.get(key) for key in (*KEYS, "gone")], cpo.metadata_plog("p0")


def execute(path: Path, *statements: str) -> None:
    """Do behind the oracle's back what only damage or a careless human would do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def write_row(path: Path, entry: Entry) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        row = (entry.key, entry.version, entry.value, entry.check)
        connection.execute("INSERT OR REPLACE INTO penstock_cpo VALUES (?, ?, ?, ?)", row)


def test_no_flipped_byte_gives_a_wrong_answer(path: Path) -> None:
    """A wrong version would let two owners write; a key that vanished would be created again, and lose all under it."""
    make(path)
    right, sound = answers(path), path.read_bytes()
    every_byte = [(offset, 0xFF) for offset in range(len(sound))]
    single_bits = [(offset, 1 << offset % 8) for offset in range(0, len(sound), 5)]
    noticed = nameless = 0
    for offset, mask in every_byte + single_bits:
        damaged = bytearray(sound)
        damaged[offset] ^= mask
        with path.open("r+b") as file:  # in place: a file truncated and written anew is flushed by some file systems
            file.write(damaged)
            file.truncate()
        try:
            assert answers(path) == right, f"byte {offset}, bits {mask:08b}"
        except (CpoCorrupt, CpoUnavailable) as error:
            noticed += 1
            nameless += str(path) not in str(error)
    assert nameless == 0
    assert noticed > len(sound) // 3, "the rest is room that SQLite does not use"


@pytest.mark.parametrize("size", [50, 100, 512, 1000, 1535])
def test_a_file_cut_short_is_noticed(path: Path, size: int) -> None:
    """A copy that stopped half-way looks like this."""
    make(path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises((CpoCorrupt, CpoUnavailable), match=re.escape(str(path))):
        open_cpo(f"sqlite:{path}")


def test_a_row_that_vanishes_under_an_open_oracle_is_noticed(path: Path) -> None:
    """Before the oracle says that there is no such key, it makes sure that none is missing."""
    make(path)
    with open_cpo(f"sqlite:{path}") as cpo:
        execute(path, "DELETE FROM penstock_cpo WHERE key = 'kv/alpha'")
        with pytest.raises(CpoCorrupt):
            cpo.get("alpha")
        with pytest.raises(CpoCorrupt):
            cpo.cas("alpha", b"mine", expected=0)
        with pytest.raises(CpoCorrupt):
            cpo.keys()


def test_an_older_row_that_comes_back_is_noticed(path: Path) -> None:
    """A disk that lost a write gives back the block from before, and that one is whole."""
    make(path)
    write_row(path, Entry("kv/beta", 2, b"betabetabeta"))
    with pytest.raises(CpoCorrupt, match="older"):
        open_cpo(f"sqlite:{path}")


def test_a_changed_value_is_noticed_at_the_next_read(path: Path) -> None:
    """The check of a row is looked at each time, not only when the file is opened."""
    make(path)
    with open_cpo(f"sqlite:{path}") as cpo:
        execute(path, "UPDATE penstock_cpo SET value = x'00' WHERE key = 'kv/alpha'")
        with pytest.raises(CpoCorrupt, match="kv/alpha") as raised:
            cpo.get("alpha")
        assert (raised.value.path, raised.value.offset) == (str(path), None)
        assert cpo.get("beta") is not None


def test_a_number_in_place_of_bytes_is_noticed_and_not_allocated(path: Path) -> None:
    """SQLite stores any type anywhere, and ``bytes(2**62)`` would take all memory there is."""
    make(path)
    with open_cpo(f"sqlite:{path}") as cpo:
        execute(path, f"UPDATE penstock_cpo SET value = {2**62} WHERE key = 'kv/alpha'")
        with pytest.raises(CpoCorrupt):
            cpo.get("alpha")


def test_a_missing_root_is_noticed(path: Path) -> None:
    """Without it nothing vouches for the rest, so it is not made anew."""
    make(path)
    execute(path, "DELETE FROM penstock_cpo WHERE key = ''")
    with pytest.raises(CpoCorrupt, match="root"):
        open_cpo(f"sqlite:{path}")


def test_a_missing_table_is_not_made_anew(path: Path) -> None:
    """An oracle that starts from nothing gives every lease and every key away again."""
    make(path)
    with open_cpo(f"sqlite:{path}") as cpo:
        execute(path, "DROP TABLE penstock_cpo")
        with pytest.raises(CpoCorrupt):
            cpo.get("alpha")
    with pytest.raises(CpoCorrupt):
        open_cpo(f"sqlite:{path}")


def test_a_record_that_no_penstock_writes_is_noticed(path: Path) -> None:
    """A row that is whole can still hold nonsense, from a bug or another tool; it is no reason to crash."""
    with open_cpo(f"sqlite:{path}") as cpo:
        for key, value in {"lease/x": b"\xc1", "cluster/x": b"\xa1x", "metadata/x": b"\xa1x"}.items():
            cpo._change(lambda rows, key=key, value=value: rows.put(key, value))  # type: ignore[misc]
        with pytest.raises(CpoCorrupt, match="lease/x"):
            cpo.lease("x")
        with pytest.raises(CpoCorrupt, match="cluster/x"):
            cpo.cluster("x")
        with pytest.raises(CpoCorrupt, match="metadata/x"):
            cpo.metadata_plog("x")


def test_a_newer_format_is_refused_and_named(path: Path) -> None:
    """Going on would undo what the newer release relies on; its root need not look like ours but for the format."""
    make(path)
    write_row(path, Entry("", 100, b"\x92\x02\xa3new"))
    with pytest.raises(FormatUnknown) as raised:
        open_cpo(f"sqlite:{path}")
    assert (raised.value.actual, raised.value.known) == ("cpo format 2", "cpo format 1")
