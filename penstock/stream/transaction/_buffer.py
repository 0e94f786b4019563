"""What a transaction holds in memory: events, one by one or as arrays, until they are put into blocks.

However they came, they leave as arrays, one for each place that they go to, so nothing here is done event by event but
what came so. A few events that came one by one leave as they are.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.stream.format import BLOCK_HEADER_SIZE, KEYS, LENGTH_SIZE, WORDS_SIZE, headers_of_list, pack_key_list
from penstock.stream.write import EventRows, array_lengths, concat_rows, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from penstock.ports import Bytes
    from penstock.stream.format import Attributes, Headers
    from penstock.stream.write import EventOutputStream

__all__ = ["SPILL_SIZE_MAX", "Contents", "EventsAtPlace", "TransactionBuffer"]

SPILL_SIZE_MAX: Final = 3 << 19
"""Bytes of a block in a log of the transaction: a batch of 10,000 events of 100 bytes, as Spark sends it, is one."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into one block; ``outputs`` are the open events among it, with their offsets in the block."""

    count: int
    columns: int
    body: list[Bytes]
    outputs: list[tuple[EventOutputStream, int]]


@dataclass(frozen=True, slots=True)
class EventsAtPlace:
    """Events of one key range, in order; ``outputs`` are the open events among them, with their index."""

    rows: EventRows
    outputs: list[tuple[int, EventOutputStream]]

    def in_one(self) -> Contents:
        """Return all events as the contents of one block."""
        return self._contents(0, len(self.rows))

    def blocks(self, size: int) -> Iterator[Contents]:
        """Return the events as the contents of blocks of at most ``size`` bytes, or of one event."""
        for first, last in pairwise(self.rows.block_cuts(size)):
            yield self._contents(first, last)

    def _contents(self, first: int, last: int) -> Contents:
        part = self.rows.part(first, last)
        lengths = array_lengths(part.events)
        outputs = [
            (output, BLOCK_HEADER_SIZE + int(lengths[: index - first].sum()) + LENGTH_SIZE * (index - first))
            for index, output in self.outputs
            if first <= index < last
        ]
        return Contents(last - first, *part.packed(), outputs)


_FEW_EVENTS: Final = 64  # which are packed one by one more quickly than as arrays
_EVENT_MEMORY: Final = 128  # of the objects for one event, besides its bytes
_BATCH_MEMORY: Final = 2048  # the same of a batch


class TransactionBuffer:
    """The events of a transaction that are still in memory, in order, each with its position in the key space."""

    def __init__(self) -> None:
        self.size = 0  # about the size of the blocks that they will fill
        self.memory = 0  # about what they take here: small events take much more than their bytes
        self._count = 0
        self._events: list[bytes] = []  # the last ones, which were added one by one
        self._keys: list[bytes | None] = []
        self._headers: list[Headers | None] = []
        self._positions: list[float] = []
        self._rows: list[EventRows] = []
        self._places: list[npt.NDArray[np.float64]] = []
        self._outputs: list[tuple[int, EventOutputStream]] = []

    def __len__(self) -> int:
        return self._count

    def add(self, event: bytes, attributes: Attributes, position: float, output: EventOutputStream | None) -> None:
        """Add one event; ``output`` gets its pointer when the transaction commits."""
        if output is not None:
            self._outputs.append((self._count, output))
        self._events.append(event)
        self._keys.append(attributes.key)
        self._headers.append(attributes.headers)
        self._positions.append(position)
        self._count += 1
        size = len(event) + WORDS_SIZE + attributes.size
        self.size += size
        self.memory += size + _EVENT_MEMORY

    def add_rows(self, rows: EventRows, positions: npt.NDArray[np.float64]) -> None:
        """Add a batch of events."""
        self._close_run()
        self._rows.append(rows)
        self._places.append(positions)
        self._count += len(rows)
        size = int(rows.sizes().sum())
        self.size += size
        self.memory += size + _BATCH_MEMORY

    def _close_run(self) -> None:
        if self._events:
            keys = None if self._keys.count(None) == len(self._keys) else pa.array(self._keys, pa.binary())
            headers = headers_of_list(self._headers) if any(self._headers) else None
            self._rows.append(EventRows(pa.array(self._events, pa.binary()), keys, headers))
            self._places.append(np.array(self._positions))
            self._events, self._keys, self._headers, self._positions = [], [], [], []

    def contents(self, lows: Sequence[float], *, keeps_keys: bool) -> dict[int, Contents]:
        """Return the events as the contents of one block for each of some ranges, as :meth:`by_place` divides them."""
        if self._rows or len(self._events) > _FEW_EVENTS or any(self._headers):
            by_place = self.by_place(lows, keeps_keys=keeps_keys)
            return {place: events.in_one() for place, events in by_place.items()}
        chosen: dict[int, list[int]] = {}
        for index, position in enumerate(self._positions):
            chosen.setdefault(bisect_right(lows, position) - 1, []).append(index)
        return {place: self._few(chosen[place], keeps_keys=keeps_keys) for place in sorted(chosen)}

    def _few(self, chosen: Sequence[int], *, keeps_keys: bool) -> Contents:
        """Return a few events as the contents of a block: to make arrays of them would take longer than all of it."""
        events, keys = [self._events[index] for index in chosen], [self._keys[index] for index in chosen]
        words = struct.pack(f">{len(events)}I", *map(len, events))
        stored = pack_key_list(keys) if keeps_keys and keys.count(None) < len(keys) else []
        starts = dict(zip(chosen, accumulate(map(len, events), initial=BLOCK_HEADER_SIZE), strict=False))
        outputs = [
            (output, starts[index] + LENGTH_SIZE * chosen.index(index))
            for index, output in self._outputs
            if index in starts
        ]
        return Contents(len(events), KEYS if stored else 0, [words, b"".join(events), *stored], outputs)

    def by_place(self, lows: Sequence[float], *, keeps_keys: bool) -> dict[int, EventsAtPlace]:
        """Return the events by which of some ranges has their key; ``lows`` are where those begin, in order.

        The keys themselves are left out unless the stream keeps them.
        """
        self._close_run()
        if not self._rows:
            return {}
        rows = concat_rows(self._rows)
        if not keeps_keys:
            rows = EventRows(rows.events, None, rows.headers)
        which = np.searchsorted(lows, np.concatenate(self._places), side="right") - 1
        return {
            place: EventsAtPlace(
                part,
                [(int(np.searchsorted(chosen, at)), output) for at, output in self._outputs if which[at] == place],
            )
            for place, chosen, part in split(rows, which)
        }
