"""The journal: one fdatasync for all plogs of a folder.

Every change to a plog's file is written twice: into the file, which is synced some time later, and as a record
into the journal, which is synced at once for all threads that wait. So a thousand plogs cost one sync, not a thousand.

There is no background thread for this: it is a group commit with a leader. A thread that waits while no other thread
syncs becomes the leader. It writes all pending records, syncs once and wakes the others, the followers. The group is
expected to be as large as the last one, and the thread that completes it leads; so no thread has to be woken only to
lead. One of the waiting threads waits with a time limit, and leads the incomplete group when the limit has passed.

Two files take turns. When one is full, the other begins a new generation, and a checkpoint syncs, in the background,
every plog file that the full one has records of; after that its records are not needed. At most one checkpoint runs:
a leader that fills the second file before the checkpoint ends waits for it.

A sync that fails is never tried again, because the system may have dropped the data that it could not write. The
journal stops for good, and opening the folder again replays all acknowledged changes.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.errors import DiskFailed, StoreClosed
from penstock.plog._journal_file import (
    JOURNAL_HEAD_SIZE,
    JOURNAL_NAMES,
    RECORD_HEADER_SIZE,
    JournalHead,
    pack_record_header,
    write_head,
)
from penstock.ports import write_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.ports import Disk

__all__ = ["Journal", "Subject", "SyncTimes", "Ticket"]

_PATIENCE_S: Final = 0.0002  # about the time it takes to wake eight threads


class Subject(Protocol):
    """The owner of the file that a record changes, as the journal uses it."""

    changes: int  # the number of records so far
    dirty: bool  # there are records that may not be in the subject's own file

    @property
    def uid(self) -> bytes:
        """The uid of the plog, which names its file."""

    def acknowledge(self, offset: int) -> None:
        """Note that everything up to ``offset`` is durable."""

    def checkpoint(self, change: int) -> None:
        """Make the subject's own file durable; the records up to ``change`` are not needed after that."""


class Ticket(msgspec.Struct, eq=False):
    """A change under way; :meth:`result` returns when it is durable."""

    journal: Journal
    subject: Subject
    change: int
    kind: bytes
    position: int
    parts: tuple[bytes, ...]
    size: int
    offset: int  # the subject acknowledges up to here when this is done
    gates: list[threading.Lock] = []  # one for each waiting thread
    durable: bool = False  # the record is synced: a checkpoint may rely on it
    done: bool = False  # the subject has acknowledged it, and all waiting threads are woken
    error: DiskFailed | None = None

    def result(self) -> int:
        """Wait until the change is durable; return the offset it reached. The caller is within a step."""
        if not self.done:
            self.journal.wait(self)
        if self.error is not None:
            raise self.error
        return self.offset


class SyncTimes:
    """A histogram of sync durations; counting a sync costs a thousandth of its duration."""

    BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(self.BOUNDS_S) + 1)
        self._total_s = 0.0

    def note(self, seconds: float) -> None:
        """Count a sync; one that fails is not counted."""
        with self._lock:
            self._counts[bisect_left(self.BOUNDS_S, seconds)] += 1
            self._total_s += seconds

    def figures(self) -> tuple[list[int], float]:
        """Return the number of syncs in each bucket, the last above all bounds, and the sum of their seconds."""
        with self._lock:
            return self._counts.copy(), self._total_s

    @property
    def count(self) -> int:
        """The number of syncs."""
        return sum(self.figures()[0])


class Journal:
    """The two journal files, the changes pending, and the group commit; see the module."""

    def __init__(self, disk: Disk, head: JournalHead) -> None:
        self._disk = disk
        self._size: Final = head.size
        self._files = tuple(disk.open(name) for name in JOURNAL_NAMES)
        self._mutex = threading.Lock()
        self._pending: list[Ticket] = []
        self._batch: list[Ticket] = []  # the changes being written and synced
        self._leader: threading.Lock | None = None  # the leader's gate
        self._patient: threading.Lock | None = None  # the gate of the thread that waits with a limit
        self._group_size = 1  # the appends of the last group, and the changes pending at its end
        self.stopped: DiskFailed | None = None  # the failure after which it takes no more changes
        self._closed = False
        self._generation = head.generation
        self._active = self._generation % 2  # index of the file
        self._place = self._synced = JOURNAL_HEAD_SIZE
        self._dirty: dict[Subject, int] = {}  # subjects of this generation's records, and the last change of each
        self._checkpointer: threading.Thread | None = None
        self.syncs: Final = SyncTimes()

    def submit(self, subject: Subject, *, kind: bytes, position: int, parts: tuple[bytes, ...], offset: int) -> Ticket:
        """Queue a change of the subject; it becomes durable when a thread waits for it or for a later change."""
        subject.changes += 1
        subject.dirty = True
        ticket = Ticket(
            self, subject, subject.changes, kind=kind, position=position, parts=parts,
            size=sum(map(len, parts)), offset=offset,
        )  # fmt: skip
        with self._mutex:
            if self.stopped is not None:
                raise _copy(self.stopped)
            if self._closed:
                raise StoreClosed(f"the plog folder {self._disk.where()}")
            self._pending.append(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Return when the ticket is done; lead the group if it is complete, or if no other thread leads in time."""
        gate, timed_out = threading.Lock(), False
        gate.acquire()
        try:
            while not ticket.done and (limit := self._turn_of(ticket, gate, timed_out=timed_out)) is not None:
                if limit:
                    timed_out = not gate.acquire(timeout=limit)  # opened when the ticket is done, or a leader is needed
                else:
                    self._lead()
        except BaseException as error:
            self._give_up(ticket, gate, error)
            raise

    def _turn_of(self, ticket: Ticket, gate: threading.Lock, *, timed_out: bool) -> float | None:
        """Return the time to wait: 0 to become the leader, -1 for no limit, None if the ticket is done."""
        with self._mutex:
            if self._patient is gate:
                self._patient = None
            if ticket.done:
                return None
            if self._leader is None and (timed_out or len(self._pending) >= self._group_size):
                self._leader = gate
                return 0
            if gate not in ticket.gates:
                ticket.gates.append(gate)
            if self._leader is not None or self._patient is not None:
                return -1
            self._patient = gate
            return _PATIENCE_S

    def _give_up(self, ticket: Ticket, gate: threading.Lock, error: BaseException) -> None:
        """Stop waiting because of an interrupt; this thread may be the leader, or have been woken to become it."""
        gates: list[threading.Lock] = []
        with self._mutex:
            if gate in ticket.gates:
                ticket.gates.remove(gate)
            if self._patient is gate:
                self._patient = None
            leads = self._leader is gate
            if not leads:
                gates = self._next_leader()
        if leads:
            if self._batch:  # as after a failed sync, it is unknown how much was written
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
        """Complete all tickets of the batch, and wake one thread that came meanwhile, to become the leader."""
        gates: list[threading.Lock] = []
        appends = 0  # often nobody waits for another change
        try:
            with self._mutex:
                for ticket in self._batch:
                    appends += ticket.offset > 0
                    if self.stopped is None:
                        ticket.subject.acknowledge(ticket.offset)
                    else:
                        ticket.error = _copy(self.stopped)
                    ticket.done = True
                    ticket.parts = ()
                    gates += ticket.gates
                    ticket.gates = []
                self._group_size = appends + len(self._pending)
                self._batch = []
                self._leader = None
                if self._pending:
                    gates += self._next_leader()
        finally:
            if gates:
                _open(gates)

    def _next_leader(self) -> list[threading.Lock]:
        """Return the gate of a waiting thread, to be opened, if no thread is to lead; the caller holds the mutex."""
        if self._leader is None and self._patient is None:
            for ticket in self._pending:
                if ticket.gates:
                    return [ticket.gates.pop()]
        return []

    def _commit(self, batch: list[Ticket]) -> None:
        if self.stopped is not None:
            return
        group: list[Ticket] = []
        for ticket in batch:
            if self._place + RECORD_HEADER_SIZE + ticket.size > self._size:
                self._flush(group)
                group = []
                self._change_files()
            group.append(ticket)
            self._place += RECORD_HEADER_SIZE + ticket.size
        self._flush(group)

    def _flush(self, group: list[Ticket]) -> None:
        """Write the records of a group of changes, and sync once for all of them."""
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
        start = time.perf_counter()
        file.datasync()
        self.syncs.note(time.perf_counter() - start)
        self._synced = place
        for ticket in group:
            ticket.durable = True
            self._dirty[ticket.subject] = ticket.change

    def _change_files(self) -> None:
        """Continue in the other file, and checkpoint the subjects of this one's records."""
        self._join_checkpoint()
        dirty, self._dirty = self._dirty, {}
        self._begin_generation()
        self._checkpointer = threading.Thread(target=self._checkpoint, args=(dirty,), name="penstock-checkpoint")
        self._checkpointer.start()

    def _begin_generation(self) -> None:
        """Make the older file the active one; its head is durable before any record, so its old records are void."""
        self._generation += 1
        self._active = self._generation % 2
        write_head(self._files[self._active], JournalHead(self._generation, self._size, previous_end=self._synced))
        self._place = self._synced = JOURNAL_HEAD_SIZE

    def _checkpoint(self, dirty: dict[Subject, int]) -> None:
        try:
            for subject, change in dirty.items():
                subject.checkpoint(change)
            self._disk.sync()
        except Exception as error:  # noqa: BLE001 - after any error the records must not be overwritten
            self.stop(error, self._disk.where())

    def _join_checkpoint(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.join()
            self._checkpointer = None
        if self.stopped is not None:
            raise OSError(self.stopped.reason)

    def stop(self, error: BaseException, path: str) -> DiskFailed:
        """Take no more changes, because a sync failed and nothing is known about its data."""
        with self._mutex:
            if self.stopped is None:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                self.stopped = DiskFailed(path, reason=reason, stopped=True)
            return _copy(self.stopped)

    @property
    def acknowledging(self) -> threading.Lock:
        """Held while changes are acknowledged, of any plog; so its holder sees what was acknowledged at one moment."""
        return self._mutex

    def check_running(self) -> None:
        """Raise the failure that stopped the journal, if one did."""
        if self.stopped is not None:
            raise _copy(self.stopped)

    def close(self, behind: Iterable[Subject]) -> None:
        """Make every file durable by itself, also those in ``behind``; empty the journal, unless it was stopped."""
        self._drain()
        if self._checkpointer is not None:
            self._checkpointer.join()
        for subject in behind:
            self._dirty.setdefault(subject, subject.changes)
        if self.stopped is None and (self._dirty or self._checkpointer is not None):
            self._checkpoint(self._dirty)
        if self.stopped is None:
            try:
                self.reset()
            except OSError as error:
                self.stop(error, self._disk.where(JOURNAL_NAMES[self._active]))
        for file in self._files:
            file.close()

    def _drain(self) -> None:
        """Take no more changes, and return when those under way are done, so that no thread leads."""
        with self._mutex:
            self._closed = True
            under_way = [*self._batch, *self._pending]
        for ticket in under_way:
            self.wait(ticket)
        assert not self._pending

    def reset(self) -> None:
        """Void the records of both files: every plog's file is durable by itself."""
        self._begin_generation()
        self._begin_generation()


def _copy(error: DiskFailed) -> DiskFailed:
    """Return a new error for each caller: a shared one would collect the traceback of every place it is raised at."""
    return DiskFailed(error.path, reason=error.reason, stopped=error.stopped)


def _open(gates: Iterable[threading.Lock]) -> None:
    """Open all gates, even if an interrupt comes between two of them."""
    rest = iter(gates)
    try:
        for gate in rest:
            gate.release()
    finally:
        for gate in rest:
            gate.release()
