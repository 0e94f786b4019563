"""Lines of a text: each ends with its newline, which only the last one may lack. CR and NUL are bytes like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["count_lines", "line_ends", "start_of"]

_NEWLINE: Final = 10
_CHUNK: Final = 1 << 20  # bytes looked at together: what is found in them is small, what is compared is not


def line_ends(text: bytes | memoryview) -> NDArray[np.int64]:
    """Return where each line ends, just after its newline; a last line without one ends with the text."""
    array = np.frombuffer(text, np.uint8)
    ends = [
        np.flatnonzero(array[start : start + _CHUNK] == _NEWLINE) + (start + 1)
        for start in range(0, len(array), _CHUNK)
    ]
    if len(array) and array[-1] != _NEWLINE:
        ends.append(np.array([len(array)]))
    return np.concatenate(ends, dtype=np.int64) if ends else np.empty(0, np.int64)


def count_lines(text: bytes | memoryview) -> int:
    """Return how many lines a text has."""
    array = np.frombuffer(text, np.uint8)
    newlines = sum(np.count_nonzero(array[at : at + _CHUNK] == _NEWLINE) for at in range(0, len(array), _CHUNK))
    return int(newlines) + int(len(array) > 0 and array[-1] != _NEWLINE)


def start_of(ends: NDArray[np.int64], line: int) -> int:
    """Return where a line starts; the line after the last one starts at the end of the text."""
    return int(ends[line - 1]) if line else 0
