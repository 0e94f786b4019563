"""The configuration of a stream, and the descriptions of streams and groups that the store returns.

A configuration says how a stream is scaled, how long its events are kept, and its tags. Its values are stored as they
are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from penstock.errors import BadArgument
from penstock.model._checks import check_kind, check_positive, check_whole, is_encodable, shown
from penstock.model._places import StreamCut  # noqa: TC001

__all__ = [
    "SEGMENTS_MAX",
    "ByConsumption",
    "ByDataRate",
    "ByEventRate",
    "BySize",
    "ByTime",
    "Checkpoint",
    "Fixed",
    "Lag",
    "Retention",
    "Scaling",
    "SegmentInfo",
    "StreamConfig",
    "StreamInfo",
    "check_segments",
]

_Name = Annotated[str, msgspec.Meta(max_length=255)]  # as decoded
SEGMENTS_MAX: Final = 10_000
_TAG_SIZE_MAX: Final = 256
_TAGS_MAX: Final = 128


class Fixed(msgspec.Struct, tag="fixed", frozen=True):
    """Only :meth:`scale_stream` changes the segments; ``segments`` is how many a new stream starts with."""

    segments: int | None = None

    def __post_init__(self) -> None:
        if self.segments is not None:
            check_segments(self.segments)


class ByEventRate(msgspec.Struct, tag="event-rate", frozen=True):
    """Split a segment above ``target`` events a second into at most ``factor`` segments; merge idle ones."""

    target: float
    factor: int = 2
    min_segments: int = 1

    def __post_init__(self) -> None:
        _check_rate(self)


class ByDataRate(msgspec.Struct, tag="data-rate", frozen=True):
    """Split a segment above ``target`` bytes a second into at most ``factor`` segments; merge idle ones."""

    target: float
    factor: int = 2
    min_segments: int = 1

    def __post_init__(self) -> None:
        _check_rate(self)


class ByTime(msgspec.Struct, tag="time", frozen=True):
    """Truncate events that are older than ``seconds``."""

    seconds: float

    def __post_init__(self) -> None:
        check_positive("seconds", self.seconds)


class BySize(msgspec.Struct, tag="size", frozen=True):
    """Truncate the oldest events while the stream has more than ``size_bytes``."""

    size_bytes: int

    def __post_init__(self) -> None:
        check_whole("size_bytes", self.size_bytes, least=1)


class ByConsumption(msgspec.Struct, tag="consumption", frozen=True):
    """Truncate events that every reader group and every registered consumer of the stream has read.

    A stream without groups and consumers keeps all its events.
    """


Scaling = Fixed | ByEventRate | ByDataRate
Retention = ByTime | BySize | ByConsumption


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a stream; without ``keep_keys``, keys only select an event's segment and are not stored."""

    scaling: Scaling = Fixed()
    retention: Retention | None = None
    timestamp_aggregation_timeout: float = 60.0
    tags: tuple[str, ...] = ()
    keep_keys: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.scaling, Scaling):
            raise BadArgument(f"invalid scaling {shown(self.scaling)}: use Fixed, ByEventRate or ByDataRate")
        if self.retention is not None and not isinstance(self.retention, Retention):
            raise BadArgument(f"invalid retention {shown(self.retention)}: use ByTime, BySize, ByConsumption or None")
        check_positive("timestamp_aggregation_timeout", self.timestamp_aggregation_timeout)
        _check_tags(self.tags)
        check_kind("keep_keys", self.keep_keys, bool)


def _check_tags(tags: object) -> None:
    listed = list(tags) if isinstance(tags, tuple | list) else [None]
    if len(listed) > _TAGS_MAX or not all(map(_is_tag, listed)):
        raise BadArgument(
            f"invalid tags {shown(tags)}: use a list of at most {_TAGS_MAX} texts of 1 to {_TAG_SIZE_MAX} characters"
        )


def _is_tag(tag: object) -> bool:
    return type(tag) is str and 0 < len(tag) <= _TAG_SIZE_MAX and is_encodable(tag)


def _check_rate(scaling: ByEventRate | ByDataRate) -> None:
    check_positive("target", scaling.target)
    check_whole("factor", scaling.factor, least=2)
    check_segments(scaling.min_segments, "min_segments")


def check_segments(segments: object, argument: str = "segments") -> None:
    """Require a number of segments that a stream can have."""
    check_whole(argument, segments, least=1, most=SEGMENTS_MAX)


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment that takes events: those whose key hashes to ``low`` or above and below ``high``."""

    segment_id: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """The state of a stream; ``segments`` are those that take events, none once the stream is sealed.

    ``uid`` distinguishes the stream from an earlier or a later stream of the same name. ``events`` and ``size_bytes``
    count the events between its head and its tail.
    """

    name: str
    uid: int
    state: Literal["active", "sealed"]
    epoch: int
    segments: tuple[SegmentInfo, ...]
    config: StreamConfig
    events: int
    size_bytes: int
    head: StreamCut
    tail: StreamCut


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The positions of all readers of a group at one moment: a cut of each of its streams."""

    name: _Name
    group: _Name
    cuts: tuple[StreamCut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group is behind: the unread events, their bytes, and the age of the oldest one.

    ``bytes`` counts stored bytes, block headers included; it is 0 once every event is read.
    """

    events: int
    bytes: int
    seconds: float
