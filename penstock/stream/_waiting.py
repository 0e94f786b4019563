"""What a transaction holds in memory: events, one by one or as arrays, until they are put into blocks.

However they came, they leave as arrays, one for each place that they go to, so nothing here is done event by event but
what came so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.stream._batch import array_data, array_ends, array_lengths, block_marks, split
from penstock.stream._block import BLOCK_HEADER_SIZE, LENGTH_SIZE, pack_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from penstock.ports import Bytes
    from penstock.stream._large_write import EventOutputStream

__all__ = ["Contents", "EventsAtPlace", "Waiting"]


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into one block, and who wants to know where their event is: so far behind the block's beginning."""

    count: int
    words: bytes
    data: Bytes
    outputs: list[tuple[EventOutputStream, int]]


@dataclass(frozen=True, slots=True)
class EventsAtPlace:
    """Events that go to one place, in order; ``outputs`` with which of them each is."""

    array: pa.BinaryArray
    outputs: list[tuple[int, EventOutputStream]]

    def in_one(self) -> Contents:
        """Return all of them for one block."""
        return self._contents(0, len(self.array))

    def blocks(self, size: int) -> Iterator[Contents]:
        """Return them for blocks of at most ``size`` bytes, or of one event."""
        for first, last in pairwise(block_marks(array_ends(self.array), size=size)):
            yield self._contents(first, last)

    def _contents(self, first: int, last: int) -> Contents:
        part = self.array[first:last]
        lengths = array_lengths(part)
        outputs = [
            (output, BLOCK_HEADER_SIZE + int(lengths[: index - first].sum()) + LENGTH_SIZE * (index - first))
            for index, output in self.outputs
            if first <= index < last
        ]
        return Contents(last - first, pack_lengths(lengths), array_data(part), outputs)


class Waiting:
    """Events that wait, in the order in which they came, each with its place in the key space."""

    def __init__(self) -> None:
        self.size = 0  # with the length words
        self._count = 0
        self._events: list[bytes] = []  # those that came last, one by one
        self._positions: list[float] = []
        self._arrays: list[pa.BinaryArray] = []
        self._places: list[npt.NDArray[np.float64]] = []
        self._outputs: list[tuple[int, EventOutputStream]] = []

    def __len__(self) -> int:
        return self._count

    def add(self, event: bytes, position: float, output: EventOutputStream | None) -> None:
        """Add one event, and who wants to know where it will be."""
        if output is not None:
            self._outputs.append((self._count, output))
        self._events.append(event)
        self._positions.append(position)
        self._count += 1
        self.size += len(event) + LENGTH_SIZE

    def add_array(self, array: pa.BinaryArray, positions: npt.NDArray[np.float64]) -> None:
        """Add many events."""
        self._close_run()
        self._arrays.append(array)
        self._places.append(positions)
        self._count += len(array)
        self.size += len(array_data(array)) + LENGTH_SIZE * len(array)

    def _close_run(self) -> None:
        if self._events:
            self._arrays.append(pa.array(self._events, pa.binary()))
            self._places.append(np.array(self._positions))
            self._events, self._positions = [], []

    def by_place(self, lows: Sequence[float]) -> dict[int, EventsAtPlace]:
        """Return the events by which of some ranges has their key; ``lows`` are where those begin, in order."""
        self._close_run()
        if not self._arrays:
            return {}
        array = self._arrays[0] if len(self._arrays) == 1 else pa.concat_arrays(self._arrays)
        which = np.searchsorted(lows, np.concatenate(self._places), side="right") - 1
        return {
            place: EventsAtPlace(
                part,
                [(int(np.searchsorted(chosen, at)), output) for at, output in self._outputs if which[at] == place],
            )
            for place, chosen, part in split(array, which)
        }
