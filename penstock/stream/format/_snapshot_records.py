"""Catalog records of a snapshot: all there is to know of streams, transactions and groups.

A snapshot is ``begin``, then the records of each stream, transaction and group, then ``end``, maybe over several
appends. Records before the last complete snapshot do not count any more.
"""

from __future__ import annotations

import msgspec

from penstock.model import StreamConfig  # noqa: TC001 - msgspec looks it up when it decodes
from penstock.stream.format._group_records import Places  # noqa: TC001
from penstock.stream.format._stream_records import ConsumerMoved, Offsets, WriterMarked
from penstock.stream.format._transaction_records import Committing, Prepared

__all__ = [
    "CommitsFull",
    "ConsumerFull",
    "GroupFull",
    "NumberFull",
    "OwnerFull",
    "PreparedFull",
    "SegmentFull",
    "SegmentsFull",
    "SnapshotBegin",
    "SnapshotEnd",
    "SnapshotRecord",
    "StreamFull",
    "WriterFull",
]


class SnapshotBegin(msgspec.Struct, tag="begin", array_like=True, frozen=True):
    """All that comes before does not count; ``next_uid`` is for the next new stream."""

    next_uid: int


class SegmentFull(msgspec.Struct, array_like=True, frozen=True):
    """All there is to know of a segment."""

    segment: int
    low: float
    high: float
    epoch: int
    predecessors: list[int]
    successors: list[int]
    end: int | None
    count: int = 0


class StreamFull(msgspec.Struct, tag="stream-full", array_like=True, frozen=True):
    """All there is to know of a stream."""

    stream: str
    uid: int
    config: StreamConfig
    sealed: bool
    epoch: int
    next_segment: int
    segments: list[SegmentFull]
    head: Offsets
    scaled_ms: int
    head_counts: Offsets = {}


class SegmentsFull(msgspec.Struct, tag="segments-full", array_like=True, frozen=True):
    """More segments of the stream before, because one record is not large enough."""

    stream: str
    segments: list[SegmentFull]


class ConsumerFull(ConsumerMoved, tag="consumer-full", array_like=True, frozen=True):
    """A registered consumer of the stream before."""


class WriterFull(WriterMarked, tag="writer-full", array_like=True, frozen=True):
    """A writer's last mark, of the stream before."""


class NumberFull(msgspec.Struct, tag="number-full", array_like=True, frozen=True):
    """The highest number under which a writer has committed transactions together, of the stream before."""

    stream: str
    writer: str
    number: int
    time: int | None = None


class OwnerFull(msgspec.Struct, tag="owner-full", array_like=True, frozen=True):
    """The user that a writer id of the stream before belongs to."""

    stream: str
    writer: str
    user: str


class PreparedFull(Prepared, tag="prepared-full", array_like=True, frozen=True):
    """A prepared transaction."""


class CommitsFull(msgspec.Struct, tag="commits-full", array_like=True, frozen=True):
    """All there is to know of transactions."""

    under_way: list[Committing]
    done: list[str]


class GroupFull(msgspec.Struct, tag="group-full", array_like=True, frozen=True):
    """All there is to know of a group."""

    group: str
    ends: Places
    streams: list[str]
    readers: dict[str, Places]
    free: Places
    done: Places
    waiting: dict[str, list[int]]
    checkpoint: str | None
    reached: Places
    missing: list[str]
    checkpoints: dict[str, Places]
    epoch: int = 0
    guests: list[str] = []
    untold: Places = {}
    starts: Places = {}


class SnapshotEnd(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """The snapshot is whole."""


SnapshotRecord = (
    SnapshotBegin
    | StreamFull
    | SegmentsFull
    | ConsumerFull
    | WriterFull
    | NumberFull
    | OwnerFull
    | PreparedFull
    | GroupFull
    | CommitsFull
    | SnapshotEnd
)
