"""The state of all plogs, as the journal up to some number leaves it; without any request.

The *image* of a plog is the file that it would be in a folder: a head, then its blocks. An extent, a :class:`BlockRun`,
is a run of complete blocks of the image, and the place of their bytes in an object. Extents follow each other without a
gap, from the first block to the last. What compaction moves is not in the journal: until the next checkpoint, the
bytes lie in both places.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from penstock.errors import BadArgument, JournalCorrupt
from penstock.model import PlogId
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE
from penstock.plog._replica import Replica
from penstock.plog.objects._records import (
    AppendRecord,
    CreateRecord,
    DeleteRecord,
    FenceRecord,
    Record,
    SealRecord,
    blocks_size,
    journal_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BlockRun", "Home", "PlogState", "StoreState", "folder_of", "journal_needed"]


class BlockRun(NamedTuple):
    """A run of complete blocks: the object with its bytes, the places there and in the image, and its size."""

    source: int | str  # the number of a journal object, or the name of another one
    position: int
    start: int
    size: int

    @property
    def name(self) -> str:
        """The name of the object."""
        return journal_name(self.source) if isinstance(self.source, int) else self.source


class Home(NamedTuple):
    """A plog that has an object of its own, which holds all about it."""

    plog_id: PlogId
    name: str
    length: int
    size: int


def folder_of(plog_id: PlogId, birth: bytes) -> str:
    """Return the prefix of the objects of a plog: they are of this plog, not of a later one with the same id."""
    return f"plogs/{plog_id.uid}.{birth.hex()}/"


class PlogState:
    """A plog: where its blocks begin and lie, and whether it is sealed."""

    __slots__ = (
        "birth", "epoch", "extents", "home", "length", "packed", "plog_id", "sealed", "size", "starts", "written",
    )  # fmt: skip

    def __init__(self, plog_id: PlogId, *, size: int, birth: bytes, epoch: int) -> None:
        self.plog_id: Final = plog_id
        self.size: Final = size
        self.birth: Final = birth
        self.epoch: Final = epoch  # in which it was created
        self.sealed = False
        self.length = 0  # less than written if the seal cuts off the rest
        self.written = 0  # the end of the last block
        self.starts = array("I")
        self.extents: list[BlockRun] = []
        self.home: str | None = None
        self.packed: bytes | None = None  # its stored form, until it changes

    @property
    def folder(self) -> str:
        """The prefix of the names of its objects."""
        return folder_of(self.plog_id, self.birth)

    def place(self) -> int:
        """Return the position in the image at which the next block begins."""
        return HEAD_SIZE + len(self.starts) * PLOG_BLOCK_HEADER_SIZE + self.written

    def append(self, sizes: bytes, source: int | str, position: int) -> None:
        """Add blocks that lie at ``position`` of an object."""
        self.packed = None
        start = self.place()
        bodies = np.frombuffer(sizes, "<u4").tolist()
        self.starts.extend(accumulate(bodies[:-1], initial=self.written))
        self.written += sum(bodies)
        self.length = self.written
        self.add(BlockRun(source, position, start, self.place() - start))

    def add(self, extent: BlockRun) -> None:
        """Add an extent, as a part of the one before if it continues it."""
        last = self.extents[-1] if self.extents else None
        if last is not None and last.source == extent.source and last.position + last.size == extent.position:
            self.extents[-1] = BlockRun(last.source, last.position, last.start, last.size + extent.size)
        else:
            self.extents.append(extent)

    def seal(self, length: int) -> None:
        """Take no more appends; what lies behind ``length`` is not read any more."""
        self.sealed, self.length, self.packed = True, length, None

    def block(self, index: int) -> tuple[int, int]:
        """Return the positions in the image at which a block begins and ends, its header included."""
        begin = HEAD_SIZE + index * PLOG_BLOCK_HEADER_SIZE + self.starts[index]
        end = self.starts[index + 1] if index + 1 < len(self.starts) else self.written
        return begin, HEAD_SIZE + (index + 1) * PLOG_BLOCK_HEADER_SIZE + end

    def place_of(self, position: int) -> BlockRun:
        """Return the extent that holds the block at ``position`` of the image."""
        return self.extents[bisect_right(self.extents, position, key=_start_of) - 1]

    def replica(self) -> Replica:
        """Return the rules for changing this plog: all that is in the journal is acknowledged."""
        replica = Replica(self.plog_id, size=self.size, birth=self.birth)
        replica.starts = self.starts[:]
        replica.verified = bytearray(len(self.starts))
        replica.written = replica.acked = self.written
        if self.sealed:
            replica.seal(self.length)
        return replica

    def drop_cut_off(self) -> None:
        """Forget the blocks behind the length of a sealed plog, of which no byte is ever read."""
        count = int(np.searchsorted(np.frombuffer(self.starts, np.uintc), self.length)) if self.starts else 0
        if count < len(self.starts):
            end = self.block(count - 1)[1] if count else HEAD_SIZE
            self.packed = None
            self.written = self.starts[count]
            self.starts = self.starts[:count]
            kept = [extent for extent in self.extents if extent.start < end]
            if kept:
                last = kept[-1]
                kept[-1] = last._replace(size=min(last.size, end - last.start))
            self.extents = kept

    def index_at(self, position: int) -> int:
        """Return the number of the block that begins at ``position`` of the image."""
        return bisect_left(range(len(self.starts)), position, key=lambda index: self.block(index)[0])

    def move(self, moved: BlockRun) -> None:
        """Replace the extents of which ``moved`` holds the same blocks."""
        self.packed = None
        end = moved.start + moved.size
        before = [extent for extent in self.extents if extent.start < moved.start]
        behind = [extent for extent in self.extents if extent.start >= end]
        self.extents = [*before, moved, *behind]


def _start_of(extent: BlockRun) -> int:
    return extent.start


class StoreState:
    """All plogs, and what is left of those that were deleted."""

    def __init__(self) -> None:
        self.plogs: dict[bytes, PlogState] = {}
        self.homes: dict[bytes, Home] = {}
        self.deleted: dict[str, tuple[str, ...]] = {}  # the prefixes of plogs whose objects are to be deleted

    def __contains__(self, uid: bytes) -> bool:
        return uid in self.plogs or uid in self.homes

    def plog_id(self, uid: bytes) -> PlogId | None:
        """Return the complete id of the plog with this uid."""
        plog = self.plogs.get(uid) or self.homes.get(uid)
        return None if plog is None else plog.plog_id

    def apply(self, record: Record, *, number: int, epoch: int, data_start: int, where: str) -> None:
        """Apply a record of a journal object; ``JournalCorrupt`` if no owner can have written it there."""
        match record:
            case CreateRecord(cluster, group, uid, size, birth) if uid not in self:
                try:
                    plog_id = PlogId(cluster, group, uid.hex())
                except BadArgument as error:
                    raise JournalCorrupt(where, offset=None, reason=str(error)) from error
                self.plogs[uid] = PlogState(plog_id, size=size, birth=birth, epoch=epoch)
            case AppendRecord(uid, offset, sizes, position, part) if self._takes(uid, offset, sizes):
                self.plogs[uid].append(sizes, number if part is None else part,
                                       position + data_start if part is None else position)  # fmt: skip
            case SealRecord(uid, length) if uid in self.plogs and not self.plogs[uid].sealed:
                if length > self.plogs[uid].written:
                    raise JournalCorrupt(where, offset=None, reason=f"plog {uid.hex()} is sealed behind its end")
                self.plogs[uid].seal(length)
            case DeleteRecord(uid) if uid in self:
                self._delete(uid, epoch)
            case FenceRecord():
                pass
            case _:
                raise JournalCorrupt(where, offset=None, reason=f"it does not fit to what is before it: {record!r}")

    def _takes(self, uid: bytes, offset: int, sizes: bytes) -> bool:
        plog = self.plogs.get(uid)
        return (
            plog is not None
            and not plog.sealed
            and offset == plog.written
            and blocks_size(sizes)[0] <= plog.size - offset
        )

    def _delete(self, uid: bytes, epoch: int) -> None:
        plog = self.plogs.pop(uid, None)
        if plog is None:
            home = self.homes.pop(uid)
            self.deleted[home.name.rpartition("/")[0] + "/"] = (home.name,)
            return
        names = {extent.source for extent in plog.extents if isinstance(extent.source, str)}
        if names or plog.epoch != epoch:  # an owner before may have put an object and not have noted it
            self.deleted[plog.folder] = tuple(sorted(names))

    def settle(self, uid: bytes, name: str) -> None:
        """Note that a sealed plog has an object of its own."""
        plog = self.plogs.pop(uid)
        self.homes[uid] = Home(plog.plog_id, name, plog.length, plog.size)


def journal_needed(plogs: Iterable[PlogState]) -> dict[int, int]:
    """Return the journal objects in which blocks of plogs lie, and how many bytes of them."""
    needed: dict[int, int] = {}
    for plog in plogs:
        for extent in plog.extents:
            if isinstance(extent.source, int):
                needed[extent.source] = needed.get(extent.source, 0) + extent.size
    return needed
