"""Figures as short texts, which have the same width in every terminal."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len, set_cell_size

__all__ = ["NONE", "age", "count", "fitted", "printable", "size"]

NONE: Final = "-"
_SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_COUNTS: Final = ("", "k", "M", "G", "T")
_AGES: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def size(count: float) -> str:
    """Return bytes in a readable unit, in at most seven characters."""
    number, unit = _scaled(count, _SIZES)
    return f"{number} {unit}"


def count(number: float) -> str:
    """Return a number in at most five characters: ``1234`` is ``1.23k``."""
    return "".join(_scaled(number, _COUNTS))


def age(seconds: float) -> str:
    """Return a duration in its largest unit, in at most seven characters."""
    for unit, length in _AGES:
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}" if seconds < 9.95 * length else f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def printable(text: str) -> str:
    """Return a text without what would move the cursor, or change colours."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """Return a text in exactly this width: with spaces, or cut off, which shows."""
    text = printable(text)
    used = cell_len(text)
    if used > width:
        return set_cell_size(text, max(width - 1, 0)) + "…"[:width]
    return " " * (width - used) + text if right else text + " " * (width - used)


def _scaled(number: float, units: tuple[str, ...]) -> tuple[str, str]:
    for unit in units[:-1]:
        if number < 999.5:
            return f"{number:.3g}", unit
        number /= 1000
    return f"{number:.3g}", units[-1]
