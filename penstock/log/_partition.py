"""The metadata log's protocols: create, recover, append records, switch to a new metadata plog.

The oracle holds the id of the newest metadata plog and nothing else. That plog starts with the complete metadata, so
recovery reads one plog, and the plogs before it are deleted. A switch seals the old plog, writes the new one and
publishes it. It may end after any of these steps: the old plog counts until the new one is published, and if the newest
plog is sealed, recovery makes the switch again.

An append of records that loses a replica is decided by a seal: where the plog then ends shows whether the records are
in it, and the log continues in another group. If the end cannot be decided now, the records are in doubt: the caller
gets an error, and nothing else is recorded or acknowledged before the end is decided. If the records are in that plog,
a switch leaves them out, so for this process they never were.

A process that opens a partition may take it over from an owner that still runs. So its first record gives new ids to
the plogs that will be created next. From then on the former owner's appends are refused, because the log does not end
where it expects, and no log refers to the plogs that it creates or deletes. An owner seals a plog only where it knows
the plog to end.
"""

from __future__ import annotations

import contextlib
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from penstock.errors import (
    CasConflict,
    CpoCorrupt,
    CpoUnavailable,
    DiskFull,
    LogFenced,
    MetadataCorrupt,
    NoSuchPlog,
    PenstockError,
    PlogCorrupt,
    PlogError,
    PlogExists,
    PlogSealed,
    WrongOffset,
)
from penstock.log._actions import (
    LOST,
    TRIES_MAX,
    Append,
    Create,
    Delete,
    FindMetadata,
    Inspect,
    NewId,
    Publish,
    ReadAll,
    Seal,
    Where,
)
from penstock.log._metadata import Metadata, snapshot_parts
from penstock.log._records import SNAPSHOT, Chain, Doomed, Lineage, Spares, decode_records, encode_records
from penstock.model import UNDECODABLE, PlogId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.log._actions import Steps
    from penstock.log._chain import PlogSizes
    from penstock.log._records import Record

__all__ = [
    "Partition",
    "append_built",
    "append_records",
    "compact",
    "marker_of",
    "open_partition",
    "seal",
    "seal_at_end",
    "settle",
]

T = TypeVar("T")
REPLAY_SIZE_MAX: Final = 256 << 10  # of records behind the complete metadata when a partition is closed: some 1,500
_LINEAGE_MAX: Final = 200  # metadata plogs: about 10 kB, which each new one begins with


class Partition:
    """The end of the metadata log, and the state that its records add up to."""

    def __init__(self, name: str, sizes: PlogSizes, *, plog_id: PlogId, version: int) -> None:
        self.name, self.sizes = name, sizes
        self.own_sizes: dict[str, PlogSizes] = {}  # of logs with other sizes; known while the partition is open
        self.marker = marker_of(name, plog_id)
        self.found: PlogId | None = None  # the next metadata plog, as the owner before has announced it
        self.metadata = Metadata()
        self.plog_id, self.version = plog_id, version
        self.length = self.size = 0
        self.snapshot_end = 0  # where the complete metadata ends, with which the metadata plog starts
        self.is_sealed = False  # the metadata plog takes no more appends
        self.in_doubt: InDoubt | None = None
        self.failed = False
        self.unsure: _Switched | None = None  # it is unknown whether the oracle has published this

    def sizes_of(self, log: str) -> PlogSizes:
        """Return the sizes of a log's plogs."""
        return self.own_sizes.get(log, self.sizes)

    def known_among(self, plogs: Collection[PlogId]) -> set[PlogId]:
        """Return those of some plogs that the partition needs, has announced, or will delete."""
        switched = None if self.unsure is None else self.unsure.plog_id
        own = {self.plog_id, self.marker, self.found, switched}
        return self.metadata.known_among(plogs) | {plog_id for plog_id in plogs if plog_id in own}


class InDoubt(NamedTuple):
    """Records whose append has lost a replica: they are in the log if the metadata plog ends at ``end``."""

    end: int
    error: PenstockError


class _Switched(NamedTuple):
    """A new metadata plog with the complete metadata, in which the log continues once the oracle has published it.

    ``changes`` are the records in it that are not applied yet.
    """

    plog_id: PlogId
    length: int
    size: int
    changes: list[Record]


def marker_of(partition: str, near: PlogId) -> PlogId:
    """Return the id of the plog whose existence shows that the partition was created among these plogs."""
    uid = blake2b(f"partition {partition}".encode(), digest_size=16).hexdigest()
    return PlogId(near.cluster, near.group, uid)


def open_partition(name: str, sizes: PlogSizes) -> Steps[Partition]:
    """Recover the partition, or create it if the oracle does not know it.

    An oracle that was lost does not know it either. Then the marker plog is there, and no new partition is created.
    """
    newest = yield FindMetadata()
    marker = marker_of(name, (yield NewId()))
    try:
        marked = yield from _exists(marker)
    except LOST:
        if newest is None:
            raise
        marked = True  # or it is created the next time
    if newest is None and marked:
        reason = f"it does not know partition {name!r}, but {(yield Where(marker))} shows that there is one"
        raise CpoCorrupt((yield Where(None)), offset=None, reason=reason)
    if newest is None:
        yield from _create(name, sizes)
        newest = yield FindMetadata()
    plog_id, version = newest
    partition = Partition(name, sizes, plog_id=plog_id, version=version)
    yield from _recover(partition)
    if not marked:
        with contextlib.suppress(PlogExists, *LOST):
            yield Create(marker, 1)
    return partition


def _exists(plog_id: PlogId) -> Steps[bool]:
    try:
        return (yield Inspect(plog_id)) is not None
    except PlogCorrupt:
        return True


def _create(name: str, sizes: PlogSizes) -> Steps[None]:
    """Publish a first metadata plog, unless another process is faster."""
    tries = 1
    while True:
        plog_id, next_id, spare = (yield NewId()), (yield NewId()), (yield NewId())
        first = encode_records([Chain([], str(next_id), str(spare))])
        try:
            yield Create(plog_id, sizes.for_metadata(len(first)))
            yield Append(plog_id, 0, first)
            break
        except LOST:
            if tries == TRIES_MAX:
                raise
            tries += 1
    try:
        yield Publish(plog_id, 0)
    except CasConflict:
        with contextlib.suppress(*LOST):
            yield Delete(plog_id)


def _recover(partition: Partition) -> Steps[None]:
    """Read the newest metadata plog, and delete the plogs that an interrupted switch left."""
    plog_id = partition.plog_id
    info = yield Inspect(plog_id)
    if info is None:
        reason = (
            f"the newest metadata plog of partition {partition.name} is missing, "
            f"unless {(yield Where(None))}, which names it, is an older copy"
        )
        raise MetadataCorrupt((yield Where(plog_id)), offset=None, reason=reason)
    partition.length, partition.size, partition.is_sealed = info.length, info.size, info.sealed
    yield from _replay(partition, (yield ReadAll(plog_id)))
    metadata, doomed = partition.metadata, []
    partition.found = metadata.next
    for leftover, _ in metadata.previous:
        try:
            yield Delete(leftover)
        except LOST:
            doomed.append(str(leftover))
    # The records by which a partition gets a new owner: plogs to be created get new ids.
    chain = Chain([], str((yield NewId())), str((yield NewId())))

    def take_over() -> list[Record]:
        previous = [str(plog_id) for plog_id, _ in metadata.previous if plog_id in metadata.doomed]
        spares = list(map(str, metadata.spares))
        none: list[Record] = [Spares([])] if spares else []
        return [chain, *none, Doomed([str(metadata.next), str(metadata.spare), *spares, *doomed, *previous])]

    if info.sealed:
        yield from _switch(partition, needed=len(encode_records(take_over())))
    yield from append_built(partition, take_over)


def _replay(partition: Partition, appends: list[memoryview]) -> Steps[None]:
    offset = 0
    for data in appends:
        try:
            records = decode_records(data)
            if partition.snapshot_end == offset and all(isinstance(record, SNAPSHOT) for record in records):
                partition.snapshot_end += len(data)
            for record in records:
                partition.metadata.apply(record)
        except (*UNDECODABLE, KeyError) as error:
            reason = f"the record at offset {offset} of the plog does not fit the records before it ({error})"
            raise MetadataCorrupt((yield Where(partition.plog_id)), offset=None, reason=reason) from error
        offset += len(data)
    if partition.metadata.next is None:
        reason = "it does not start with the chain of its plogs"
        raise MetadataCorrupt((yield Where(partition.plog_id)), offset=None, reason=reason)


def append_records(partition: Partition, records: list[Record]) -> Steps[None]:
    """Make the records durable, all or none, then apply them."""
    yield from append_built(partition, lambda: records)


def append_built(partition: Partition, build: Callable[[], list[Record]]) -> Steps[None]:
    """Append records that name the next metadata plog: they are built again if that one is used meanwhile."""
    if partition.failed:
        raise LogFenced(f"partition {partition.name!r}")
    records = yield from _checked(partition, _append(partition, build))
    for record in records:
        partition.metadata.apply(record)


def compact(partition: Partition) -> Steps[None]:
    """Continue in a new metadata plog if the process that opens the partition next would have many records to read."""
    if not partition.failed and partition.length - partition.snapshot_end > REPLAY_SIZE_MAX:
        yield from settle(partition)
        yield from _checked(partition, _switch(partition))


def settle(partition: Partition) -> Steps[None]:
    """Decide the outcome of records in doubt, if there are any, before anything else happens."""
    if partition.in_doubt is not None:
        yield from _checked(partition, _settle(partition))


def _checked(partition: Partition, steps: Steps[T]) -> Steps[T]:
    """Run steps of the metadata log; note whether it can go on after an error."""
    try:
        return (yield from steps)
    except (PlogSealed, WrongOffset, CasConflict, NoSuchPlog) as error:
        partition.failed = True
        raise LogFenced(f"partition {partition.name!r}") from error
    except PenstockError as error:
        # A refused append was not written, and may be tried again; before the next switch the oracle is asked what it
        # has published, and before the next append where the plog ends. After any other error nothing is known.
        partition.failed = not isinstance(error, (DiskFull, PlogError, CpoUnavailable, *LOST))
        raise


def _append(partition: Partition, build: Callable[[], list[Record]]) -> Steps[list[Record]]:
    """Append to the metadata plog, or to a new one in another group if it has lost a replica and not the records."""
    losses = 0
    while True:
        yield from _settle(partition)
        while len(data := encode_records(records := build())) > partition.size - partition.length:
            yield from _switch(partition, needed=len(data))
        try:
            partition.length = yield Append(partition.plog_id, partition.length, data)
        except LOST as error:
            losses += 1
            partition.in_doubt = InDoubt(partition.length + len(data), error)
            is_in = yield from _decide_end(partition)
            partition.in_doubt = None
            if not is_in:
                if losses == TRIES_MAX:
                    raise
                continue
        return records


def _settle(partition: Partition) -> Steps[None]:
    """Decide where a metadata plog with records in doubt ends; if they are in it, continue in one without them."""
    if partition.in_doubt is not None:
        if (yield from _decide_end(partition)):
            yield from _switch(partition)
        partition.in_doubt = None


def _decide_end(partition: Partition) -> Steps[bool]:
    """Seal the metadata plog, whose last append has lost a replica; return whether the append is in it."""
    assert partition.in_doubt is not None
    end = partition.in_doubt.end
    sealed = yield from seal(partition.plog_id, size=max(partition.size, end))
    if sealed not in {partition.length, end}:
        raise PlogSealed(partition.plog_id, sealed_offset=sealed)
    partition.length = partition.size = sealed
    partition.is_sealed = True
    return sealed == end


def _switch(partition: Partition, *, needed: int = 0) -> Steps[None]:
    """Continue in a new metadata plog; first ask the oracle whether an earlier attempt published one."""
    if partition.unsure is not None:
        newest = yield FindMetadata()
        if newest is not None and newest[0] == partition.unsure.plog_id:
            yield from _continue_in(partition, partition.unsure, version=newest[1])
            return
    old, length = partition.plog_id, partition.length
    if not partition.is_sealed:
        info = yield Inspect(old)
        if info is None or info.length != length:
            raise LogFenced(f"partition {partition.name!r}")
        try:
            yield from seal_at_end(old, size=info.size, length=length)
        except (CpoUnavailable, *LOST):
            partition.size = length  # it may be sealed: no append fits any more
            raise
        partition.size, partition.is_sealed = length, True  # whether this switch succeeds or not
    partition.unsure = yield from _write_snapshot(partition, needed=needed)
    version = yield Publish(partition.unsure.plog_id, partition.version)
    yield from _continue_in(partition, partition.unsure, version=version)


def _write_snapshot(partition: Partition, *, needed: int) -> Steps[_Switched]:
    """Write the complete metadata into a new plog, which is in another group than was announced if that one fails.

    The plogs of failed attempts are doomed by the new plog: one of them may be published still, until this one is.
    """
    metadata = partition.metadata
    assert metadata.next is not None
    new = metadata.next
    left = [] if partition.unsure is None or partition.unsure.plog_id == new else [str(partition.unsure.plog_id)]
    while True:
        chain = Chain([(str(partition.plog_id), partition.length)], str((yield NewId())), str(metadata.spare))
        changes: list[Record] = [chain, Lineage([*metadata.lineage, str(partition.plog_id)][-_LINEAGE_MAX:])]
        if left:
            changes.append(Doomed(left))
        parts = [*snapshot_parts(metadata, chain), encode_records(changes[1:])]
        size, offset = partition.sizes.for_metadata(sum(map(len, parts)) + needed), 0
        try:
            yield Delete(new)  # from an earlier attempt to switch
            yield Create(new, size)
            for part in parts:
                offset = yield Append(new, offset, part)
            return _Switched(new, offset, size, changes)
        except LOST:
            left.append(str(new))
            if len(left) >= TRIES_MAX:
                raise
            new = yield NewId()


def _continue_in(partition: Partition, switched: _Switched, *, version: int) -> Steps[None]:
    """Continue in a metadata plog that the oracle has published."""
    old, partition.unsure, partition.version = partition.plog_id, None, version
    partition.plog_id, partition.length, partition.size = switched.plog_id, switched.length, switched.size
    partition.is_sealed, partition.snapshot_end = False, switched.length
    for record in switched.changes:
        partition.metadata.apply(record)
    try:
        yield Delete(old)
    except LOST:
        partition.metadata.doom([old])


def seal(plog_id: PlogId, *, size: int) -> Steps[int]:
    """Seal a plog of this size at its end, if it is not sealed; return its length. No acknowledged byte is cut off."""
    try:
        length: int = yield Seal(plog_id, size)
    except PlogSealed as error:
        length = error.sealed_offset
    return length


def seal_at_end(plog_id: PlogId, *, size: int, length: int) -> Steps[None]:
    """Seal a plog whose writer knows its ``length``; ``PlogSealed`` if another process appended or sealed it."""
    sealed_offset = yield from seal(plog_id, size=size)
    if sealed_offset != length:
        raise PlogSealed(plog_id, sealed_offset=sealed_offset)
