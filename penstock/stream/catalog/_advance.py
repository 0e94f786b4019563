"""How a cut moves on from the head of a stream, through the segments that follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stream.catalog._stream_state import StreamState

    Cut = dict[int, int]
    Reach = Callable[[int, int], int | None]

__all__ = ["advance"]


def advance(state: StreamState, reach: Reach) -> Cut:
    """Return the cut that is as far from the head as ``reach`` says, in each segment from an offset.

    None is the end of the segment, and on to those that follow it.
    """
    found: Cut = {}
    whole: set[int] = set()
    fresh = dict(state.head)
    while fresh:
        reached = {segment: reach(segment, offset) for segment, offset in fresh.items()}
        ended = [segment for segment, offset in reached.items() if offset is None]
        whole.update(ended)
        found |= {segment: _end(state, segment) if offset is None else offset for segment, offset in reached.items()}
        fresh = {}
        for old, new in (state.succession(segment) for segment in ended):
            if new and old <= whole and old <= found.keys():
                for one in old:
                    del found[one]
                fresh |= dict.fromkeys(new, 0)
    return found


def _end(state: StreamState, segment: int) -> int:
    end = state.segments[segment].end
    assert end is not None, "only what takes no more events can go whole"
    return end
