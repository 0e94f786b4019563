"""Damage: what servers have found by the scrub of their disks, and how repair learns of damaged replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import CasConflict
from penstock.plog._replica import PLOG_SIZE_MAX
from penstock.plog.replicated._actions import Ask, ReadRow, SealRow, WriteRow
from penstock.plog.replicated._decide import decide_length
from penstock.plog.replicated._messages import DamagedList, ListDamaged
from penstock.plog.replicated._refusals import check_fence
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog.replicated._actions import ReplicaSteps, ServerAnswer, VersionedRow

__all__ = ["list_damaged", "note_damaged"]


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


def note_damaged(plog_id: PlogId, servers: frozenset[int]) -> ReplicaSteps[None]:
    """Have repair replace the replicas of these servers; the plog is not open for appends of this owner."""
    decided = yield from decide_length(plog_id, at_most=PLOG_SIZE_MAX, quiet=False)
    row: VersionedRow | None = yield ReadRow(plog_id)
    known = frozenset() if row is None else frozenset(row.row.damaged)
    if servers <= known:
        return
    try:
        damaged = tuple(sorted(known | servers))
        yield WriteRow(plog_id, SealRow(decided.length, damaged), 0 if row is None else row.version)
    except CasConflict:
        return  # repair, or a deletion, has changed it meanwhile; the next read finds the damage again
