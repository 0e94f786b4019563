"""Values as they are typed: ``7d``, ``10GB``, ``0-0.5,0.5-1``."""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import BadArgument

__all__ = ["parse_duration", "parse_ranges", "parse_segments", "parse_size"]

_SECONDS: Final = {"ms": 0.001, "": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_FIGURE: Final = re.compile(r"(\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})\s*([A-Za-z]*)", re.ASCII)
_NUMBER: Final = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]-?\d+)?"
_RANGE: Final = re.compile(rf"({_NUMBER})-({_NUMBER})", re.ASCII)
_SEGMENT: Final = re.compile(r"\d{1,18}", re.ASCII)


def parse_duration(text: str) -> float:
    """Return the seconds of ``90``, ``1.5h`` or ``7d``."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _SECONDS:
        raise BadArgument(f"{text!r} is no time: give a number and ms, s, m, h, d or w, like 7d")
    return float(match[1]) * _SECONDS[match[2].lower()]


def parse_size(text: str) -> int:
    """Return the bytes of ``4096``, ``1.5MB`` or ``10GiB``."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _BYTES:
        raise BadArgument(f"{text!r} is no size: give a number and B, kB, MB, GB, TB or KiB, MiB, GiB, TiB, like 10GB")
    unit = _BYTES[match[2].lower()]
    return int(match[1]) * unit if match[1].isdigit() else int(float(match[1]) * unit)


def parse_segments(text: str) -> list[int]:
    """Return the segments of ``0`` or ``1,2``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_SEGMENT.fullmatch, parts)):
        raise BadArgument(f"{text!r} are no segments: give their numbers, like 1,2")
    return [int(part) for part in parts]


def parse_ranges(text: str) -> list[tuple[float, float]]:
    """Return the key ranges of ``0-0.5,0.5-1``."""
    matches = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
    if not all(matches):
        raise BadArgument(f"{text!r} are no key ranges: give them like 0-0.5,0.5-1")
    return [(float(match[1]), float(match[2])) for match in matches if match]
