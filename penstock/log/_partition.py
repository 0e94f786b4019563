"""The metadata log's protocols: begin, recover, append records, switch to a new metadata plog.

The oracle holds the id of the newest metadata plog and nothing else. That plog starts with all there is to
know, so recovery reads one plog, and those before it are deleted. A switch goes: seal the old plog, write the
new one, publish it. It may end after any of these: until it is published the old plog is the truth, and a sealed
newest plog tells who recovers that the switch has to be made again.

Whoever opens a partition may be taking it over from somebody who still runs. So its first record gives new ids to
what is going to be created: what the former owner writes from then on is refused, because the log does not end
where it believes, and what it creates or deletes is nobody's. Nobody seals a plog of which it does not know the end.
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
    from penstock.log._records import Record
    from penstock.log._sizes import PlogSizes

__all__ = ["Partition", "append_records", "mark_of", "open_partition", "seal", "seal_at_end"]


class Partition:
    """Where the metadata log stands, and what it says."""

    def __init__(self, name: str, sizes: PlogSizes, *, plog_id: PlogId, version: int) -> None:
        self.name, self.sizes = name, sizes
        self.own_sizes: dict[str, PlogSizes] = {}  # of logs that want others; known as long as the partition is open
        self.mark = mark_of(name, plog_id)
        self.metadata = Metadata()
        self.plog_id, self.version = plog_id, version
        self.length = self.size = 0
        self.failed = False
        self.unsure: _Switched | None = None  # whether the oracle has taken this is not known

    def sizes_of(self, log: str) -> PlogSizes:
        """Return how large the plogs of a log are."""
        return self.own_sizes.get(log, self.sizes)


class _Switched(NamedTuple):
    """A new metadata plog that holds all there is to know, and where the log goes on once the oracle has it."""

    plog_id: PlogId
    length: int
    size: int
    chain: Chain


def mark_of(partition: str, near: PlogId) -> PlogId:
    """Return the id of the plog whose existence says that the partition was begun among these plogs."""
    uid = blake2b(f"partition {partition}".encode(), digest_size=16).hexdigest()
    return PlogId(near.cluster, near.group, uid)


def open_partition(name: str, sizes: PlogSizes) -> Steps[Partition]:
    """Recover the partition, or begin it if the oracle does not know it.

    An oracle that was lost does not know it either. Then the mark is there, and nothing is begun afresh.
    """
    found = yield FindMetadata()
    mark = mark_of(name, (yield NewId()))
    marked = yield from _is_there(mark)
    if found is None and marked:
        reason = f"it has forgotten partition {name!r}, though {(yield Where(mark))} says that there is one"
        raise CpoCorrupt((yield Where(None)), offset=None, reason=reason)
    if found is None:
        yield from _begin(name, sizes)
        found = yield FindMetadata()
    plog_id, version = found
    partition = Partition(name, sizes, plog_id=plog_id, version=version)
    yield from _recover(partition)
    if not marked:
        with contextlib.suppress(PlogExists):
            yield Create(mark, 1)
    return partition


def _is_there(plog_id: PlogId) -> Steps[bool]:
    try:
        return (yield Inspect(plog_id)) is not None
    except PlogCorrupt:
        return True


def _begin(name: str, sizes: PlogSizes) -> Steps[None]:
    """Publish a first metadata plog, unless somebody else is faster."""
    plog_id, next_id, spare = (yield NewId()), (yield NewId()), (yield NewId())
    first = encode_records([Chain([], str(next_id), str(spare))])
    yield Create(plog_id, sizes.for_metadata(len(first)))
    yield Append(plog_id, 0, first)
    try:
        yield Publish(plog_id, 0)
    except CasConflict:
        yield Delete(plog_id)


def _recover(partition: Partition) -> Steps[None]:
    """Read the newest metadata plog, and clear away what an interrupted step left behind."""
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
    room = len(encode_records(_take_over(metadata, chain)))
    if info.sealed or room > partition.size - partition.length:
        yield from _switch(partition, room=room)
    yield from append_records(partition, _take_over(metadata, chain))


def _take_over(metadata: Metadata, chain: Chain) -> list[Record]:
    """Return the records by which a partition gets a new owner: what was going to be created is not any more."""
    return [chain, Doomed([str(metadata.next), str(metadata.spare)])]


def _replay(partition: Partition, appends: list[memoryview]) -> Steps[None]:
    offset = 0
    for data in appends:
        try:
            records = decode_records(data)
            for record in records:
                partition.metadata.apply(record)
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            reason = f"at offset {offset} of the plog there is no record that follows from those before ({error})"
            raise MetadataCorrupt((yield Where(partition.plog_id)), offset=None, reason=reason) from error
        offset += len(data)
    if partition.metadata.next is None:
        reason = "it does not start with the chain of its plogs"
        raise MetadataCorrupt((yield Where(partition.plog_id)), offset=None, reason=reason)


def append_records(partition: Partition, records: list[Record]) -> Steps[None]:
    """Make the records durable, all or none, and take them in."""
    if partition.failed:
        raise LogFenced(f"partition {partition.name!r}")
    data = encode_records(records)
    try:
        while len(data) > partition.size - partition.length:
            yield from _switch(partition, room=len(data))
        partition.length = yield Append(partition.plog_id, partition.length, data)
    except (PlogSealed, WrongOffset, CasConflict, NoSuchPlog) as error:
        partition.failed = True
        raise LogFenced(f"partition {partition.name!r}") from error
    except PenstockError as error:
        # Refused is not written, and may be tried again; what the oracle has taken is asked for before the next try. Of
        # anything else nobody knows whether it was written.
        is_asked_for = isinstance(error, CpoUnavailable) and partition.unsure is not None
        partition.failed = not (isinstance(error, DiskFull | PlogError) or is_asked_for)
        raise
    for record in records:
        partition.metadata.apply(record)


def _switch(partition: Partition, *, room: int = 0) -> Steps[None]:
    """Go on in a new metadata plog; one that the oracle may have taken when it was tried before is asked for first."""
    if partition.unsure is not None:
        found = yield FindMetadata()
        if found is not None and found[0] == partition.unsure.plog_id:
            yield from _go_on(partition, partition.unsure, version=found[1])
            return
    old, metadata = partition.plog_id, partition.metadata
    assert metadata.next is not None
    assert metadata.spare is not None
    new, next_id, length = metadata.next, (yield NewId()), partition.length
    info = yield Inspect(old)
    if info is None or info.length != length:
        raise LogFenced(f"partition {partition.name!r}")
    yield from seal_at_end(old, size=info.size, length=length)
    partition.size = length  # it takes no more, however this switch ends
    chain = Chain([(str(old), length)], str(next_id), str(metadata.spare))
    parts = snapshot_parts(metadata, chain)
    size = partition.sizes.for_metadata(sum(map(len, parts)) + room)
    yield Delete(new)  # from a switch that was tried before
    yield Create(new, size)
    offset = 0
    for part in parts:
        offset = yield Append(new, offset, part)
    partition.unsure = _Switched(new, offset, size, chain)
    version = yield Publish(new, partition.version)
    yield from _go_on(partition, partition.unsure, version=version)


def _go_on(partition: Partition, switched: _Switched, *, version: int) -> Steps[None]:
    """Go on in a metadata plog that the oracle has."""
    old, partition.unsure, partition.version = partition.plog_id, None, version
    partition.plog_id, partition.length, partition.size = switched.plog_id, switched.length, switched.size
    partition.metadata.apply(switched.chain)
    yield Delete(old)


def seal(plog_id: PlogId, *, size: int) -> Steps[int]:
    """Seal a plog of this size where it ends, or find it sealed; return where. Nothing acknowledged is cut off."""
    try:
        length: int = yield Seal(plog_id, size)
    except PlogSealed as error:
        length = error.sealed_offset
    return length


def seal_at_end(plog_id: PlogId, *, size: int, length: int) -> Steps[None]:
    """Seal a plog that its writer knows to be ``length`` long; ``PlogSealed`` if somebody else was there."""
    found = yield from seal(plog_id, size=size)
    if found != length:
        raise PlogSealed(plog_id, sealed_offset=found)
