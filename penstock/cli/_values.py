"""Values as they are typed: ``7d``, ``10GB``, ``0-0.5,0.5-1``, ``2026-11-15T12:00``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from penstock.errors import BadArgument
from penstock.model import check_append_time, check_time, shown

__all__ = [
    "is_time",
    "parse_append_time",
    "parse_duration",
    "parse_ranges",
    "parse_segments",
    "parse_size",
    "parse_time",
]

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_BYTES: Final = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_FIGURE: Final = re.compile(r"(\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})\s*([A-Za-z]*)", re.ASCII)
_NUMBER: Final = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]-?\d+)?"
_RANGE: Final = re.compile(rf"({_NUMBER})-({_NUMBER})", re.ASCII)
_TIME: Final = re.compile(r"\d+|\d{4}-\d\d-\d\d.*|\d+(?:\.\d+)?(?:ms|s|m|h|d|w)", re.ASCII)
_SEGMENT: Final = re.compile(r"\d{1,18}", re.ASCII)


def parse_duration(option: str, text: str) -> float:
    """Return the seconds of ``90s``, ``1.5h`` or ``7d``, the value of an option."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _SECONDS:
        raise BadArgument(f"invalid {option} {shown(text)}: use a number and ms, s, m, h, d or w, like 7d")
    return float(match[1]) * _SECONDS[match[2].lower()]


def parse_size(option: str, text: str) -> int:
    """Return the bytes of ``4096B``, ``1.5MB`` or ``10GiB``, the value of an option."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _BYTES:
        units = "B, kB, MB, GB, TB or KiB, MiB, GiB, TiB"
        raise BadArgument(f"invalid {option} {shown(text)}: use a number and {units}, like 10GB")
    unit = _BYTES[match[2].lower()]
    return int(match[1]) * unit if match[1].isdigit() else int(float(match[1]) * unit)


def parse_segments(option: str, text: str) -> list[int]:
    """Return the segments of ``0`` or ``1,2``, the value of an option."""
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_SEGMENT.fullmatch, parts)):
        raise BadArgument(f"invalid {option} {shown(text)}: use the numbers of segments, like 1,2")
    return [int(part) for part in parts]


def parse_ranges(option: str, text: str) -> list[tuple[float, float]]:
    """Return the key ranges of ``0-0.5,0.5-1``, the value of an option."""
    matches = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
    if not all(matches):
        raise BadArgument(f"invalid {option} {shown(text)}: use key ranges like 0-0.5,0.5-1")
    return [(float(match[1]), float(match[2])) for match in matches if match]


def is_time(text: str) -> bool:
    """Return whether a text looks like a time: milliseconds, a date, or an age."""
    return _TIME.fullmatch(text) is not None


def parse_time(option: str, text: str) -> int:
    """Return the milliseconds since 1970 of ``1700000000000``, ``2026-11-15T12:00``, or ``10m``, which is an age.

    A date without a zone is in local time.
    """
    try:
        time = _milliseconds(option, text)
        check_time(option, time)
    except (ValueError, OverflowError, OSError):  # BadArgument is a ValueError, too
        raise BadArgument(
            f"invalid {option} {shown(text)}: use a time like 2026-11-15T12:00, 2026-11-15T12:00Z or 1700000000000, "
            "or an age like 10m"
        ) from None
    return time


def parse_append_time(option: str, text: str) -> int:
    """Return a time at which events were appended; refuse seconds, which would be milliseconds of the year 1970."""
    time_ms = parse_time(option, text)
    check_append_time(option, time_ms)
    return time_ms


def _milliseconds(option: str, text: str) -> int:
    if text.isdecimal():
        return int(text)
    if text[-1].isalpha() and not text.endswith(("Z", "z")):
        return round((datetime.now(UTC).timestamp() - parse_duration(option, text)) * 1000)
    return round(datetime.fromisoformat(text).timestamp() * 1000)
