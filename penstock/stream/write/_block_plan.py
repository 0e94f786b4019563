"""Block plans: which events of a run become one block.

A run is cut into plans when it is taken out of its lane. A plan whose segment has ended before the block got there is
taken apart again, event by event, because its events may belong to several successors.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from penstock.stream.write._acks import ArrayRun, ListRun, Run
from penstock.stream.write._batch import cut_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.ports import Bytes
    from penstock.stream.format import Headers
    from penstock.stream.write._batch import EventRows

__all__ = ["BlockPlan", "plan_blocks"]

_BLOCK_SIZE: Final = 1 << 20  # of the events in a block, unless there is just one


class BlockPlan(msgspec.Struct, eq=False):
    """The events of a run, from ``first`` up to ``stop``, that make one block."""

    run: Run
    first: int
    stop: int
    last_number: int = 0  # of its last event

    @property
    def count(self) -> int:
        """How many events the block has."""
        return self.stop - self.first

    def packed(self, *, keeps_keys: bool) -> tuple[int, list[Bytes]]:
        """Return the column flags of the block, and its body."""
        run = self.run
        if isinstance(run, ListRun):
            return run.packed(self.first, self.stop, keeps_keys=keeps_keys)
        rows = _rows_of(run).part(self.first, self.stop)
        return (rows if keeps_keys else replace(rows, keys=None)).packed()

    def entries(self) -> Iterator[tuple[int, bytes, bytes | None, Headers | None, Run, int]]:
        """Return the number, event, key and headers of each event, and the run and the index it has there."""
        run, first, stop = self.run, self.first, self.stop
        headers: Iterable[Headers | None]
        if isinstance(run, ListRun):
            events, keys = run.events[first:stop], run.keys[first:stop]
            headers = map(run.headers.get, range(first, stop))
        else:
            rows = _rows_of(run).part(first, stop)
            events = rows.events.to_pylist()
            keys = [None] * len(events) if rows.keys is None else rows.keys.to_pylist()
            headers = repeat(None) if rows.headers is None else rows.headers.to_pylist()
        numbers = run.numbers[first:stop] or range(self.last_number - len(events) + 1, self.last_number + 1)
        return zip(numbers, events, keys, headers, repeat(run), range(first, stop), strict=False)


def plan_blocks(run: Run) -> list[BlockPlan]:
    """Cut a run into plans whose events fit into a block."""
    if isinstance(run, ListRun):
        if run.size <= _BLOCK_SIZE:
            return [BlockPlan(run, 0, len(run.events))]
        cuts = cut_points(np.cumsum(run.sizes()), size=_BLOCK_SIZE)
    else:
        cuts = _rows_of(run).block_cuts(_BLOCK_SIZE)
    return [BlockPlan(run, first, stop) for first, stop in pairwise(cuts)]


def _rows_of(run: Run) -> EventRows:
    assert isinstance(run, ArrayRun)
    assert run.rows is not None, "a run keeps its rows until it is done"
    return run.rows
