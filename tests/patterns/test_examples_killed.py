"""The examples of docs/patterns.md, killed by kill -9 at many points and run again: each keeps its promise."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import penstock
from tests.patterns.killed_example import EXAMPLES, run_with_kills

pytestmark = pytest.mark.long


def rows_of(folder: Path, stream: str) -> list[dict[str, Any]]:
    with penstock.connect(folder / "data") as store:
        return [row for batch in store.read(stream) for row in batch.to_pylist()]


def selected(folder: Path, file: str, query: str) -> list[Any]:
    engine = sa.create_engine(f"sqlite:///{folder / file}")
    with engine.connect() as connection:
        rows = list(connection.exec_driver_sql(query).all())
    engine.dispose()
    return rows


def test_results_in_a_database_have_every_event_once(tmp_path: Path) -> None:
    """A sum is wrong forever if one reading is added twice, or not at all."""
    run_with_kills("once_into_a_database", tmp_path, "step", "_handle", "add_to_totals", lines=18)
    wanted = {f"sensor-{n}": sum(range(n, 300, 3)) for n in range(3)}
    assert dict(selected(tmp_path, "totals.db", "SELECT sensor, total FROM totals")) == wanted


def test_no_job_is_lost_and_those_that_fail_for_good_are_set_aside(tmp_path: Path) -> None:
    """A job may be done twice when its worker is killed, but never zero times."""
    killed = run_with_kills("work_queue", tmp_path, "_try_once", "_outcome", "send", lines=24)
    sent = Counter(map(int, (tmp_path / "sent.txt").read_text().split()))
    assert set(sent) == {number for number in range(60) if number % 10}
    assert sent.total() - len(sent) <= killed, "only the job that was under way is done again"
    dead = rows_of(tmp_path, "office/letters.mail.dead")
    assert {int(row["event"]) for row in dead} == set(range(0, 60, 10))
    for row in dead:
        assert dict(row["headers"])["penstock-attempts"] == b"3"


def test_each_group_has_every_event_in_the_order_of_its_key(tmp_path: Path) -> None:
    """One department that is behind, or killed, must not take an order from the other."""
    killed = run_with_kills("fan_out", tmp_path, "<module>", lines=8, stride=1)
    for department in ("billing", "shipping"):
        orders = [int(line.split()[1]) for line in (tmp_path / f"{department}.txt").read_text().splitlines()]
        assert sorted(set(orders)) == list(range(100))
        assert len(orders) <= 100 + killed
        for customer in range(5):
            of_customer = [number for number in orders if number % 5 == customer]
            assert of_customer == sorted(of_customer)


def test_a_replay_that_is_killed_leaves_the_old_result(tmp_path: Path) -> None:
    """A dashboard that shows half of a replay shows something wrong."""
    result, new = tmp_path / "alarms.txt", "".join(f"valve-{n} 50\n" for n in range(4))
    result.write_text("old\n")
    seen = []

    def check() -> None:
        seen.append(result.read_text())
        result.write_text("old\n")

    run_with_kills("replay", tmp_path, "<module>", lines=12, stride=1, later=300, check=check)
    assert set(seen) <= {"old\n", new}
    assert result.read_text() == new


def test_every_committed_order_is_in_the_stream_once_and_in_order(tmp_path: Path) -> None:
    """An event without its order, or an order without its event, is what an outbox is there to prevent."""
    run_with_kills("outbox", tmp_path, "<module>", "move", lines=20)
    placed = [number for (number,) in selected(tmp_path, "shop.db", "SELECT number FROM orders ORDER BY number")]
    events = [json.loads(row["event"])["data"]["number"] for row in rows_of(tmp_path, "shop/placed")]
    assert placed == events == list(range(len(placed)))


def test_the_view_has_the_latest_event_of_each_key(tmp_path: Path) -> None:
    """The table is what other programs query: a price that was overwritten must not come back."""
    run_with_kills("latest_by_key", tmp_path, "step", "_handle", "_apply", lines=18, later=60)
    wanted = {f"product-{n}".encode(): b"%d" % (380 + n) for n in range(19)}
    assert dict(selected(tmp_path, "prices.db", "SELECT key, event FROM prices")) == wanted


def test_examples_are_short_and_all_of_them_are_killed_here() -> None:
    """They are read on one screen; one that nobody runs would soon be wrong."""
    examples = sorted(EXAMPLES.glob("*.py"))
    source = Path(__file__).read_text()
    assert len(examples) == 6
    for file in examples:
        assert len(file.read_text().splitlines()) <= 80, file.name
        assert f'run_with_kills("{file.stem}"' in source
