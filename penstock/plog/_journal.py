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

from penstock.errors import DiskFailed, JournalCorrupt, StoreClosed
from penstock.plog._journal_record import (
    JOURNAL_HEAD_SIZE,
    RECORD_HEADER_SIZE,
    JournalHead,
    pack_record_header,
    scan_journal,
)
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


class Ticket:
    """A change under way; :meth:`result` returns when it is durable."""

    __slots__ = (
        "_journal",
        "change",
        "done",
        "durable",
        "error",
        "gates",
        "kind",
        "offset",
        "parts",
        "position",
        "size",
        "subject",
    )

    def __init__(
        self, journal: Journal, subject: Subject, *, kind: bytes, position: int, parts: tuple[Bytes, ...], offset: int
    ) -> None:
        self._journal = journal
        self.subject, self.kind, self.position, self.parts = subject, kind, position, parts
        self.size = sum(map(len, parts))
        self.change = subject.changes
        self.offset = offset  # what the subject has acknowledged when this is done
        self.gates: list[threading.Lock] = []  # one for each thread that waits
        self.durable = False  # its record is: a checkpoint may count on it
        self.done = False  # and its subject and whoever waits know
        self.error: DiskFailed | None = None

    @uninterrupted
    def result(self) -> int:
        """Wait until the change is durable; return the offset it reached."""
        if not self.done:
            self._journal.wait(self)
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
        self._lead_lock = threading.Lock()  # held by who leads
        self._pending: list[Ticket] = []
        self._leading = False
        self._patient: Ticket | None = None  # whose waiter has a limit, and leads when it has passed
        self._company = 1  # how many changes the last group and those behind it were
        self._stopped: DiskFailed | None = None
        self._closed = False
        self._generation = head.generation
        self._place = self._synced = JOURNAL_HEAD_SIZE
        self._dirty: dict[Subject, int] = {}  # what this generation has records of, and the last one's number
        self._checkpointer: threading.Thread | None = None
        self.sync_count = 0

    @property
    def _active(self) -> int:
        return self._generation % 2

    def submit(self, subject: Subject, *, kind: bytes, position: int, parts: tuple[Bytes, ...], offset: int) -> Ticket:
        """Queue a change; it becomes durable when somebody waits for it or for a later one."""
        ticket = Ticket(self, subject, kind=kind, position=position, parts=parts, offset=offset)
        with self._mutex:
            if self._stopped is not None:
                raise self._stopped
            if self._closed:
                raise StoreClosed(f"the plog folder {self._disk.where()}")
            self._pending.append(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Return when the ticket is done, leading the group if it is complete or nobody else does."""
        gate, tired = threading.Lock(), False
        gate.acquire()
        try:
            while not ticket.done:
                limit = self._turn_of(ticket, gate, tired=tired)
                if limit == 0:
                    self._lead()
                else:
                    tired = not gate.acquire(timeout=limit)  # opened when the ticket is done, or may have to lead
        except BaseException:
            self._give_up(ticket, gate)
            raise

    def _turn_of(self, ticket: Ticket, gate: threading.Lock, *, tired: bool) -> float:
        """Return how long to wait at most: no time at all for who is to lead, and -1 for as long as it takes."""
        with self._mutex:
            if self._patient is ticket:
                self._patient = None
            if not ticket.done and not self._leading and (tired or len(self._pending) >= self._company):
                self._leading = True
                return 0
            if gate not in ticket.gates and not ticket.done:
                ticket.gates.append(gate)
            if self._leading or self._patient is not None or ticket.done:
                return -1
            self._patient = ticket
            return _PATIENCE_S

    def _give_up(self, ticket: Ticket, gate: threading.Lock) -> None:
        """Wait no more, because of Ctrl-C; it may have been our turn at that very moment."""
        with self._mutex:
            if gate in ticket.gates:
                ticket.gates.remove(gate)
            if self._patient is ticket:
                self._patient = None
            heir = self._next_in_turn()
        if heir is not None:
            heir.release()

    def _lead(self) -> None:
        batch: list[Ticket] = []
        with self._lead_lock:
            try:
                with self._mutex:
                    batch, self._pending = self._pending, []
                    self._patient = None
                self._commit(batch)
            except OSError as error:
                self.stop(error, self._disk.where(JOURNAL_NAMES[self._active]))
            except BaseException as error:
                if batch:  # as after a failed sync, nobody knows how far it came
                    self.stop(error, self._disk.where(JOURNAL_NAMES[self._active]))
                raise
            finally:
                self._finish(batch)

    def _finish(self, batch: list[Ticket]) -> None:
        """Tell everybody in the batch, and let one that came in the meantime see whether to lead."""
        with self._mutex:
            for ticket in batch:
                ticket.error = self._stopped
                if ticket.error is None:
                    ticket.subject.acknowledge(ticket.offset)
                ticket.done = True
                ticket.parts = ()
            self._company = len(batch) + len(self._pending)
            self._leading = False
            heir = self._next_in_turn()
        for ticket in batch:
            for gate in ticket.gates:
                gate.release()
        if heir is not None:
            heir.release()

    def _next_in_turn(self) -> threading.Lock | None:
        """Return the gate of one that waits, to be opened, if nobody takes care; the caller holds the mutex."""
        if self._leading or self._patient is not None:
            return None
        return next((ticket.gates.pop() for ticket in self._pending if ticket.gates), None)

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
        file.datasync()
        self._synced = place
        self.sync_count += 1
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
            return self._stopped

    @property
    def stopped(self) -> DiskFailed | None:
        """The failure that stopped the journal, if one did."""
        return self._stopped

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
        """Take no more changes, and return when those under way are done and nobody leads."""
        with self._mutex:
            self._closed = True
            pending = list(self._pending)
        for ticket in pending:
            self.wait(ticket)
        with self._lead_lock:
            assert not self._pending

    def reset(self) -> None:
        """Void the records of both files, if there are any: every plog's file has what they say."""
        self._begin_generation()
        self._begin_generation()


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
