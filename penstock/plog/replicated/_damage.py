"""Damage that servers have found by themselves, by the scrub of their disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plog.replicated._actions import Ask
from penstock.plog.replicated._decide import check_fence
from penstock.plog.replicated._messages import DamagedList, ListDamaged
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from penstock.plog.replicated._actions import ReplicaSteps, ServerAnswer

__all__ = ["list_damaged"]


def list_damaged(group: str) -> ReplicaSteps[dict[bytes, set[int]]]:
    """Return the plogs of a group with damaged replicas, and the places of the servers that have those."""
    answers: list[ServerAnswer | None] = yield Ask(
        group, tuple((server, ListDamaged(), ()) for server in range(REPLICAS))
    )
    damaged: dict[bytes, set[int]] = {}
    for server, answer in enumerate(answers):
        if answer is not None:
            check_fence(answer.message)
            if isinstance(answer.message, DamagedList):
                for uid in answer.message.uids:
                    damaged.setdefault(uid, set()).add(server)
    return damaged
