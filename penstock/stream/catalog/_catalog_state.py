"""What the records of a catalog add up to, and the records of a snapshot that say the same.

A snapshot is cut into appends to the log of the catalog, which is read again when a store is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import StreamCorrupt
from penstock.model import UNDECODABLE
from penstock.stream.catalog._group_state import GroupState
from penstock.stream.catalog._stream_state import LastBatch, StreamState
from penstock.stream.format import (
    CommitsFull,
    Committed,
    Committing,
    ConsumerFull,
    GroupCreated,
    GroupDeleted,
    GroupFull,
    NumberFull,
    OwnerFull,
    Prepared,
    PreparedFull,
    SegmentsFull,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotRecord,
    StreamCreated,
    StreamDeleted,
    StreamEnds,
    StreamFull,
    StreamRecord,
    Uncommitted,
    Unprepared,
    WriterFull,
    decode_records,
    encode_checked,
    encode_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.log import LogStream
    from penstock.stream.format import Record

__all__ = ["COMMITTED_MAX", "CatalogState", "replay", "snapshot_appends"]

COMMITTED_MAX: Final = 10_000  # transactions whose end is remembered
_SEGMENTS_IN_RECORD: Final = 5000  # of some 50 bytes each
_APPEND_SIZE: Final = 256 << 10


class CatalogState:
    """What the records of a catalog add up to."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamState] = {}
        self.groups: dict[str, GroupState] = {}
        self.commits: dict[str, Committing] = {}  # under way, by transaction
        self.committed: dict[str, None] = {}  # the last ones, in order
        self.prepared: dict[str, Prepared] = {}
        self.newest_commit: Committed | None = None  # if nothing came behind it
        self.next_uid = 0
        self.ends: dict[str, dict[int, dict[int, tuple[int, int]]]] = {}  # by session: the last that was closed

    def apply(self, record: Record) -> None:
        """Take in one record; ``KeyError`` if it does not follow from those before."""
        if isinstance(record, StreamEnds):
            self.ends = {record.session: self.ends.get(record.session, {}) | record.streams}
            return
        self.newest_commit = record if isinstance(record, Committed) else None
        match record:
            case StreamCreated():
                self.streams[record.stream] = StreamState(record)
                self.next_uid = record.uid + 1
            case StreamDeleted():
                del self.streams[record.stream]
                self.prepared = {
                    key: prepared for key, prepared in self.prepared.items() if prepared.stream != record.stream
                }
                for group in self.groups.values():
                    group.drop_stream(record.stream)
            case GroupCreated():
                self.groups[record.group] = GroupState(record)
            case GroupDeleted():
                del self.groups[record.group]
            case _ if isinstance(record, SnapshotRecord):
                self._apply_full(record)
            case Prepared() | Unprepared() | Committing() | Committed() | Uncommitted():
                self._apply_commit(record)
            case _ if isinstance(record, StreamRecord):
                self.streams[record.stream].apply(record)
            case _:
                self.groups[record.group].apply(record)

    def _apply_full(self, record: SnapshotRecord) -> None:
        match record:
            case SnapshotBegin():
                self.next_uid = record.next_uid
            case StreamFull():
                self.streams[record.stream] = StreamState.restore(record)
            case SegmentsFull():
                self.streams[record.stream].add_full(record.segments)
            case ConsumerFull():
                self.streams[record.stream].consumers[record.consumer] = record
            case WriterFull():
                self.streams[record.stream].writers[record.writer] = record
            case NumberFull():
                self.streams[record.stream].note_batch(record.writer, LastBatch(record.number, record.time))
            case OwnerFull():
                self.streams[record.stream].owners[record.writer] = record.user
            case PreparedFull():
                self.prepared[record.transaction] = record
            case GroupFull():
                self.groups[record.group] = GroupState.restore(record)
            case CommitsFull():
                self.commits = {commit.transaction: commit for commit in record.under_way}
                self.committed = dict.fromkeys(record.done)
            case SnapshotEnd():
                pass

    def _apply_commit(self, record: Prepared | Unprepared | Committing | Committed | Uncommitted) -> None:
        match record:
            case Prepared():
                self.prepared[record.transaction] = record
            case Unprepared():
                for transaction in record.transactions:
                    del self.prepared[transaction]
            case Committing():
                self.commits[record.transaction] = record
                self._apply_together(record)
            case Uncommitted():
                self.committed.pop(record.transaction, None)
            case Committed():
                self.commits.pop(record.transaction, None)
                if not record.implicit:
                    self._note_committed(record.transaction)

    def _apply_together(self, record: Committing) -> None:
        """Take in what is committed together: from here on it is, however long it takes to finish."""
        for transaction in record.together:
            del self.prepared[transaction]
            self._note_committed(transaction)
        if record.writer is not None and record.number is not None:
            self.streams[record.stream].note_batch(record.writer, LastBatch(record.number, record.time))

    def _note_committed(self, transaction: str) -> None:
        self.committed[transaction] = None
        if len(self.committed) > COMMITTED_MAX:
            del self.committed[next(iter(self.committed))]

    def snapshot(self) -> Iterator[Record]:
        """Return the records that say it all."""
        yield SnapshotBegin(self.next_uid)
        yield CommitsFull(list(self.commits.values()), list(self.committed))
        for stream in self.streams.values():
            yield from _split(stream.full())
            yield from (ConsumerFull(*msgspec.structs.astuple(consumer)) for consumer in stream.consumers.values())
            yield from (WriterFull(*msgspec.structs.astuple(mark)) for mark in stream.writers.values())
            yield from (NumberFull(stream.name, writer, *batch) for writer, batch in stream.last_batches.items())
            yield from (OwnerFull(stream.name, writer, user) for writer, user in stream.owners.items())
        yield from (PreparedFull(*msgspec.structs.astuple(prepared)) for prepared in self.prepared.values())
        yield from (group.full() for group in self.groups.values())
        yield SnapshotEnd()


def _split(full: StreamFull) -> Iterator[Record]:
    """Return what a snapshot says of a stream, in records none of which is too large."""
    first, rest = full.segments[:_SEGMENTS_IN_RECORD], full.segments[_SEGMENTS_IN_RECORD:]
    yield msgspec.structs.replace(full, segments=first)
    for start in range(0, len(rest), _SEGMENTS_IN_RECORD):
        yield SegmentsFull(full.stream, rest[start : start + _SEGMENTS_IN_RECORD])


def snapshot_appends(state: CatalogState) -> Iterator[bytes]:
    """Return the appends of a snapshot, none too large."""
    batch: list[Record] = []
    size = 0
    for record in state.snapshot():
        more = len(encode_records([record]))
        if batch and size + more > _APPEND_SIZE:
            yield encode_checked(batch)
            batch, size = [], 0
        batch.append(record)
        size += more
    yield encode_checked(batch)


def replay(log: LogStream) -> tuple[CatalogState, int]:
    """Return what the log says, and how large its last snapshot is."""
    state, fresh, fresh_size, snapshot_size = CatalogState(), CatalogState(), 0, 0
    is_complete = log.start == 0  # otherwise the first records are the end of something that is not there any more
    is_inside = False
    for offset, data in log.blocks(log.start, log.length):
        try:
            for record in decode_records(data):
                if isinstance(record, SnapshotBegin):
                    fresh, fresh_size, is_inside = CatalogState(), 0, True
                elif not isinstance(record, SnapshotRecord):
                    is_inside = False  # it was never finished, because of a crash or a full disk
                if is_inside:
                    fresh.apply(record)
                elif is_complete:
                    state.apply(record)
                if is_inside and isinstance(record, SnapshotEnd):
                    state, snapshot_size, is_complete, is_inside = fresh, fresh_size + len(data), True, False
        except (*UNDECODABLE, KeyError) as error:
            reason = f"no record that follows from those before ({error})"
            raise StreamCorrupt("the catalog of streams", offset=offset, reason=reason) from error
        fresh_size += len(data)
    if not is_complete:
        raise StreamCorrupt("the catalog of streams", offset=log.start, reason="it has no complete snapshot")
    return state, snapshot_size
