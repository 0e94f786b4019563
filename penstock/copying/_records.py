"""The copy log: a stream beside each copy that says what was copied, and where it is.

Each event of it is a JSON object with a number: the first one says where the copy begins, and every further one what is
done next. It is durable before that is done, and what was done under a number is never done again, so after a crash the
last record is done if it was not, and the copy goes on behind it.

Segments and offsets are those of the source, unless their names say otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import CopyFailed, NoSuchStream
from penstock.model import UNDECODABLE, Fixed, StreamConfig

if TYPE_CHECKING:
    from penstock.store import Store
    from penstock.stream import StreamWriter

__all__ = [
    "LOG_TAG",
    "WRITER_ID",
    "Begun",
    "Checked",
    "CopiedMark",
    "CopyLog",
    "Piece",
    "PiecesCopied",
    "Record",
    "Scaled",
    "Span",
    "log_name",
    "records_of",
]

LOG_TAG: Final = "penstock-copy-log"
WRITER_ID: Final = "penstock-copy"
_NAME_SIZE: Final = 250  # of 255: the rest is the suffix
_VERSION: Final = 1


class Span(msgspec.Struct, array_like=True, frozen=True):
    """A segment and its part of the key space."""

    segment: int
    low: float
    high: float


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """The events of a segment between two offsets, and where the segment of the copy ended before they were added."""

    segment: int
    start: int
    end: int
    target_segment: int
    target_start: int
    events: int
    digest: str


class Begun(msgspec.Struct, tag="begun", frozen=True):
    """The stream that is copied, its head then, and the segments of the copy, one for each."""

    uid: int
    segments: list[Span]
    target_segments: list[int]
    head: dict[int, int]
    version: int = _VERSION


class Scaled(msgspec.Struct, tag="scaled", frozen=True):
    """Segments that end, and those that follow them; ``target_epoch`` is the epoch of the copy before."""

    ended: list[int]
    segments: list[Span]
    target_segments: list[int]
    target_epoch: int


class CopiedMark(msgspec.Struct, array_like=True, frozen=True):
    """A watermark of the source, with how many events of each piece lie before it."""

    lower: int
    upper: int
    events: list[int]


class PiecesCopied(msgspec.Struct, tag="copied", frozen=True):
    """Events that are added in one transaction, a piece of each of some segments, and watermarks between them."""

    pieces: list[Piece]
    marks: list[CopiedMark] = []


class Checked(msgspec.Struct, tag="checked", frozen=True):
    """All pieces so far are in the copy as they are in the source; ``target_tail`` is where the copy ends."""

    target_tail: dict[int, int]


Record = Begun | Scaled | PiecesCopied | Checked
_decoder: Final = msgspec.json.Decoder(Record)


def log_name(stream: str) -> str:
    """Return the name of the stream that is the copy log of a stream."""
    scope, _, name = stream.partition("/")
    return f"{scope}/{name[:_NAME_SIZE]}.copy"


def records_of(target: Store, stream: str) -> list[Record]:
    """Return the copy log of a stream, none if it was never copied; ``CopyFailed`` if another stream has its name."""
    name = log_name(stream)
    try:
        config = target.stream(name).config
    except NoSuchStream:
        return []
    if LOG_TAG not in config.tags:
        raise CopyFailed(
            stream, reason=f"its copy log would be {name!r}, and the target has another stream of this name"
        )
    events = [event for batch in target.read(name) for event in batch["event"].to_pylist()]
    try:
        records = [_decoder.decode(event) for event in events]
    except UNDECODABLE as error:
        raise CopyFailed(stream, reason=f"its copy log {name!r} cannot be read ({error})") from error
    if records and not (isinstance(records[0], Begun) and records[0].version == _VERSION):
        raise CopyFailed(stream, reason=f"its copy log {name!r} was written by another version of Penstock")
    return records


class CopyLog:
    """The copy log of a stream, to be continued. Opening it ends another process that copies the same stream."""

    def __init__(self, target: Store, stream: str) -> None:
        records_of(target, stream)  # refuses a stream of another kind
        name = log_name(stream)
        target.create_stream(name, config=StreamConfig(scaling=Fixed(1), tags=(LOG_TAG,)), exist_ok=True)
        self._writer: StreamWriter = target.writer(name, WRITER_ID)
        self.records = records_of(target, stream)

    def add(self, record: Record) -> int:
        """Make a record durable; return its number."""
        number = len(self.records)
        self._writer.write_event(msgspec.json.encode(record), number=number).result()
        self.records.append(record)
        return number

    def close(self) -> None:
        """Let the next process go on."""
        self._writer.close()
