"""The lease of a plog server on its identity, when another process has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.errors import CpoError
from penstock.server._plog_server import Presence
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo

NAME = "plog-server/plant/east/id"
HOURS_S = 3 * 3600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_000_000.0)


@pytest.fixture
def cpo(tmp_path: Path, clock: ManualClock) -> Iterator[Cpo]:
    with open_cpo(f"sqlite:{tmp_path}/cpo.db", clock=clock) as cpo:
        yield cpo


def test_a_plog_server_starts_although_its_clock_was_set_back_since_it_was_killed(cpo: Cpo, clock: ManualClock) -> None:
    """Its own lease of three hours ahead kept it away for three hours, and its group from being complete."""
    cpo.acquire(NAME, "a:1 before", seconds=HOURS_S)
    begun = clock.now()
    Presence(cpo, NAME, "a:1 after", pause=clock.advance)
    held = cpo.lease(NAME)
    assert held is not None
    assert held.owner == "a:1 after"
    assert 4.0 < clock.now() - begun < 10.0, "longer than a server that runs takes to renew its lease"


@pytest.mark.parametrize("address", ["a:1", "b:2"])
def test_a_plog_server_with_a_copied_folder_does_not_start_while_the_other_one_runs(
    cpo: Cpo, clock: ManualClock, address: str
) -> None:
    """Two servers with one identity would count as two replicas; one that renews its lease is alive, wherever it is."""
    other = Presence(cpo, NAME, f"{address} before")

    def pause(seconds: float) -> None:
        clock.advance(seconds)
        other.renew()

    with pytest.raises(CpoError, match=f"another server with the identity of this folder runs at {address}: stop it"):
        Presence(cpo, NAME, "a:1 after", pause=pause)
    held = cpo.lease(NAME)
    assert held is not None
    assert held.owner == f"{address} before"


def test_a_plog_server_that_was_killed_starts_again_when_its_lease_is_over(cpo: Cpo, clock: ManualClock) -> None:
    """A restart must not take longer than it needs: the group is incomplete meanwhile."""
    cpo.acquire(NAME, "a:1 before", seconds=2.0)
    begun = clock.now()
    Presence(cpo, NAME, "a:1 after", pause=clock.advance)
    assert clock.now() - begun == 2.0
