"""Catalog records: what the catalog log says about streams and reader groups.

One append to the catalog log is one MessagePack array of records; a record is an array that starts with its kind.
A place is an offset by segment; places of several streams are by stream first.

A snapshot is ``begin``, then one ``stream-full`` or ``group-full`` for each, then ``end``, maybe over several appends.
Whatever stands before the last whole snapshot does not count any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.model import StreamConfig  # noqa: TC001 - msgspec looks it up when it decodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = [
    "NO_SEGMENT",
    "CheckpointBegun",
    "CheckpointDropped",
    "CheckpointReached",
    "CommitsFull",
    "Committed",
    "Committing",
    "ConsumerFull",
    "ConsumerMoved",
    "CopiedPart",
    "GroupCreated",
    "GroupDeleted",
    "GroupFull",
    "GroupRecord",
    "GroupReset",
    "LoggedPart",
    "NumberFull",
    "Places",
    "Prepared",
    "PreparedFull",
    "PreparedPart",
    "ReaderGone",
    "ReaderJoined",
    "ReaderMoved",
    "Record",
    "SegmentDone",
    "SegmentFull",
    "SegmentsFull",
    "SegmentsLost",
    "SegmentsReleased",
    "SegmentsTaken",
    "SnapshotBegin",
    "SnapshotEnd",
    "SnapshotRecord",
    "StreamCreated",
    "StreamDeleted",
    "StreamFull",
    "StreamRecord",
    "StreamScaled",
    "StreamStopped",
    "StreamTruncated",
    "StreamUpdated",
    "Uncommitted",
    "Unprepared",
    "WriterFull",
    "WriterMarked",
    "WritersForgotten",
    "decode_records",
    "encode_records",
]

NO_SEGMENT: Final = -1
Offsets = dict[int, int]
Places = dict[str, Offsets]


class StreamCreated(msgspec.Struct, tag="created", array_like=True, frozen=True):
    """A new stream; ``uid`` is its number in this store, never given twice."""

    stream: str
    uid: int
    segments: int
    config: StreamConfig


class StreamUpdated(msgspec.Struct, tag="updated", array_like=True, frozen=True):
    """Another configuration."""

    stream: str
    config: StreamConfig


class StreamScaled(msgspec.Struct, tag="scaled", array_like=True, frozen=True):
    """Some segments end, others with the same key space begin; ``time_ms`` is when.

    ``counts`` are how many events each of those that end has had.
    """

    stream: str
    ends: Offsets
    ranges: list[tuple[float, float]]
    time_ms: int
    counts: Offsets = {}


class StreamStopped(msgspec.Struct, tag="stopped", array_like=True, frozen=True):
    """The stream takes no more events: all its segments end; ``counts`` are how many events each has had."""

    stream: str
    ends: Offsets
    counts: Offsets = {}


class StreamTruncated(msgspec.Struct, tag="truncated", array_like=True, frozen=True):
    """The stream begins here now; ``counts`` are how many events of each segment lie before."""

    stream: str
    head: Offsets
    counts: Offsets = {}


class StreamDeleted(msgspec.Struct, tag="deleted", array_like=True, frozen=True):
    """The stream is gone."""

    stream: str


class ConsumerMoved(msgspec.Struct, tag="consumer", array_like=True, frozen=True):
    """A registered consumer needs nothing before this cut; without one it is registered no more.

    One that expires is forgotten unless it moves before that time.
    """

    stream: str
    consumer: str
    cut: Offsets | None
    expires_ms: int | None = None


class WriterMarked(msgspec.Struct, tag="marked", array_like=True, frozen=True):
    """A writer's last mark: its time, its position, whether the writer is open.

    Segments and their offsets are 8 bytes each, little-endian, because there may be very many.
    """

    stream: str
    writer: str
    time: int
    segments: bytes
    offsets: bytes
    is_open: bool


class WritersForgotten(msgspec.Struct, tag="forgotten", array_like=True, frozen=True):
    """Some writers do not count any more: they were shut down, removed, or silent for too long."""

    stream: str
    writers: list[str]


class GroupCreated(msgspec.Struct, tag="group", array_like=True, frozen=True):
    """A new reader group: where it begins in each of its streams, and where it ends if it does."""

    group: str
    starts: Places
    ends: Places
    epoch: int = 0


class GroupDeleted(msgspec.Struct, tag="group-deleted", array_like=True, frozen=True):
    """The group is gone."""

    group: str


class GroupReset(msgspec.Struct, tag="group-reset", array_like=True, frozen=True):
    """The group begins here now, in another epoch; its readers are gone.

    ``chosen`` are the streams whose places were chosen: what was lost of them need not be told any more.
    """

    group: str
    starts: Places
    epoch: int = 0
    chosen: list[str] = []


class ReaderJoined(msgspec.Struct, tag="joined", array_like=True, frozen=True):
    """A new reader, with no segments yet; a guest, of another process, may outlive the owner of the store."""

    group: str
    reader: str
    is_guest: bool = False


class ReaderGone(msgspec.Struct, tag="gone", array_like=True, frozen=True):
    """The reader is gone; its segments are free, at these places or where they were last known to be."""

    group: str
    reader: str
    places: Places


class ReaderMoved(msgspec.Struct, tag="moved", array_like=True, frozen=True):
    """How far the reader has come."""

    group: str
    reader: str
    places: Places


class SegmentsTaken(msgspec.Struct, tag="taken", array_like=True, frozen=True):
    """Free segments are this reader's now."""

    group: str
    reader: str
    segments: dict[str, list[int]]


class SegmentsReleased(msgspec.Struct, tag="released", array_like=True, frozen=True):
    """These segments of the reader are free, at these places."""

    group: str
    reader: str
    places: Places


class SegmentDone(msgspec.Struct, tag="done", array_like=True, frozen=True):
    """The reader has read the segment to its end; successors follow once all of ``before`` are read."""

    group: str
    reader: str
    stream: str
    segment: int
    end: int
    before: list[int]
    successors: list[int]


class SegmentsLost(msgspec.Struct, tag="lost", array_like=True, frozen=True):
    """These segments were truncated away; in their place the group has others, to be read or past its end.

    ``missed`` is where events may have been that nobody had read: a reader is to say so.
    """

    group: str
    stream: str
    segments: list[int]
    free: Offsets
    done: Offsets
    missed: Offsets = {}


class LossTold(msgspec.Struct, tag="told", array_like=True, frozen=True):
    """A reader has said that these segments were lost before they were read; without any, that the stream was."""

    group: str
    stream: str
    segments: list[int]


class CheckpointBegun(msgspec.Struct, tag="checkpoint", array_like=True, frozen=True):
    """Every reader is to say where it is."""

    group: str
    name: str


class CheckpointReached(msgspec.Struct, tag="reached", array_like=True, frozen=True):
    """Where the reader was when it came to the checkpoint."""

    group: str
    reader: str
    places: Places


class CheckpointDropped(msgspec.Struct, tag="dropped", array_like=True, frozen=True):
    """The checkpoint, under way or done, is forgotten."""

    group: str
    name: str


class CopiedPart(msgspec.Struct, array_like=True, frozen=True):
    """A block of a transaction, and a place in its segment behind which it is going to be."""

    segment: int
    start: int
    block: bytes


class LoggedPart(msgspec.Struct, array_like=True, frozen=True):
    """Logs of a transaction that a segment is going to take over, in this order; ``counts`` are the events of each."""

    segment: int
    logs: list[str]
    counts: list[int]


class PreparedPart(msgspec.Struct, array_like=True, frozen=True):
    """What a prepared transaction has for one key range: logs, in order, all of whose bytes are durable.

    ``counts`` are the events of each log.
    """

    low: float
    high: float
    logs: list[str]
    size: int
    counts: list[int]


class Prepared(msgspec.Struct, tag="prepared", array_like=True, frozen=True):
    """A transaction outlives who wrote it: its logs are kept until it is committed or aborted, or its time is up."""

    stream: str
    transaction: str
    writer: str | None
    deadline_ms: int
    parts: list[PreparedPart]


class Unprepared(msgspec.Struct, tag="unprepared", array_like=True, frozen=True):
    """Prepared transactions were aborted."""

    transactions: list[str]


class Committing(msgspec.Struct, tag="committing", array_like=True, frozen=True):
    """A transaction is being committed: whoever finds this has to see it through.

    ``implicit`` is that of a large event by itself, which nobody will ask for. ``together`` are the prepared
    transactions that it is made of, and ``number`` is the one under which ``writer`` commits them, if any, with the
    ``time`` that it notes behind them.
    """

    stream: str
    transaction: str
    copied: list[CopiedPart]
    logged: list[LoggedPart]
    implicit: bool = False
    together: list[str] = []
    writer: str | None = None
    number: int | None = None
    time: int | None = None


class Committed(msgspec.Struct, tag="committed", array_like=True, frozen=True):
    """The transaction is part of its stream.

    One that is a single block was said to be so while the block was still under way: it is only if the ``segment``
    goes up to ``end``.
    """

    stream: str
    transaction: str
    segment: int = NO_SEGMENT
    end: int = 0
    implicit: bool = False


class Uncommitted(msgspec.Struct, tag="uncommitted", array_like=True, frozen=True):
    """The transaction is no part of its stream after all: a crash was faster than its block."""

    stream: str
    transaction: str


class CommitsFull(msgspec.Struct, tag="commits-full", array_like=True, frozen=True):
    """All there is to know of transactions."""

    under_way: list[Committing]
    done: list[str]


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


class PreparedFull(Prepared, tag="prepared-full", array_like=True, frozen=True):
    """A prepared transaction."""


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


class SnapshotBegin(msgspec.Struct, tag="begin", array_like=True, frozen=True):
    """All that comes before does not count; ``next_uid`` is for the next new stream."""

    next_uid: int


class SnapshotEnd(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """The snapshot is whole."""


StreamRecord = (
    StreamUpdated | StreamScaled | StreamStopped | StreamTruncated | ConsumerMoved | WriterMarked | WritersForgotten
)
GroupRecord = (
    GroupReset
    | ReaderJoined
    | ReaderGone
    | ReaderMoved
    | SegmentsTaken
    | SegmentsReleased
    | SegmentDone
    | SegmentsLost
    | LossTold
    | CheckpointBegun
    | CheckpointReached
    | CheckpointDropped
)
SnapshotRecord = (
    SnapshotBegin
    | StreamFull
    | SegmentsFull
    | ConsumerFull
    | WriterFull
    | NumberFull
    | PreparedFull
    | GroupFull
    | CommitsFull
    | SnapshotEnd
)
Record = (
    StreamRecord
    | GroupRecord
    | SnapshotRecord
    | Prepared
    | Unprepared
    | Committing
    | Committed
    | Uncommitted
    | StreamCreated
    | StreamDeleted
    | GroupCreated
    | GroupDeleted
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    """Return the bytes of one append."""
    return _encoder.encode(records)


def decode_records(data: Buffer) -> list[Record]:
    """Read what :func:`encode_records` wrote; ``msgspec.MsgspecError`` if no Penstock did."""
    return _decoder.decode(data)
