"""The lines in which two texts differ, and those that they have in common, in the same order in both.

Lines that the texts begin and end with are found by comparing bytes. Behind a change, the next few lines of both texts
are searched for a run of equal ones, and where that ends is found by comparing bytes, too. Where no run is near, lines
that the new text has once are matched with those of the old one (patience diff, which asks for lines that the old text
has once, too), each with the equal lines around it. Of these runs, those in the same order in both texts that have the
most lines are kept, and the gaps between them are matched in the same way. In a gap in which the new text has no line
once, the first occurrence of a line is matched with the first, the second with the second.

The work is linear in the size of the texts, whatever they are: gaps are nested at most ``_DEPTH_MAX`` deep, and at most
``_RUNS_MAX`` runs of a gap, the longest, are put in order. A text made to defeat this gets a longer delta, never a
longer wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import compress, count
from operator import itemgetter, lt, ne
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from penstock.repo.kinds._lines import count_lines

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

__all__ = ["Hunk", "Run", "differing_hunks", "matching_runs"]

_DEPTH_MAX: Final = 8
_RUNS_MAX: Final = 1 << 16
_STEP: Final = 1 << 14  # bytes compared at first: most texts differ early, or not before long
_STEP_MAX: Final = 1 << 20
_NEAR_SIZE: Final = 1 << 10
_NEAR_LINES: Final = 16
_MANY: Final = 16  # lines of a gap, some of which are most likely in the other text, too
_NEAR_RUN: Final = 6  # lines that are equal by chance, such as empty ones, seldom make a run this long

Hunk: TypeAlias = tuple[int, int, int, list[bytes]]
"""First line and end in the old text, first line in the new one, and the lines of the new one, without newlines."""

Run: TypeAlias = tuple[int, int, int]
"""The first line in the old text, the first line in the new one, and the number of lines."""


def matching_runs(old: bytes, new: bytes) -> list[Run]:
    """Return the runs of lines that are equal; a last line without its newline equals only another such line."""
    runs = []
    start = new_start = 0
    for first, end, new_first, lines in [*differing_hunks(old, new), (count_lines(old), 0, 0, [])]:
        if first > start:
            runs.append((start, new_start, first - start))
        start, new_start = end, new_first + len(lines)
    return runs


def differing_hunks(old: bytes, new: bytes) -> list[Hunk]:
    """Return the places in which two texts differ, in order."""
    if old == new:
        return []
    array, new_array = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    i = j = _common_head(array, new_array, old, 0)
    tail = _common_tail(array[i:], new_array[j:], old, new)
    end, new_end = len(old) - tail, len(new) - tail
    line = new_line = old.count(b"\n", 0, i)
    hunks: list[Hunk] = []
    while (
        end - i > _NEAR_SIZE
        and new_end - j > _NEAR_SIZE
        and (gap := _gap_before_run(old[i : i + _NEAR_SIZE], new[j : j + _NEAR_SIZE]))
    ):
        a, b = gap
        hunks += _hunks_in(a, b, line, new_line)
        i, j = i + _size(a), j + _size(b)
        common = _common_head(array[i:end], new_array[j:new_end], old, i)
        equal = old.count(b"\n", i, i + common)
        i, j, line, new_line = i + common, j + common, line + len(a) + equal, new_line + len(b) + equal
    hunks += _hunks_in(_lines(old[i:end]), _lines(new[j:new_end]), line, new_line)
    return hunks


def _gap_before_run(old: bytes, new: bytes) -> tuple[list[bytes], list[bytes]] | None:
    """Return the lines before a run that begins in these parts of two texts; None if no run does.

    Most changes are small and far apart: this finds the end of one without splitting and hashing all that follows.
    """
    a, b = old.split(b"\n", _NEAR_LINES), new.split(b"\n", _NEAR_LINES)
    a.pop(), b.pop()  # may be cut off
    for start in range(len(a) + 1 - _NEAR_RUN):
        line = a[start]
        if line in b:
            i, j = start, b.index(line)
            if a[i : i + _NEAR_RUN] == b[j : j + _NEAR_RUN]:
                while i and j and a[i - 1] == b[j - 1]:
                    i, j = i - 1, j - 1
                return a[:i], b[:j]
    return None


def _hunks_in(a: list[bytes], b: list[bytes], line: int, new_line: int) -> list[Hunk]:
    """Return the places in which the lines of a gap differ, which begins at these lines of the texts."""
    runs: list[Run] = []
    if a and b and (len(a) > _MANY or not set(a).isdisjoint(b)):
        _match(a, b, 0, 0, _DEPTH_MAX, runs=runs)
    if b and b[-1][-1:] == b"\n":
        b[-1] = b[-1][:-1]
    if not runs:
        return [(line, line + len(a), new_line, b)] if a or b else []
    runs.append((len(a), len(b), 0))
    hunks = []
    i = j = 0
    for start, new_start, length in runs:
        if start > i or new_start > j:
            hunks.append((line + i, line + start, new_line + j, b[j:new_start]))
        i, j = start + length, new_start + length
    return hunks


def _size(lines: list[bytes]) -> int:
    return sum(map(len, lines)) + len(lines)


def _common_head(a: NDArray[np.uint8], b: NDArray[np.uint8], old: bytes, place: int) -> int:
    """Return the size of the lines that two parts begin with; ``a`` lies at this place of the old text."""
    size, start, step = min(len(a), len(b)), 0, _STEP
    while start < size:
        end = min(start + step, size)
        differs = (a[start:end] != b[start:end]).tobytes().find(1)
        if differs >= 0:
            size = start + differs
            break
        start, step = end, min(2 * step, _STEP_MAX)
    newline = old.rfind(b"\n", place, place + size)
    return newline + 1 - place if newline >= 0 else 0


def _common_tail(a: NDArray[np.uint8], b: NDArray[np.uint8], old: bytes, new: bytes) -> int:
    """Return the size of the lines that two texts end with, of which these parts are left."""
    size = common = min(len(a), len(b))
    a, b = a[len(a) - size :], b[len(b) - size :]
    end, step = size, _STEP
    while end > 0:
        start = max(end - step, 0)
        differs = (a[start:end] != b[start:end]).tobytes().rfind(1)
        if differs >= 0:
            common = size - (start + differs + 1)
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


def _match(a: list[bytes], b: list[bytes], a_start: int, b_start: int, depth: int, *, runs: list[Run]) -> None:
    """Add the runs in a gap, in order; ``a`` and ``b`` are the lines in it, which begin at these places."""
    i = j = 0
    for start, new_start, length in _anchored_runs(a, b):
        first, new_first, end, new_end = start, new_start, start + length, new_start + length
        if first < i or new_first < j:  # runs of repeated lines overlap
            skipped = max(i - first, j - new_first)
            if skipped > length:
                continue
            first, new_first = first + skipped, new_first + skipped
        while first > i and new_first > j and a[first - 1] == b[new_first - 1]:
            first, new_first = first - 1, new_first - 1
        if i < first and j < new_first and depth:
            gap, new_gap = a[i:first], b[j:new_first]
            if not set(gap).isdisjoint(new_gap):
                _match(gap, new_gap, a_start + i, b_start + j, depth - 1, runs=runs)
        if first < end:
            runs.append((a_start + first, b_start + new_first, end - first))
            i, j = end, new_end


def _anchored_runs(a: list[bytes], b: list[bytes]) -> list[Run]:
    """Return runs in the same order on both sides, each from a line on that ``b`` has once, if there is any.

    An empty run follows at their ends.
    """
    runs = _runs_in_old(a, b, a, b)
    if not runs and not set(a).isdisjoint(b):
        runs = _runs_in_old(a, b, _numbered(a), _numbered(b))
    if len(runs) > _RUNS_MAX:
        runs = sorted(sorted(runs, key=itemgetter(2))[-_RUNS_MAX:])
    if len(runs) > 1:
        places = [place for _, place, _ in runs]
        if not all(map(lt, places, places[1:])):
            runs = _heaviest_rising(runs)
    runs.append((len(a), len(b), 0))
    return runs


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
    equal, step, end = 1, 8, min(len(a) - i, len(b) - j)
    while equal < end and a[i + equal] == b[j + equal]:
        equal += 1
        if equal == 8:
            break
    else:
        return equal
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
