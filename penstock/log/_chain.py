"""The chain: of which plogs a log consists, and which of its bytes each holds.

Offsets in a log count from its very first byte and never change, also when its beginning is truncated away.
All plogs of a chain are sealed and of known length but the active one, whose length the plog itself knows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from penstock.model import PlogId

__all__ = ["LogChain", "PlogRange", "PlogStarts"]


@dataclass(frozen=True, slots=True)
class PlogRange:
    """A part of one plog; ``label`` is what the plog was spliced into the log with."""

    plog_id: PlogId
    offset: int
    size: int
    label: bytes = b""


class LogChain:
    """The plogs of one log."""

    __slots__ = ("_ends", "_index", "_labels", "_removed", "_sealed", "active", "next", "start")

    def __init__(self, *, active: PlogId, next_id: PlogId, start: int = 0) -> None:
        self.active = active
        self.next = next_id
        self.start = start  # where the first plog that is left begins
        self._sealed: list[PlogId] = []
        self._ends: list[int] = []
        self._index: dict[PlogId, int] = {}  # counts from the first plog ever, so a truncation need not touch it
        self._removed = 0
        self._labels: dict[PlogId, bytes] = {}  # of plogs that were taken over with one

    @property
    def active_start(self) -> int:
        """Where the active plog begins."""
        return self._ends[-1] if self._ends else self.start

    @property
    def sealed(self) -> list[tuple[PlogId, int]]:
        """The sealed plogs and their lengths."""
        return [(plog_id, self._length(index)) for index, plog_id in enumerate(self._sealed)]

    @property
    def last_sealed(self) -> tuple[PlogId, int] | None:
        """The plog before the active one and its length, if there is one."""
        return (self._sealed[-1], self._length(len(self._sealed) - 1)) if self._sealed else None

    @property
    def labels(self) -> dict[int, bytes]:
        """The labels of sealed plogs that have one, by their place among the sealed ones."""
        return {self._place(plog_id): label for plog_id, label in self._labels.items()}

    def add_sealed(self, plog_id: PlogId, length: int, label: bytes = b"") -> None:
        """Put a sealed plog behind the sealed ones."""
        if label:
            self._labels[plog_id] = label
        self._index[plog_id] = self._removed + len(self._sealed)
        self._sealed.append(plog_id)
        self._ends.append(self.active_start + length)

    def switch(self, length: int, *, active: PlogId, next_id: PlogId) -> None:
        """Seal the active plog at ``length`` and go on in another."""
        self.add_sealed(self.active, length)
        self.active, self.next = active, next_id

    def truncate(self, first: PlogId) -> list[PlogId]:
        """Let the log begin with ``first``; return the plogs that are no longer part of it."""
        count = self._place(first)
        removed = self._sealed[:count]
        if count:
            self.start = self._ends[count - 1]
        for plog_id in removed:
            del self._index[plog_id]
            self._labels.pop(plog_id, None)
        del self._sealed[:count], self._ends[:count]
        self._removed += count
        return removed

    def replace(self, first: PlogId, count: int, new: PlogId, length: int) -> list[PlogId]:
        """Let one plog be in the place of ``count`` sealed ones from ``first`` on; return those.

        ``KeyError`` if they are not there, or have another length together.
        """
        span = self.span(first, count)
        if span is None or span[1] - span[0] != length:
            raise KeyError(first)
        place = self._place(first)
        removed = self._sealed[place : place + count]
        self._sealed[place : place + count] = [new]
        del self._ends[place : place + count - 1]
        for plog_id in removed:
            self._labels.pop(plog_id, None)
        self._index = {plog_id: self._removed + index for index, plog_id in enumerate(self._sealed)}
        return removed

    def span(self, first: PlogId, count: int) -> tuple[int, int] | None:
        """Return where ``count`` sealed plogs from ``first`` on begin and end; None if they are not there."""
        place = self._index.get(first, -1) - self._removed
        if place < 0 or not 0 < count <= len(self._sealed) - place:
            return None
        return self._ends[place - 1] if place else self.start, self._ends[place + count - 1]

    def __contains__(self, plog_id: PlogId) -> bool:
        """Whether the plog is part of the log."""
        return plog_id == self.active or plog_id in self._index

    def start_of(self, plog_id: PlogId) -> int:
        """Return where the plog begins; ``KeyError`` if it is not part of the log."""
        place = self._place(plog_id)
        return self._ends[place - 1] if place else self.start

    @property
    def numbers(self) -> range:
        """The numbers of the plogs, counted from the first one ever; the last is the active one's."""
        return range(self._removed, self._removed + len(self._sealed) + 1)

    def start_of_number(self, number: int) -> int:
        """Return where the plog of this number begins; of one that was truncated away: where the log begins now."""
        place = max(number - self._removed, 0)
        return self._ends[place - 1] if place else self.start

    def end_of(self, plog_id: PlogId) -> int:
        """Return where a sealed plog ends; ``KeyError`` if it is not part of the log."""
        return self._ends[self._place(plog_id)]

    def ranges(self, offset: int, end: int) -> list[PlogRange]:
        """Return which parts of which plogs the bytes from ``offset`` to ``end`` of the log are."""
        found = []
        place = bisect_right(self._ends, offset)
        while offset < end:
            sealed = place < len(self._sealed)
            plog_id, plog_end = (self._sealed[place], self._ends[place]) if sealed else (self.active, end)
            plog_start = self._ends[place - 1] if place else self.start
            size = min(end, plog_end) - offset
            if size:
                label = self._labels.get(plog_id, b"")
                found.append(PlogRange(plog_id, offset - plog_start, size, label))
            offset, place = offset + size, place + 1
        return found

    def _place(self, plog_id: PlogId) -> int:
        return len(self._sealed) if plog_id == self.active else self._index[plog_id] - self._removed

    def _length(self, index: int) -> int:
        return self._ends[index] - (self._ends[index - 1] if index else self.start)


class PlogStarts:
    """Where each plog of a log begins, in order; the log may go on meanwhile, the plogs stay those it had."""

    __slots__ = ("_chain", "_lock", "_numbers")

    def __init__(self, chain: LogChain, lock: threading.Lock) -> None:
        self._chain, self._lock = chain, lock
        self._numbers = chain.numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> int:
        with self._lock:
            return self._chain.start_of_number(self._numbers[index])
