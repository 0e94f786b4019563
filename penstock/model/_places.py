"""Positions in a stream: the pointer to an event, the cut across all segments, where a reader is; times; plog ids.

Times are whole milliseconds as writers note them, since 1970 unless the writers of a stream count from another start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeGuard

import msgspec

from penstock.errors import BadArgument
from penstock.model._checks import (
    NAME_SIZE_MAX,
    NUMBER_MAX,
    as_list,
    check_kind,
    check_name,
    check_stream_name,
    check_whole,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.ports import Random

__all__ = [
    "GROUP_PLACES",
    "TIME_MAX",
    "EventPointer",
    "NextCut",
    "PlogId",
    "Position",
    "SegmentRange",
    "StreamCut",
    "StreamPosition",
    "TimeWindow",
    "Watermark",
    "as_time",
    "as_watermarks",
    "check_append_time",
    "check_time",
    "is_time",
]

_UID: Final = re.compile(r"[0-9a-f]{32}")
UID_SIZE: Final = 16
_StreamName = Annotated[str, msgspec.Meta(max_length=NAME_SIZE_MAX)]
_PLACE: Final = re.compile(r"([0-9]{1,18})@([0-9]{1,18})")
TIME_MAX: Final = 253_402_300_799_999  # the end of the year 9999: a later time was given in other units
GROUP_PLACES: Final = (
    "StreamCuts, one StreamCut, a checkpoint such as group.checkpoints['noon'], 'head', 'tail', a datetime, "
    "or whole milliseconds since 1970"
)
"""What names a place in the streams of a group, for messages."""
_SECONDS: Final = range(10**9, 10**11)  # seconds from 2001 on; as milliseconds they lie in the years 1970 to 1973


@lru_cache(maxsize=256)
def _check_names(cluster: str, group: str) -> None:
    """Require names; those of the few groups that a store has are checked once, not with each of its plogs."""
    check_name("cluster", cluster)
    check_name("group", group)


class PlogId(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """The id of a plog: the cluster and the group of servers that store it, and a random uid of its own.

    The id alone tells a client which servers to ask. ``str()`` gives ``cluster/group/uid``, :meth:`parse` reads it.
    """

    cluster: str
    group: str
    uid: str

    def __post_init__(self) -> None:
        if type(self.cluster) is type(self.group) is str:
            _check_names(self.cluster, self.group)
        else:
            check_name("cluster", self.cluster)
            check_name("group", self.group)
        if not _UID.fullmatch(str(self.uid)):
            raise BadArgument(f"invalid plog uid {self.uid!r}: use 32 lower-case hexadecimal digits")

    @classmethod
    def new(cls, *, cluster: str, group: str, random: Random) -> PlogId:
        """Return a new id, unique because it is random."""
        return cls(cluster, group, random.token(UID_SIZE).hex())

    @classmethod
    def parse(cls, text: str) -> PlogId:
        """Parse the text that ``str()`` gives."""
        parts = text.split("/")
        if len(parts) != 3:
            raise BadArgument(f"invalid plog id {text!r}: use the form cluster/group/uid")
        return cls(*parts)

    @property
    def uid_bytes(self) -> bytes:
        """The uid as stored: 16 bytes."""
        return bytes.fromhex(self.uid)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.group}/{self.uid}"


@dataclass(frozen=True, slots=True, order=True)
class EventPointer:
    """The position of an event. ``str()`` gives ``scope/name:segment@offset``, :meth:`parse` reads it."""

    stream: _StreamName
    segment_id: int
    offset: int

    def __post_init__(self) -> None:
        segment_id, offset = self.segment_id, self.offset
        if type(segment_id) is type(offset) is int and segment_id >= 0 <= offset and type(self.stream) is str:
            return  # the quick way: every event that is read or written gets a pointer
        _check_place(self.stream, segment_id, offset)

    @classmethod
    def parse(cls, text: str) -> EventPointer:
        """Parse the text that ``str()`` gives."""
        stream, places = _parse(text, "event pointer")
        if len(places) != 1:
            raise BadArgument(f"invalid event pointer {shown(text)}: use one segment@offset, not several")
        return cls(stream, *places[0])

    def __str__(self) -> str:
        return f"{self.stream}:{self.segment_id}@{self.offset}"


@dataclass(frozen=True, slots=True)
class StreamCut:
    """A position in every part of a stream's key space: a set of segments that covers it, and an offset in each.

    ``str()`` gives ``scope/name:segment@offset,segment@offset``, :meth:`parse` reads it.
    """

    stream: _StreamName
    places: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        check_kind("stream", self.stream, str)
        if not _is_tuple(self.places, _is_place):
            raise BadArgument(
                f"invalid places {shown(self.places)} of a StreamCut: use a tuple of pairs of ints, segment and offset"
            )

    @classmethod
    def of(cls, stream: str, offsets: Mapping[int, int]) -> StreamCut:
        """Return the cut at these offsets, by segment."""
        check_kind("offsets", offsets, Mapping)
        places = tuple(offsets.items())
        return cls(stream, tuple(sorted(places)) if all(map(_is_place, places)) else places)

    @classmethod
    def parse(cls, text: str) -> StreamCut:
        """Parse the text that ``str()`` gives."""
        return cls(*_parse(text, "stream cut"))

    @property
    def offsets(self) -> dict[int, int]:
        """The offset in each segment."""
        return dict(self.places)

    def __str__(self) -> str:
        return f"{self.stream}:" + ",".join(f"{segment}@{offset}" for segment, offset in self.places)


@dataclass(frozen=True, slots=True)
class Position:
    """A reader's offset in each segment it reads, by stream. :meth:`parse` reads the text that ``str()`` gives."""

    cuts: tuple[StreamCut, ...]

    def __post_init__(self) -> None:
        if not _is_tuple(self.cuts, lambda cut: isinstance(cut, StreamCut)):
            raise BadArgument(f"invalid cuts {shown(self.cuts)}: use a tuple of StreamCuts")

    @classmethod
    def of(cls, offsets: Mapping[tuple[str, int], int]) -> Position:
        """Return the position at these offsets, by stream and segment."""
        check_kind("offsets", offsets, Mapping)
        if not all(map(_is_pair, offsets)):
            raise BadArgument(f"invalid offsets {shown(offsets)}: use a mapping from (stream, segment) to offset")
        streams: dict[str, dict[int, int]] = {}
        for (stream, segment), offset in offsets.items():
            streams.setdefault(stream, {})[segment] = offset
        return cls(tuple(StreamCut.of(stream, streams[stream]) for stream in sorted(streams)))

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text that ``str()`` gives."""
        cuts = [StreamCut.parse(part) for part in str(text).split(";")] if text != "" else []
        streams = {cut.stream: cut for cut in cuts}
        if len(streams) != len(cuts):
            raise BadArgument(f"invalid position {shown(text)}: name each stream once")
        return cls(tuple(streams[stream] for stream in sorted(streams)))

    @property
    def offsets(self) -> dict[tuple[str, int], int]:
        """The offset in each segment, by stream and segment."""
        return {(cut.stream, segment): offset for cut in self.cuts for segment, offset in cut.places}

    def __str__(self) -> str:
        return ";".join(map(str, self.cuts))


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A part of one segment, from ``start`` up to ``end``: the share of one of many parallel readers."""

    stream: _StreamName
    segment_id: int
    start: int
    end: int

    def __post_init__(self) -> None:
        _check_place(self.stream, self.segment_id, self.start, "start")
        check_whole("end", self.end, least=self.start)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.end - self.start


def _check_place(stream: object, segment_id: object, offset: object, argument: str = "offset") -> None:
    """Require a stream, a segment and an offset of the right types."""
    check_kind("stream", stream, str)
    check_whole("segment_id", segment_id)
    check_whole(argument, offset)


def _is_tuple(values: object, test: Callable[[object], bool]) -> bool:
    return isinstance(values, tuple) and all(map(test, values))


def _is_pair(value: object) -> TypeGuard[tuple[object, object]]:
    return isinstance(value, tuple) and len(value) == 2


def _is_place(place: object) -> bool:
    """Return whether it is a segment and an offset: plain ints, since nothing else would be read back once stored."""
    return _is_pair(place) and all(type(part) is int and 0 <= part <= NUMBER_MAX for part in place)


def _parse(text: object, kind: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    stream, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    places = [_PLACE.fullmatch(place) for place in rest.split(",")]
    if not all(places):
        raise BadArgument(f"invalid {kind} {shown(text)}: use the form scope/name:segment@offset")
    check_stream_name(stream)
    pairs = sorted((int(match[1]), int(match[2])) for match in places if match)
    if len(dict(pairs)) != len(pairs):
        raise BadArgument(f"invalid {kind} {shown(text)}: name each segment once")
    return stream, tuple(pairs)


StreamPosition = StreamCut | datetime | int | Literal["head", "tail"]
"""A cut, a time at which events were appended, or the head or the tail of the stream."""


def check_time(argument: str, time: object) -> None:
    """Require a time. A time far in the future would stay in force for ever, because a watermark never goes back."""
    if type(time) is not int or not 0 <= time <= TIME_MAX:
        raise BadArgument(f"invalid {argument} {shown(time)}: use whole milliseconds from 0 to {TIME_MAX}")


def check_append_time(argument: str, time_ms: int) -> None:
    """Refuse seconds since 1970 where milliseconds are meant: every event was appended after such a time.

    Times that writers note are not checked, because they may count in their own unit.
    """
    if time_ms in _SECONDS:
        raise BadArgument(f"invalid {argument} {time_ms}: it looks like seconds, use milliseconds since 1970")


def as_time(argument: str, time: object) -> int:
    """Return a datetime or an int as milliseconds since 1970; a datetime without a zone is local time."""
    if isinstance(time, datetime):
        try:
            time = int(time.timestamp() * 1000)
        except (OverflowError, ValueError, OSError):
            raise BadArgument(f"invalid {argument} {shown(time)}: use a time from 1970 to 9999") from None
    check_time(argument, time)
    assert isinstance(time, int)
    return time


@dataclass(frozen=True, slots=True)
class Watermark:
    """A promise of the writers: all that they had written when they noted ``lower`` lies before ``cut``.

    ``lower`` is the lowest time that any of them had noted last, ``upper`` the highest.
    """

    lower: int
    upper: int
    cut: StreamCut


def as_watermarks(watermarks: Iterable[Watermark]) -> list[Watermark]:
    """Require watermarks, each with times in their order; whether their cuts are those of a stream is not looked at."""
    given = as_list("watermarks", watermarks, "Watermarks")
    for mark in given:
        check_kind("watermarks", mark, Watermark)
        check_time("lower", mark.lower)
        check_time("upper", mark.upper)
        check_kind("cut", mark.cut, StreamCut)
        if mark.upper < mark.lower:
            raise BadArgument(f"invalid upper {mark.upper}: use a time that is not before lower, {mark.lower}")
    return given


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The times between which a reader is: it has read everything up to ``lower``.

    ``upper`` is the latest time that any writer had noted when the next watermark was made. A writer may have written
    events that are later than every time it has noted, so the reader may have read some events from after ``upper``.

    ``lower`` is None before the first watermark, ``upper`` after the last one.
    """

    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class NextCut:
    """The end of the next batch of a stream, and the time that the writers have promised there, if any."""

    cut: StreamCut
    time: int | None


def is_time(given: object) -> TypeGuard[int | datetime | Literal["head", "tail"]]:
    """Whether a place is given as a time, or as head or tail."""
    return type(given) is int or isinstance(given, datetime) or (isinstance(given, str) and given in {"head", "tail"})
