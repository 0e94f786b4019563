"""The length of a plog that may have lost replicas, and how plogs are created, deleted and read on three servers.

**The rule of lengths.** Every append that was acknowledged is on all three servers, so the replica of any server that
answers is at least as long as what was acknowledged. There is one exception: a replica whose last append was damaged
while its server was down may be shorter. The length L of a plog is decided once:

- by its row in the oracle, if it has one;
- else by any replica that is sealed: a replica is sealed only at a length that was decided;
- else by the replicas themselves, if all three answer with the same length, and no append of this owner can arrive
  late: then any later owner, whichever servers it reaches, finds the same length;
- else the owner writes a row, before it seals anything: of its own plog the committed offset; of that of an owner
  before the smallest length of the replicas whose servers have run since the plog was created; if there is none, the
  smallest length but one, so that one damaged replica cuts off nothing that was acknowledged. For the same reason,
  one such replica is not enough while the other servers are away. A single replica that reaches so far is read before
  its length counts: what it alone has was not acknowledged, and if it is damaged, no server could read the plog.

Only the present owner can write a row, because the oracle checks its epoch, and only the present owner can seal,
because its session fences. So an owner that was suspended in the middle decides nothing any more. The row stays until
all three replicas are sealed at L, and repair works off the rows.

Without an oracle there are no rows; then nothing is decided unless all three servers answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import CasConflict, GroupUnavailable, NoSuchPlog, PlogCorrupt, PlogExists
from penstock.plog._replica import PLOG_SIZE_MAX
from penstock.plog.replicated._actions import Ask, NoteCut, ReadRow, RemoveRow, SealRow, VersionedRow, WriteRow
from penstock.plog.replicated._messages import (
    CreateReplica,
    DeleteReplica,
    InspectReplica,
    Refusal,
    ReplicaDone,
    ReplicaState,
    SealReplica,
)
from penstock.plog.replicated._reads import is_readable
from penstock.plog.replicated._refusals import check_fence
from penstock.plog.replicated._window import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.model import PlogId
    from penstock.plog.replicated._actions import ReplicaSteps, ServerAnswer
    from penstock.plog.replicated._messages import Answer, ReplicaRequest

__all__ = ["Decided", "ask_all", "create_plog", "decide_length", "delete_plog", "inspect_replicas", "seal_replicas"]


@dataclass(frozen=True, slots=True)
class Decided:
    """The length of a plog, its size, and whether it was decided before this call."""

    length: int
    size: int
    before: bool


@dataclass(slots=True)
class Replicas:
    """What the servers of a group say about a plog: by place, its state, or that it is missing or damaged."""

    present: dict[int, ReplicaState] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)

    @property
    def answered(self) -> int:
        """The number of servers that answered."""
        return len(self.present) + len(self.missing) + len(self.damaged)


def ask_all(
    plog_id: PlogId, request: ReplicaRequest, servers: Iterable[int] = range(REPLICAS)
) -> ReplicaSteps[dict[int, Answer]]:
    """Send the same request to servers of a plog; an answer that shows a newer owner raises ``StoreFenced``."""
    places = tuple(servers)
    answers: list[ServerAnswer | None] = yield Ask(plog_id.group, tuple((server, request, ()) for server in places))
    messages = {server: answer.message for server, answer in zip(places, answers, strict=True) if answer is not None}
    for message in messages.values():
        check_fence(message)
    return messages


def inspect_replicas(plog_id: PlogId) -> ReplicaSteps[Replicas]:
    """Ask all servers for their replica of a plog."""
    answers = yield from ask_all(plog_id, InspectReplica(plog_id.uid_bytes))
    replicas = Replicas()
    for server, answer in answers.items():
        match answer:
            case ReplicaState():
                replicas.present[server] = answer
            case Refusal(reason="no-such-plog"):
                replicas.missing.add(server)
            case Refusal(reason="corrupt"):
                replicas.damaged.add(server)
    return replicas


def decide_length(
    plog_id: PlogId, *, at_most: int = PLOG_SIZE_MAX, committed: int | None = None, quiet: bool, has_oracle: bool = True
) -> ReplicaSteps[Decided]:
    """Decide the length of a plog, and seal the replicas within reach; return it once one of them is sealed.

    ``quiet`` says that no append of this owner can arrive late: all were acknowledged by all servers, or another owner
    wrote the plog. ``committed`` is the offset up to which a plog of this owner is kept, and no further. ``at_most``
    cuts off what lies behind it. ``NoSuchPlog`` if the plog was never created or is deleted.
    """
    replicas = yield from inspect_replicas(plog_id)
    row: VersionedRow | None = (yield ReadRow(plog_id)) if has_oracle else None
    if row is None and len(replicas.missing) == REPLICAS:
        raise NoSuchPlog(plog_id)
    if row is not None and row.row.length is None:
        raise NoSuchPlog(plog_id)
    if not replicas.present:
        raise _no_replica(plog_id, replicas)
    before = row is not None or any(state.sealed for state in replicas.present.values())
    kept = None if committed is None else min(committed, at_most)
    length = _agreed_length(replicas, row, at_most=at_most, kept=kept, quiet=quiet)
    if length is None:
        length = kept if kept is not None else (yield from _find_left_length(plog_id, replicas, at_most=at_most))
        if not has_oracle:
            if replicas.answered < REPLICAS:
                raise GroupUnavailable(plog_id.group, reason="without an oracle, all three servers are needed")
        else:
            row = yield from _write_length(plog_id, length, replicas.damaged)
            assert row.row.length is not None
            length = row.row.length
    sealed = yield from seal_replicas(plog_id, length, replicas.present)
    if not sealed:
        raise GroupUnavailable(plog_id.group, reason=f"no server has sealed plog {plog_id} at {length}")
    if has_oracle:
        yield from _note_replicas(plog_id, length, row, replicas.damaged, is_well=len(sealed) == REPLICAS)
    size = next(iter(replicas.present.values())).size
    return Decided(length, size, before)


def _no_replica(plog_id: PlogId, replicas: Replicas) -> GroupUnavailable | PlogCorrupt:
    if replicas.answered == REPLICAS:
        return PlogCorrupt(str(plog_id), offset=None, reason="no server has an undamaged replica")
    return GroupUnavailable(plog_id.group, reason=f"no server within reach has plog {plog_id}, others may have it")


def _agreed_length(
    replicas: Replicas, row: VersionedRow | None, *, at_most: int, kept: int | None, quiet: bool
) -> int | None:
    """Return the length that needs no new row, None if there is none."""
    if row is not None:
        return row.row.length
    for state in replicas.present.values():
        if state.sealed:
            return state.length
    lengths = {state.length for state in replicas.present.values()}
    if not quiet or len(replicas.present) < REPLICAS or len(lengths) > 1:
        return None
    [length] = lengths
    return length if length <= at_most and kept in (None, length) else None


def _find_left_length(plog_id: PlogId, replicas: Replicas, *, at_most: int) -> ReplicaSteps[int]:
    """Return the length of a plog that an owner before has left, such that a good replica has all of it.

    A single replica that reaches so far is read first. If it is damaged, it counts no more.
    """
    while True:
        length = min(at_most, _left_length(plog_id, replicas))
        reaching = [server for server, state in replicas.present.items() if state.length >= length]
        if len(reaching) > 1 or (yield from is_readable(plog_id, length, reaching[0])):
            longest = max(state.length for state in replicas.present.values())
            if longest > length and not any(state.certain for state in replicas.present.values()):
                yield NoteCut(plog_id, length, longest)
            return length
        del replicas.present[reaching[0]]
        replicas.damaged.add(reaching[0])
        if not replicas.present:
            raise _no_replica(plog_id, replicas)


def _left_length(plog_id: PlogId, replicas: Replicas) -> int:
    """Return the length of a plog that an owner before has left; see the module."""
    certain = [state.length for state in replicas.present.values() if state.certain]
    if certain:
        return min(certain)
    if len(replicas.present) == 1 and replicas.answered < REPLICAS:
        reason = f"one server alone has plog {plog_id}, and has been restarted: another one has to confirm its length"
        raise GroupUnavailable(plog_id.group, reason=reason)
    return sorted(state.length for state in replicas.present.values())[:2][-1]


def _write_length(plog_id: PlogId, length: int, damaged: Iterable[int]) -> ReplicaSteps[VersionedRow]:
    """Write the row of a decided length; the row of an earlier decision counts instead."""
    row = SealRow(length, tuple(sorted(damaged)))
    try:
        version = yield WriteRow(plog_id, row, 0)
    except CasConflict:
        present: VersionedRow | None = yield ReadRow(plog_id)
        if present is None or present.row.length is None:
            raise NoSuchPlog(plog_id) from None
        return present
    return VersionedRow(row, version)


def seal_replicas(plog_id: PlogId, length: int, present: Mapping[int, ReplicaState]) -> ReplicaSteps[set[int]]:
    """Seal the replicas that reach to ``length``; return the places of those that are sealed there."""
    sealed = {server for server, state in present.items() if state.sealed and state.length == length}
    todo = [server for server, state in present.items() if not state.sealed and state.length >= length]
    answers = yield from ask_all(plog_id, SealReplica(plog_id.uid_bytes, length), todo)
    sealed.update(server for server, answer in answers.items() if isinstance(answer, ReplicaDone))
    return sealed


def _note_replicas(
    plog_id: PlogId, length: int, row: VersionedRow | None, damaged: Iterable[int], *, is_well: bool
) -> ReplicaSteps[None]:
    """Write the row of a plog whose replicas are not all sealed; remove it if they are."""
    if not is_well and row is None:
        yield from _write_length(plog_id, length, damaged)
    elif is_well and row is not None and not row.row.damaged:
        yield RemoveRow(plog_id, row.version)


def create_plog(plog_id: PlogId, size: int, *, has_oracle: bool = True) -> ReplicaSteps[None]:
    """Create a plog on all three servers; ``GroupUnavailable`` if one of them cannot: choose another group."""
    if has_oracle and (yield ReadRow(plog_id)) is not None:
        raise GroupUnavailable(plog_id.group, reason=f"not all of its servers have deleted plog {plog_id} yet")
    answers = yield from ask_all(plog_id, CreateReplica(plog_id.uid_bytes, size))
    refusals = [answer for answer in answers.values() if isinstance(answer, Refusal)]
    if any(refusal.reason == "exists" for refusal in refusals):
        raise PlogExists(plog_id)
    if refusals:
        reasons = ", ".join(refusal.text or refusal.reason for refusal in refusals)
        raise GroupUnavailable(plog_id.group, reason=f"it cannot create plog {plog_id} ({reasons})")
    if len(answers) < REPLICAS:
        raise GroupUnavailable(plog_id.group, reason="not all of its servers answer")


def delete_plog(plog_id: PlogId, *, has_oracle: bool = True) -> ReplicaSteps[None]:
    """Delete a plog; a row remembers it until all three servers have deleted it. ``NoSuchPlog`` if none had it."""
    row: VersionedRow | None = (yield ReadRow(plog_id)) if has_oracle else None
    version = 0 if row is None else row.version
    if row is not None and row.row.length is not None:
        version = yield WriteRow(plog_id, SealRow(None), row.version)
    answers = yield from ask_all(plog_id, DeleteReplica(plog_id.uid_bytes))
    missing = [server for server, answer in answers.items() if answer == Refusal("no-such-plog")]
    gone = [server for server, answer in answers.items() if isinstance(answer, ReplicaDone)]
    if len(gone) + len(missing) == REPLICAS:
        if version:
            yield RemoveRow(plog_id, version)
        if row is None and len(missing) == REPLICAS:
            raise NoSuchPlog(plog_id)
    elif not has_oracle:
        raise GroupUnavailable(plog_id.group, reason=f"not all servers have deleted plog {plog_id}")
    elif not version:
        yield WriteRow(plog_id, SealRow(None), 0)
