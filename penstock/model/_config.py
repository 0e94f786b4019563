"""How a stream is kept: scaling, retention, tags. These values are stored as they are."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import BadArgument

__all__ = [
    "SEGMENTS_MAX",
    "ByConsumption",
    "ByDataRate",
    "ByEventRate",
    "BySize",
    "ByTime",
    "Fixed",
    "Retention",
    "Scaling",
    "StreamConfig",
    "check_segments",
]

SEGMENTS_MAX: Final = 10_000
_TAG_SIZE_MAX: Final = 256
_TAGS_MAX: Final = 128
_FIGURE_MAX: Final = (1 << 63) - 1


class Fixed(msgspec.Struct, tag="fixed", frozen=True):
    """Only :meth:`scale_stream` changes the segments; ``segments`` is how many a new stream starts with."""

    segments: int | None = None

    def __post_init__(self) -> None:
        if self.segments is not None:
            check_segments(self.segments)


class ByEventRate(msgspec.Struct, tag="event-rate", frozen=True):
    """Segments split when one takes more than ``target`` events a second, into at most ``factor``, and merge again."""

    target: float
    factor: int = 2
    min_segments: int = 1

    def __post_init__(self) -> None:
        _check_rate(self, "events")


class ByDataRate(msgspec.Struct, tag="data-rate", frozen=True):
    """Segments split when one takes more than ``target`` bytes a second, into at most ``factor``, and merge again."""

    target: float
    factor: int = 2
    min_segments: int = 1

    def __post_init__(self) -> None:
        _check_rate(self, "bytes")


class ByTime(msgspec.Struct, tag="time", frozen=True):
    """What is older than ``seconds`` is truncated away."""

    seconds: float

    def __post_init__(self) -> None:
        _check_positive("retention by time", self.seconds)


class BySize(msgspec.Struct, tag="size", frozen=True):
    """The oldest is truncated away while the stream has more than ``size_bytes``."""

    size_bytes: int

    def __post_init__(self) -> None:
        _check_whole("retention by size", self.size_bytes, least=1)


class ByConsumption(msgspec.Struct, tag="consumption", frozen=True):
    """What every reader group and registered consumer of the stream has passed is truncated away.

    A stream without any keeps everything.
    """


Scaling = Fixed | ByEventRate | ByDataRate
Retention = ByTime | BySize | ByConsumption


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream is kept."""

    scaling: Scaling = Fixed()
    retention: Retention | None = None
    timestamp_aggregation_timeout: float = 60.0
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.scaling, Scaling):
            raise BadArgument(f"{self.scaling!r} is no scaling: use Fixed, ByEventRate or ByDataRate")
        if self.retention is not None and not isinstance(self.retention, Retention):
            raise BadArgument(f"{self.retention!r} is no retention: use ByTime, BySize, ByConsumption or None")
        _check_positive("the timestamp aggregation timeout", self.timestamp_aggregation_timeout)
        _check_tags(self.tags)


def _check_tags(tags: object) -> None:
    listed = list(tags) if isinstance(tags, tuple | list) else [None]
    if len(listed) > _TAGS_MAX or not all(map(_is_tag, listed)):
        raise BadArgument(f"{tags!r} are no tags: give at most {_TAGS_MAX} texts of 1 to {_TAG_SIZE_MAX} characters")


def _is_tag(tag: object) -> bool:
    return type(tag) is str and 0 < len(tag) <= _TAG_SIZE_MAX and not any("\ud800" <= c <= "\udfff" for c in tag)


# What is checked here is stored, and only what the decoder takes may be: it refuses 1e9 and True for a whole number.


def _check_positive(what: str, figure: object) -> None:
    if type(figure) not in (int, float) or not 0 < figure <= _FIGURE_MAX:  # type: ignore[operator]
        raise BadArgument(f"{what} cannot be {figure!r}: give a figure above 0, an int or a float")


def _check_whole(what: str, figure: object, *, least: int) -> None:
    if type(figure) is not int or not least <= figure <= _FIGURE_MAX:
        raise BadArgument(f"{what} cannot be {figure!r}: give an int, {least} or more")


def _check_rate(scaling: ByEventRate | ByDataRate, unit: str) -> None:
    _check_positive(f"the target rate in {unit} a second", scaling.target)
    _check_whole("the factor by which a segment is split", scaling.factor, least=2)
    check_segments(scaling.min_segments)


def check_segments(segments: object) -> None:
    """Refuse a number of segments that no stream can have."""
    if type(segments) is not int or not 1 <= segments <= SEGMENTS_MAX:
        raise BadArgument(f"a stream cannot have {segments!r} segments: from 1 to {SEGMENTS_MAX}")
