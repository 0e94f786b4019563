"""Catalog records: what the catalog log says about streams, transactions and reader groups, and its snapshots.

One append to the catalog log is one MessagePack array of records; a record is an array that starts with its kind.

A snapshot holds all there is to know of streams, transactions and groups. It is ``begin``, then the records of each
stream, transaction and group, then ``end``, maybe over several appends. Records before the last complete snapshot do
not count any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument
from penstock.model import StreamConfig  # noqa: TC001 - msgspec looks it up when it decodes
from penstock.stream.format._group_records import (
    GroupCreated,
    GroupDeleted,
    GroupRecord,
    Places,
)
from penstock.stream.format._stream_records import (
    Committing,
    ConsumerMoved,
    Number,
    Offsets,
    Prepared,
    StreamCreated,
    StreamDeleted,
    StreamRecord,
    TransactionRecord,
    WriterMarked,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = [
    "CommitsFull",
    "ConsumerFull",
    "GroupFull",
    "NumberFull",
    "OwnerFull",
    "PreparedFull",
    "Record",
    "SegmentFull",
    "SegmentsFull",
    "SnapshotBegin",
    "SnapshotEnd",
    "SnapshotRecord",
    "StreamEnds",
    "StreamFull",
    "WriterFull",
    "decode_records",
    "encode_checked",
    "encode_records",
]


class SnapshotBegin(msgspec.Struct, tag="begin", array_like=True, frozen=True):
    """All that comes before does not count; ``next_uid`` is for the next new stream."""

    next_uid: Number


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
    uid: Number
    config: StreamConfig
    sealed: bool
    epoch: Number
    next_segment: Number
    segments: list[SegmentFull]
    head: Offsets
    scaled_ms: int
    head_counts: Offsets = {}
    owner: str | None = None


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
    remote_readers: list[str] = []
    untold: Places = {}
    starts: Places = {}
    owner: str | None = None


class StreamEnds(msgspec.Struct, tag="ends", array_like=True, frozen=True):
    """Where segments ended when their store was closed, and how many events they had, by uid of stream and segment.

    It counts only for the next process that opens the store: ``session`` names what that process finds.
    """

    session: str
    streams: dict[int, dict[int, tuple[Number, Number]]]


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

Record = (
    StreamCreated
    | StreamRecord
    | StreamDeleted
    | GroupCreated
    | GroupRecord
    | GroupDeleted
    | TransactionRecord
    | StreamEnds
    | SnapshotRecord
)
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    """Return the bytes of one append."""
    return _encoder.encode(records)


def encode_checked(records: Sequence[Record]) -> bytes:
    """Return the bytes of one append; ``BadArgument`` if they could not be read again, and the store not be opened."""
    try:
        data = _encoder.encode(records)
        _decoder.decode(data)
    except (TypeError, ValueError, OverflowError) as error:  # those of msgspec are ValueErrors
        raise BadArgument(f"this cannot be recorded: {error}") from error
    return data


def decode_records(data: Buffer) -> list[Record]:
    """Read what :func:`encode_records` wrote; ``msgspec.MsgspecError`` if no Penstock did."""
    return _decoder.decode(data)
