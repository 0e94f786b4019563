"""Open plogs: their state, their files, the blocks that are not in a file yet, and the table of all of them.

Small blocks are durable in the journal first and are written into the file later, many at once: when they are read,
before a large block, and at a checkpoint. Until then an open plog buffers them. The buffer is bounded, because a
checkpoint follows every time the journal changes to its other file. A block that the journal does not have yet is not
in the file either, unless a large block follows it. So after a crash, the changes submitted to the journal are there
up to some point, and none after it.

A plog enters the table when a call needs it. It leaves the table once its file is closed and holds all that the
journal has of it, so a folder of any number of plogs needs memory and descriptors only for those in use.

Locks are taken in this order: a plog, then the table. The lock of the table is never held while a file is read or
written.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument, NoSuchPlog, PlogCorrupt, PlogExists, StoreClosed
from penstock.model import PlogId
from penstock.plog._block import HEAD_SIZE
from penstock.plog._folder import plog_name, refusal
from penstock.plog._head import STATE_POSITION, Identity, is_unborn, names_match
from penstock.plog._replay import is_certain, load_replica, remove_if_there, write_rest_again
from penstock.ports import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.plog._head import State
    from penstock.plog._interface import PendingAppend
    from penstock.plog._journal import Journal, Ticket
    from penstock.plog._replica import PlogInfo, Replica
    from penstock.ports import Bytes, Disk, File

__all__ = ["BufferedBlock", "OpenPlog", "PlogTable"]

_EVICTIONS_MAX: Final = 8  # tried at a time, so that no call has to close many files


class BufferedBlock(msgspec.Struct, frozen=True):
    """A small block that is not in the plog's own file yet, the number of its change, and the plog's end with it."""

    position: int
    parts: tuple[Bytes, ...]
    change: int
    offset: int


class OpenPlog:
    """A plog in use. Callers hold ``lock``, except for :meth:`acknowledge` and :meth:`checkpoint`."""

    __slots__ = (
        "ack_lock",
        "allocated",
        "buffered",
        "changes",
        "deletion",
        "dirty",
        "disk",
        "fence",
        "file",
        "forgotten",
        "last",
        "linked",
        "lock",
        "name",
        "pins",
        "plog_id",
        "removed",
        "replica",
        "sync_lock",
        "uid",
        "unsynced_end",
    )

    def __init__(self, plog_id: PlogId, disk: Disk) -> None:
        self.plog_id, self.uid, self.disk = plog_id, plog_id.uid_bytes, disk
        self.name = plog_name(self.uid)
        self.lock = threading.Lock()
        self.sync_lock = threading.Lock()
        self.ack_lock = threading.Lock()
        self.replica: Replica | None = None  # None: not read yet
        self.file: File | None = None
        self.allocated = 0  # the length of the file, once it is known
        self.buffered: deque[BufferedBlock] = deque()  # in the journal, or submitted to it
        self.last: PendingAppend | None = None
        self.unsynced_end = 0  # the end of the last large append
        self.linked = False  # the file's name is durable
        self.fence: int | None = None  # where the plog is about to be sealed; no append may come before that
        self.deletion: Ticket | None = None  # under way; the file may be removed once this is durable, not before
        self.removed = self.forgotten = False
        self.dirty = False  # the journal has records that may not be in the file
        self.changes = 0  # the records submitted to the journal
        self.pins = 0  # checkpoints that sync the file without the lock

    def goes_direct(self, size: int, direct_size_min: int) -> bool:
        """Return whether an append of this size is written into the file at once, and not into the journal."""
        assert self.replica is not None
        return size >= direct_size_min or self.unsynced_end > self.replica.acked

    def acknowledge(self, offset: int) -> None:
        """Let readers see everything up to ``offset``; the journal and the file's sync may both call this."""
        with self.ack_lock:
            if self.replica is not None:
                self.replica.acknowledge(offset)

    def checkpoint(self, change: int) -> None:
        """Make the plog's file durable, with its length; the journal needs no records up to ``change`` after that."""
        with self.lock:
            if self.removed or (self.deletion is not None and self.deletion.durable):
                self.remove_file()
                return
            assert self.replica is not None
            was_open, file, state = self.file is not None, self.open_file(), self.replica.state()
            self.flush(change)
            self.write_state(state)
            self.pins += 1
        try:
            file.datasync()
        finally:
            with self.lock:
                self.pins -= 1
                self.dirty = self.changes > change  # later records are in the next generation of the journal
                if self.forgotten or (not was_open and self.is_idle):
                    self.close_file()

    def create_file(self, head: bytes, *, allocated: int) -> None:
        """Create the file with its head and its allocated size; remove it again if that fails."""
        try:
            file = self.file = self._create_or_find()
        except OSError as error:
            raise refusal(self.disk.where(self.name), error) from error
        try:
            if file.size():  # it was there
                file.truncate(0)
            self.allocated = 0
            self.allocate(allocated)
            write_all(file, [head], 0)
        except OSError as error:
            self.close_file()
            with suppress(OSError):
                remove_if_there(self.disk, self.name)
            raise refusal(self.disk.where(self.name), error) from error

    def _create_or_find(self) -> File:
        try:
            return self.disk.create(self.name)
        except FileExistsError:
            file = self.open_file()
            if is_unborn(self.plog_id, file.view(0, HEAD_SIZE)):
                return file  # its creation was never acknowledged: start again
            raise PlogExists(self.plog_id) from None

    def open_file(self) -> File:
        """Return the file, opened if need be."""
        if self.file is None:
            self.file = self.disk.open(self.name)
        return self.file

    def allocate(self, end: int) -> None:
        """Allocate space for the file up to ``end``, so that later writes do not run out of it."""
        if end > self.allocated:
            self.open_file().reserve(end)
            self.allocated = end

    def flush(self, change: int = 0) -> None:
        """Write the buffered blocks that the journal has: those acknowledged, and the changes up to ``change``.

        Another block could survive a crash although a change submitted before it does not.
        """
        assert self.replica is not None or not self.buffered
        acked = 0 if self.replica is None else self.replica.acked
        in_journal = takewhile(lambda block: block.offset <= acked or block.change <= change, self.buffered)
        self._write(sum(1 for _ in in_journal))

    def flush_all(self) -> None:
        """Write all buffered blocks, because a large block follows them."""
        self._write(len(self.buffered))

    def _write(self, count: int) -> None:
        if count:
            blocks = list(islice(self.buffered, count))
            write_all(self.open_file(), [part for block in blocks for part in block.parts], blocks[0].position)
            for _ in blocks:
                self.buffered.popleft()

    def write_state(self, state: State) -> None:
        """Write the plog's length into the head."""
        assert self.replica is not None
        write_all(self.open_file(), [state.pack(self.replica.key)], STATE_POSITION)
        self.replica.known = state.length

    def remove_file(self) -> None:
        """Remove the file, once: another plog may have its name by now."""
        if not self.removed:
            remove_if_there(self.disk, self.name)
            self.removed = True

    def close_file(self) -> None:
        """Close the file, if it is open; one that a checkpoint is syncing is closed by the checkpoint."""
        if self.file is not None and self.pins == 0:
            self.file.close()
            self.file = None

    @property
    def is_behind(self) -> bool:
        """Whether the length in the file's head is out of date."""
        return self.replica is not None and not self.replica.sealed and self.replica.known != self.replica.acked

    @property
    def is_idle(self) -> bool:
        """Whether no append is under way, so that the file may be closed."""
        replica = self.replica
        return self.pins == 0 and replica is not None and replica.written == replica.acked


class PlogTable:
    """The open plogs of a folder; files above ``open_files_max`` are closed as soon as no append is under way."""

    def __init__(self, disk: Disk, journal: Journal, *, open_files_max: int) -> None:
        self._disk, self._journal, self._open_files_max = disk, journal, open_files_max
        self._lock = threading.Lock()
        self._plogs: dict[PlogId, OpenPlog] = {}
        self._opened: OrderedDict[PlogId, OpenPlog] = OrderedDict()  # those with an open file, least used first
        self._latest: tuple[OpenPlog, ...] = ()  # the two used last: commits use the catalog's and a segment's in turn
        self._sweep_at = 2 * open_files_max
        self._closed = False
        self._departed: dict[PlogId, PlogInfo] | None = None  # plogs forgotten during a cut, as they were

    def cut(self, plog_ids: Sequence[PlogId]) -> dict[PlogId, PlogInfo]:
        """Return the length of each plog, all at one moment; the caller makes one cut at a time.

        Plogs are read before that moment; those that are damaged or missing are left out. One that is forgotten
        meanwhile is remembered, one that is used is in the table.
        """
        departed: dict[PlogId, PlogInfo] = {}
        infos: dict[PlogId, PlogInfo] = {}
        self._departed = departed
        try:
            for plog_id in plog_ids:
                with suppress(NoSuchPlog, PlogCorrupt), self.loaded(plog_id) as (_, replica):
                    infos[plog_id] = replica.info()
            with self._journal.acknowledging:
                for plog_id in plog_ids:
                    plog = self._plogs.get(plog_id)
                    replica_now = None if plog is None else plog.replica
                    if replica_now is not None:
                        infos[plog_id] = replica_now.info()
                    elif plog_id in departed:
                        infos[plog_id] = departed[plog_id]
            return infos
        finally:
            self._departed = None

    def key(self, plog_id: PlogId) -> bytes:
        """Return the uid and the birth of a plog, by its head alone if it is not in use."""
        with self.entered(plog_id) as plog:
            if plog.replica is not None:
                return plog.replica.key
            path = self._disk.where(plog.name)
            try:
                identity = Identity.unpack(plog.open_file().view(0, HEAD_SIZE))
            except FileNotFoundError:
                raise NoSuchPlog(plog_id) from None
            except OSError as error:
                raise refusal(path, error) from error
        if identity is None or identity.uid != plog_id.uid_bytes:
            raise PlogCorrupt(path, offset=0, reason="its head fails its checksum, or belongs to another plog")
        return identity.uid + identity.birth

    def close(self) -> list[OpenPlog] | None:
        """Let no call enter any more; return the plogs in the table, None if it was closed before."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            return list(self._plogs.values())

    @contextmanager
    def entered(self, plog_id: PlogId) -> Iterator[OpenPlog]:
        """Hold the plog's lock; its file may not have been read yet, or not exist."""
        plog = self.enter(plog_id)
        try:
            yield plog
        finally:
            self.leave(plog)

    @contextmanager
    def loaded(self, plog_id: PlogId) -> Iterator[tuple[OpenPlog, Replica]]:
        """Hold the lock of a plog that exists, its file read; ``NoSuchPlog`` if it does not exist."""
        with self.entered(plog_id) as plog:
            yield plog, self.need(plog)

    def in_use(self, plog_id: PlogId) -> OpenPlog | None:
        """Return a plog that has been read, without its lock; None if it has to be read first."""
        plog = self._plogs.get(plog_id)
        return None if plog is None or plog.replica is None else plog

    def enter(self, plog_id: PlogId) -> OpenPlog:
        """Take the plog's lock, and put the plog into the table if it is not there; :meth:`leave` follows."""
        if not isinstance(plog_id, PlogId):
            raise BadArgument(f"invalid plog id {plog_id!r}: use a PlogId")
        while True:
            with self._lock:
                if self._closed:
                    raise StoreClosed(f"the plog folder {self._disk.where()}")
                plog = self._plogs.get(plog_id)
                if plog is None:
                    plog = self._plogs[plog_id] = OpenPlog(plog_id, self._disk)
            plog.lock.acquire()
            if not plog.forgotten and not self._closed:
                return plog
            plog.lock.release()

    def leave(self, plog: OpenPlog) -> None:
        """Release the plog's lock, and note that it was used."""
        if plog.replica is None:
            self.forget(plog)
        opened = plog.file is not None
        plog.lock.release()
        if opened and plog not in self._latest:
            self._note_use(plog)

    def _note_use(self, plog: OpenPlog) -> None:
        """Note the plog as used last; close files that were not used for long, and forget closed plogs."""
        with self._lock:
            if self._plogs.get(plog.plog_id) is not plog:
                return
            self._latest = (plog, *self._latest[:1])
            self._opened[plog.plog_id] = plog
            self._opened.move_to_end(plog.plog_id)
            surplus = len(self._opened) - self._open_files_max
            candidates = list(islice(self._opened.values(), _EVICTIONS_MAX)) if surplus > 0 else []
            for candidate in candidates:
                self._opened.move_to_end(candidate.plog_id)  # a file that cannot be closed must not block the others
            sweeps = len(self._plogs) > self._sweep_at
            if sweeps:
                candidates += [other for other in self._plogs.values() if other.file is None]
                self._sweep_at = 2 * len(self._plogs)  # no other thread sweeps meanwhile
        for candidate in candidates:
            if candidate.lock.acquire(blocking=False):
                try:
                    self._evict(candidate)
                finally:
                    candidate.lock.release()
        if sweeps:  # wait for twice as many plogs as could not be forgotten, or every call would try them
            self._sweep_at = 2 * max(len(self._plogs), self._open_files_max)

    def _evict(self, plog: OpenPlog) -> None:
        """Close the file, and forget the plog if all of it is in the file; the caller holds its lock."""
        if not plog.is_idle or plog.deletion is not None or plog.forgotten:
            return
        try:
            plog.flush()
        except OSError:
            return  # the next call that needs this plog gets the error; the present one needs another plog
        plog.close_file()
        with self._lock:
            self._opened.pop(plog.plog_id, None)
            self._latest = ()
        if not plog.dirty and not plog.is_behind:
            self.forget(plog)

    def need(self, plog: OpenPlog) -> Replica:
        """Return the plog's replica, read from the file at first use; ``NoSuchPlog`` if there is none."""
        replica = None if plog.deletion is not None else plog.replica or self._load(plog)
        if replica is None:
            raise NoSuchPlog(plog.plog_id)
        return replica

    def _load(self, plog: OpenPlog) -> Replica | None:
        """Read the plog's file; None if there is no such plog."""
        path = self._disk.where(plog.name)
        try:
            file = plog.open_file()
            replica = load_replica(path, plog.plog_id, file)
            if replica is None or replica.known is None or not names_match(plog.plog_id, file.view(0, HEAD_SIZE)):
                return None
            if not is_certain(file, replica):
                write_rest_again(file, replica)
                self._sync(path, file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refusal(path, error) from error
        plog.replica, plog.allocated = replica, file.size()
        return replica

    def _sync(self, path: str, file: File) -> None:
        try:
            file.datasync()
        except OSError as error:
            raise self._journal.stop(error, path) from error

    def has_file(self, plog: OpenPlog) -> bool:
        """Return whether there is a file of this plog, damaged or not."""
        try:
            head = plog.open_file().view(0, HEAD_SIZE)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error
        return Identity.unpack(head) is None or names_match(plog.plog_id, head)

    def forget(self, plog: OpenPlog) -> None:
        """Remove a plog from the table; the caller holds its lock. A new one may have taken its place there."""
        plog.close_file()
        if self._departed is not None and plog.replica is not None:
            self._departed[plog.plog_id] = plog.replica.info()  # before it leaves the table
        plog.forgotten = True
        with self._lock:
            self._latest = ()
            for table in (self._plogs, self._opened):
                if table.get(plog.plog_id) is plog:
                    del table[plog.plog_id]
