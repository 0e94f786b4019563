"""How the segments of a stream follow each other: which of them end together, and which ones begin there.

Of two segments that share a part of the key space, the one with the higher id follows the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.copying._records import Span

__all__ = ["SegmentSuccession", "ends_at"]


class SegmentSuccession:
    """The segments ``coming`` after those that a copy has reached, which cover the key space."""

    def __init__(self, reached: Iterable[Span], coming: Iterable[Span]) -> None:
        self._before: dict[int, set[int]] = {}
        self._after: dict[int, set[int]] = {}
        self.spans = {span.segment: span for span in coming}
        newest = sorted((span.low, span.high, span.segment) for span in reached)
        for span in sorted(self.spans.values(), key=lambda span: span.segment):
            newest = self._follow(newest, span)

    def _follow(self, newest: list[tuple[float, float, int]], span: Span) -> list[tuple[float, float, int]]:
        """Let a segment follow those that have its part of the key space; return which segment now has which part."""
        first = bisect_right(newest, span.low, key=lambda part: part[1])
        last = bisect_left(newest, span.high, key=lambda part: part[0])
        inside = newest[first:last]
        self._before[span.segment] = {segment for _, _, segment in inside}
        for segment in self._before[span.segment]:
            self._after.setdefault(segment, set()).add(span.segment)
        rest = [(inside[0][0], span.low, inside[0][2])] if inside and inside[0][0] < span.low else []
        rest.append((span.low, span.high, span.segment))
        if inside and span.high < inside[-1][1]:
            rest.append((span.high, inside[-1][1], inside[-1][2]))
        return [*newest[:first], *rest, *newest[last:]]

    def change(self, segment: int) -> tuple[list[int], list[Span]]:
        """Return the segments that end where a coming one begins, and all those that begin there with it."""
        begin, end = {segment}, set[int]()
        while True:
            ended = {old for new in begin for old in self._before[new]}
            begun = {new for old in ended for new in self._after[old]}
            if (begun, ended) == (begin, end):
                return sorted(ended), [self.spans[new] for new in sorted(begun)]
            begin, end = begun | begin, ended


def ends_at(cut: Mapping[int, int], segments: Sequence[Span], ends: Mapping[int, int]) -> dict[int, int]:
    """Return up to where each of some segments lies before a cut; those that lie behind it are not in the result.

    ``ends`` are where segments end that others follow. Segments of the cut that are not there any more do not count.
    """
    inside = sorted((span.low, span.high, span.segment) for span in segments if span.segment in cut)
    before: dict[int, int] = {}
    for span in segments:
        if span.segment in cut:
            before[span.segment] = cut[span.segment]
            continue
        first = bisect_right(inside, span.low, key=lambda part: part[1])
        last = bisect_left(inside, span.high, key=lambda part: part[0])
        if any(segment > span.segment for _, _, segment in inside[first:last]):
            before[span.segment] = ends[span.segment]
    return before
