"""A commit that scales the stream on the way, for key ranges that no single segment covers any more.

See ``_commits``: segments end, others with the old ranges take the logs of the transaction and end, and new ones with
the present ranges go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.stream.format import StreamBlockHeader, StreamScaled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.stream.catalog import SegmentState, StreamState
    from penstock.stream.segment import Segments

__all__ = ["Roll", "TransactionPart"]


@dataclass(slots=True)
class TransactionPart:
    """What a transaction wrote to one key range: its logs in order, with the number of events in each.

    ``headers`` are those of blocks that carry a writer's numbers.
    """

    low: float
    high: float
    logs: list[str] = field(default_factory=list)
    size: int = 0
    counts: list[int] = field(default_factory=list)
    headers: list[StreamBlockHeader] = field(default_factory=list)

    def add_log(self, name: str) -> None:
        """Add an empty log."""
        self.logs.append(name)
        self.counts.append(0)


class Roll:
    """A scale for parts that no segment can take: segments end, others take the parts, new ones go on.

    All parts in the key space of an ending segment go this way, those that it could have taken, too. ``parts`` are by
    their place in the commit, and ``segments`` are those that take them.
    """

    def __init__(
        self,
        segments: Segments,
        state: StreamState,
        ending: Sequence[SegmentState],
        parts: Mapping[int, TransactionPart],
        *,
        now_ms: int,
    ) -> None:
        self._ending = {segment.segment_id: segments.get(state.name, segment.segment_id) for segment in ending}
        try:
            ends = {segment: handle.end() for segment, handle in self._ending.items()}
            counts = {segment: handle.count_before(ends[segment]) for segment, handle in self._ending.items()}
        except BaseException:
            self.undo()
            raise
        self.records: list[StreamScaled] = []
        self.segments: dict[int, int] = {}
        whole, first = [(segment.low, segment.high) for segment in ending], state.next_segment
        for layer in _layers(parts):
            between = _with_fillers(whole, [(parts[group[0]].low, parts[group[0]].high) for group in layer])
            numbers = {low: first + place for place, (low, _) in enumerate(between)}
            self.records.append(StreamScaled(state.name, ends, between, now_ms, counts))
            ends, counts = dict.fromkeys(numbers.values(), 0), dict.fromkeys(numbers.values(), 0)
            for group in layer:
                segment = numbers[parts[group[0]].low]
                self.segments |= dict.fromkeys(group, segment)
                ends[segment] = sum(parts[place].size for place in group)
                counts[segment] = sum(sum(parts[place].counts) for place in group)
            first += len(between)
        if parts:
            self.records.append(StreamScaled(state.name, ends, whole, now_ms, counts))

    def undo(self) -> None:
        """Let the segments take events again, because the commit failed."""
        for segment in self._ending.values():
            segment.reopen()

    def notify(self) -> None:
        """Wake the readers of segments that have ended."""
        for segment in self._ending.values():
            segment.notify()


def _layers(parts: Mapping[int, TransactionPart]) -> list[list[list[int]]]:
    """Return the parts in layers: in each, parts of one range together, and no others that overlap.

    A part is in a later layer than those before it that overlap with it, unless they are of the same range.
    """
    found: list[list[list[int]]] = []
    for place, part in parts.items():
        depth = 0
        for number, layer in enumerate(found):
            for group in layer:
                other = parts[group[0]]
                if (other.low, other.high) == (part.low, part.high):
                    depth = max(depth, number)
                elif other.low < part.high and part.low < other.high:
                    depth = max(depth, number + 1)
        if depth == len(found):
            found.append([])
        same = [group for group in found[depth] if parts[group[0]].low == part.low]
        if same:
            same[0].append(place)
        else:
            found[depth].append([place])
    return found


def _with_fillers(
    whole: Sequence[tuple[float, float]], wanted: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the wanted ranges and, between them, the rest of the key space that ``whole`` covers, in order."""
    borders = sorted({border for pair in (*whole, *wanted) for border in pair})
    inside = [pair for pair in pairwise(borders) if any(a <= pair[0] < b for a, b in whole)]
    rest = [pair for pair in inside if not any(a <= pair[0] < b for a, b in wanted)]
    return sorted([*wanted, *rest])
