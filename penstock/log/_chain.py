"""The chain: the plogs of a log, the offsets at which they begin, their sizes, and the choice of those to merge.

Offsets in a log count from its very first byte and never change, also when its beginning is truncated away. All plogs
of a chain are sealed and of known length, except the active one, whose length the plog storage knows. Plogs are small
at first, so that ten thousand idle logs do not fill a disk.

Commits and large events leave many small plogs, which are merged. They are classed by size. A plog is merged when it
has enough neighbours of its class or a lower one, so that the merged plog is of a higher class. Thus a byte is copied a
few times at most, however many commits there are. A few plogs of each class remain, and the plogs that are not small.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from penstock.errors import BadArgument
from penstock.log._plog_list import PlogList
from penstock.plog import PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator, Sequence

    from penstock.model import PlogId

__all__ = ["RUN_MIN", "SMALL_SIZE_MAX", "LogChain", "PackedPlogs", "PlogRange", "PlogSizes", "PlogStarts", "find_run"]

_GROWTH: Final = 4
_SNAPSHOT_SHARE: Final = 4  # the size of a new metadata plog, as a multiple of its first records
RUN_MIN: Final = 8  # merging fewer is not worth its cost
SMALL_SIZE_MAX: Final = 256 << 10  # above this, a file's overhead is small in proportion to its content
_CLASSES: Final = (
    (0, SMALL_SIZE_MAX >> 6),
    (SMALL_SIZE_MAX >> 6, SMALL_SIZE_MAX >> 3),
    (SMALL_SIZE_MAX >> 3, SMALL_SIZE_MAX),
)


@dataclass(frozen=True, slots=True)
class PlogSizes:
    """The first plog of a log has ``first`` bytes, each later one four times as many, up to ``largest``.

    The next plog is allocated ahead, in the background; ``ahead`` is False for logs that mostly need no next plog.
    """

    first: int = 64 << 10
    largest: int = PLOG_SIZE_DEFAULT
    ahead: bool = True

    def __post_init__(self) -> None:
        whole = self.first == int(self.first) and self.largest == int(self.largest)
        if not whole or not 0 < self.first <= self.largest <= PLOG_SIZE_MAX:
            raise BadArgument(
                f"invalid plog sizes from {self.first} to {self.largest}: use 0 < first <= largest <= {PLOG_SIZE_MAX:,}"
            )

    def after(self, size: int) -> int:
        """Return the size of the plog that follows one of ``size``."""
        return max(self.first, min(size * _GROWTH, self.largest))

    def for_metadata(self, snapshot_size: int) -> int:
        """Return the size of a metadata plog: large enough that switches stay rare for any amount of metadata."""
        return max(self.first, min(snapshot_size * _SNAPSHOT_SHARE, PLOG_SIZE_MAX))


@dataclass(frozen=True, slots=True)
class PlogRange:
    """A part of one plog; ``label`` is the label with which the plog was spliced into the log."""

    plog_id: PlogId
    offset: int
    size: int
    label: bytes = b""

    def steps(self, size: int) -> list[PlogRange]:
        """Return it in parts of at most ``size`` bytes."""
        if self.size <= size:
            return [self]
        end = self.offset + self.size
        return [
            PlogRange(self.plog_id, offset, min(size, end - offset), self.label)
            for offset in range(self.offset, end, size)
        ]


class PackedPlogs(NamedTuple):
    """Sealed plogs: clusters and groups, and of each plog the number of its group, its uid and its length.

    These have 4, 16 and 8 bytes, the numbers little-endian. The labels are by the place of their plogs.
    """

    groups: list[tuple[str, str]]
    group_of: bytes
    uids: bytes
    lengths: bytes
    labels: dict[int, bytes]


class LogChain:
    """The plogs of one log."""

    __slots__ = ("_ends", "_labels", "_removed", "_sealed", "active", "next", "start")

    def __init__(self, *, active: PlogId, next_id: PlogId, start: int = 0) -> None:
        self.active = active
        self.next = next_id
        self.start = start  # the offset of the first plog that is left
        self._sealed = PlogList()
        self._ends: list[int] = []
        self._removed = 0
        self._labels: dict[PlogId, bytes] = {}  # of plogs that were spliced in with a label

    @property
    def active_start(self) -> int:
        """The offset at which the active plog begins."""
        return self._ends[-1] if self._ends else self.start

    @property
    def sealed(self) -> list[tuple[PlogId, int]]:
        """The sealed plogs and their lengths."""
        return [(plog_id, self._length(index)) for index, plog_id in enumerate(self._sealed)]

    @property
    def last_sealed(self) -> tuple[PlogId, int] | None:
        """The plog before the active one and its length; None if there is none."""
        return (self._sealed[-1], self._length(len(self._sealed) - 1)) if self._sealed else None

    @property
    def labels(self) -> dict[int, bytes]:
        """The labels of the sealed plogs that have one, by their index in :attr:`sealed`."""
        return {self._place(plog_id): label for plog_id, label in self._labels.items()}

    def add_sealed(self, plog_id: PlogId, length: int, label: bytes = b"") -> None:
        """Add a sealed plog after the other sealed ones."""
        if label:
            self._labels[plog_id] = label
        self._sealed.append(plog_id)
        self._ends.append(self.active_start + length)

    def add_packed(self, packed: PackedPlogs) -> None:
        """Add many sealed plogs; ``ValueError`` if its parts do not fit together."""
        lengths, first, start = np.frombuffer(packed.lengths, "<u8"), len(self._sealed), self.active_start
        if len(packed.uids) != 2 * len(packed.lengths):
            raise ValueError(f"{len(packed.uids)} bytes of plog uids, and {len(packed.lengths)} bytes of lengths")
        if not all(0 <= place < len(lengths) for place in packed.labels):
            raise ValueError("a label of a plog that is not there")
        self._sealed.extend(packed.groups, packed.group_of, packed.uids)
        self._ends += (np.cumsum(lengths) + np.uint64(start)).tolist()
        for place, label in packed.labels.items():
            self._labels[self._sealed[first + place]] = label

    def packed(self, *, most: int) -> Iterator[PackedPlogs]:
        """Return the sealed plogs, at most so many together, in the form that :meth:`add_packed` takes."""
        lengths, labels = np.diff(np.array([self.start, *self._ends], "<u8")).astype("<u8"), self.labels
        for first, groups, group_of, uids in self._sealed.parts(most=most):
            stop = first + len(uids) // 16
            own = {place - first: labels[place] for place in range(first, stop) if place in labels} if labels else {}
            yield PackedPlogs(groups, group_of, uids, lengths[first:stop].tobytes(), own)

    def sealed_copy(self) -> tuple[PlogList, list[int]]:
        """Return the ids of the sealed plogs, and the offsets at which they end."""
        return self._sealed.copy(), self._ends[:]

    def switch(self, length: int, *, active: PlogId, next_id: PlogId) -> None:
        """Seal the active plog at ``length`` and continue in another."""
        self.add_sealed(self.active, length)
        self.active, self.next = active, next_id

    def truncate(self, first: PlogId) -> list[PlogId]:
        """Remove the plogs before ``first`` from the log; return them."""
        count = self._place(first)
        removed = self._sealed.remove_first(count)
        if count:
            self.start = self._ends[count - 1]
        for plog_id in removed:
            self._labels.pop(plog_id, None)
        del self._ends[:count]
        self._removed += count
        return removed

    def replace(self, first: PlogId, count: int, new: PlogId, length: int) -> list[PlogId]:
        """Replace ``count`` sealed plogs, from ``first`` on, by one of the same length; return those replaced.

        ``KeyError`` if they are not in the log, or their total length is another.
        """
        span = self.span(first, count)
        if span is None or span[1] - span[0] != length:
            raise KeyError(first)
        place = self._place(first)
        removed = self._sealed.replace(place, count, new)
        del self._ends[place : place + count - 1]
        for plog_id in removed:
            self._labels.pop(plog_id, None)
        return removed

    def span(self, first: PlogId, count: int) -> tuple[int, int] | None:
        """Return the start and the end of ``count`` sealed plogs from ``first`` on; None if they are not in the log."""
        place = self._sealed.find(first)
        if place is None or not 0 < count <= len(self._sealed) - place:
            return None
        return self._ends[place - 1] if place else self.start, self._ends[place + count - 1]

    def __contains__(self, plog_id: PlogId) -> bool:
        """Return whether the plog is part of the log."""
        return plog_id == self.active or self._sealed.find(plog_id) is not None

    def among(self, plogs: Collection[PlogId]) -> set[PlogId]:
        """Return those of some plogs that are part of the log, or its next one."""
        return self._sealed.among(plogs) | ({self.active, self.next} & set(plogs))

    def start_of(self, plog_id: PlogId) -> int:
        """Return the offset at which the plog begins; ``KeyError`` if it is not part of the log."""
        place = self._place(plog_id)
        return self._ends[place - 1] if place else self.start

    @property
    def numbers(self) -> range:
        """The numbers of the plogs, counted from the very first; the last is the active one's."""
        return range(self._removed, self._removed + len(self._sealed) + 1)

    def start_of_number(self, number: int) -> int:
        """Return the offset at which the plog of this number begins; the log's start if it was truncated away."""
        place = max(number - self._removed, 0)
        return self._ends[place - 1] if place else self.start

    def end_of(self, plog_id: PlogId) -> int:
        """Return the offset at which a sealed plog ends; ``KeyError`` if it is not part of the log."""
        return self._ends[self._place(plog_id)]

    def ranges(self, offset: int, end: int) -> list[PlogRange]:
        """Return the parts of plogs that hold the bytes from ``offset`` to ``end`` of the log."""
        ranges = []
        place = bisect_right(self._ends, offset)
        while offset < end:
            sealed = place < len(self._sealed)
            plog_id, plog_end = (self._sealed[place], self._ends[place]) if sealed else (self.active, end)
            plog_start = self._ends[place - 1] if place else self.start
            size = min(end, plog_end) - offset
            if size:
                label = self._labels.get(plog_id, b"")
                ranges.append(PlogRange(plog_id, offset - plog_start, size, label))
            offset, place = offset + size, place + 1
        return ranges

    def _place(self, plog_id: PlogId) -> int:
        place = len(self._sealed) if plog_id == self.active else self._sealed.find(plog_id)
        if place is None:
            raise KeyError(plog_id)
        return place

    def _length(self, index: int) -> int:
        return self._ends[index] - (self._ends[index - 1] if index else self.start)


class PlogStarts:
    """The offsets at which the plogs of a log begin, in order; plogs added to the log later are not included."""

    __slots__ = ("_chain", "_lock", "_numbers")

    def __init__(self, chain: LogChain, lock: threading.Lock) -> None:
        self._chain, self._lock = chain, lock
        self._numbers = chain.numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> int:
        with self._lock:
            return self._chain.start_of_number(self._numbers[index])


def find_run(
    lengths: Sequence[int], starts: Sequence[int], *, largest: int, group: Callable[[int], int] | None = None
) -> range | None:
    """Return the neighbours to merge next, those of the smallest class first; None if every class has too few.

    ``starts`` are the plogs' offsets. The lengths to merge add up to at most ``largest``, and are of one group.
    """
    for least, most in _CLASSES:
        for run in _small_runs(lengths, most):
            for part in _cut(run, lengths, starts, largest=largest, group=group):
                if sum(lengths[place] >= least for place in part) >= RUN_MIN:
                    return part
    return None


def _small_runs(lengths: Sequence[int], limit: int) -> Iterator[range]:
    """Return the longest runs of neighbours up to the limit, if they are long enough."""
    first = 0
    for place in range(len(lengths) + 1):
        if place == len(lengths) or lengths[place] > limit:
            if place - first >= RUN_MIN:
                yield range(first, place)
            first = place + 1


def _cut(
    run: range, lengths: Sequence[int], starts: Sequence[int], *, largest: int, group: Callable[[int], int] | None
) -> Iterator[range]:
    """Cut a run into parts of at most ``largest`` bytes, each of one group."""
    first, size, kind = run.start, 0, None
    for place in run:
        other = None if group is None or not lengths[place] else group(starts[place])
        is_apart = other is not None and kind is not None and other != kind
        if is_apart or size + lengths[place] > largest:
            yield range(first, place)
            first, size = place, 0
        size, kind = size + lengths[place], kind if other is None else other
    yield range(first, run.stop)
