"""Reads: from any replica, the next one if it fails; and of one replica, whether it is good."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import GroupUnavailable, NoSuchPlog, PlogCorrupt
from penstock.plog.replicated._actions import Ask
from penstock.plog.replicated._messages import ReadReplica, Refusal, ReplicaBlocks
from penstock.plog.replicated._refusals import check_fence
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model import PlogId
    from penstock.plog.replicated._actions import ReplicaSteps, ServerAnswer

__all__ = ["ReadBlocks", "is_readable", "read_blocks"]

_DAMAGED: Final = {"corrupt", "no-such-plog"}  # for other reasons, such as a failing disk, a replica may be good
_PART_SIZE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """Complete appends with their offsets, and the places of servers whose replica is damaged or missing."""

    blocks: list[tuple[int, memoryview]]
    damaged: frozenset[int]


def read_blocks(plog_id: PlogId, offset: int, size: int, *, servers: Sequence[int]) -> ReplicaSteps[ReadBlocks]:
    """Read the appends that hold these bytes, from the first of ``servers`` that has them.

    The first is asked again at the end if it has not answered soon: it may be suspended, or all of them are slow.
    The caller knows that the range is committed: below the committed offset of its own open plog, or below the decided
    length of any other.
    """
    damaged: set[int] = set()
    refusals: list[Refusal] = []
    turns = deque((server, server != servers[0] or len(servers) == 1) for server in servers)
    while turns:
        server, is_patient = turns.popleft()
        request = ReadReplica(plog_id.uid_bytes, offset, size)
        answers: list[ServerAnswer | None] = yield Ask(plog_id.group, ((server, request, ()),), is_patient)
        if answers[0] is None:
            if not is_patient:
                turns.append((server, True))
            continue
        message, payload = answers[0].message, answers[0].payload
        check_fence(message)
        if isinstance(message, ReplicaBlocks) and _has(message, offset):
            return ReadBlocks(_cut(message, memoryview(payload).toreadonly()), frozenset(damaged))
        if isinstance(message, Refusal):
            refusals.append(message)
            if message.reason in _DAMAGED:
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


def is_readable(plog_id: PlogId, length: int, server: int) -> ReplicaSteps[bool]:
    """Return whether the replica of one server is good up to ``length``; ``GroupUnavailable`` if it does not tell."""
    offset = 0
    while offset < length:
        request = ReadReplica(plog_id.uid_bytes, offset, min(_PART_SIZE, length - offset))
        answers: list[ServerAnswer | None] = yield Ask(plog_id.group, ((server, request, ()),))
        message = None if answers[0] is None else answers[0].message
        if message is not None:
            check_fence(message)
        if isinstance(message, ReplicaBlocks) and (end := message.offset + sum(message.sizes)) > offset:
            offset = end
        elif isinstance(message, Refusal) and message.reason in _DAMAGED:
            return False
        else:
            raise GroupUnavailable(plog_id.group, reason=f"a server cannot read plog {plog_id} now")
    return True
