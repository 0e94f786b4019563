"""Repair in the background: one plog that cannot be repaired keeps no other from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import GroupUnavailable, PenstockError, PlogCorrupt, StoreFenced
from penstock.model import PlogId
from penstock.plog.replicated import Ask
from penstock.plog.replicated._repairer import Repairer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.plog.replicated import ListedGroup, ReplicaSteps

FIRST, SECOND, THIRD = (PlogId("c", "g", digit * 32) for digit in "123")
AWAY = GroupUnavailable("g", reason="one server alone has it")
DAMAGED = PlogCorrupt("plog", offset=None, reason="no server has an undamaged replica")


class Plogs:
    """Plogs of which one raises an error; what is done with the others is noted."""

    def __init__(self, error: PenstockError) -> None:
        self.error = error
        self.holders: dict[str, dict[bytes, set[int]] | PenstockError] = {}
        self.noted: list[PlogId] = []

    def run_alone(self, plog_id: PlogId, steps: ReplicaSteps[Any]) -> Any:  # noqa: ANN401 - what the steps return
        steps.close()
        if plog_id == SECOND:
            raise self.error
        self.noted.append(plog_id)

    def run(self, steps: ReplicaSteps[Any]) -> Any:  # noqa: ANN401 - what the steps return
        action = next(steps)
        assert isinstance(action, Ask)
        steps.close()
        holders = self.holders[action.group]
        if isinstance(holders, PenstockError):
            raise holders
        return holders

    def is_up(self, group: str) -> bool:
        return True

    def is_open(self, plog_id: PlogId) -> bool:
        return False

    def lose_replicas(self, plog_id: PlogId, servers: Iterable[int], reason: str) -> bool:
        return True


class Rows:
    """No rows; what is written is dropped."""

    def plogs(self) -> list[PlogId]:
        return []

    def note_listed(self, group: str, listed: ListedGroup) -> None:
        pass


def repairer_of(plogs: Plogs) -> Repairer:
    rows: Any = Rows()
    return Repairer(plogs, rows, cluster="c")


@pytest.mark.parametrize(("error", "left"), [(AWAY, {SECOND: {1}}), (DAMAGED, {})], ids=["away", "damaged"])
def test_damage_of_a_plog_is_noted_whatever_another_one_raises(error: PenstockError, left: object) -> None:
    """Else one plog without a good replica would keep all that could be repaired from it, for ever."""
    plogs = Plogs(error)
    repairer = repairer_of(plogs)
    for plog_id in (FIRST, SECOND, THIRD):
        repairer.note_damaged(plog_id, frozenset({1}))
    repairer._note_all_damaged()
    assert plogs.noted == [FIRST, THIRD]
    assert repairer._damaged == left, "it is tried again if that may help"


@pytest.mark.parametrize(("error", "again"), [(AWAY, {"g"}), (DAMAGED, set())], ids=["away", "damaged"])
def test_a_missing_replica_is_noted_whatever_another_plog_raises(error: PenstockError, again: set[str]) -> None:
    """A server that lost its disk would get nothing back."""
    plogs = Plogs(error)
    plogs.holders["g"] = {plog_id.uid_bytes: {0, 1} for plog_id in (FIRST, SECOND, THIRD)}
    repairer = repairer_of(plogs)
    repairer.note_started("g")
    repairer._list()
    assert (plogs.noted, repairer._to_list) == ([FIRST, THIRD], again)


def test_a_group_is_looked_through_whatever_another_one_raises() -> None:
    """The groups of a cluster have nothing to do with each other."""
    plogs = Plogs(AWAY)
    plogs.holders = {"e": AWAY, "g": {FIRST.uid_bytes: {0, 2}}, "h": AWAY}
    repairer = repairer_of(plogs)
    for group in plogs.holders:
        repairer.note_started(group)
    repairer._list()
    assert (plogs.noted, repairer._to_list) == ([FIRST], {"e", "h"})


def test_a_newer_owner_ends_repair() -> None:
    """It must not go on with the next plog: none of them is its own any more."""
    fenced = StoreFenced("these plog servers", owner="another one")
    plogs = Plogs(fenced)
    plogs.holders = {"g": {SECOND.uid_bytes: {0, 2}}}
    repairer = repairer_of(plogs)
    repairer.note_damaged(SECOND, frozenset({1}))
    repairer.note_started("g")
    for task in (repairer._note_all_damaged, repairer._list):
        with pytest.raises(StoreFenced):
            task()
