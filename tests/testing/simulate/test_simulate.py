"""Lives of owners and servers in virtual time: no promise is broken, and one seed is one life."""

from __future__ import annotations

from penstock.testing.simulate import SetBackWorld, run_life


def test_no_life_breaks_a_promise_and_a_seed_replays_its_life() -> None:
    """A failure that cannot be replayed cannot be understood; a life without failures and take-overs proves nothing."""
    reports = [run_life(seed) for seed in range(24)]
    assert reports[:3] == [run_life(seed) for seed in range(3)]
    assert sum(report.opened for report in reports) > 2 * len(reports), "owners take over"
    assert sum(report.acked for report in reports) > 20 * len(reports), "and acknowledge"


def test_a_folder_that_is_set_back_brings_no_deleted_plog_back() -> None:
    """Repair copied it to all three servers: with seed 99 it does, if it does not ask which plogs the log knows."""
    for seed in range(80, 100):
        run_life(seed, SetBackWorld)
