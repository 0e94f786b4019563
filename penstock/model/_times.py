"""Time as writers give it: whole milliseconds, since 1970 unless a stream's writers count from somewhere else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from penstock.errors import BadArgument
from penstock.model._checks import shown
from penstock.model._places import StreamCut

__all__ = ["TIME_MAX", "NextCut", "Place", "TimeWindow", "Watermark", "as_time", "check_time"]

Place = StreamCut | datetime | int | Literal["head", "tail"]
"""A cut, a time at which events were appended, or the beginning or the end of what there is."""

TIME_MAX: Final = 253_402_300_799_999  # the end of the year 9999: what is later was given in other units


def check_time(what: str, time: object) -> None:
    """Refuse what is no time; one that is far too late would hold for ever, because time does not go back."""
    if type(time) is not int or not 0 <= time <= TIME_MAX:
        raise BadArgument(f"{what} cannot be {shown(time)}: give whole milliseconds, from 0 to {TIME_MAX}")


def as_time(what: str, time: object) -> int:
    """Return a time in milliseconds since 1970; a datetime without a zone is local time. What is no time is refused."""
    if isinstance(time, datetime):
        try:
            time = int(time.timestamp() * 1000)
        except (OverflowError, ValueError, OSError):
            raise BadArgument(f"{what} cannot be {shown(time)}: it is too far away") from None
    check_time(what, time)
    assert isinstance(time, int)
    return time


@dataclass(frozen=True, slots=True)
class Watermark:
    """What writers have promised: all that they had written when they noted ``lower`` lies before ``cut``.

    ``lower`` is the lowest time that any of them had noted last, ``upper`` the highest.
    """

    lower: int
    upper: int
    cut: StreamCut


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Between which times a reader is: everything up to ``lower`` was read.

    ``upper`` is the latest time that any writer had noted when the next watermark was made. A writer may have written
    events that are later than all it has noted, so some of after ``upper`` may have been read.

    ``lower`` is None before the first watermark, ``upper`` behind the last one.
    """

    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class NextCut:
    """Where the next batch of a stream ends, and the time that the writers have promised there, if any."""

    cut: StreamCut
    time: int | None
