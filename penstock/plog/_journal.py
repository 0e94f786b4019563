"""The journal: one fdatasync for all plogs of a folder.

Every change to a plog's file is written twice: into the file, which is synced some time later, and as a record
into the journal, which is synced at once for all who wait. So a thousand plogs cost one sync, not a thousand.

There is no thread for it. Who waits and finds nobody syncing becomes the leader: it writes all records that are
pending, syncs once and wakes the others. As many as met last time are expected to meet again, and the last of them
leads: so nobody has to be woken only to lead. One of those who wait does so with a limit, and leads when it has
passed, with those who came.

Two files take turns. When one is full the other begins a new generation, and a checkpoint syncs, in the
background, every plog file that the full one has records for; after that its records are not needed any more.
At most one checkpoint runs: who fills the second file before it ends waits for it.

A sync that fails is never tried again, because the system may have dropped what it could not write: the journal
stops for good, and opening the folder anew replays what was acknowledged.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.errors import DiskFailed, JournalCorrupt, StoreClosed
from penstock.plog._journal_record import (
    JOURNAL_HEAD_SIZE,
    RECORD_HEADER_SIZE,
    JournalHead,
    pack_record_header,
    scan_journal,
)
from penstock.plog._sync_times import SyncTimes
from penstock.ports import uninterrupted, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.plog._journal_record import Record
    from penstock.ports import Bytes, Disk, File

__all__ = ["JOURNAL_NAMES", "Journal", "Subject", "Ticket", "create_journal", "read_journal"]

JOURNAL_NAMES: Final = ("journal-0", "journal-1")
_PATIENCE_S: Final = 0.0002  # about what it takes to wake eight threads
_ZEROS: Final = bytes(1 << 20)


class Subject(Protocol):
    """What a record is about, as far as the journal needs to know."""

    @property
    def uid(self) -> bytes:
        """Which file."""

    @property
    def changes(self) -> int:
        """How many records there were for it so far."""

    def acknowledge(self, offset: int) -> None:
        """Everything up to ``offset`` is durable."""

    def checkpoint(self, change: int) -> None:
        """Make the subject's own file durable; the records up to this one are not needed any more then."""


class Ticket(msgspec.Struct, eq=False):
    """A change under way; :meth:`result` returns when it is durable."""

    journal: Journal
    subject: Subject
    change: int
    kind: bytes
    position: int
    parts: tuple[Bytes, ...]
    size: int
    offset: int  # what the subject has acknowledged when this is done
    gates: list[threading.Lock] = []  # one for each thread that waits
    durable: bool = False  # its record is: a checkpoint may count on it
    done: bool = False  # and its subject and whoever waits know
    error: DiskFailed | None = None

    @uninterrupted
    def result(self) -> int:
        """Wait until the change is durable; return the offset it reached."""
        if not self.done:
            self.journal.wait(self)
        if self.error is not None:
            raise self.error
        return self.offset


class Journal:
    """See the module."""

    def __init__(self, disk: Disk, head: JournalHead) -> None:
        self._disk = disk
        self._size: Final = head.size
        self._files = tuple(disk.open(name) for name in JOURNAL_NAMES)
        self._mutex = threading.Lock()
        self._pending: list[Ticket] = []
        self._batch: list[Ticket] = []  # what is being written and synced
        self._leader: threading.Lock | None = None  # the gate of who leads
        self._patient: threading.Lock | None = None  # the gate of who waits with a limit, and leads when it has passed
        self._company = 1  # how many changes the last group and those behind it were
        self._stopped: DiskFailed | None = None
        self._closed = False
        self._generation = head.generation
        self._active = self._generation % 2  # which file
        self._place = self._synced = JOURNAL_HEAD_SIZE
        self._dirty: dict[Subject, int] = {}  # what this generation has records of, and the last one's number
        self._checkpointer: threading.Thread | None = None
        self.syncs: Final = SyncTimes()

    def submit(self, subject: Subject, *, kind: bytes, position: int, parts: tuple[Bytes, ...], offset: int) -> Ticket:
        """Queue a change; it becomes durable when somebody waits for it or for a later one."""
        change, size = subject.changes, sum(map(len, parts))
        ticket = Ticket(
            self, subject, change=change, kind=kind, position=position, parts=parts, size=size, offset=offset
        )
        with self._mutex:
            self.check_running()
            if self._closed:
                raise StoreClosed(f"the plog folder {self._disk.where()}")
            self._pending.append(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Return when the ticket is done, leading the group if it is complete or nobody else does."""
        gate, tired = threading.Lock(), False
        gate.acquire()
        try:
            while not ticket.done and (limit := self._turn_of(ticket, gate, tired=tired)) is not None:
                if limit:
                    tired = not gate.acquire(timeout=limit)  # opened when the ticket is done, or may have to lead
                else:
                    self._lead()
        except BaseException as error:
            self._give_up(ticket, gate, error)
            raise

    def _turn_of(self, ticket: Ticket, gate: threading.Lock, *, tired: bool) -> float | None:
        """Return how long to wait at most: 0 for who is to lead, -1 for as long as it takes, None if it is done."""
        with self._mutex:
            if self._patient is gate:
                self._patient = None
            if ticket.done:
                return None
            if self._leader is None and (tired or len(self._pending) >= self._company):
                self._leader = gate
                return 0
            if gate not in ticket.gates:
                ticket.gates.append(gate)
            if self._leader is not None or self._patient is not None:
                return -1
            self._patient = gate
            return _PATIENCE_S

    def _give_up(self, ticket: Ticket, gate: threading.Lock, error: BaseException) -> None:
        """Wait no more, because of an interrupt; it may have been our turn at that very moment, or we may have led."""
        gates: list[threading.Lock] = []
        with self._mutex:
            if gate in ticket.gates:
                ticket.gates.remove(gate)
            if self._patient is gate:
                self._patient = None
            leads = self._leader is gate
            if not leads:
                gates = self._next_in_turn()
        if leads:
            if self._batch:  # as after a failed sync, nobody knows how far it came
                self.stop(error, self._disk.where(JOURNAL_NAMES[self._active]))
            self._finish()
        _open(gates)

    def _lead(self) -> None:
        with self._mutex:
            self._batch, self._pending = self._pending, []
            self._patient = None
        try:
            self._commit(self._batch)
        except OSError as error:
            self.stop(error, self._disk.where(JOURNAL_NAMES[self._active]))
        self._finish()

    def _finish(self) -> None:
        """Tell everybody in the batch, and let one that came in the meantime see whether to lead."""
        gates: list[threading.Lock] = []
        try:
            with self._mutex:
                for ticket in self._batch:
                    if self._stopped is None:
                        ticket.subject.acknowledge(ticket.offset)
                    else:
                        ticket.error = _copy(self._stopped)
                    ticket.done = True
                    ticket.parts = ()
                    gates += ticket.gates
                    ticket.gates = []
                self._company = len(self._batch) + len(self._pending)
                self._batch = []
                self._leader = None
                gates += self._next_in_turn()
        finally:
            _open(gates)

    def _next_in_turn(self) -> list[threading.Lock]:
        """Return the gate of one that waits, to be opened, if nobody takes care; the caller holds the mutex."""
        if self._leader is None and self._patient is None:
            for ticket in self._pending:
                if ticket.gates:
                    return [ticket.gates.pop()]
        return []

    def _commit(self, batch: list[Ticket]) -> None:
        if self._stopped is not None:
            return
        group: list[Ticket] = []
        for ticket in batch:
            if self._place + RECORD_HEADER_SIZE + ticket.size > self._size:
                self._flush(group)
                group = []
                self._turn()
            group.append(ticket)
            self._place += RECORD_HEADER_SIZE + ticket.size
        self._flush(group)

    def _flush(self, group: list[Ticket]) -> None:
        """Write the records of some changes, and sync once for all of them."""
        if not group:
            return
        place, parts = self._synced, []
        for ticket in group:
            header = pack_record_header(
                generation=self._generation,
                place=place,
                synced=self._synced,
                uid=ticket.subject.uid,
                position=ticket.position,
                kind=ticket.kind,
                parts=ticket.parts,
                size=ticket.size,
            )
            parts += [header, *ticket.parts]
            place += RECORD_HEADER_SIZE + ticket.size
        file = self._files[self._active]
        write_all(file, parts, self._synced)
        self.syncs.datasync(file)
        self._synced = place
        for ticket in group:
            ticket.durable = True
            self._dirty[ticket.subject] = ticket.change

    def _turn(self) -> None:
        """Go on in the other file, and checkpoint what this one has records for."""
        self._join_checkpoint()
        dirty, self._dirty = self._dirty, {}
        self._begin_generation()
        self._checkpointer = threading.Thread(target=self._checkpoint, args=(dirty,), name="penstock-checkpoint")
        self._checkpointer.start()

    def _begin_generation(self) -> None:
        """Make the older file the active one; its head is durable before any record, so none of the old ones counts."""
        self._generation += 1
        self._active = self._generation % 2
        write_head(self._files[self._active], JournalHead(self._generation, self._size))
        self._place = self._synced = JOURNAL_HEAD_SIZE

    def _checkpoint(self, dirty: dict[Subject, int]) -> None:
        try:
            for subject, change in dirty.items():
                subject.checkpoint(change)
            self._disk.sync()
        except Exception as error:  # noqa: BLE001 - whatever it was, the records must not be overwritten
            self.stop(error, self._disk.where())

    def _join_checkpoint(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.join()
            self._checkpointer = None
        if self._stopped is not None:
            raise OSError(self._stopped.reason)

    def stop(self, error: BaseException, path: str) -> DiskFailed:
        """Take no more changes: a sync failed, and nothing is known about what it should have saved."""
        with self._mutex:
            if self._stopped is None:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                self._stopped = DiskFailed(path, reason=reason, stopped=True)
            return _copy(self._stopped)

    def check_running(self) -> None:
        """Raise the failure that stopped the journal, if one did."""
        if self._stopped is not None:
            raise _copy(self._stopped)

    def close(self, behind: Iterable[Subject]) -> None:
        """Make every file durable by itself, those in ``behind`` too; leave an empty journal, unless it was stopped."""
        self._drain()
        if self._checkpointer is not None:
            self._checkpointer.join()
        for subject in behind:
            self._dirty.setdefault(subject, subject.changes)
        if self._stopped is None and (self._dirty or self._checkpointer is not None):
            self._checkpoint(self._dirty)
        if self._stopped is None:
            try:
                self.reset()
            except OSError as error:
                self.stop(error, self._disk.where(JOURNAL_NAMES[self._active]))
        for file in self._files:
            file.close()

    def _drain(self) -> None:
        """Take no more changes, and return when those under way are done, so that nobody leads any more."""
        with self._mutex:
            self._closed = True
            under_way = [*self._batch, *self._pending]
        for ticket in under_way:
            self.wait(ticket)
        assert not self._pending

    def reset(self) -> None:
        """Void the records of both files, if there are any: every plog's file has what they say."""
        self._begin_generation()
        self._begin_generation()


def _copy(error: DiskFailed) -> DiskFailed:
    """Return an error of its own for each that raises it: one for all would remember every place it was raised at."""
    return DiskFailed(error.path, reason=error.reason, stopped=error.stopped)


def _open(gates: Iterable[threading.Lock]) -> None:
    """Open all the gates, also if an interrupt comes between two of them."""
    rest = iter(gates)
    try:
        for gate in rest:
            gate.release()
    finally:
        for gate in rest:
            gate.release()


def write_head(file: File, head: JournalHead) -> None:
    """Begin a generation in a journal file: whatever records stand in it are void."""
    write_all(file, [head.pack()], 0)
    file.datasync()


def create_journal(disk: Disk, *, size: int) -> None:
    """Make the two files, empty; the caller syncs the folder."""
    for generation, name in enumerate(JOURNAL_NAMES):
        file = disk.create(name)
        try:
            for start in range(0, size, len(_ZEROS)):
                write_all(file, [_ZEROS[: size - start]], start)
            write_head(file, JournalHead(generation, size))
        finally:
            file.close()


def read_journal(disk: Disk) -> tuple[list[Record], JournalHead]:
    """Return the records of both generations, in order, and the head of the newer one."""
    found = sorted(((_read_head(disk, name), name) for name in JOURNAL_NAMES), key=lambda pair: pair[0].generation)
    records: list[Record] = []
    for head, name in found:
        file = disk.open(name)
        scan = scan_journal(file.view(0, file.size()), head.generation)
        file.close()
        if scan.damaged_at is not None:
            reason = "an acknowledged record fails its checksum"
            raise JournalCorrupt(disk.where(name), offset=scan.damaged_at, reason=reason)
        records += scan.records
    return records, found[-1][0]


def _read_head(disk: Disk, name: str) -> JournalHead:
    try:
        file = disk.open(name)
    except FileNotFoundError as error:
        raise JournalCorrupt(disk.where(name), offset=None, reason="it is missing") from error
    head, size = JournalHead.unpack(file.view(0, JOURNAL_HEAD_SIZE)), file.size()
    file.close()
    if head is None:
        raise JournalCorrupt(disk.where(name), offset=0, reason="its head fails its checksum")
    if size < head.size:
        raise JournalCorrupt(disk.where(name), offset=size, reason=f"it ends here and not at {head.size}")
    return head
