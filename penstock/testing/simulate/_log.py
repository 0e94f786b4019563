"""A log of a simulated owner: many appends under way, plog switches, and recovery after a lost replica.

It does with the protocols of :mod:`penstock.log` what a log stream does with threads: an append that does not fit goes
into the pre-allocated plog at once; none is acknowledged before the switch is recorded; after a failure the end of the
log is recovered, and what lies behind it is appended again, in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError
from penstock.log import protocols as log
from penstock.testing.simulate._kernel import Future, Mutex, wait_all

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.testing.simulate._kernel import Waits
    from penstock.testing.simulate._owner import SimOwner
    from penstock.testing.simulate._world import World

__all__ = ["SimLog"]

_PAUSE_S: Final = 0.2


@dataclass(eq=False)
class _Entry:
    data: bytes
    start: int = -1
    committed: Future | None = None
    switch: Future | None = None


class SimLog:
    """One log of an owner that has opened the partition."""

    def __init__(self, world: World, owner: SimOwner, partition: log.Partition, name: str) -> None:
        self._world, self._owner, self.partition, self.name = world, owner, partition, name
        self._tail: log.LogTail | None = None
        self._switch: Future | None = None
        self._last: Future | None = None
        self._entries: deque[_Entry] = deque()
        self._lock = Mutex()
        self.acked = 0

    @property
    def pending(self) -> int:
        """The number of appends that are not acknowledged."""
        return len(self._entries)

    def plogs(self) -> list[tuple[PlogId, int]]:
        """Return the plogs and where each begins in the log; the last one is the active one."""
        chain = self.partition.metadata.logs[self.name]
        starts, start = [], chain.start
        for plog_id, length in chain.sealed:
            starts.append((plog_id, start))
            start += length
        return [*starts, (chain.active, start)]

    def read(self, *, skip: int = 0, first: int | None = None) -> Waits[tuple[int, bytes]]:
        """Read the log from the plog number ``skip`` on, up to its end; return the offset and the bytes."""
        plogs = self.plogs()[skip:]
        lengths = dict(self.partition.metadata.logs[self.name].sealed)
        content = b""
        for plog_id, _ in plogs:
            length = lengths[plog_id] if plog_id in lengths else (yield from self._owner.info(plog_id)).length
            content += b"".join((yield from self._owner.read(plog_id, 0, length, first)))
        return plogs[0][1], content

    def open(self) -> Waits[None]:
        """Recover the end of the log, as a new owner does."""
        yield from self._lock.held(self._recover())

    def append(self, data: bytes) -> None:
        """Append without waiting."""
        self._entries.append(_Entry(data))
        self._go_on()

    def _go_on(self) -> None:
        self._world.kernel.spawn(self._owner.process, self._lock.held(self._submit_all()))

    def _submit_all(self) -> Waits[None]:
        """Send all appends that are not under way."""
        while (entry := next((entry for entry in self._entries if entry.committed is None), None)) is not None:
            try:
                if self._tail is None:
                    yield from self._recover()
                    continue
                tail = self._tail
                if not tail.open or len(entry.data) > tail.size - tail.written:
                    tail = yield from self._begin_switch(tail, len(entry.data))
                entry.committed = self._last = self._owner.submit(tail.plog_id, tail.written, entry.data)
            except PenstockError as error:
                self._tail = None
                if not self._world.may_retry(self._owner, error):
                    return
                yield self._world.kernel.sleep(_PAUSE_S, self._owner.process)
                continue
            entry.start, entry.switch = tail.end, self._switch
            tail.written += len(entry.data)
            entry.committed.when_done(self._acknowledge)

    def _begin_switch(self, tail: log.LogTail, size: int) -> Waits[log.LogTail]:
        if self._switch is not None:
            yield self._switch
        partition, name = self.partition, self.name
        yield from self._owner.run_log(log.ensure_next(partition, name, tail, needed=size))
        new = tail.moved(partition.metadata.logs[name].next)
        self._switch = self._world.kernel.spawn(self._owner.process, self._record(tail, new, self._last))
        self._switch.when_done(self._acknowledge)
        self._tail, self._last = new, None
        return new

    def _record(self, old: log.LogTail, new: log.LogTail, last: Future | None) -> Waits[None]:
        if last is not None:
            yield last
        yield from self._owner.run_log(log.record_switch(self.partition, self.name, old=old, new=new))

    def _acknowledge(self) -> None:
        """Acknowledge in order what is committed and whose switch is recorded."""
        while self._entries:
            entry = self._entries[0]
            waits = [future for future in (entry.committed, entry.switch) if future is not None]
            if entry.committed is None or not all(future.is_done for future in waits):
                return
            if any(future.error is not None for future in waits):
                self._tail = None
                self._go_on_after_failure(entry)
                return
            self._acked(self._entries.popleft())

    def _go_on_after_failure(self, entry: _Entry) -> None:
        errors = [future.error for future in (entry.committed, entry.switch) if future is not None]
        if not all(self._world.may_retry(self._owner, error) for error in errors if error is not None):
            return
        for later in self._entries:
            later.committed = None
        self._go_on()

    def _acked(self, entry: _Entry) -> None:
        self.acked += 1
        self._world.truth.note_acked(self._owner.epoch, entry.start, entry.data)

    def _recover(self) -> Waits[None]:
        """Find the end of the log; what lies before it is acknowledged, what lies behind it is appended again."""
        if self._switch is not None:
            yield from wait_all([self._switch])
            self._switch = None
        partition = self.partition
        tail = yield from self._owner.run_log(log.recover_tail(partition, self.name, fence=True))
        while self._entries and self._entries[0].start >= 0:
            entry = self._entries[0]
            if entry.start + len(entry.data) > tail.end:
                break
            self._acked(self._entries.popleft())
        for entry in self._entries:
            entry.start, entry.committed, entry.switch = -1, None, None
        self._tail, self._switch, self._last = tail, None, None
