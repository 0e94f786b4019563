"""Catalog records about streams and transactions.

Of streams: their configuration, segments, consumers, and the last marks of their writers. Of transactions: prepared,
committing, committed.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from penstock.model import NUMBER_MAX, SEGMENTS_MAX, StreamConfig

__all__ = [
    "NO_SEGMENT",
    "Committed",
    "Committing",
    "ConsumerMoved",
    "CopiedPart",
    "LoggedPart",
    "Number",
    "Offsets",
    "Prepared",
    "PreparedPart",
    "StreamCreated",
    "StreamDeleted",
    "StreamRecord",
    "StreamScaled",
    "StreamStopped",
    "StreamTruncated",
    "StreamUpdated",
    "TransactionRecord",
    "Uncommitted",
    "Unprepared",
    "WriterClaimed",
    "WriterMarked",
    "WritersForgotten",
]

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Offsets = dict[Number, Number]
"""An offset by segment."""
NO_SEGMENT: Final = -1


class StreamCreated(msgspec.Struct, tag="created", array_like=True, frozen=True):
    """A new stream; ``uid`` is its number in this store, never given twice, ``owner`` the user who created it."""

    stream: str
    uid: Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]  # one more can be stored, too
    segments: Annotated[int, msgspec.Meta(ge=1, le=SEGMENTS_MAX)]
    config: StreamConfig
    owner: str | None = None


class StreamUpdated(msgspec.Struct, tag="updated", array_like=True, frozen=True):
    """The configuration of a stream is replaced."""

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
    """A stream is deleted, with its segments."""

    stream: str


class ConsumerMoved(msgspec.Struct, tag="consumer", array_like=True, frozen=True):
    """A registered consumer needs nothing before this cut; without one it is registered no more.

    One that expires is forgotten unless it moves before that time. ``owner`` is the user of the server that it belongs
    to, if there is one. ``moved_ms`` is when it moved; stores of earlier versions do not know.
    """

    stream: str
    consumer: str
    cut: Offsets | None
    expires_ms: int | None = None
    owner: str | None = None
    moved_ms: int | None = None


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


class WriterClaimed(msgspec.Struct, tag="claimed", array_like=True, frozen=True):
    """A writer id belongs to a user of the server now; ``instead_of`` is an id that belongs to no user any more."""

    stream: str
    writer: str
    user: str
    instead_of: str | None = None


class WritersForgotten(msgspec.Struct, tag="forgotten", array_like=True, frozen=True):
    """Some writers do not count any more: they were shut down, removed, or silent for too long."""

    stream: str
    writers: list[str]


StreamRecord = (
    StreamUpdated
    | StreamScaled
    | StreamStopped
    | StreamTruncated
    | ConsumerMoved
    | WriterMarked
    | WriterClaimed
    | WritersForgotten
)


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
    """A transaction outlives its writer: its logs are kept until it is committed or aborted, or its time is up."""

    stream: str
    transaction: str
    writer: str | None
    deadline_ms: int
    parts: list[PreparedPart]
    owner: str | None = None


class Unprepared(msgspec.Struct, tag="unprepared", array_like=True, frozen=True):
    """Prepared transactions were aborted."""

    transactions: list[str]


class Committing(msgspec.Struct, tag="committing", array_like=True, frozen=True):
    """A transaction is being committed: a process that finds this record has to finish the commit.

    ``implicit`` is that of a large event by itself, whose end is not remembered. ``together`` are the prepared
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
    """The transaction is not part of its stream after all: a crash came before its block was durable."""

    stream: str
    transaction: str


TransactionRecord = Prepared | Unprepared | Committing | Committed | Uncommitted
