"""Repair: three equal, sealed replicas again, for every plog that has a row in the oracle.

The row says how long the plog is, and it stays until all three replicas are well. So a copy need not be atomic: until
it is complete, no owner takes its length for that of the plog. Repair and other changes of the same plog take turns;
the shell has a lock for each plog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import GroupUnavailable, PlogCorrupt
from penstock.plog.replicated._actions import Ask, NoteCopied, ReadRow, RemoveRow, SealRow, VersionedRow, WriteRow
from penstock.plog.replicated._decide import (
    ask_all,
    decide_length,
    delete_plog,
    inspect_replicas,
    seal_replicas,
)
from penstock.plog.replicated._messages import (
    LIST_COUNT_MAX,
    AppendReplica,
    CreateReplica,
    DeleteReplica,
    ListReplicas,
    Refusal,
    ReplicaAppended,
    ReplicaDone,
    ReplicaList,
    SealReplica,
)
from penstock.plog.replicated._reads import is_readable, read_blocks
from penstock.plog.replicated._refusals import check_fence
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog.replicated._actions import ReplicaSteps, ServerAnswer
    from penstock.plog.replicated._decide import Replicas
    from penstock.plog.replicated._messages import Answer

__all__ = ["find_missing", "is_left_alone", "list_replicas", "note_missing", "repair_plog"]

_COPY_SIZE: Final = 1 << 20  # bytes under way at the same time
_COPY_COUNT: Final = 256  # and appends: those of the owner wait behind them on the same connection


def repair_plog(plog_id: PlogId) -> ReplicaSteps[bool]:
    """Repair the replicas of a plog that has a row; return whether all are well, so that the row is gone.

    ``GroupUnavailable`` if no server within reach has a good replica.
    """
    row: VersionedRow | None = yield ReadRow(plog_id)
    if row is None:
        return True
    if row.row.length is None:
        yield from delete_plog(plog_id)
        return (yield ReadRow(plog_id)) is None
    length, damaged = row.row.length, set(row.row.damaged)
    replicas = yield from inspect_replicas(plog_id)
    present = {server: state for server, state in replicas.present.items() if server not in damaged}
    good = yield from seal_replicas(plog_id, length, present)
    if not good:
        raise GroupUnavailable(plog_id.group, reason=f"no server within reach has a good replica of plog {plog_id}")
    size = present[min(good)].size
    found: set[int] = set()
    if len(good) < REPLICAS:
        found = yield from _find_damaged(plog_id, length, good)
        good -= found
    if not found <= damaged:
        damaged |= found
        version: int = yield WriteRow(plog_id, SealRow(length, tuple(sorted(damaged))), row.version)
        row = VersionedRow(row.row, version)
    bad = [server for server in range(REPLICAS) if server not in good and _has_answered(replicas, server)]
    for server in bad:
        is_short = server in present and server not in damaged and not present[server].sealed
        is_intact = is_short and (yield from is_readable(plog_id, present[server].length, server))
        start = present[server].length if is_intact else None
        if (yield from _copy(plog_id, length, size=size, source=min(good), target=server, start=start)):
            good.add(server)
    if len(good) == REPLICAS:
        yield RemoveRow(plog_id, row.version)
    elif damaged & good:
        yield WriteRow(plog_id, SealRow(length, tuple(sorted(damaged - good))), row.version)
    return len(good) == REPLICAS


def _find_damaged(plog_id: PlogId, length: int, good: set[int]) -> ReplicaSteps[set[int]]:
    """Read replicas that count as good until one is good from end to end; return the places of those that are not.

    ``GroupUnavailable`` if none is. Then nothing may be deleted, because a replica that is damaged elsewhere may have
    the last good copy of a part. So it does not suffice that each part is good in some replica.
    """
    found: set[int] = set()
    for server in sorted(good):
        if (yield from is_readable(plog_id, length, server)):
            return found
        found.add(server)
    raise GroupUnavailable(plog_id.group, reason=f"no server has a replica of plog {plog_id} that is good everywhere")


def _has_answered(replicas: Replicas, server: int) -> bool:
    return server in replicas.present or server in replicas.missing or server in replicas.damaged


def _copy(
    plog_id: PlogId, length: int, *, size: int, source: int, target: int, start: int | None
) -> ReplicaSteps[bool]:
    """Bring the replica of ``target`` to ``length``, anew if ``start`` is None; return whether it is sealed there."""
    uid, offset = plog_id.uid_bytes, start or 0
    if start is None:
        answers = yield from ask_all(plog_id, DeleteReplica(uid), [target])
        if answers.get(target) not in {ReplicaDone(), Refusal("no-such-plog")}:
            return False
        answers = yield from ask_all(plog_id, CreateReplica(uid, size), [target])
        if answers.get(target) != ReplicaDone():
            return False
    while offset < length:
        part = min(_COPY_SIZE, length - offset)
        read = yield from read_blocks(plog_id, offset, part, servers=[source])
        assert read.blocks[0][0] == offset, "a replica ends where an append ends"
        for first in range(0, len(read.blocks), _COPY_COUNT):
            end = yield from _append_blocks(plog_id, target, read.blocks[first : first + _COPY_COUNT])
            if end is None:
                return False
            yield NoteCopied(plog_id, end - offset)
            offset = end
    answers = yield from ask_all(plog_id, SealReplica(uid, length), [target])
    return answers.get(target) == ReplicaDone()


def _append_blocks(plog_id: PlogId, target: int, blocks: list[tuple[int, memoryview]]) -> ReplicaSteps[int | None]:
    """Append blocks to one replica; return the new end, None if that failed."""
    requests = tuple((target, AppendReplica(plog_id.uid_bytes, start, len(view)), (view,)) for start, view in blocks)
    answers: list[ServerAnswer | None] = yield Ask(plog_id.group, requests)
    acked = 0
    for answer in answers:
        if answer is not None:
            check_fence(answer.message)
            if isinstance(answer.message, ReplicaAppended):
                acked = max(acked, answer.message.length)
    end = blocks[-1][0] + len(blocks[-1][1])
    return end if acked >= end else None


def list_replicas(group: str) -> ReplicaSteps[dict[bytes, set[int]] | None]:
    """List the plogs of the partition in a group, each with the places of the servers that have it.

    If a plog is sealed on any server, an open replica does not count: a creation that arrives late makes one on a
    server that has lost its own. None if a server does not answer: then it is not known what it has lost.
    """
    holders: dict[bytes, dict[int, bool]] = {}
    for server in range(REPLICAS):
        after, more = b"", True
        while more:
            answers: list[ServerAnswer | None] = yield Ask(group, ((server, ListReplicas(after, LIST_COUNT_MAX), ()),))
            message: Answer | None = None if answers[0] is None else answers[0].message
            if not isinstance(message, ReplicaList):
                return None
            for uid, _, is_sealed, _ in message.replicas:
                holders.setdefault(uid, {})[server] = is_sealed
                after = uid
            more = message.more
    return {
        uid: {server for server, is_sealed in places.items() if is_sealed or not any(places.values())}
        for uid, places in holders.items()
    }


def find_missing(plog_id: PlogId) -> ReplicaSteps[set[int]]:
    """Return the places of the servers that answer and have no replica of a plog."""
    replicas = yield from inspect_replicas(plog_id)
    return replicas.missing


def is_left_alone(plog_id: PlogId) -> ReplicaSteps[bool]:
    """Return whether one server has a replica of a plog, the others have none, and no row says more."""
    replicas = yield from inspect_replicas(plog_id)
    is_single = len(replicas.present) == 1 and len(replicas.missing) == REPLICAS - 1
    return is_single and (yield ReadRow(plog_id)) is None


def note_missing(plog_id: PlogId, *, is_needed: bool = True) -> ReplicaSteps[bool]:
    """Write the row of a plog that not all servers have sealed, so that it is repaired; return whether it is so.

    The plog is not one that this owner has open. One that is not sealed anywhere was left by an owner before, and its
    log is idle: if a server has lost its replica, its length is decided now, as if its log were used. One that no log
    needs is left as it is: it is what remains of a creation that one of the servers refused.
    """
    replicas = yield from inspect_replicas(plog_id)
    sealed = [state.length for state in replicas.present.values() if state.sealed]
    if not sealed and is_needed and replicas.present and replicas.missing and replicas.answered == REPLICAS:
        yield from decide_length(plog_id, quiet=True)
        return True
    if not sealed or replicas.answered < REPLICAS or len(sealed) == REPLICAS:
        return False
    lengths = set(sealed)
    if len(lengths) > 1:
        raise PlogCorrupt(str(plog_id), offset=None, reason=f"its replicas are sealed at {sorted(lengths)}")
    if (yield ReadRow(plog_id)) is None:
        yield WriteRow(plog_id, SealRow(lengths.pop()), 0)
    return True
