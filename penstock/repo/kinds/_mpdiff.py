"""The kind mpdiff: a text as lines that are copied from its parents, and lines that are new.

A record is a list of hunks. ``c 1 4 7 3`` copies three lines, from line 4 of the parent with the number 1 to line 7 of
the text; all count from 0. ``i 2`` has the next two lines inserted, and a newline follows them: after a last line that
ends in a newline itself, that makes an empty line::

    c 0 0 0 1
    i 1
    BETA

    c 0 2 2 1

Copies from the same parent are in order and do not overlap, so a text is never longer than its parents and its record
together. Breezy writes nothing else, but reads copies in any order, and its numbers of parents leave out those that
its repository lacks; here the parents are always those of the key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import BadRecord, NoSuchKey
from penstock.repo._keys import TEXT_SIZE_MAX
from penstock.repo.kinds._basis import basis_text
from penstock.repo.kinds._lines import line_ends, start_of
from penstock.repo.kinds._matching import matching_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.repo._keys import Key
    from penstock.repo.kinds._basis import GetText

__all__ = ["decode_mpdiff", "encode_mpdiff"]

_COPY: Final = re.compile(rb"c (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,18})\n")
_NEWLINE: Final = 10
_INSERT: Final = re.compile(rb"i (\d{1,18})\n")


def encode_mpdiff(text: bytes, *, parents: Sequence[Key], get_text: GetText) -> bytes:
    """Return a text as hunks; parents that ``get_text`` does not know are not copied from."""
    ends = line_ends(text)
    best = np.zeros((3, ends.size), np.int64)  # of each line: how many can be copied from here on, which parent, where
    for number, parent in enumerate(parents):
        try:
            old = get_text(parent)
        except (KeyError, NoSuchKey):
            continue
        if runs := matching_runs(old, text):
            start, place, length = np.array(runs).T
            offset = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            line = np.repeat(place, length) + offset
            left = np.repeat(length, length) - offset
            copies = np.stack((left, np.full_like(left, number), np.repeat(start, length) + offset))
            is_longer = left > best[0, line]
            best[:, line[is_longer]] = copies[:, is_longer]
    return b"".join(_hunks(text, ends, best))


def _hunks(text: bytes, ends: NDArray[np.int64], best: NDArray[np.int64]) -> Iterator[bytes]:
    starts = np.append(np.flatnonzero(best[0]), ends.size)  # of what can be copied
    line = 0
    while line < ends.size:
        length, parent, start = best[:, line].tolist()
        if length:
            yield b"c %d %d %d %d\n" % (parent, start, line, length)
        else:
            length = int(starts[np.searchsorted(starts, line)]) - line
            yield b"i %d\n%b\n" % (length, text[start_of(ends, line) : start_of(ends, line + length)])
        line += length


def decode_mpdiff(data: bytes | memoryview, *, key: Key, parents: Sequence[Key], get_text: GetText) -> bytes:
    """Return the text that the hunks make up."""
    view = memoryview(data)
    if view and view[-1] != _NEWLINE:
        raise BadRecord(key, "its last line has no newline")
    ends = line_ends(view)
    sources = _Sources(key, parents, get_text)
    pieces: list[memoryview] = []
    row = lines = size = 0
    while row < ends.size:
        if pieces and pieces[-1][-1] != _NEWLINE:
            raise BadRecord(key, f"line {lines} of the text has no newline, and is not the last one")
        header = view[start_of(ends, row) : ends[row]]
        row += 1
        if match := _COPY.fullmatch(header):
            parent, start, place, length = map(int, match.groups())
            if place != lines:
                raise BadRecord(key, f"it copies to line {place} of the text, and line {lines} is next")
            pieces.append(sources.copy(parent, start, length))
        elif match := _INSERT.fullmatch(header):
            length = int(match[1])
            if not 0 < length <= ends.size - row:
                raise BadRecord(key, f"it inserts {length} lines, and {ends.size - row} follow")
            start, row = start_of(ends, row), row + length
            end = start_of(ends, row)
            if row < ends.size and ends[row] == end + 1:
                row += 1
            else:
                end -= 1  # the newline is not part of the text, whose last line this is
                if end == start_of(ends, row - 1):
                    raise BadRecord(key, "it inserts an empty line without a newline")
            pieces.append(view[start:end])
        else:
            raise BadRecord(key, f"its line {row} is not a hunk, which begins with c or i")
        lines += length
        size += len(pieces[-1])
        if size > TEXT_SIZE_MAX:
            raise BadRecord(key, f"its text has more than {TEXT_SIZE_MAX:,} bytes")
    return b"".join(pieces)


class _Sources:
    """The parents of a text, each copied from front to back."""

    def __init__(self, key: Key, parents: Sequence[Key], get_text: GetText) -> None:
        self._key, self._parents, self._get_text = key, parents, get_text
        self._texts: dict[int, tuple[memoryview, NDArray[np.int64]]] = {}
        self._copied: dict[int, int] = {}

    def copy(self, parent: int, start: int, length: int) -> memoryview:
        """Return lines of a parent."""
        if parent not in self._texts:
            if parent >= len(self._parents):
                raise BadRecord(self._key, f"it copies from parent {parent}, and has {len(self._parents)}, from 0")
            text = basis_text(self._get_text, self._parents[parent], key=self._key)
            self._texts[parent] = memoryview(text), line_ends(text)
        view, ends = self._texts[parent]
        copied, end = self._copied.get(parent, 0), start + length
        if not copied <= start < end <= ends.size:
            raise BadRecord(
                self._key,
                f"it copies lines {start} to {end} of parent {parent}, of which lines {copied} to {ends.size} are left",
            )
        self._copied[parent] = end
        return view[start_of(ends, start) : start_of(ends, end)]
