"""The metadata log's protocols: create, recover, append records, switch to a new metadata plog.

The oracle holds the id of the newest metadata plog and nothing else. That plog starts with the complete metadata, so
recovery reads one plog, and the plogs before it are deleted. A switch seals the old plog, writes the new one and
publishes it. It may end after any of these steps: the old plog counts until the new one is published, and if the newest
plog is sealed, recovery makes the switch again.

A process that opens a partition may take it over from an owner that still runs. So its first record gives new ids to
the plogs that will be created next. From then on the former owner's appends are refused, because the log does not end
where it expects, and no log refers to the plogs that it creates or deletes. An owner seals a plog only where it knows
the plog to end.
"""

from __future__ import annotations

import contextlib
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

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
from penstock.log._actions import Append, Create, Delete, FindMetadata, Inspect, NewId, Publish, ReadAll, Seal, Where
from penstock.log._metadata import Metadata, snapshot_parts
from penstock.log._records import Chain, Doomed, decode_records, encode_records
from penstock.model import PlogId

if TYPE_CHECKING:
    from penstock.log._actions import Steps
    from penstock.log._chain import PlogSizes
    from penstock.log._records import Record

__all__ = ["Partition", "append_records", "marker_of", "open_partition", "seal", "seal_at_end"]


class Partition:
    """The end of the metadata log, and the state that its records add up to."""

    def __init__(self, name: str, sizes: PlogSizes, *, plog_id: PlogId, version: int) -> None:
        self.name, self.sizes = name, sizes
        self.own_sizes: dict[str, PlogSizes] = {}  # of logs with other sizes; known while the partition is open
        self.marker = marker_of(name, plog_id)
        self.metadata = Metadata()
        self.plog_id, self.version = plog_id, version
        self.length = self.size = 0
        self.failed = False
        self.unsure: _Switched | None = None  # it is unknown whether the oracle has published this

    def sizes_of(self, log: str) -> PlogSizes:
        """Return the sizes of a log's plogs."""
        return self.own_sizes.get(log, self.sizes)


class _Switched(NamedTuple):
    """A new metadata plog with the complete metadata, in which the log continues once the oracle has published it."""

    plog_id: PlogId
    length: int
    size: int
    chain: Chain


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
    marked = yield from _exists(marker)
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
        with contextlib.suppress(PlogExists):
            yield Create(marker, 1)
    return partition


def _exists(plog_id: PlogId) -> Steps[bool]:
    try:
        return (yield Inspect(plog_id)) is not None
    except PlogCorrupt:
        return True


def _create(name: str, sizes: PlogSizes) -> Steps[None]:
    """Publish a first metadata plog, unless another process is faster."""
    plog_id, next_id, spare = (yield NewId()), (yield NewId()), (yield NewId())
    first = encode_records([Chain([], str(next_id), str(spare))])
    yield Create(plog_id, sizes.for_metadata(len(first)))
    yield Append(plog_id, 0, first)
    try:
        yield Publish(plog_id, 0)
    except CasConflict:
        yield Delete(plog_id)


def _recover(partition: Partition) -> Steps[None]:
    """Read the newest metadata plog, and delete the plogs that an interrupted switch left."""
    plog_id = partition.plog_id
    info = yield Inspect(plog_id)
    if info is None:
        reason = f"the newest metadata plog of partition {partition.name} is missing"
        raise MetadataCorrupt((yield Where(plog_id)), offset=None, reason=reason)
    partition.length, partition.size = info.length, info.size
    yield from _replay(partition, (yield ReadAll(plog_id)))
    metadata = partition.metadata
    for leftover, _ in metadata.previous:
        yield Delete(leftover)
    chain = Chain([], str((yield NewId())), str((yield NewId())))
    needed = len(encode_records(_take_over(metadata, chain)))
    if info.sealed or needed > partition.size - partition.length:
        yield from _switch(partition, needed=needed)
    yield from append_records(partition, _take_over(metadata, chain))


def _take_over(metadata: Metadata, chain: Chain) -> list[Record]:
    """Return the records by which a partition gets a new owner: plogs to be created get new ids."""
    return [chain, Doomed([str(metadata.next), str(metadata.spare)])]


def _replay(partition: Partition, appends: list[memoryview]) -> Steps[None]:
    offset = 0
    for data in appends:
        try:
            records = decode_records(data)
            for record in records:
                partition.metadata.apply(record)
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            reason = f"the record at offset {offset} of the plog does not fit the records before it ({error})"
            raise MetadataCorrupt((yield Where(partition.plog_id)), offset=None, reason=reason) from error
        offset += len(data)
    if partition.metadata.next is None:
        reason = "it does not start with the chain of its plogs"
        raise MetadataCorrupt((yield Where(partition.plog_id)), offset=None, reason=reason)


def append_records(partition: Partition, records: list[Record]) -> Steps[None]:
    """Make the records durable, all or none, then apply them."""
    if partition.failed:
        raise LogFenced(f"partition {partition.name!r}")
    data = encode_records(records)
    try:
        while len(data) > partition.size - partition.length:
            yield from _switch(partition, needed=len(data))
        partition.length = yield Append(partition.plog_id, partition.length, data)
    except (PlogSealed, WrongOffset, CasConflict, NoSuchPlog) as error:
        partition.failed = True
        raise LogFenced(f"partition {partition.name!r}") from error
    except PenstockError as error:
        # A refused append was not written, and may be tried again; before the next switch the oracle is asked what it
        # has published. After any other error it is unknown whether the records were written.
        may_retry = isinstance(error, CpoUnavailable) and partition.unsure is not None
        partition.failed = not (isinstance(error, DiskFull | PlogError) or may_retry)
        raise
    for record in records:
        partition.metadata.apply(record)


def _switch(partition: Partition, *, needed: int = 0) -> Steps[None]:
    """Continue in a new metadata plog; first ask the oracle whether an earlier attempt published one."""
    if partition.unsure is not None:
        newest = yield FindMetadata()
        if newest is not None and newest[0] == partition.unsure.plog_id:
            yield from _continue_in(partition, partition.unsure, version=newest[1])
            return
    old, metadata = partition.plog_id, partition.metadata
    assert metadata.next is not None
    assert metadata.spare is not None
    new, next_id, length = metadata.next, (yield NewId()), partition.length
    info = yield Inspect(old)
    if info is None or info.length != length:
        raise LogFenced(f"partition {partition.name!r}")
    yield from seal_at_end(old, size=info.size, length=length)
    partition.size = length  # it takes no more appends, whether this switch succeeds or not
    chain = Chain([(str(old), length)], str(next_id), str(metadata.spare))
    parts = snapshot_parts(metadata, chain)
    size = partition.sizes.for_metadata(sum(map(len, parts)) + needed)
    yield Delete(new)  # from an earlier attempt to switch
    yield Create(new, size)
    offset = 0
    for part in parts:
        offset = yield Append(new, offset, part)
    partition.unsure = _Switched(new, offset, size, chain)
    version = yield Publish(new, partition.version)
    yield from _continue_in(partition, partition.unsure, version=version)


def _continue_in(partition: Partition, switched: _Switched, *, version: int) -> Steps[None]:
    """Continue in a metadata plog that the oracle has published."""
    old, partition.unsure, partition.version = partition.plog_id, None, version
    partition.plog_id, partition.length, partition.size = switched.plog_id, switched.length, switched.size
    partition.metadata.apply(switched.chain)
    yield Delete(old)


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
