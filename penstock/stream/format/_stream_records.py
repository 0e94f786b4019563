"""Catalog records about streams: their configuration, segments, consumers, and the last marks of their writers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model import NUMBER_MAX, StreamConfig

__all__ = [
    "ConsumerMoved",
    "Offsets",
    "StreamCreated",
    "StreamDeleted",
    "StreamRecord",
    "StreamScaled",
    "StreamStopped",
    "StreamTruncated",
    "StreamUpdated",
    "WriterClaimed",
    "WriterMarked",
    "WritersForgotten",
]

_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Offsets = dict[_Number, _Number]
"""An offset by segment."""


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
