"""The figures that are shown, checked as they come from the owner of a store; fields that are not shown are ignored."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.errors import ServerError

__all__ = ["GroupRow", "Overview", "RateRow", "StreamFigures", "StreamRow", "as_figures"]

T = TypeVar("T")


class RateRow(NamedTuple):
    """Events and bytes in a second."""

    events: float
    bytes: float


class LagRow(NamedTuple):
    """What a group has not read, and the age of the oldest event of it."""

    events: int
    bytes: int
    seconds: float


class Hold(NamedTuple):
    """A writer that holds the watermark back, and for how long it has been silent."""

    writer: str
    silent_s: float


class StreamRow(msgspec.Struct, kw_only=True):
    """One stream in the table."""

    name: str
    state: str
    segments: int
    events: int
    size_bytes: int
    rate: RateRow | None
    time_behind_s: float | None
    held_back_by: Hold | None
    group: str | None
    lag: LagRow | None
    transactions: int


class Overview(msgspec.Struct, kw_only=True):
    """The rows from ``first`` on; ``found`` streams match the filter, of ``total`` that the user may read."""

    now_ms: int
    total: int
    found: int
    first: int
    rate: RateRow | None
    transactions: int
    streams: list[StreamRow]


class _NamedRate(msgspec.Struct):
    events: float
    bytes: float


class StreamDescription(msgspec.Struct, kw_only=True):
    """What a stream is."""

    name: str
    state: str
    segments: int
    events: int
    size_bytes: int
    retention: str
    scaling: str
    rate: _NamedRate | None
    now_ms: int


class WriterRow(msgspec.Struct, kw_only=True):
    """A writer that notes time."""

    writer: str
    time: int
    open: bool
    silent_s: float | None
    holds_back: bool


class _Bounds(msgspec.Struct):
    lower: int
    upper: int


class StreamTime(msgspec.Struct, kw_only=True):
    """The last watermark, and the writers that it is made of, slowest first."""

    last: _Bounds | None
    writers: list[WriterRow]
    writers_total: int


class _NamedLag(msgspec.Struct):
    events: int
    bytes: int
    seconds: float


class ReaderRow(msgspec.Struct, kw_only=True):
    """A reader of a group."""

    name: str
    segments: list[int]
    behind_bytes: int


class GroupRow(msgspec.Struct, kw_only=True):
    """A reader group."""

    name: str
    lag: _NamedLag
    readers: list[ReaderRow]
    readers_total: int


class ConsumerRow(msgspec.Struct, kw_only=True):
    """A registered consumer."""

    name: str
    moved_ms: int | None
    behind_bytes: int | None


class TransactionRow(msgspec.Struct, kw_only=True):
    """An open or prepared transaction."""

    id: str
    status: str
    writer: str | None
    lease_left_s: float


class StreamReaders(msgspec.Struct, kw_only=True):
    """The readers of a stream, and what is being written to it."""

    groups: list[GroupRow]
    groups_total: int
    consumers: list[ConsumerRow]
    consumers_total: int
    transactions: list[TransactionRow]
    transactions_total: int
    large_events: list[int]


class StreamFigures(msgspec.Struct, kw_only=True):
    """All that is shown of one stream."""

    stream: StreamDescription
    time: StreamTime
    readers: StreamReaders


def as_figures(sent: Any, kind: type[T]) -> T:  # noqa: ANN401 - whatever was sent
    """Return figures of a kind; ``ServerError`` if something else was sent."""
    try:
        return msgspec.convert(sent, kind)
    except msgspec.ValidationError as error:
        raise ServerError(f"cannot understand the figures of the store ({error}): is it another version?") from None
