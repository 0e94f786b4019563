"""The budget for bytes that are under way."""

from __future__ import annotations

import threading

from penstock.server._appends import _UnderWay
from penstock.wire import ByteBudget


def test_there_is_room_up_to_the_limit() -> None:
    """And again for what was given back."""
    budget = ByteBudget(10)
    assert budget.take(6, wait=False)
    assert budget.take(4, wait=False)
    assert not budget.take(1, wait=False)
    budget.give(4)
    assert budget.take(3, wait=False)


def test_what_is_larger_than_the_room_goes_alone() -> None:
    """It would never go otherwise."""
    budget = ByteBudget(10)
    assert budget.take(11, wait=False)
    assert not budget.take(1, wait=False)
    budget.give(11)
    assert budget.take(10, wait=False)


def test_who_finds_no_room_waits_for_it() -> None:
    """And has it as soon as somebody else has not."""
    budget, entered = ByteBudget(10), threading.Event()

    def enter() -> None:
        with budget.held(5):
            entered.set()

    budget.take(8)
    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.is_set()
    budget.give(8)
    thread.join()
    assert entered.is_set()
    assert budget.take(10, wait=False)


class _Writer:
    """Counts how often it had to see its blocks durable."""

    settled = 0

    def settle(self) -> None:
        self.settled += 1


def test_a_writer_without_room_sees_its_blocks_durable_and_holds_none_while_it_waits() -> None:
    """Or two writers of one client would wait for each other, each in the middle of what is acknowledged together."""
    budget, one, another = ByteBudget(10), _Writer(), _Writer()
    first, second = _UnderWay(budget, one), _UnderWay(budget, another)  # type: ignore[arg-type]
    first.take(6)
    assert (one.settled, another.settled) == (0, 0)

    def write() -> None:
        second.take(5)
        second.end()

    thread = threading.Thread(target=write)
    thread.start()
    first.take(7)  # which gives the six back first
    assert one.settled == 1
    first.end()
    thread.join()
    assert budget.take(10, wait=False)
