"""Reads: from any replica, the next one if it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import CasConflict, GroupUnavailable, NoSuchPlog, PlogCorrupt
from penstock.plog._replica import PLOG_SIZE_MAX
from penstock.plog.replicated._actions import Ask, ReadRow, SealRow, WriteRow
from penstock.plog.replicated._decide import check_fence, decide_length
from penstock.plog.replicated._messages import ReadReplica, Refusal, ReplicaBlocks
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model import PlogId
    from penstock.plog.replicated._actions import ReplicaSteps, ServerAnswer, VersionedRow

DAMAGED: Final = {"corrupt", "no-such-plog"}  # for other reasons, such as a failing disk, a replica may be good

__all__ = ["DAMAGED", "ReadBlocks", "note_damaged", "read_blocks"]


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """Complete appends with their offsets, and the places of servers whose replica is damaged or missing."""

    blocks: list[tuple[int, memoryview]]
    damaged: frozenset[int]


def read_blocks(plog_id: PlogId, offset: int, size: int, *, servers: Sequence[int]) -> ReplicaSteps[ReadBlocks]:
    """Read the appends that hold these bytes, from the first of ``servers`` that has them.

    The caller knows that the range is committed: below the committed offset of its own open plog, or below the decided
    length of any other.
    """
    damaged: set[int] = set()
    refusals: list[Refusal] = []
    for server in servers:
        answers: list[ServerAnswer | None] = yield Ask(
            plog_id.group, ((server, ReadReplica(plog_id.uid_bytes, offset, size), ()),)
        )
        if answers[0] is None:
            continue
        message, payload = answers[0]
        check_fence(message)
        if isinstance(message, ReplicaBlocks) and _has(message, offset):
            return ReadBlocks(_cut(message, memoryview(payload).toreadonly()), frozenset(damaged))
        if isinstance(message, Refusal):
            refusals.append(message)
            if message.reason in DAMAGED:
                damaged.add(server)
    if len(damaged) < REPLICAS:
        reasons = ", ".join(refusal.text or refusal.reason for refusal in refusals) or "none answers"
        raise GroupUnavailable(plog_id.group, reason=f"no server can read plog {plog_id} now ({reasons})")
    if all(refusal.reason == "no-such-plog" for refusal in refusals):
        raise NoSuchPlog(plog_id)
    text = next(refusal.text for refusal in refusals if refusal.reason != "no-such-plog")
    raise PlogCorrupt(str(plog_id), offset=None, reason=f"no server has an undamaged replica ({text})")


def _has(message: ReplicaBlocks, offset: int) -> bool:
    """Return whether an answer has the byte at ``offset``; what a server sends is not believed."""
    return message.offset <= offset < message.offset + sum(message.sizes)


def _cut(message: ReplicaBlocks, payload: memoryview) -> list[tuple[int, memoryview]]:
    blocks, place = [], 0
    for size in message.sizes:
        blocks.append((message.offset + place, payload[place : place + size]))
        place += size
    return blocks


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
