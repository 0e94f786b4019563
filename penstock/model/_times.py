"""Times as writers note them: whole milliseconds, since 1970 unless a stream's writers count from another start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from penstock.errors import BadArgument
from penstock.model._checks import shown
from penstock.model._places import StreamCut

__all__ = ["TIME_MAX", "NextCut", "Place", "TimeWindow", "Watermark", "as_time", "check_append_time", "check_time"]

Place = StreamCut | datetime | int | Literal["head", "tail"]
"""A cut, a time at which events were appended, or the head or the tail of the stream."""

TIME_MAX: Final = 253_402_300_799_999  # the end of the year 9999: a later time was given in other units
_SECONDS: Final = range(10**9, 10**11)  # seconds from 2001 on; as milliseconds they lie in the years 1970 to 1973


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
