"""How a run is planned: what is chosen, how long it takes, what becomes of the figures."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import pytest

from penstock.bench import FULL, QUICK, choose_systems, choose_works, run_bench
from penstock.bench._penstock import EmbeddedPenstock
from penstock.bench._works import BenchWork, _calibrated, percentiles_ms
from penstock.errors import BadArgument
from tests.bench.harness import DELAY, SPEED, TINY, report_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.bench._system import SystemUnderTest
    from penstock.bench._works import BenchPlan, Round


@pytest.mark.parametrize(
    ("kinds", "peers", "message"),
    [
        (["embeded"], None, "invalid kinds 'embeded': use embedded, shared, served, replicated, bucket, or none alone"),
        (None, ["kafak"], "invalid peers 'kafak': use nats, redis, rabbitmq, postgresql, kafka, or none alone"),
        (None, ["nats", "none"], "invalid peers 'none': "),
        (None, [""], "invalid peers '': "),
    ],
)
def test_an_unknown_system_is_refused(kinds: list[str] | None, peers: list[str] | None, message: str) -> None:
    """A name that is overlooked would be a comparison that is silently missing."""
    with pytest.raises(BadArgument) as caught:
        choose_systems(kinds=kinds, peers=peers)
    assert str(caught.value).startswith(message)


def test_a_peer_takes_part_with_all_of_its_settings() -> None:
    """Equal durability and the default belong side by side; one without the other misleads."""
    chosen = choose_systems(kinds=["served"], peers=["redis", "nats"])
    assert [system.key for system in chosen] == [
        "penstock-served",
        "penstock-sent",
        "nats-synced",
        "nats-default",
        "redis-synced",
        "redis-default",
    ]


def test_an_unknown_work_is_refused_and_so_is_one_of_the_full_mode() -> None:
    """Three minutes of other work would be wasted."""
    with pytest.raises(BadArgument, match="invalid only 'durabel': use restart"):
        choose_works(["durabel"], is_full=False)
    with pytest.raises(BadArgument, match="invalid only 'huge': it is a work of --full"):
        choose_works(["huge"], is_full=False)
    assert "huge" in {work.name for work in choose_works(None, is_full=True)}
    assert "huge" not in {work.name for work in choose_works(None, is_full=False)}
    assert (QUICK.huge_size, FULL.huge_size) == (None, 1 << 30)


def test_without_penstock_there_is_nothing_to_compare(tmp_path: Path) -> None:
    """A chart relative to nothing cannot be drawn."""
    with pytest.raises(BadArgument, match="at least one kind of Penstock"):
        run_bench(choose_systems(kinds=["none"], peers=["kafka"]), [], TINY, parent=tmp_path)


def test_work_that_comes_after_the_time_is_up_says_so(tmp_path: Path) -> None:
    """The limit holds on a machine that is slow, and the report does not pretend that nothing was left out."""
    late = dataclasses.replace(TINY, seconds_max=0.0)
    report = run_bench([EmbeddedPenstock], choose_works(["durable"], is_full=False), late, parent=tmp_path)
    assert {each.reason for each in report.measurements} == {"the time was up: use --seconds or --full"}
    assert report.comparisons() == []


def test_a_round_is_long_enough_and_the_first_call_does_not_count() -> None:
    """A call to a cold system takes long, and would leave it with so few events that only their fixed cost counts."""
    plan = dataclasses.replace(TINY, round_s=1.0)
    calls: list[int] = []

    def run(count: int) -> float:
        calls.append(count)
        return 4.0 if len(calls) == 1 else 0.05 + count / 1000

    found = _calibrated(run, plan, least=10, most=100_000, seconds_max=60)
    assert calls[:2] == [10, 10]
    assert 0.05 + found / 1000 >= plan.round_s / 1.5
    assert _calibrated(lambda _: 2.0, plan, least=10, most=100_000, seconds_max=60) == 10, "never fewer"
    assert _calibrated(lambda _: 0.0, plan, least=10, most=500, seconds_max=60) == 500, "never more"


def test_without_time_there_is_no_search_for_the_length_of_a_round() -> None:
    """A slow system would take the time of the works that come after this one."""
    calls: list[int] = []

    def run(count: int) -> float:
        calls.append(count)
        return 0.0

    assert _calibrated(run, QUICK, least=10, most=100_000, seconds_max=0) == 200
    assert calls == [10, 10], "the second call counts in any case: the first one warms it up, and may have been delayed"


def test_one_call_that_was_delayed_does_not_decide() -> None:
    """A system that is measured with too few events looks slow, for no reason of its own."""
    calls: list[int] = []

    def run(count: int) -> float:
        calls.append(count)
        return 0.1 if len(calls) <= 2 else count / 1e6

    assert _calibrated(run, QUICK, least=2000, most=200_000, seconds_max=60) > 50_000


def test_every_work_has_its_share_of_the_time_and_one_that_takes_longer_has_fewer_rounds(tmp_path: Path) -> None:
    """A quick run does every work: none of them, and no system, may take the time of the others."""
    given: dict[str, list[float]] = {"calm": [], "slow": []}
    clock = time.monotonic

    def work(name: str, round_s: float, *, share: float = 1.0) -> BenchWork:
        def prepare(system: SystemUnderTest, plan: BenchPlan, *, seconds_max: float) -> Round:
            given[name].append(seconds_max)

            def run() -> dict[str, float]:
                end = clock() + (round_s if system.key == "penstock-other" else 0.0)
                while clock() < end:
                    pass
                return {"rate": 1.0}

            return run

        return BenchWork(name=name, metrics=(SPEED,), prepare=prepare, share=share)

    class Other(EmbeddedPenstock):
        key = "penstock-other"

    plan = dataclasses.replace(TINY, rounds=3, seconds_max=3.0)
    works = [work("slow", 1.2, share=2.0), work("calm", 0.0)]
    report = run_bench([EmbeddedPenstock, Other], works, plan, parent=tmp_path)
    rounds = {(each.work, each.system): len(each.values) for each in report.measurements}
    assert rounds == {
        ("slow", "penstock-embedded"): 3,
        ("slow", "penstock-other"): 1,
        ("calm", "penstock-embedded"): 3,
        ("calm", "penstock-other"): 3,
    }
    first_s, second_s = given["slow"]
    assert first_s <= 0.51, "half of two thirds of the time, in parts for each system"
    assert second_s <= 1.01, "which gets what the first one did not use"


def test_what_penstock_loses_by_most_comes_first_and_has_the_most_time() -> None:
    """On a slow machine, time that is up must not hide the worst figures."""
    names = [work.name for work in choose_works(None, is_full=False)]
    assert names[:4] == ["restart", "streams", "durable", "tail"]
    assert all(work.share > 1 for work in choose_works(names[:2], is_full=False))


def test_percentiles_are_times_that_were_measured() -> None:
    """Of few times, the 99th percentile is the longest, not less."""
    assert percentiles_ms([0.001 * n for n in range(1, 101)]) == pytest.approx({"p50": 50, "p90": 90, "p99": 99})
    assert percentiles_ms([0.002, 0.001]) == pytest.approx({"p50": 1, "p90": 2, "p99": 2})


def test_where_penstock_loses_comes_first() -> None:
    """A reader who stops after a few lines has seen the worst, not the best."""
    report = report_of(
        {
            "won": (SPEED, {"penstock-served": 10, "penstock-embedded": 90, "synced": 5, "unsynced": 9}),
            "lost to one that does not sync": (DELAY, {"penstock-served": 4, "synced": 8, "unsynced": 1}),
            "lost": (SPEED, {"penstock-served": 10, "synced": 20, "unsynced": 1}),
            "lost more": (DELAY, {"penstock-served": 9, "synced": 1, "unsynced": "no"}),
            "even": (SPEED, {"penstock-served": 100, "synced": 102, "unsynced": 104}),
        }
    )
    comparisons = report.comparisons()
    assert [each.work for each in comparisons] == [
        "lost more",
        "lost",
        "lost to one that does not sync",
        "even",
        "won",
    ]
    assert comparisons[0].speeds == pytest.approx({"penstock-served": 1, "synced": 9})
    assert comparisons[2].speeds["unsynced"] == pytest.approx(4), "a quarter of the time is four times the speed"
    assert report.baseline is not None
    assert report.baseline.key == "penstock-served", "peers are servers, too"


def test_a_loss_of_penstock_embedded_comes_first_too() -> None:
    """Without a server it has no round trips, so that a loss of it is the worse one, and must not be shown last."""
    report = report_of(
        {
            "lost": (SPEED, {"penstock-served": 10, "penstock-embedded": 30, "synced": 20}),
            "lost embedded": (SPEED, {"penstock-served": 10, "penstock-embedded": 2, "synced": 9}),
            "won": (SPEED, {"penstock-served": 10, "penstock-embedded": 40, "synced": 9}),
        }
    )
    comparisons = {each.work: each for each in report.comparisons()}
    assert list(comparisons) == ["lost embedded", "lost", "won"]
    assert [each.is_lost(is_synced=True) for each in comparisons.values()] == [False, True, False]
    assert comparisons["lost embedded"].embedded_speed_of("synced") == pytest.approx(4.5)
    assert comparisons["won"].embedded_speed_of("unsynced") is None


def test_what_is_read_is_compared_with_penstock_that_sends_it() -> None:
    """A client that maps the files of a server on the same machine does less than those of peers, which use sockets."""
    report = report_of(
        {
            "read": (SPEED, {"penstock-served": 90, "penstock-sent": 10, "penstock-embedded": 99, "synced": 30}),
            "write": (SPEED, {"penstock-served": 50, "penstock-embedded": 99, "synced": 10}),
        }
    )
    read, write = report.comparisons()
    assert (read.baseline.system, write.baseline.system) == ("penstock-sent", "penstock-served")
    assert read.speeds["synced"] == pytest.approx(3), "a loss, although the files are faster"
