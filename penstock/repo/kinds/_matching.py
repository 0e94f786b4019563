"""The lines in which two texts differ, and those that they have in common, in the same order in both.

Lines that the texts begin and end with are found by comparing bytes. Between them, lines that the new text has once are
matched with those of the old one (patience diff, which asks for lines that the old text has once, too), each with the
equal lines around it. Of these runs, those in the same order in both texts that have the most lines are kept, and the
gaps between them are matched in the same way. In a gap in which the new text has no line once, the first occurrence of
a line is matched with the first, the second with the second.

The work is linear in the size of the texts, whatever they are: gaps are nested at most ``_DEPTH_MAX`` deep, and at most
``_RUNS_MAX`` runs of a gap, the longest, are put in order. A text made to defeat this gets a longer delta, never a
longer wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import compress, count
from operator import itemgetter, ne
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from penstock.repo.kinds._lines import count_lines

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

__all__ = ["Hunk", "Run", "differing_hunks", "matching_runs"]

_DEPTH_MAX: Final = 8
_RUNS_MAX: Final = 1 << 16
_STEP: Final = 1 << 12  # bytes compared at first: most texts differ early, or not before long
_STEP_MAX: Final = 1 << 20


class Hunk(NamedTuple):
    """Lines ``start`` to ``end`` of the old text, and the lines that the new one has there, without their newlines."""

    start: int
    end: int
    new_start: int
    lines: list[bytes]


Run: TypeAlias = tuple[int, int, int]
"""The first line in the old text, the first line in the new one, and the number of lines."""


def matching_runs(old: bytes, new: bytes) -> list[Run]:
    """Return the runs of lines that are equal; a last line without its newline equals only another such line."""
    runs = []
    start = new_start = 0
    for hunk in differing_hunks(old, new):
        if hunk.start > start:
            runs.append((start, new_start, hunk.start - start))
        start, new_start = hunk.end, hunk.new_start + len(hunk.lines)
    lines = count_lines(old)
    if lines > start:
        runs.append((start, new_start, lines - start))
    return runs


def differing_hunks(old: bytes, new: bytes) -> list[Hunk]:
    """Return the places in which two texts differ, in order."""
    if old == new:
        return []
    head = _common_head(old, new)
    tail = _common_tail(old, new, head)
    first = old.count(b"\n", 0, head)
    a, b = _lines(old[head : len(old) - tail]), _lines(new[head : len(new) - tail])
    runs = [*_match(a, b, 0, 0, _DEPTH_MAX), (len(a), len(b), 0)]
    if b and b[-1].endswith(b"\n"):
        b[-1] = b[-1][:-1]
    hunks = []
    i = j = 0
    for start, new_start, length in runs:
        if start > i or new_start > j:
            hunks.append(Hunk(first + i, first + start, first + j, b[j:new_start]))
        i, j = start + length, new_start + length
    return hunks


def _common_head(old: bytes, new: bytes) -> int:
    """Return the size of the lines that both texts begin with."""
    a, b = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    size, start, step = min(len(a), len(b)), 0, _STEP
    while start < size:
        end = min(start + step, size)
        differs = a[start:end] != b[start:end]
        place = int(differs.argmax())
        if differs[place]:
            size = start + place
            break
        start, step = end, min(2 * step, _STEP_MAX)
    return old.rfind(b"\n", 0, size) + 1


def _common_tail(old: bytes, new: bytes, head: int) -> int:
    """Return the size of the lines that both texts end with, behind the head."""
    size = min(len(old), len(new)) - head
    if size == 0:
        return 0
    a, b = np.frombuffer(old, np.uint8)[-size:], np.frombuffer(new, np.uint8)[-size:]
    end, step, common = size, _STEP, size
    while end > 0:
        start = max(end - step, 0)
        place = (a[start:end] != b[start:end]).tobytes().rfind(1)
        if place >= 0:
            common = size - (start + place + 1)
            break
        end, step = start, min(2 * step, _STEP_MAX)
    if common == size and _starts_line(old, len(old) - common) and _starts_line(new, len(new) - common):
        return common
    newline = old.find(b"\n", len(old) - common)
    return len(old) - newline - 1 if newline >= 0 else 0


def _starts_line(text: bytes, place: int) -> bool:
    return place == 0 or text[place - 1 : place] == b"\n"


def _lines(text: bytes) -> list[bytes]:
    """Return lines without their newlines; a last line that has none in the text has one here, and equals no other."""
    lines = text.split(b"\n")
    last = lines.pop()
    if last:
        lines.append(last + b"\n")
    return lines


def _match(a: list[bytes], b: list[bytes], a_start: int, b_start: int, depth: int) -> Iterator[Run]:
    """Yield the runs in a gap, in order; ``a`` and ``b`` are the lines in it, which begin at these places."""
    i = j = 0
    for start, new_start, length in [*_anchored_runs(a, b), (len(a), len(b), 0)]:
        skipped = max(i - start, j - new_start, 0)  # runs of repeated lines overlap
        if skipped > length:
            continue
        end, new_end = start + length, new_start + length
        first, new_first = start + skipped, new_start + skipped
        while first > i and new_first > j and a[first - 1] == b[new_first - 1]:
            first, new_first = first - 1, new_first - 1
        if i < first and j < new_first and depth:
            gap, new_gap = a[i:first], b[j:new_first]
            if not set(gap).isdisjoint(new_gap):
                yield from _match(gap, new_gap, a_start + i, b_start + j, depth - 1)
        if first < end:
            yield a_start + first, b_start + new_first, end - first
            i, j = end, new_end


def _anchored_runs(a: list[bytes], b: list[bytes]) -> list[Run]:
    """Return runs in the same order on both sides, each from a line on that ``b`` has once, if there is any."""
    runs = _runs_in_old(a, b, a, b)
    if not runs and not set(a).isdisjoint(b):
        runs = _runs_in_old(a, b, _numbered(a), _numbered(b))
    if len(runs) > _RUNS_MAX:
        runs = sorted(sorted(runs, key=itemgetter(2))[-_RUNS_MAX:])
    return _heaviest_rising(runs) if len(runs) > 1 else runs


def _runs_in_old(a: list[bytes], b: list[bytes], a_keys: Sequence[Hashable], b_keys: Sequence[Hashable]) -> list[Run]:
    """Return the runs that begin with a key that the new text has once, in the order of the old one."""
    places: dict[Hashable, int] = {}
    first = map(places.setdefault, b_keys, count())
    for key in set(compress(b_keys, map(ne, first, count()))):
        del places[key]
    runs = []
    get, i, end = places.get, 0, len(a_keys)
    while i < end:
        if (j := get(a_keys[i])) is None:
            i += 1
        else:
            length = _equal_lines(a, i, b, j)
            runs.append((i, j, length))
            i += length
    return runs


def _numbered(lines: list[bytes]) -> list[tuple[bytes, int]]:
    """Return each line with the number of equal lines before it."""
    numbers: dict[bytes, count[int]] = defaultdict(count)
    return [(line, next(numbers[line])) for line in lines]


def _equal_lines(a: list[bytes], i: int, b: list[bytes], j: int) -> int:
    """Return how many lines are equal from two places on."""
    equal, step = 0, 8
    while True:
        lines, others = a[i + equal : i + equal + step], b[j + equal : j + equal + step]
        if lines != others or not lines:
            return equal + next(compress(count(), map(ne, lines, others)), min(len(lines), len(others)))
        equal, step = equal + step, 2 * step


def _heaviest_rising(runs: list[Run]) -> list[Run]:
    """Return those runs that are in the same order in the new text, too, and have the most lines together.

    ``tops`` are the places that a selection can end at and ``sums`` the lines that it has: both rise, since an end that
    is neither earlier nor heavier than another is of no use.
    """
    tops: list[int] = []
    sums: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for number, (_, place, length) in enumerate(runs):
        at = bisect_left(tops, place)
        total = length + (sums[at - 1] if at else 0)
        previous.append(ends[at - 1] if at else -1)
        stop = at
        while stop < len(sums) and sums[stop] <= total:
            stop += 1
        tops[at:stop], sums[at:stop], ends[at:stop] = [place], [total], [number]
    best = []
    number = ends[-1] if ends else -1
    while number >= 0:
        best.append(runs[number])
        number = previous[number]
    return best[::-1]
