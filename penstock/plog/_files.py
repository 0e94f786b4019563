"""Plogs in the files of one folder.

A small append goes into the plog's file and, as a record, into the journal, where it shares one fdatasync with
all others that wait; the file itself is synced later, at a checkpoint. A large append goes into the file alone
and is synced there, so it is not written twice. An append behind a large one that is not yet acknowledged takes
the same way: therefore whatever stands in the journal has all that comes before it safe.

Locks are taken in this order: a plog, then the table or the journal. None is held while waiting for a sync.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, NoSuchPlog, PlogCorrupt, PlogExists, StoreClosed
from penstock.model import PlogId
from penstock.plog._block import BLOCK_HEADER_SIZE, block_matches, pack_block_header
from penstock.plog._faults import refusal
from penstock.plog._folder import plog_name, prepare_folder
from penstock.plog._head import BIRTH_SIZE, HEAD_SIZE, STATE_POSITION, names_match, pack_new_head
from penstock.plog._journal import Journal, read_journal
from penstock.plog._journal_record import DELETE, WRITE
from penstock.plog._replay import load_replica, remove_if_there, replay
from penstock.plog._replica import PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX, PlogInfo, Replica
from penstock.ports import SystemRandom, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from penstock.plog._interface import PendingAppend
    from penstock.plog._journal import Ticket
    from penstock.ports import Bytes, Disk, File, Random

__all__ = ["DIRECT_SIZE_MIN", "JOURNAL_SIZE", "OPEN_FILES_MAX", "FilePlogs"]

JOURNAL_SIZE: Final = 8 << 20
DIRECT_SIZE_MIN: Final = 128 << 10
OPEN_FILES_MAX: Final = 256
_EVICTIONS_MAX: Final = 8  # tried for one plog opened, so that opening stays cheap when few can go
_CLUSTER: Final = "local"
_GROUP: Final = "main"


class _Plog:
    """A plog in use: its state, its file while open, and what is on the way to the disk."""

    __slots__ = ("changes", "deleted", "dirty", "disk", "file", "forgotten", "last", "linked", "lock", "name", "pins",
                 "plog_id", "removed", "replica", "sync_lock", "uid", "unsynced_end")  # fmt: skip

    def __init__(self, plog_id: PlogId, disk: Disk) -> None:
        self.plog_id, self.uid, self.disk = plog_id, plog_id.uid_bytes, disk
        self.name = plog_name(self.uid)
        self.lock = threading.Lock()
        self.sync_lock = threading.Lock()
        self.replica: Replica | None = None
        self.file: File | None = None
        self.last: PendingAppend | None = None
        self.unsynced_end = 0  # where the last large append ends
        self.linked = True  # the file's name is durable
        self.deleted = self.removed = self.forgotten = self.dirty = False
        self.changes = self.pins = 0

    def acknowledge(self, offset: int) -> None:
        """Let readers see everything up to ``offset``."""
        if self.replica is not None:
            self.replica.acknowledge(offset)

    def checkpoint(self) -> None:
        """Make the plog's own file durable, together with how long it is."""
        with self.lock:
            if self.deleted:
                self.remove_file()
                return
            assert self.replica is not None
            was_open, changes, file = self.file is not None, self.changes, self.open_file()
            write_all(file, [self.replica.state().pack(self.uid)], STATE_POSITION)
            self.pins += 1
        try:
            file.datasync()
        finally:
            with self.lock:
                self.pins -= 1
                self.dirty = self.changes != changes
                if not was_open and self.idle:
                    self.close_file()

    def open_file(self) -> File:
        """Return the file, open; the caller holds the lock."""
        if self.file is None:
            self.file = self.disk.open(self.name)
        return self.file

    def remove_file(self) -> None:
        """Remove the file, once: another plog may have the name by now; the caller holds the lock."""
        if not self.removed:
            remove_if_there(self.disk, self.name)
            self.removed = True

    def close_file(self) -> None:
        """Close the file, if it is open; the caller holds the lock."""
        if self.file is not None:
            self.file.close()
            self.file = None

    @property
    def idle(self) -> bool:
        """Whether nothing is on the way and the file may be closed; the caller holds the lock."""
        return self.pins == 0 and self.replica is not None and self.replica.written == self.replica.acked


class _DirectAppend:
    """A large append under way: durable once its own file is."""

    __slots__ = ("_offset", "_plog", "_plogs")

    def __init__(self, plogs: FilePlogs, plog: _Plog, offset: int) -> None:
        self._plogs, self._plog, self._offset = plogs, plog, offset

    def result(self) -> int:
        """Wait until it is durable; return the plog's new offset."""
        self._plogs.sync_file(self._plog, self._offset)
        return self._offset


class FilePlogs:
    """The plogs of one folder; see the module and :class:`penstock.plog.Plogs`."""

    def __init__(self, disk: Disk, *, random: Random | None = None, journal_size: int = JOURNAL_SIZE,
                 direct_size_min: int = DIRECT_SIZE_MIN, open_files_max: int = OPEN_FILES_MAX) -> None:  # fmt: skip
        assert journal_size > 4 * direct_size_min, "a journal has room for several of its largest records"
        self._disk = disk
        self._random = random or SystemRandom()
        self._direct_size_min, self._open_files_max = direct_size_min, open_files_max
        self._table_lock = threading.Lock()
        self._plogs: OrderedDict[PlogId, _Plog] = OrderedDict()  # least recently opened first
        self._closed = False
        disk.lock()
        try:
            prepare_folder(disk, journal_size=journal_size)
            self._journal = self._recover(journal_size)
        except BaseException:
            disk.close()
            raise

    def _recover(self, journal_size: int) -> Journal:
        records, generation = read_journal(self._disk)
        try:
            replay(self._disk, records)
            journal = Journal(self._disk, generation=generation, size=journal_size)
            if records:
                journal.reset()
        except OSError as error:
            raise refusal(self._disk.where(), error) from error
        return journal

    def new_id(self) -> PlogId:
        """Return an id that nobody has had before; nothing is created."""
        return PlogId.new(cluster=_CLUSTER, group=_GROUP, random=self._random)

    def create(self, *, size: int = PLOG_SIZE_DEFAULT, plog_id: PlogId | None = None) -> PlogId:
        """Make a plog with room for ``size`` bytes, allocated now; without an id it gets a new one."""
        if not 0 < size <= PLOG_SIZE_MAX:
            raise BadArgument(f"a plog of {size} bytes cannot be: the size is from 1 to {PLOG_SIZE_MAX}")
        plog_id = plog_id or self.new_id()
        with self._entered(plog_id) as plog:
            if plog.replica is not None or plog.deleted:
                raise PlogExists(plog_id)
            plog.file = self._create_file(plog, size)
            plog.replica, plog.linked = Replica(plog_id, size=size), False
            head = pack_new_head(plog_id, size=size, birth=self._random.token(BIRTH_SIZE))
            ticket = self._change(plog, position=0, parts=(head,), offset=0)
        ticket.result()
        return plog_id

    def _create_file(self, plog: _Plog, size: int) -> File:
        try:
            file = self._disk.create(plog.name)
        except FileExistsError:
            if self._load(plog) is not None:
                raise PlogExists(plog.plog_id) from None
            file = plog.open_file()  # its creation was never acknowledged: begin again
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error
        try:
            file.truncate(0)
            file.reserve(HEAD_SIZE + BLOCK_HEADER_SIZE + size)
        except OSError as error:
            file.close()
            remove_if_there(self._disk, plog.name)
            raise refusal(self._disk.where(plog.name), error) from error
        return file

    def append(self, plog_id: PlogId, offset: int, data: Buffer) -> int:
        """Put ``data`` at the plog's current ``offset``; return the new offset once they are durable."""
        return self.submit(plog_id, offset, data).result()

    def submit(self, plog_id: PlogId, offset: int, data: Buffer) -> PendingAppend:
        """Append without waiting; ``data`` must not change before the result is there."""
        body = data if type(data) is bytes else memoryview(data).cast("B")
        size = len(body)
        with self._loaded(plog_id) as (plog, replica):
            replica.check_append(offset, size)
            if not size:
                return _DirectAppend(self, plog, offset)
            position = replica.place()
            header = pack_block_header(replica.uid, offset=offset, body=body, body_size=size)
            self._put(plog, position, (header, body), BLOCK_HEADER_SIZE + size)
            offset = replica.placed(size)
            plog.last = self._make_durable(plog, replica, position, (header, body), offset)
            return plog.last

    def _put(self, plog: _Plog, position: int, parts: tuple[Bytes, ...], size: int) -> None:
        """Write into the plog's file; where there is no room for all of it, nothing has happened."""
        try:
            file = plog.open_file()
            if position + size > file.size():
                file.reserve(position + size)
            write_all(file, parts, position)
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error

    def _make_durable(
        self, plog: _Plog, replica: Replica, position: int, parts: tuple[Bytes, ...], offset: int
    ) -> PendingAppend:
        if len(parts[-1]) >= self._direct_size_min or plog.unsynced_end > replica.acked:
            plog.unsynced_end = offset
            return _DirectAppend(self, plog, offset)
        return self._record(plog, kind=WRITE, position=position, parts=parts, offset=offset)

    def _change(self, plog: _Plog, *, position: int, parts: tuple[bytes, ...], offset: int) -> Ticket:
        """Write into the plog's head, and into the journal."""
        self._put(plog, position, parts, sum(map(len, parts)))
        return self._record(plog, kind=WRITE, position=position, parts=parts, offset=offset)

    def _record(self, plog: _Plog, *, kind: bytes, position: int, parts: tuple[Bytes, ...], offset: int) -> Ticket:
        plog.changes += 1
        plog.dirty = True
        size = sum(map(len, parts))
        return self._journal.submit(plog, kind=kind, position=position, parts=parts, size=size, offset=offset)

    def sync_file(self, plog: _Plog, offset: int) -> None:
        """Return once the plog's own file is durable up to ``offset``."""
        with plog.sync_lock:
            replica, file = plog.replica, plog.file
            assert replica is not None
            if replica.acked >= offset:
                return
            assert file is not None, "a file with an append under way stays open"
            if self._journal.stopped is not None:
                raise self._journal.stopped
            written = replica.written
            try:
                if not plog.linked:
                    self._disk.sync()
                    plog.linked = True
                file.datasync()
            except OSError as error:
                raise self._journal.stop(error, self._disk.where(plog.name)) from error
            replica.acknowledge(written)

    def read(self, plog_id: PlogId, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes at ``offset``; no copy where they were appended in one piece."""
        views = self.views(plog_id, offset, size)
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def views(self, plog_id: PlogId, offset: int, size: int) -> list[memoryview]:
        """Return ``size`` bytes at ``offset`` as they were appended, piece by piece, without a copy."""
        found = []
        with self._loaded(plog_id) as (plog, replica):
            slices = replica.slices(offset, size)
            file = plog.open_file()
            for part in slices:
                if not replica.verified[part.index]:
                    self._verify(plog, replica, file, index=part.index, position=part.position)
                found.append(file.view(part.start, part.end - part.start))
        return found

    def _verify(self, plog: _Plog, replica: Replica, file: File, *, index: int, position: int) -> None:
        if not block_matches(replica.uid, file.view(0, file.size()), position):
            path = self._disk.where(plog.name)
            raise PlogCorrupt(path, offset=position, reason=f"block {index} fails its checksum")
        replica.verified[index] = True

    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Let the plog take no more appends; return its length: the smaller of ``offset`` and what it holds."""
        with self._quiet(plog_id) as plog:
            replica = self._need(plog)
            length = replica.check_seal(offset)
            if replica.sealed:
                return length
            end = replica.place()
            replica.seal(length)
            ticket = self._change(plog, position=STATE_POSITION, parts=(replica.state().pack(plog.uid),), offset=0)
            plog.open_file().truncate(end)  # gives back the room that was allocated and not used
        ticket.result()
        return length

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return length, whether sealed, and size."""
        with self._loaded(plog_id) as (_, replica):
            return replica.info()

    def delete(self, plog_id: PlogId) -> None:
        """Remove the plog, damaged or not, and free its room; views of it stay good."""
        with self._quiet(plog_id) as plog:
            if plog.replica is None and not self._has_file(plog):
                raise NoSuchPlog(plog_id)
            ticket = self._record(plog, kind=DELETE, position=0, parts=(), offset=0)
            plog.deleted = True
        ticket.result()
        with plog.lock:
            plog.remove_file()
            self._forget(plog)

    def close(self) -> None:
        """Make every file durable by itself and let go of the folder."""
        with self._table_lock:
            if self._closed:
                return
            self._closed = True
        self._journal.close()
        for plog in self._plogs.values():
            plog.close_file()
        self._disk.close()
        if self._journal.stopped is not None:
            raise self._journal.stopped

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @contextmanager
    def _entered(self, plog_id: PlogId) -> Iterator[_Plog]:
        """Hold the plog's lock; its file may not have been read yet, or not be there at all."""
        plog = self._enter(plog_id)
        try:
            yield plog
        finally:
            if plog.replica is None:
                self._forget(plog)
            plog.lock.release()

    @contextmanager
    def _loaded(self, plog_id: PlogId) -> Iterator[tuple[_Plog, Replica]]:
        """Hold the lock of a plog that is there."""
        with self._entered(plog_id) as plog:
            yield plog, self._need(plog)

    @contextmanager
    def _quiet(self, plog_id: PlogId) -> Iterator[_Plog]:
        """Hold the lock of a plog with no append under way."""
        while True:
            with self._entered(plog_id) as plog:
                if plog.replica is None or plog.idle or plog.last is None:
                    yield plog
                    return
                last = plog.last
            last.result()

    def _enter(self, plog_id: PlogId) -> _Plog:
        while True:
            with self._table_lock:
                if self._closed:
                    raise StoreClosed(f"the plog folder {self._disk.where()}")
                plog = self._plogs.get(plog_id)
                if plog is None:
                    self._make_room()
                    plog = self._plogs[plog_id] = _Plog(plog_id, self._disk)
                self._plogs.move_to_end(plog_id)
            plog.lock.acquire()
            if not plog.forgotten:
                return plog
            plog.lock.release()

    def _make_room(self) -> None:
        """Close the files of plogs not used for long, and forget those that need no checkpoint."""
        for _ in range(min(len(self._plogs) - self._open_files_max, _EVICTIONS_MAX)):
            plog_id, plog = next(iter(self._plogs.items()))
            self._plogs.move_to_end(plog_id)
            if plog.lock.acquire(blocking=False):
                if plog.idle:
                    plog.close_file()
                    if not plog.dirty and not plog.deleted:
                        plog.forgotten = True
                        del self._plogs[plog_id]
                plog.lock.release()

    def _need(self, plog: _Plog) -> Replica:
        replica = None if plog.deleted else plog.replica or self._load(plog)
        if replica is None:
            raise NoSuchPlog(plog.plog_id)
        return replica

    def _load(self, plog: _Plog) -> Replica | None:
        path = self._disk.where(plog.name)
        try:
            file = plog.open_file()
            replica = load_replica(path, plog.plog_id, file)
            if replica is not None and names_match(plog.plog_id, file.view(0, HEAD_SIZE)):
                plog.replica = replica
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refusal(path, error) from error
        return plog.replica

    def _has_file(self, plog: _Plog) -> bool:
        try:
            plog.open_file()
        except FileNotFoundError:
            return False
        return True

    def _forget(self, plog: _Plog) -> None:
        """Drop what is known of a plog that is not there; the caller holds its lock."""
        plog.close_file()
        plog.forgotten = True
        with self._table_lock:
            self._plogs.pop(plog.plog_id, None)
