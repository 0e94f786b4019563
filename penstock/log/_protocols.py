"""A log stream's protocols: create, recover, switch, release, replace, splice.

Each protocol announces in the metadata the plogs that it will create, and makes its record durable before anything
depends on it. See :mod:`penstock.log._actions` for how protocols run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import DiskFull, MetadataCorrupt, NoSuchLog, PlogCorrupt, PlogExists
from penstock.log._actions import LOST, TRIES_MAX, Create, CreateAll, Delete, Drain, Inspect, NewId, Where
from penstock.log._partition import append_built, append_records, seal, seal_at_end, settle
from penstock.log._records import Chain, Doomed, Drop, Incremental, Init, Next, Replace, Spares, Splice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log._actions import Steps
    from penstock.log._chain import LogChain
    from penstock.log._metadata import Metadata
    from penstock.log._partition import Partition
    from penstock.log._records import Record
    from penstock.model import PlogId
    from penstock.plog import PlogInfo

__all__ = [
    "LogPosition",
    "LogTail",
    "Splicing",
    "create_log",
    "create_logs",
    "ensure_next",
    "leave_plog",
    "record_switch",
    "recover_tail",
    "release_log",
    "replace_plogs",
    "splice_logs",
]


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """A place in a log: an offset in one of its plogs."""

    plog_id: PlogId
    offset: int

    def __str__(self) -> str:
        return f"{self.plog_id}@{self.offset}"


@dataclass(slots=True)
class LogTail:
    """The end of a log: the active plog, and the pre-allocated one after it once it exists.

    ``start`` is the log's offset at which the active plog begins; ``written`` includes appends under way; ``open`` is
    False once the active plog takes no more appends; ``before`` is the end of the plog before it, if there is one.
    """

    plog_id: PlogId
    size: int
    start: int
    written: int
    before: LogPosition | None
    open: bool = True
    next_size: int = 0  # 0: not created
    is_next_asked: bool = False  # a task in the background was asked to create it

    @property
    def position(self) -> LogPosition:
        """The position of the next append."""
        return LogPosition(self.plog_id, self.written)

    @property
    def end(self) -> int:
        """The offset of the next append, counted from the log's first byte."""
        return self.start + self.written

    def is_at(self, position: LogPosition) -> bool:
        """Return whether the log ends at ``position``; the end of one plog is the beginning of the next."""
        return position == self.position or (self.written == 0 and position == self.before)

    def moved(self, plog_id: PlogId) -> LogTail:
        """Return the tail after a switch to the pre-allocated plog."""
        assert self.next_size, "the pre-allocated plog exists before the switch to it"
        return LogTail(plog_id, self.next_size, self.end, 0, before=self.position)


@dataclass(frozen=True, slots=True)
class Splicing:
    """A target log with its tail, and the source logs to splice into it, each with its tail and its label, in order."""

    name: str
    tail: LogTail
    sources: Sequence[tuple[str, LogTail, bytes]]


def create_log(partition: Partition, name: str) -> Steps[None]:
    """Create a log: its first plog, then the record."""
    yield from settle(partition)  # the plog that is deleted below may be part of a log by records in doubt
    yield from _create_spare(partition, partition.sizes_of(name).first)
    init = Init(name, str(partition.metadata.spare), str((yield NewId())), str((yield NewId())))
    yield from append_records(partition, [init])


def create_logs(partition: Partition, names: Sequence[str]) -> Steps[None]:
    """Create several logs together: their first plogs, then one append of records, which announces the next spares.

    The plogs must not be replicated: none of them is created in another group.
    """
    yield from settle(partition)
    metadata = partition.metadata
    if len(metadata.spares) < len(names):
        more = yield from _new_ids(len(names) - len(metadata.spares))
        yield from append_records(partition, [Spares([*map(str, metadata.spares), *more])])
    spares = metadata.spares[: len(names)]
    sizes = {spare: partition.sizes_of(name).first for spare, name in zip(spares, names, strict=True)}
    try:
        yield CreateAll(sizes)
    except (PlogExists, DiskFull) as error:  # some may be there, or were from a creation that ended before its record
        for spare in spares:
            yield Delete(spare)
        if isinstance(error, DiskFull):
            raise
        yield CreateAll(sizes)
    next_ids, announced = (yield from _new_ids(len(names))), (yield from _new_ids(len(names)))

    def records() -> list[Record]:
        inits = [
            Init(name, str(plog_id), next_id, str(metadata.spare))
            for name, plog_id, next_id in zip(names, spares, next_ids, strict=True)
        ]
        return [*inits, Spares([*map(str, metadata.spares[len(names) :]), *announced])]

    yield from append_built(partition, records)


def _new_ids(count: int) -> Steps[list[str]]:
    found = []
    for _ in range(count):
        found.append(str((yield NewId())))  # noqa: PERF401 - a comprehension cannot yield
    return found


def _create_spare(partition: Partition, size: int) -> Steps[None]:
    """Create the first plog of a log; announce another one first if the servers of its group do not answer."""
    metadata = partition.metadata
    for tries_left in reversed(range(TRIES_MAX)):
        spare = metadata.spare
        assert spare is not None
        try:
            yield Delete(spare)  # from a creation that ended before its record
            yield Create(spare, size)
        except LOST:
            if not tries_left:
                raise
            yield from append_built(partition, partial(_other_spare, metadata, str(spare), str((yield NewId()))))
        else:
            return


def _other_spare(metadata: Metadata, spare: str, other: str) -> list[Record]:
    previous = [(str(plog_id), length) for plog_id, length in metadata.previous]
    return [Chain(previous, str(metadata.next), other), Doomed([spare])]


def recover_tail(partition: Partition, name: str, *, fence: bool) -> Steps[LogTail]:
    """Find the end of a log; with ``fence``, seal it, so that no other process can append there.

    The pre-allocated plog may hold bytes that were written before their switch was recorded. They were never
    acknowledged and are not part of the log, so another plog replaces it.
    """
    chain = partition.metadata.logs[name]
    active = yield Inspect(chain.active)
    if active is None:
        reason = f"the active plog of log {name!r} is missing"
        raise MetadataCorrupt((yield Where(chain.active)), offset=None, reason=reason)
    length, is_open = active.length, not active.sealed
    if is_open and fence:
        length, is_open = (yield from seal(chain.active, size=active.size)), False
    next_size = yield from _recover_next(partition, name, fence=fence)
    before = LogPosition(*chain.last_sealed) if chain.last_sealed else None
    return LogTail(chain.active, active.size, chain.active_start, length, before, open=is_open, next_size=next_size)


def _recover_next(partition: Partition, name: str, *, fence: bool) -> Steps[int]:
    """Return the size of the pre-allocated plog, 0 if it is to be created; replace one that was used or torn.

    With ``fence``, also replace an empty one: an append to it may be under way.
    """
    try:
        info: PlogInfo | None = yield Inspect(partition.metadata.logs[name].next)
        if info is None:
            return 0
        if not fence and not info.sealed and not info.length:
            return info.size
    except (PlogCorrupt, *LOST):
        pass  # its creation or its first append was never acknowledged, so no data is lost with it
    yield from _replace_next(partition, name)
    return 0


def _replace_next(partition: Partition, name: str) -> Steps[None]:
    yield from append_records(partition, [Next(name, str((yield NewId())))])


def ensure_next(partition: Partition, name: str, tail: LogTail, *, needed: int) -> Steps[None]:
    """Pre-allocate the plog after the active one, large enough for an append of ``needed`` bytes.

    If the disk has no space for the usual size, the smallest sufficient one is used. A pre-allocated plog that is too
    small is not deleted but replaced, by a record: if the log has a new owner, it may be part of the log by now.
    """
    chain = partition.metadata.logs.get(name)
    if chain is None or chain.active != tail.plog_id:
        return  # the log is deleted, or the switch to the tail's plog is not recorded and the chain's next is that plog
    if tail.next_size and tail.next_size >= needed:
        return
    if tail.next_size:
        yield from _replace_next(partition, name)
        tail.next_size = 0
    sizes = partition.sizes_of(name)
    used = tail.size if tail.open else tail.written  # a plog that was sealed early was larger than necessary
    size, least = max(sizes.after(used), needed), max(sizes.first, needed)
    try:
        yield from _create_next(partition, name, size)
    except DiskFull:
        if size == least:
            raise
        size = least
        yield from _create_next(partition, name, size)
    tail.next_size = size


def _create_next(partition: Partition, name: str, size: int) -> Steps[None]:
    chain = partition.metadata.logs[name]
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            yield Create(chain.next, size)
        except (PlogExists, PlogCorrupt, *LOST):
            if not tries_left:
                raise
            yield from _replace_next(partition, name)
        else:
            return


def _need_chain(partition: Partition, name: str, tail: LogTail) -> LogChain:
    """Return the chain that ``tail`` belongs to; ``NoSuchLog`` if the log was deleted since, even if created again."""
    chain = partition.metadata.logs.get(name)
    if chain is None or chain.active != tail.plog_id:
        raise NoSuchLog(name, partition=partition.name)
    return chain


def leave_plog(partition: Partition, name: str, tail: LogTail, *, is_next_used: bool) -> Steps[None]:
    """Prepare to leave an active plog that has lost a replica and is sealed at the end of the tail.

    The plog after it is replaced if it holds appends that are not part of the log, or is in the same group.
    """
    chain = _need_chain(partition, name, tail)
    tail.open = False
    if is_next_used or (chain.next.cluster, chain.next.group) == (tail.plog_id.cluster, tail.plog_id.group):
        yield from _replace_next(partition, name)
        tail.next_size = 0


def record_switch(partition: Partition, name: str, *, old: LogTail, new: LogTail) -> Steps[None]:
    """Record a switch to a new plog; until then no append to the new plog may be acknowledged."""
    _need_chain(partition, name, old)
    yield Drain()
    yield from seal_at_end(old.plog_id, size=old.size, length=old.written)
    next_id = yield NewId()
    record = Incremental(name, str(old.plog_id), old.written, str(new.plog_id), str(next_id))
    yield from append_records(partition, [record])


def release_log(partition: Partition, name: str, tail: LogTail) -> Steps[None]:
    """Free the unused allocated size of an idle log: seal its active plog, drop the pre-allocated one.

    No append is under way. A later append finds the active plog sealed, as after a fence, and switches.
    """
    _need_chain(partition, name, tail)
    if tail.open:
        yield from seal_at_end(tail.plog_id, size=tail.size, length=tail.written)
        tail.open = False
    if tail.next_size:
        yield from _replace_next(partition, name)
        tail.next_size = 0


def replace_plogs(
    partition: Partition, name: str, first: PlogId, count: int, *, source: str, tail: LogTail
) -> Steps[bool]:
    """Replace ``count`` plogs by the only plog of the ``source`` log, which holds their blocks; return whether it did.

    No append is under way in the source, which is deleted. If the plogs were truncated away, or the source has moved
    to another group and has several plogs, nothing changes.
    """
    source_chain, chain = _need_chain(partition, source, tail), partition.metadata.logs.get(name)
    if source_chain.last_sealed or chain is None or chain.span(first, count) is None:
        return False
    yield from seal_at_end(tail.plog_id, size=tail.size, length=tail.written)
    yield from append_records(partition, [Replace(name, str(first), count, source, tail.written)])
    return True


def splice_logs(partition: Partition, plan: Sequence[Splicing]) -> Steps[list[LogTail]]:
    """Move all plogs of the source logs to the end of their targets, in one append of records, and delete the sources.

    No append is under way in any of them. A target's active plog is sealed too, unless it is empty: then it stays the
    active one, after the plogs spliced in. Return the new tails, in the order of the plan.
    """
    records: list[Record] = []
    tails = []
    for splicing in plan:
        tail = yield from _splice_into(partition, splicing, records)
        tails.append(tail)
    if records:
        yield from append_records(partition, records)
    for splicing, tail in zip(plan, tails, strict=True):
        chain = partition.metadata.logs[splicing.name]
        if chain.last_sealed:
            tail.before, tail.start = LogPosition(*chain.last_sealed), chain.active_start
    return tails


def _splice_into(partition: Partition, splicing: Splicing, records: list[Record]) -> Steps[LogTail]:
    """Seal the plogs that a splice into one target needs sealed; add its records to ``records``."""
    chain, tail = _need_chain(partition, splicing.name, splicing.tail), splicing.tail
    active, next_id = chain.active, chain.next
    for source, source_tail, label in splicing.sources:
        source_chain = _need_chain(partition, source, source_tail)
        if not source_tail.written and not source_chain.last_sealed:
            records.append(Drop(source))
            continue
        yield from seal_at_end(source_tail.plog_id, size=source_tail.size, length=source_tail.written)
        own_length = None
        if not tail.open or tail.written:
            yield from ensure_next(partition, splicing.name, tail, needed=1)
            yield from seal_at_end(tail.plog_id, size=tail.size, length=tail.written)
            tail.open, own_length = False, tail.written
            active, next_id = chain.next, (yield NewId())
            tail = tail.moved(active)
        records.append(Splice(splicing.name, own_length, source, source_tail.written, str(active), str(next_id), label))
    return tail
