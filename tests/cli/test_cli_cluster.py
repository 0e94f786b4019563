"""``penstock cluster``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.cpo import open_cpo
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call

FUTURE = ManualClock(start=4e9)


def test_status_shows_the_owner_and_those_that_stand_by(call: Call, tmp_path: Path) -> None:
    """The operator sees who serves since when, and whether somebody could take over."""
    url = f"sqlite:{tmp_path}/cpo.db"
    with open_cpo(url, clock=FUTURE) as cpo:
        for address in ("a:1", "b:2"):
            cpo.acquire(f"server/{address}", f"{address} id 1000.5", seconds=9)
        cpo.acquire("partition/main", "b:2 id 2000.25", seconds=9)
        cpo.acquire("partition/other", "a program", seconds=9)
    assert call("cluster", "status", "--cpo", url).lines == [
        "b:2\towner\tmain\t2000250\t4000000009000\t1",
        "a\towner\tother\t0\t4000000009000\t1",
        "a:1\tstandby\t-\t1000500\t4000000009000\t-",
    ]
    assert json.loads(call("cluster", "status", "--cpo", url, "--json").out)[2] == {
        "server": "a:1",
        "role": "standby",
        "partition": None,
        "since": 1_000_500,
        "until": 4_000_000_009_000,
        "epoch": 0,
    }


def test_status_of_an_oracle_that_is_not_there_is_refused(call: Call, tmp_path: Path) -> None:
    """A mistyped name must neither create a file nor look like a cluster without servers."""
    result = call("cluster", "status", "--cpo", f"sqlite:{tmp_path}/none.db")
    assert result.code == 1
    assert "no control plane oracle" in result.err
    assert not (tmp_path / "none.db").exists()
    assert call("cluster", "status", "--cpo", "redis://:secret@host").code == 2
