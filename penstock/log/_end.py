"""The end of a log: appends get their offsets here, switch to the next plog, and move away from one that has failed.

Many threads may append. Each append gets its offset under the lock, in order, and its thread waits for the disk without
the lock, so that waiting threads share a sync. When the active plog is full, the append that does not fit goes into the
pre-allocated plog at once, and so do the appends after it; none of them is acknowledged before the switch is recorded.
The thread that waits first records the switch. At most one switch is under way.

After a failure with an unknown outcome, the known end of the log is discarded. The next append recovers the end as
after a crash, and first seals the plog in question, so that an append that arrives there late is refused.

**Moves.** A replicated plog fails when one of its servers does: its appends end with ``ReplicaLost`` or
``GroupUnavailable``. Callers do not see that. So on replicated plogs the log keeps the appends under way in order, with
their data, until they are acknowledged. The first thread that gets the error moves the log, while it holds the lock, so
that no append begins meanwhile:

1. If a switch is under way, it is abandoned: nothing in the plog after it was acknowledged. The failed plog is then the
   active one of the log's record.
2. A seal decides the end of that plog, L. The appends before L are part of the log, and done. If L is not the end of
   one of the appends under way, another process was here, and the log is fenced.
3. The plog after it is replaced, if it is in the same group or holds appends of the abandoned switch.
4. The log switches to the next plog, which is recorded at once: if that plog fails, too, then what it has got is not
   lost. The appends behind L are appended there again, in order, at the same offsets of the log.

If the seal fails, the outcome of all appends under way is unknown: they end with the error that began the move, as
after any failure. If a later step fails, those that found no place end with that error, and nothing of them is kept. A
position that was promised in a plog that the log has left means the same offset of the log, as long as none is lost.

**Locks** are taken in this order: the lock of the log (of several logs in the order of their names); ``next_lock``, by
threads that use the pre-allocated plog; the lock of a switch; the manager's lock, under which protocols run;
``chains``. A seal that begins a move, and the wait for the last append before a switch, do without the manager's lock:
they take as long as servers take to answer, and other logs go on. A thread that waits for a result holds no lock of the
log, except where the log has to be quiet (splice, release, roll) or has too much under way. A truncation and a deletion
need the manager's lock alone, so they may come between the steps of a move. Neither changes the active plog; a move of
a log that was deleted ends with ``NoSuchLog``.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock import forks
from penstock.errors import (
    AppendTooLarge,
    CpoUnavailable,
    LogFenced,
    LogUnavailable,
    NoSuchLog,
    PenstockError,
    PlogSealed,
    WrongPosition,
)
from penstock.frames import ReceivedMemory
from penstock.log._actions import LOST, TRIES_MAX, log_unavailable
from penstock.log._appends import FENCED, NextAppend, PendingLogAppend, PlogSwitch
from penstock.log._in_flight import IN_FLIGHT_SIZE_MAX, InFlight
from penstock.log._protocols import LogPosition, ensure_next, leave_plog, recover_tail, release_log
from penstock.plog import APPEND_SIZE_MAX
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.log._appends import Place
    from penstock.log._chain import LogChain
    from penstock.log._manager import MetadataManager
    from penstock.log._protocols import LogTail
    from penstock.plog import PendingAppend
    from penstock.ports import Bytes

__all__ = ["LogEnd"]


class LogEnd:
    """The end of one log; the log stream adds reading."""

    def __init__(self, manager: MetadataManager, name: str) -> None:
        forks.guard(self)
        self._manager, self.name = manager, name
        self._plogs = manager.plogs
        self.lock: Final = threading.Lock()  # held by an append until it has its offset
        self.next_lock: Final = threading.Lock()
        self._tail: LogTail | None = None
        self._switch: PlogSwitch | None = None
        self._last: PendingAppend | None = None
        self._failed = self._deleted = False
        self.is_replicated = manager.plogs.is_replicated
        self._in_flight = InFlight()
        self._kept = self._in_flight.appends  # empty unless the plogs are replicated

    def is_of(self, manager: MetadataManager) -> bool:
        """Return whether it is, or was, one of the manager's logs."""
        return self._manager is manager

    def move_to(self, tail: LogTail | None) -> None:
        """Continue at another tail, or at none, after a splice; the caller holds the lock, and the log is quiet."""
        self._tail, self._last = tail, None

    def mark_deleted(self) -> None:
        """Note that this log is deleted, even if another gets its name; the caller holds the manager's lock."""
        self._deleted = True

    @uninterrupted
    def append(self, *data: Buffer, expected: LogPosition | None = None) -> LogPosition:
        """Append ``data``, all parts as one; return the log's new end once it is durable.

        The data is in one plog, so it begins at ``offset - len(data)`` of the position returned. With ``expected``
        it is appended only if the log ends there: ``WrongPosition`` otherwise.
        """
        pending = self.submit(*data, expected=expected)
        pending.result()
        return pending.position

    @uninterrupted
    def submit(self, *data: Buffer, expected: LogPosition | None = None) -> PendingLogAppend:
        """Append without waiting; ``data`` must not change until the result is there."""
        size = sum([len(part) if type(part) is bytes else memoryview(part).nbytes for part in data])
        if size > APPEND_SIZE_MAX:
            raise AppendTooLarge(size=size, limit=APPEND_SIZE_MAX)
        if self.is_replicated:  # it may have to be appended again, when a caller has given up waiting for it
            data = tuple([part if type(part) is bytes else _lasting(part) for part in data])
        with self.lock:
            tail = self._current_tail()
            if self._kept:
                tail = self._limit_in_flight(tail, size)
            if expected is not None and not self._is_at(tail, expected):
                raise WrongPosition(self.name, expected=expected, tail=tail.position)
            try:
                if not tail.open or size > tail.size - tail.written:
                    tail = self._begin_switch(tail, size)
                pending = self._last = self._plogs.submit(tail.plog_id, tail.written, *data)
            except LOST as error:
                return self._submit_after_move(data, size, error)
            except FENCED as error:
                self.fail(tail)
                raise LogFenced(f"log {self.name!r}") from error
            start = tail.start + tail.written
            tail.written += size
            if (2 * tail.written > tail.size or self.is_replicated) and not (tail.next_size or tail.is_next_asked):
                tail.is_next_asked = True
                self._manager.spawn(self.prepare_next)
            append = PendingLogAppend(self, (tail, pending, self._switch), start, start + size)
            if self.is_replicated:
                append.data = data
                self._kept.append(append)
            return append

    def _is_at(self, tail: LogTail, position: LogPosition) -> bool:
        """Return whether the log ends at ``position``, which may be promised in a plog that the log has left since."""
        return tail.is_at(position) or self._in_flight.is_promised(position, tail.end)

    def _limit_in_flight(self, tail: LogTail, size: int) -> LogTail:
        """Wait until the data of the appends under way is below the limit; return the tail, which may have moved."""
        self._in_flight.forget_durable()
        while self._kept and tail.end + size - self._kept[0].start > IN_FLIGHT_SIZE_MAX:
            oldest = self._kept[0]
            _, pending, switch = oldest.place
            try:
                if pending is not None:
                    pending.result()
                if switch is not None:
                    switch.complete()
            except LOST as error:
                self._move(error)
            except PenstockError:
                self.fail(tail)
                raise
            else:
                self._in_flight.durable = max(self._in_flight.durable, oldest.end)
                self._in_flight.forget_durable()
            tail = self._current_tail()
        return tail

    def acknowledge(self, append: PendingLogAppend) -> None:
        """Note that an append, and with it all before it, is durable, so that its data need not be kept.

        Records in doubt may have deleted the log. So nothing is acknowledged before their outcome is known.
        """
        doubt = self._manager.partition.in_doubt
        if doubt is not None:
            try:
                self._manager.settle()
            except (CpoUnavailable, *LOST) as error:
                raise doubt.error from error
        append.data = ()
        self._in_flight.durable = max(self._in_flight.durable, append.end)
        if self.lock.acquire(blocking=False):  # else the next append does it
            try:
                self._in_flight.forget_durable()
            finally:
                self.lock.release()

    def complete(self, switch: PlogSwitch) -> None:
        """Record a switch, unless another thread did."""
        if switch.complete():
            tail = self._tail
            if tail is not None and self._is_next_due(tail):
                self._manager.spawn(self.prepare_next)

    def give_up(self, tail: LogTail, error: PenstockError) -> None:
        """Note that an append failed; raise ``LogFenced`` if the error shows that the log has a new owner."""
        with self.lock:
            self.fail(tail)
        if isinstance(error, FENCED):
            raise LogFenced(f"log {self.name!r}") from error

    def fail(self, tail: LogTail | None) -> None:
        """Discard the known end, so that the next append recovers it; the caller holds the lock."""
        if self._tail is tail:
            self._tail = self._switch = self._last = None
            self._failed = True
            self._in_flight.clear()

    def move_on(self, append: PendingLogAppend, place: Place, error: PenstockError) -> None:
        """Move the log because an append at this place has lost a replica, unless another thread did so meanwhile.

        Return when the append has another place; raise the error if the log's end was discarded meanwhile.
        """
        with self.lock:
            if append.place is place and append in self._kept:
                with suppress(PenstockError):  # the appends that it concerns report it
                    self._move(error)
            if append.place is place:
                raise error

    def _move(self, error: PenstockError) -> None:
        """Continue in another plog, because one that holds appends under way has lost a replica; see the module.

        The caller holds the lock. If this fails, the appends that are not in the log have ended with the error.
        """
        while True:
            try:
                self._cut_off(error)
            except PenstockError as failure:
                cause = LogFenced(f"log {self.name!r}") if isinstance(failure, FENCED) else failure
                self._in_flight.drop(list(self._kept), cause)
                self.fail(self._tail)
                raise cause from error
            behind = list(self._kept)
            try:
                while behind:
                    self._place(behind[0])
                    del behind[0]
            except LOST as again:
                error = again
            except PenstockError as failure:
                self._in_flight.drop(behind, failure)
                raise
            else:
                self._manager.spawn(self.prepare_next)
                return

    def _cut_off(self, error: PenstockError) -> None:
        """Decide where the failed plog ends, and leave it; only the appends behind its end stay in flight."""
        self._check_there()
        tail, switch, after = self._tail, self._switch, None
        assert tail is not None
        if switch is not None and switch.abandon(error):
            tail, after = switch.old, tail
            self._in_flight.leave(after)
        try:
            length = self._manager.seal(tail.plog_id, size=tail.size)
        except (CpoUnavailable, *LOST) as failure:
            raise error from failure  # the outcome is as unknown as before
        if not self._in_flight.cut_at(tail.start + length, tail):
            raise PlogSealed(tail.plog_id, sealed_offset=length)
        self._in_flight.leave(tail)
        self._tail, self._switch, self._last = tail, None, None
        if not self._in_flight.count_move():
            reason = f"{TRIES_MAX} plogs in a row have lost a replica before an append was acknowledged"
            raise LogUnavailable(f"log {self.name!r}", reason=reason)
        with self.next_lock:  # a task in the background may be creating the next plog
            tail.written = length
            try:
                steps = leave_plog(self._manager.partition, self.name, tail, is_next_used=after is not None)
                self._manager.run(steps)
            except LOST as failure:
                raise log_unavailable(self.name, failure) from failure

    def _submit_after_move(self, data: tuple[Buffer, ...], size: int, error: PenstockError) -> PendingLogAppend:
        """Append behind those that have to move; the caller holds the lock."""
        assert self._tail is not None
        start = self._tail.end
        append = PendingLogAppend(self, (self._tail, None, None), start, start + size, data)
        self._kept.append(append)
        with suppress(PenstockError):  # if that concerns this append, it has the error
            self._move(error)
        if append.error is not None:
            raise append.error
        return append

    def _place(self, append: PendingLogAppend) -> None:
        """Append again at the end of the log, where it was promised to be; the caller holds the lock."""
        tail, size = self._current_tail(), append.end - append.start
        if not tail.open or size > tail.size - tail.written:
            tail = self._begin_switch(tail, size)
            assert self._switch is not None
            self._complete_before(tail, self._switch)
        assert tail.end == append.start, "an append that moves keeps its offset"
        try:
            pending = self._last = self._plogs.submit(tail.plog_id, tail.written, *append.data)
        except FENCED as error:
            self.fail(tail)
            raise LogFenced(f"log {self.name!r}") from error
        tail.written += size
        append.place = (tail, pending, self._switch)

    def _current_tail(self) -> LogTail:
        """Return the log's tail, recovered if it is not known; the caller holds the lock."""
        tail = self._tail
        if tail is not None and not (self._deleted or self._manager.is_closed):
            return tail
        self._manager.check_open()
        self._check_there()
        if self._tail is None:
            with self._manager.lock:
                self._check_there()
                try:
                    self._tail = self._manager.run(recover_tail(self._manager.partition, self.name, fence=self._failed))
                except LOST as error:
                    raise log_unavailable(self.name, error) from error
            self._failed = False
            self._manager.sweep()
            if self._is_next_due(self._tail):
                self._manager.spawn(self.prepare_next)
        return self._tail

    def _check_there(self) -> None:
        if self._deleted:
            raise NoSuchLog(self.name, partition=self._manager.partition.name)

    def _begin_switch(self, tail: LogTail, size: int) -> LogTail:
        """Switch to the pre-allocated plog; ``ReplicaLost`` and the like if the plog before the active one failed."""
        if self._switch is not None:
            self._complete_before(tail, self._switch)
        unsynced: list[PendingAppend] = []
        with self.next_lock, self._manager.lock:
            try:
                steps = ensure_next(self._manager.partition, self.name, tail, needed=size)
                self._manager.run(steps, unsynced=unsynced)  # what is appended there counts once the switch is recorded
            except LOST as error:
                raise log_unavailable(self.name, error) from error
            with self._manager.chains:
                new = tail.moved(self._chain().next)
        self._switch = PlogSwitch(self._manager, self.name, old=tail, new=new, last=self._last, unsynced=unsynced)
        self._tail, self._last = new, None
        return new

    def _complete_before(self, tail: LogTail, switch: PlogSwitch) -> None:
        """Record a switch before the next one begins, so that recovery has at most one to undo."""
        try:
            switch.complete()
        except LOST:
            raise
        except PenstockError:
            self.fail(tail)
            raise

    def _is_next_due(self, tail: LogTail) -> bool:
        """Return whether to pre-allocate the next plog: most logs of a store with thousands of them need none.

        On replicated plogs it is always due, because a log leaves a plog at once if it loses a replica.
        """
        return self.is_replicated or 2 * tail.written > tail.size

    def prepare_next(self) -> None:
        """Pre-allocate the plog for the next switch, in the background, unless the active plog is sealed."""
        with self.next_lock:
            tail = self._tail
            is_due = tail is not None and tail.open and self._is_next_due(tail)
            if tail is not None and is_due and self._manager.partition.sizes_of(self.name).ahead:
                self._manager.run(ensure_next(self._manager.partition, self.name, tail, needed=1))
        self._manager.sweep()

    @property
    def tail(self) -> LogPosition:
        """The position of the next append."""
        with self.lock:
            return self._current_tail().position

    def next_append(self, size: int) -> NextAppend:
        """Return the place of the next append, if it has this size, and whether it becomes durable in order."""
        with self.lock:
            tail = self._current_tail()
            # In the next plog it counts once the switch is recorded, and that record is still to be submitted.
            is_switch = (not tail.open or size > tail.size - tail.written) and not self.is_replicated
            return NextAppend(tail.position, tail.end, is_switch or self._plogs.keeps_order(tail.plog_id, size))

    @uninterrupted
    def release(self) -> None:
        """Free the allocated size that no append has used; the next append allocates again."""
        with self.lock:
            tail = self.quiet_tail()
            try:
                with self.next_lock:
                    self._manager.run(release_log(self._manager.partition, self.name, tail))
            except PenstockError as error:
                self.fail(tail)
                if isinstance(error, FENCED):
                    raise LogFenced(f"log {self.name!r}") from error
                raise
        self._manager.sweep()

    @uninterrupted
    def roll(self) -> None:
        """Let the next append go into a new plog, so that all present bytes can be truncated away."""
        self.release()
        with self.lock:
            tail = self.quiet_tail()
            if not tail.written:
                return
            self._begin_switch(tail, 1)
            self.quiet_tail()
        self._manager.spawn(self.prepare_next)

    def quiet_tail(self) -> LogTail:
        """Return the tail once no append is under way; the caller holds the lock, so no new one begins."""
        while True:
            tail = self._current_tail()
            try:
                if self._last is not None:
                    self._last.result()
                if self._switch is not None:
                    self._switch.complete()
            except LOST as error:
                self._move(error)
            except PenstockError:
                self.fail(tail)
                raise
            else:
                self._in_flight.durable = tail.end
                self._in_flight.forget_durable()
                return tail

    def _chain(self) -> LogChain:
        self._check_there()
        return self._manager.partition.metadata.logs[self.name]


def _lasting(part: Buffer) -> Bytes:
    """Return data that stays as it is: a copy, unless nobody can change it. A read-only view alone promises nothing."""
    view = memoryview(part).cast("B")
    is_fixed = view.readonly and type(view.obj) in {bytes, ReceivedMemory}
    return view if is_fixed else bytes(view)
