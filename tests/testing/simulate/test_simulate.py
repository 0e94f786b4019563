"""Lives of owners and servers in virtual time: no promise is broken, and one seed is one life."""

from __future__ import annotations

from penstock.testing.simulate import run_life


def test_no_life_breaks_a_promise_and_a_seed_replays_its_life() -> None:
    """A failure that cannot be replayed cannot be understood; a life without failures and take-overs proves nothing."""
    reports = [run_life(seed) for seed in range(24)]
    assert reports[:3] == [run_life(seed) for seed in range(3)]
    assert sum(report.opened for report in reports) > 2 * len(reports), "owners take over"
    assert sum(report.acked for report in reports) > 20 * len(reports), "and acknowledge"
