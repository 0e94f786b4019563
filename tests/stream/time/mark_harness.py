"""What tests of marks share: streams with a history of scales, cuts of them, and what a cut means at a place."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from penstock.model import StreamConfig, StreamCut
from penstock.stream.catalog._stream_state import StreamState
from penstock.stream.format import StreamCreated, StreamScaled, StreamTruncated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import DataObject

STREAM: Final = "plant/readings"
LENGTH: Final = 9  # of every segment that has ended
CELLS: Final = 16
POINTS: Final = [(cell + 0.5) / CELLS for cell in range(CELLS)]  # no scale cuts between two keys of a cell
Places = dict[int, int]


@dataclass
class History:
    """A stream, and the scales that made it: which segments ended, and which began."""

    state: StreamState
    scales: list[tuple[list[int], list[int]]] = field(default_factory=list)

    def scale(self, seal: list[int], ranges: list[tuple[float, float]]) -> None:
        """End some segments and go on in others."""
        before = self.state.next_segment
        self.state.check_scale(seal, ranges)
        self.state.apply(StreamScaled(STREAM, dict.fromkeys(seal, LENGTH), ranges, 0))
        self.scales.append((seal, list(range(before, self.state.next_segment))))

    def truncate(self, head: Mapping[int, int]) -> None:
        """Let it begin somewhere else."""
        self.state.apply(StreamTruncated(STREAM, dict(head)))


def new_history(segments: int = 1) -> History:
    return History(StreamState(StreamCreated(STREAM, 0, segments, StreamConfig())))


def whole_cells(low: float, high: float) -> list[float]:
    """Return where a key range may be cut."""
    return [cell / CELLS for cell in range(CELLS) if low < cell / CELLS < high]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return streams that were split, merged, and cut anew in one step."""
    history = new_history(draw(st.sampled_from([1, 2, 4])))
    for _ in range(draw(st.integers(0, 7))):
        current = history.state.current
        first = draw(st.integers(0, len(current) - 1))
        chosen = current[first : first + draw(st.integers(1, 3))]
        low, high = chosen[0].low, chosen[-1].high
        cuts = sorted(draw(st.sets(st.sampled_from(whole_cells(low, high) or [low]), max_size=3)) - {low})
        marks = [low, *cuts, high]
        history.scale([one.segment_id for one in chosen], list(pairwise(marks)))
    return history


def draw_cut(data: DataObject, history: History, *, from_: Places | None = None) -> Places:
    """Draw a valid cut, as a reader might have come to it, from the beginning or from another cut on."""
    state = history.state
    begin = dict.fromkeys(range(state.next_segment), 0) if from_ is None else from_
    first = sorted(set(range(state.next_segment)) - {new for _, made in history.scales for new in made})
    cut = dict.fromkeys(first, 0) if from_ is None else dict(from_)
    for seal, made in history.scales:
        if cut.keys() >= set(seal) and data.draw(st.booleans()):
            cut = {segment: offset for segment, offset in cut.items() if segment not in seal} | dict.fromkeys(made, 0)
    for segment in cut:
        cut[segment] = data.draw(st.integers(begin.get(segment, 0), LENGTH))
    return cut


def at_point(state: StreamState, places: Mapping[int, int], point: float) -> tuple[int, int] | None:
    """Return where a position is for the keys of one cell: a segment and an offset, which only grow as time goes by."""
    found = [
        (segment, offset)
        for segment, offset in places.items()
        if segment in state.segments and state.segments[segment].low <= point < state.segments[segment].high
    ]
    return max(found, default=None)


def as_cut(places: Mapping[int, int]) -> StreamCut:
    return StreamCut.of(STREAM, places)
