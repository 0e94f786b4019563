"""A log stream's protocols: create, recover, switch, release, replace, splice.

Each protocol announces in the metadata the plogs that it will create, and makes its record durable before anything
depends on it. See :mod:`penstock.log._actions` for how protocols run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import DiskFull, MetadataCorrupt, NoSuchLog, PlogCorrupt, PlogExists
from penstock.log._actions import Create, Delete, Drain, Inspect, NewId, Where
from penstock.log._partition import append_records, seal, seal_at_end
from penstock.log._records import Drop, Incremental, Init, Next, Replace, Splice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log._actions import Steps
    from penstock.log._chain import LogChain
    from penstock.log._partition import Partition
    from penstock.log._records import Record
    from penstock.model import PlogId
    from penstock.plog import PlogInfo

__all__ = [
    "LogPosition",
    "LogTail",
    "Splicing",
    "create_log",
    "ensure_next",
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
    spare = partition.metadata.spare
    assert spare is not None
    yield Delete(spare)  # from a creation that ended before its record
    yield Create(spare, partition.sizes_of(name).first)
    init = Init(name, str(spare), str((yield NewId())), str((yield NewId())))
    yield from append_records(partition, [init])


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
    except PlogCorrupt:
        pass  # its creation was never acknowledged, so no data is lost with it
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
    try:
        yield Create(chain.next, size)
    except (PlogExists, PlogCorrupt):
        yield from _replace_next(partition, name)
        yield Create(chain.next, size)


def _need_chain(partition: Partition, name: str, tail: LogTail) -> LogChain:
    """Return the chain that ``tail`` belongs to; ``NoSuchLog`` if the log was deleted since, even if created again."""
    chain = partition.metadata.logs.get(name)
    if chain is None or chain.active != tail.plog_id:
        raise NoSuchLog(name, partition=partition.name)
    return chain


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

    No append is under way in the source, which is deleted. If the plogs were truncated away, nothing changes.
    """
    source_chain, chain = _need_chain(partition, source, tail), partition.metadata.logs.get(name)
    assert not source_chain.last_sealed, "one plog replaces them"
    if chain is None or chain.span(first, count) is None:
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
