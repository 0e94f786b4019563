"""Plogs in the files of one folder.

A small append is written as a record into the journal, where it shares one fdatasync with all other appends that
wait; it is written into the plog's own file later. A large append is written into the file alone and synced there, so
its bytes are not written twice. An append after a large one that is not acknowledged yet goes the same way. Therefore
all that comes before a record in the journal is durable, or in the journal before it.

Locks are taken in this order: a plog, then the table or the journal. No lock is held while waiting for a sync.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock import forks
from penstock.errors import BadArgument, DiskFailed, NoSuchPlog, PlogCorrupt, PlogExists, PlogSealed
from penstock.model import PlogId
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, LocatedBlocks, block_matches, pack_block_header
from penstock.plog._folder import plog_name, prepare_folder, refusal
from penstock.plog._head import (
    BIRTH_SIZE,
    STATE_POSITION,
    State,
    pack_new_head,
)
from penstock.plog._journal import Journal
from penstock.plog._journal_file import DELETE, WRITE, read_journal
from penstock.plog._open_plogs import BufferedBlock, PlogTable
from penstock.plog._raw import RawBlocks
from penstock.plog._replay import replay
from penstock.plog._replica import PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX, PlogInfo, Replica
from penstock.ports import SystemRandom, uninterrupted, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.plog._interface import PendingAppend
    from penstock.plog._journal import SyncTimes, Ticket
    from penstock.plog._open_plogs import OpenPlog
    from penstock.plog._replica import BlockSlice
    from penstock.plog._replication_use import KnownPlogs
    from penstock.ports import Bytes, Disk, File, Random

__all__ = ["DIRECT_SIZE_MIN", "JOURNAL_SIZE", "OPEN_FILES_MAX", "FilePlogs"]

JOURNAL_SIZE: Final = 8 << 20
DIRECT_SIZE_MIN: Final = 128 << 10
OPEN_FILES_MAX: Final = 256
_CLUSTER: Final = "local"
_GROUP: Final = "main"


class _DirectAppend:
    """A large append under way: durable once its own file is synced."""

    __slots__ = ("_offset", "_plog", "_plogs")

    def __init__(self, plogs: FilePlogs, plog: OpenPlog, offset: int) -> None:
        self._plogs, self._plog, self._offset = plogs, plog, offset

    def result(self) -> int:
        """Wait until it is durable; return the plog's new offset."""
        self._plogs.sync_file(self._plog, self._offset)
        return self._offset


class FilePlogs:
    """The plogs of one folder: the implementation of :class:`penstock.plog.Plogs` on any disk."""

    def __init__(self, disk: Disk, *, random: Random | None = None, journal_size: int = JOURNAL_SIZE,
                 direct_size_min: int = DIRECT_SIZE_MIN, open_files_max: int = OPEN_FILES_MAX) -> None:  # fmt: skip
        assert journal_size > 4 * direct_size_min, "a journal holds several of its largest records"
        assert journal_size < 1 << 32, "a journal's head has four bytes for where the other file's records end"
        self._disk = disk
        self._random = random or SystemRandom()
        self._direct_size_min = direct_size_min
        forks.guard(self)
        disk.lock()
        try:
            prepare_folder(disk, journal_size=journal_size)
            self._journal = self._recover()
            self._table = PlogTable(disk, self._journal, open_files_max=open_files_max)
        except BaseException:
            disk.close()
            raise

    def _recover(self) -> Journal:
        try:
            records, head = read_journal(self._disk)
            replay(self._disk, records, self._note_damage)
            journal = Journal(self._disk, head)
            journal.reset()  # even if it looks empty: the rest of a torn group must not follow a new record
        except OSError as error:
            raise refusal(self._disk.where(), error) from error
        return journal

    def _note_damage(self, uid: bytes, error: PlogCorrupt) -> None:
        """Refuse to open a folder with a plog that the journal cannot make good; one with other copies goes on."""
        raise error

    @property
    def syncs(self) -> SyncTimes:
        """The durations of the syncs that appends waited for."""
        return self._journal.syncs

    @property
    def bucket_use(self) -> None:
        """Nothing: these plogs are in a folder."""
        return

    @property
    def replication_use(self) -> None:
        """Nothing: these plogs are in a folder."""
        return

    @property
    def is_replicated(self) -> bool:
        """False: a folder holds one copy of a plog."""
        return False

    def check_running(self) -> None:
        """Raise the ``DiskFailed`` that stopped the store, if one did."""
        self._journal.check_running()

    def new_id(self) -> PlogId:
        """Return a new unique id; nothing is created."""
        return PlogId.new(cluster=_CLUSTER, group=_GROUP, random=self._random)

    @uninterrupted
    def create(self, *, size: int = PLOG_SIZE_DEFAULT, plog_id: PlogId | None = None) -> PlogId:
        """Create a plog that takes ``size`` bytes, allocated now, under a new id if none is given."""
        plog_id = plog_id or self.new_id()
        self.submit_create(plog_id, size).result()
        return plog_id

    @uninterrupted
    def create_all(self, sizes: Mapping[PlogId, int]) -> None:
        """Create plogs, each with its size; they share one sync."""
        tickets: list[Ticket] = []
        try:
            for plog_id, size in sizes.items():
                tickets.append(self.submit_create(plog_id, size))
        finally:
            for ticket in tickets:
                ticket.result()

    def submit_create(self, plog_id: PlogId, size: int) -> Ticket:
        """Create without waiting until that is durable, as :meth:`submit_seal` seals."""
        if not 0 < size <= PLOG_SIZE_MAX or size != int(size):
            raise BadArgument(f"invalid plog size {size!r}: use a whole number from 1 to {PLOG_SIZE_MAX:,}")
        with self._table.entered(plog_id) as plog:
            self._journal.check_running()
            if plog.replica is not None or plog.deletion is not None:
                raise PlogExists(plog_id)
            birth = self._random.token(BIRTH_SIZE)
            head = pack_new_head(plog_id, size=size, birth=birth)
            plog.create_file(head, allocated=HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE + size)
            ticket = self._journal.submit(plog, kind=WRITE, position=0, parts=(head,), offset=0)
            plog.replica = Replica(plog_id, size=size, birth=birth)
        return ticket

    @uninterrupted
    def append(self, plog_id: PlogId, offset: int, *data: Buffer) -> int:
        """Append ``data``, all parts as one, at the current ``offset``; return the new offset once it is durable."""
        return self.submit(plog_id, offset, *data).result()

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append without waiting; ``data`` must not change until the result is there.

        The caller is within a step that no signal interrupts, also while it waits for the result.
        """
        body: list[Bytes] = [part if type(part) is bytes else memoryview(part).cast("B") for part in data]
        size = sum(map(len, body))
        plog = self._table.enter(plog_id)
        try:
            replica = self._table.need(plog)
            if plog.fence is not None:
                raise PlogSealed(plog_id, sealed_offset=plog.fence)
            goes_direct = plog.goes_direct(size, self._direct_size_min)
            replica.check_append(offset, size)
            if self._journal.stopped is not None:
                self._journal.check_running()
            if not size:
                return plog.last or _DirectAppend(self, plog, offset)
            if goes_direct:
                plog.last = self._submit_large(plog, replica, body, size)
                return plog.last
            # A block that is written into the journal now and into the file later.
            position, joined = replica.place(), b"".join(body)
            if position + PLOG_BLOCK_HEADER_SIZE + size > plog.allocated:
                self._allocate(plog, position + PLOG_BLOCK_HEADER_SIZE + size)
            end = replica.placed(size)
            parts = (pack_block_header(replica.key, offset=offset, body=(joined,), body_size=size), joined)
            plog.buffered.append(BufferedBlock(position, parts, plog.changes + 1, end))
            plog.last = self._journal.submit(plog, kind=WRITE, position=position, parts=parts, offset=end)
            return plog.last
        finally:
            self._table.leave(plog)

    def keeps_order(self, plog_id: PlogId, size: int) -> bool:
        """Return whether an append of this size, now, goes into the journal, after all that was submitted before."""
        plog = self._table.in_use(plog_id)
        if plog is not None:  # no lock: only who appends to the plog, and asks, can make it a no
            return not plog.goes_direct(size, self._direct_size_min)
        with self._table.loaded(plog_id) as (plog, _):
            return not plog.goes_direct(size, self._direct_size_min)

    def _submit_large(self, plog: OpenPlog, replica: Replica, body: list[Bytes], size: int) -> PendingAppend:
        """Write a block into the file now; :meth:`_DirectAppend.result` syncs it."""
        position, offset = replica.place(), replica.written
        header = pack_block_header(replica.key, offset=offset, body=body, body_size=size)
        self._allocate(plog, position + PLOG_BLOCK_HEADER_SIZE + size)
        try:
            plog.flush_all()
            write_all(plog.open_file(), (header, *body), position)
            if replica.known is None:  # from now on only the file shows that the plog exists; behind the block, as
                plog.write_state(State(sealed=False, length=0))  # one that looks empty is taken to be synced
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error
        plog.unsynced_end = replica.placed(size)
        return _DirectAppend(self, plog, plog.unsynced_end)

    def _allocate(self, plog: OpenPlog, end: int) -> None:
        """Allocate the file up to ``end``, and some more: ``create`` allocated no space for many small headers."""
        if end <= plog.allocated:
            return
        try:
            plog.allocate(end + end // 16)
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error

    def sync_file(self, plog: OpenPlog, offset: int) -> None:
        """Return once the plog's own file is durable up to ``offset``."""
        with plog.sync_lock:
            replica, file = plog.replica, plog.file
            assert replica is not None
            if replica.acked >= offset or replica.sealed:
                return  # a seal waits for all appends under way, and may have cut this one off
            self._journal.check_running()
            assert file is not None, "a file with an append under way stays open"
            written = plog.unsynced_end
            try:
                if not plog.linked:
                    self._disk.sync()
                    plog.linked = True
                start = time.perf_counter()
                file.datasync()
                self.syncs.note(time.perf_counter() - start)
            except OSError as error:
                raise self._journal.stop(error, self._disk.where(plog.name)) from error
            with self._journal.acknowledging:
                plog.acknowledge(written)

    def read(self, plog_id: PlogId, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes at ``offset``; no copy where they were appended in one piece."""
        views = self.views(plog_id, offset, size)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    @uninterrupted
    def views(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        """Return ``size`` bytes at ``offset`` as they were appended, piece by piece, without a copy."""
        with self._table.loaded(plog_id) as (plog, replica):
            return self._slices_read(plog, replica, replica.slices(offset, size))

    @uninterrupted
    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return every append that holds any of ``size`` bytes at ``offset``, complete, with its own offset."""
        with self._table.loaded(plog_id) as (plog, replica):
            offset, size = replica.widen(offset, size)
            views = self._slices_read(plog, replica, replica.slices(offset, size))
        starts = accumulate(map(len, views), initial=offset)
        return list(zip(starts, views, strict=False))

    @uninterrupted
    def locate(self, plog_id: PlogId, offset: int, size: int) -> LocatedBlocks:
        """Return the places of those appends, so that another process can read them from the file."""
        with self._table.loaded(plog_id) as (plog, replica):
            offset, size = replica.widen(offset, size)
            slices = list(replica.slices(offset, size))
            self._flushed(plog)
            offsets = np.array([*(replica.starts[part.index] for part in slices), offset + size], "<u4")
            return LocatedBlocks(
                self._disk.where(plog.name), replica.key, slices[0].index if slices else 0, offsets.tobytes()
            )

    @uninterrupted
    def cut(self, plog_ids: Sequence[PlogId]) -> dict[PlogId, PlogInfo]:
        """Return the state of plogs, all at one moment, without those that are damaged; callers take turns."""
        return self._table.cut(plog_ids)

    @uninterrupted
    def raw(self, plog_id: PlogId, offset: int, end: int, *, limit: int) -> RawBlocks:
        """Return complete blocks up to ``end``, or at least one if they have more than ``limit`` bytes, unchecked."""
        with self._table.loaded(plog_id) as (plog, replica):
            start, stop, last = replica.raw_span(offset, end, limit=limit)
            view = self._flushed(plog).view(start, stop - start)
            return RawBlocks(replica.key, replica.size, offset, last, view)

    def key(self, plog_id: PlogId) -> bytes:
        """Return the uid and the birth of a plog by the head of its file, without reading the rest."""
        return self._table.key(plog_id)

    def _slices_read(self, plog: OpenPlog, replica: Replica, slices: Iterator[BlockSlice]) -> list[memoryview]:
        file, views = self._flushed(plog), []
        for part in slices:
            if not replica.verified[part.index]:
                self._verify(plog, replica, file, index=part.index, position=part.position)
            views.append(file.view(part.start, part.end - part.start))
        return views

    def _flushed(self, plog: OpenPlog) -> File:
        """Return the plog's file, after all acknowledged appends are written into it."""
        try:
            plog.flush()
            return plog.open_file()
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error

    def _verify(self, plog: OpenPlog, replica: Replica, file: File, *, index: int, position: int) -> None:
        if not block_matches(replica.key, file.view(0, file.size()), position):
            path = self._disk.where(plog.name)
            raise PlogCorrupt(path, offset=position, reason=f"block {index} fails its checksum")
        replica.verified[index] = True

    @uninterrupted
    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal the plog, so that it takes no more appends; return its length: ``offset``, or less if it holds less."""
        length, pending = self.submit_seal(plog_id, offset)
        if pending is not None:
            pending.result()
        return length

    @uninterrupted
    def submit_seal(self, plog_id: PlogId, offset: int) -> tuple[int, PendingAppend | None]:
        """Seal without waiting until that is durable: an append that :meth:`keeps_order` is not durable before it."""
        with self._quiet(plog_id, fence=offset) as plog:
            replica = self._table.need(plog)
            length = replica.check_seal(offset)
            if not replica.sealed:
                self._journal.check_running()
                self._free_rest(plog, replica.place())
                state = State(sealed=True, length=length).pack(replica.key)
                plog.last = self._journal.submit(plog, kind=WRITE, position=STATE_POSITION, parts=(state,), offset=0)
                with plog.ack_lock:
                    replica.seal(length)
                plog.unsynced_end = 0
            return length, plog.last  # the seal of another thread may not be durable yet

    def _free_rest(self, plog: OpenPlog, end: int) -> None:
        """Free the allocated space behind ``end``, which will not be used."""
        file = self._flushed(plog)
        try:
            file.truncate(end)
            plog.allocated = end
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error

    @uninterrupted
    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the plog's length, whether it is sealed, and its size."""
        with self._table.loaded(plog_id) as (_, replica):
            return replica.info()

    @uninterrupted
    def delete(self, plog_id: PlogId) -> None:
        """Delete the plog, damaged or not, and free its space; views of it stay valid."""
        with self._quiet(plog_id, fence=PLOG_SIZE_MAX) as plog:
            self._journal.check_running()
            if plog.deletion is not None and not plog.deletion.done:
                raise NoSuchPlog(plog_id)  # a deletion that is done, with the file still there, could not remove it
            if plog.replica is None and not self._table.has_file(plog):
                raise NoSuchPlog(plog_id)
            ticket = plog.deletion = self._journal.submit(plog, kind=DELETE, position=0, parts=(), offset=0)
        ticket.result()
        with plog.lock:
            try:
                plog.remove_file()
            except OSError as error:
                raise refusal(self._disk.where(plog.name), error) from error
            self._table.forget(plog)

    def where(self, plog_id: PlogId) -> str:
        """Return the path of the plog's file, whether it exists or not."""
        return self._disk.where(plog_name(plog_id.uid_bytes))

    @property
    def lease(self) -> None:
        """Nothing: a lock of the folder keeps other processes away."""

    def set_known(self, known: KnownPlogs) -> None:
        """Do nothing: no plog comes back that was deleted."""

    def prepare_close(self) -> None:
        """Do nothing: a disk answers, or fails."""

    @uninterrupted
    def close(self) -> None:
        """Make every file durable by itself and release the folder."""
        plogs = self._table.close()
        if plogs is None:
            return
        for plog in plogs:
            with plog.lock:  # a call under way ends first, and no new one begins
                replica = plog.replica
            if replica is not None:
                with suppress(DiskFailed):
                    self.sync_file(plog, plog.unsynced_end)
        self._journal.close([plog for plog in plogs if plog.is_behind and plog.deletion is None])
        for plog in plogs:
            with plog.lock:
                plog.close_file()
        self._disk.close()
        self._journal.check_running()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error raised in the block is not replaced by another."""
        with suppress(DiskFailed) if error is not None else nullcontext():
            self.close()

    @contextmanager
    def _quiet(self, plog_id: PlogId, *, fence: int) -> Iterator[OpenPlog]:
        """Hold the lock of a plog with no append under way; new appends are refused while it waits for the others."""
        while True:
            with self._table.entered(plog_id) as plog:
                plog.fence = None
                if plog.last is None or plog.replica is None or plog.replica.written == plog.replica.acked:
                    yield plog
                    return
                self._journal.check_running()
                plog.fence, last = min(max(fence, 0), plog.replica.written), plog.last
            try:
                last.result()
            except BaseException:
                plog.fence = None
                raise
