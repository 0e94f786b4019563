"""Durations as Spark users write them: "10 minutes", "1 hour 30 minutes"."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from penstock.errors import BadArgument
from penstock.model import shown

__all__ = ["milliseconds_of"]

_PART: Final = re.compile(r"(\d{1,9})\s*([a-z]+)\s*", re.IGNORECASE)
_UNITS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def milliseconds_of(what: str, length: str | timedelta) -> int:
    """Return a duration in milliseconds; an error names it as ``what``."""
    if isinstance(length, timedelta):
        found = round(length / timedelta(milliseconds=1))
    else:
        text = str(length).strip().lower().removeprefix("interval ")
        parts = _PART.findall(text)
        units = [unit.removesuffix("s") for _, unit in parts]
        if "".join(_PART.sub("", text).split()) or not parts or not {*units} <= _UNITS.keys():
            raise BadArgument(f"invalid {what} {shown(length)}: use a duration like '10 minutes'")
        found = sum(int(count) * _UNITS[unit] for (count, _), unit in zip(parts, units, strict=True))
    if found < 0:
        raise BadArgument(f"invalid {what} {shown(length)}: it must not be negative")
    return found
