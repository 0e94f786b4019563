"""The log stream: an endless log over many plogs.

Many threads may append. Each append gets its offset under the lock, in order, and its thread waits for the disk without
the lock, so that waiting threads share a sync. When the active plog is full, the append that does not fit goes into the
pre-allocated plog at once, and so do the appends after it; none of them is acknowledged before the switch is recorded.
The thread that waits first records the switch. At most one switch is under way.

After a failure with an unknown outcome, the known end of the log is discarded. The next append recovers the end as
after a crash, and first seals the plog in question, so that an append that arrives there late is refused.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeVar

from penstock import forks
from penstock.errors import (
    AppendTooLarge,
    BadArgument,
    LogFenced,
    NoSuchLog,
    NoSuchPlog,
    NotInLog,
    PenstockError,
    PlogCorrupt,
    ReadOutOfRange,
    WrongPosition,
)
from penstock.log._appends import FENCED, NextAppend, PendingLogAppend, PlogSwitch
from penstock.log._chain import PlogStarts, find_run
from penstock.log._protocols import LogPosition, ensure_next, recover_tail, release_log
from penstock.log._records import Truncate
from penstock.plog import APPEND_SIZE_MAX
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from typing_extensions import Buffer

    from penstock.log._chain import LogChain, PlogRange
    from penstock.log._manager import MetadataManager
    from penstock.log._protocols import LogTail
    from penstock.model import PlogId
    from penstock.plog import LocatedBlocks, PendingAppend, PlogInfo
    from penstock.ports import Bytes

__all__ = ["LogStream"]

T = TypeVar("T")


class LogStream:
    """A log: bytes are appended at its end and read from any place. Created by :meth:`MetadataManager.log`."""

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

    def is_of(self, manager: MetadataManager) -> bool:
        """Return whether it is, or was, one of the manager's logs."""
        return self._manager is manager

    def move_to(self, tail: LogTail | None) -> None:
        """Continue at another tail, or at none, after a splice; the caller holds the lock."""
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
        with self.lock:
            tail = self._tail
            if tail is None or self._deleted or self._manager.is_closed:
                tail = self._current_tail()
            if expected is not None and not tail.is_at(expected):
                raise WrongPosition(self.name, expected=expected, tail=tail.position)
            if not tail.open or size > tail.size - tail.written:
                tail = self._begin_switch(tail, size)
            try:
                pending = self._last = self._plogs.submit(tail.plog_id, tail.written, *data)
            except FENCED as error:
                self.fail(tail)
                raise LogFenced(f"log {self.name!r}") from error
            start = tail.start + tail.written
            tail.written += size
            return PendingLogAppend(self, tail, start, start + size, pending, self._switch)

    def complete(self, switch: PlogSwitch) -> None:
        """Record a switch, unless another thread did."""
        if switch.complete():
            self._manager.spawn(self.prepare_next)

    def give_up(self, tail: LogTail, error: PenstockError) -> None:
        """Note that an append failed; raise ``LogFenced`` if the error shows that the log has a new owner."""
        with self.lock:
            self.fail(tail)
        if isinstance(error, FENCED):
            raise LogFenced(f"log {self.name!r}") from error

    def fail(self, tail: LogTail) -> None:
        """Discard the known end, so that the next append recovers it; the caller holds the lock."""
        if self._tail is tail:
            self._tail = self._switch = self._last = None
            self._failed = True

    def _current_tail(self) -> LogTail:
        """Return the log's tail, recovered if it is not known; the caller holds the lock."""
        self._manager.check_open()
        self._check_there()
        if self._tail is None:
            with self._manager.lock:
                self._check_there()
                self._tail = self._manager.run(recover_tail(self._manager.partition, self.name, fence=self._failed))
            self._failed = False
            self._manager.sweep()
            self._manager.spawn(self.prepare_next)
        return self._tail

    def _check_there(self) -> None:
        if self._deleted:
            raise NoSuchLog(self.name, partition=self._manager.partition.name)

    def _begin_switch(self, tail: LogTail, size: int) -> LogTail:
        if self._switch is not None:
            self._complete_before(tail, self._switch)
        with self.next_lock, self._manager.lock:
            self._manager.run(ensure_next(self._manager.partition, self.name, tail, needed=size))
            with self._manager.chains:
                new = tail.moved(self._chain().next)
        self._switch = PlogSwitch(self._manager, self.name, old=tail, new=new, last=self._last)
        self._tail, self._last = new, None
        return new

    def _complete_before(self, tail: LogTail, switch: PlogSwitch) -> None:
        """Record a switch before the next one begins, so that recovery has at most one to undo."""
        try:
            switch.complete()
        except PenstockError:
            self.fail(tail)
            raise

    def prepare_next(self) -> None:
        """Pre-allocate the plog for the next switch, in the background, unless the active plog is sealed."""
        with self.next_lock:
            tail = self._tail
            if tail is not None and tail.open and self._manager.partition.sizes_of(self.name).ahead:
                self._manager.run(ensure_next(self._manager.partition, self.name, tail, needed=1))
        self._manager.sweep()

    def read(self, plog_id: PlogId, offset: int, size: int) -> Iterator[memoryview]:
        """Return ``size`` bytes from ``offset`` of a plog on, across as many plogs as necessary.

        They come as they were appended, piece by piece, without a copy; each plog is opened when it is reached.
        """
        if offset < 0 or size < 0:
            raise BadArgument(f"invalid read of {size} bytes at {offset} of log {self.name!r}: use 0 or more for both")
        with self._manager.chains:
            start, plog_length = self._place_of(plog_id)
            end = self._end()
            if offset > plog_length or start + offset + size > end:
                raise ReadOutOfRange(plog_id, offset=offset, size=size, length=min(plog_length, end - start))
            parts = self._parts(start + offset, start + offset + size)
        by_plog = self._by_plog(parts, start + offset + size, self._plogs.views)
        return (view for *_, views in by_plog for view in views)

    def _parts(self, offset: int, end: int) -> list[tuple[int, PlogRange]]:
        """Return the parts of plogs that hold these bytes, each with its plog's start; the caller holds ``chains``."""
        chain = self._chain()
        return [(chain.start_of(part.plog_id), part) for part in chain.ranges(offset, end)]

    def _by_plog(
        self, parts: list[tuple[int, PlogRange]], end: int, read: Callable[[PlogId, int, int], T]
    ) -> Iterator[tuple[int, bytes, T]]:
        """Read the parts one after another up to ``end``; if a plog was merged meanwhile, read the merged one.

        Return the plog's start, its label and the result of ``read``, for each part.
        """
        todo = parts[::-1]
        while todo:
            start, part = todo.pop()
            try:
                result = read(part.plog_id, part.offset, part.size)
            except NoSuchPlog as error:
                with self._manager.chains:
                    chain = None if self._deleted else self._manager.partition.metadata.logs.get(self.name)
                    if chain is None or part.plog_id in chain or start + part.offset < chain.start:
                        raise self._gone(part.plog_id) from error
                    todo = self._parts(start + part.offset, end)[::-1]
            else:
                yield start, part.label, result

    def plogs(self) -> list[tuple[PlogId, int, bool]]:
        """Return the log's plogs in order: id, length, whether it is sealed. The last one takes the appends."""
        with self._manager.chains:
            chain = self._chain()
            sealed = [(plog_id, length, True) for plog_id, length in chain.sealed]
            info = self._active_info()
            return [*sealed, (chain.active, info.length, info.sealed)]

    @property
    def start(self) -> int:
        """The offset at which the log begins now: the number of bytes truncated away so far."""
        with self._manager.chains:
            return self._chain().start

    @property
    def length(self) -> int:
        """The offset at which the log ends: all bytes it ever had, including those truncated away and spliced in."""
        with self._manager.chains:
            return self._end()

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
            in_order = not tail.open or size > tail.size - tail.written or self._plogs.keeps_order(tail.plog_id, size)
            return NextAppend(tail.position, tail.end, in_order)

    def blocks(self, offset: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Return every append that holds any byte from ``offset`` to ``end``, complete, with its offset in the log.

        Offsets count from the log's first byte. Each plog is opened when it is reached.
        """
        return ((start, view) for start, view, _ in self.labelled_blocks(offset, end))

    def labelled_blocks(self, offset: int, end: int) -> Iterator[tuple[int, memoryview, bytes]]:
        """Return the blocks with the label with which each was spliced into the log; empty if it was not."""
        with self._manager.chains:
            chain = self._chain()
            if not chain.start <= offset <= end:
                reason = f"invalid range {offset} to {end} of log {self.name!r}: it begins at {chain.start}"
                raise BadArgument(reason)
            parts = self._parts(offset, end)
        for start, label, blocks in self._by_plog(parts, end, self._plogs.blocks):
            yield from ((start + place, view, label) for place, view in blocks)

    def locate(self, offset: int, end: int) -> list[tuple[int, bytes, LocatedBlocks]]:
        """Return the places of appends that hold bytes from ``offset`` to ``end``, by plog, with start and label."""
        with self._manager.chains:
            parts = self._parts(offset, end)
        return list(self._by_plog(parts, end, self._plogs.locate))

    def span(self, first: PlogId, count: int) -> tuple[int, int]:
        """Return the offsets at which ``count`` sealed plogs from ``first`` on begin and end."""
        with self._manager.chains:
            span = self._chain().span(first, count)
        if span is None:
            raise NotInLog(self.name, first)
        return span

    def small_plogs(self, *, largest: int, group: Callable[[int], int] | None = None) -> tuple[PlogId, int] | None:
        """Return the first plog of a run that should be merged, and the number of plogs; None if there is no such run.

        The run has at most ``largest`` bytes; ``group`` maps a plog's start to its group, and a run is of one group.
        """
        with self._manager.chains:
            chain = self._chain()
            sealed, offset = chain.sealed, chain.start
        starts = accumulate((length for _, length in sealed), initial=offset)
        run = find_run([length for _, length in sealed], list(starts), largest=largest, group=group)
        return None if run is None else (sealed[run.start][0], len(run))

    def plog_at(self, offset: int) -> PlogId:
        """Return the plog that holds the byte at this offset in the log."""
        with self._manager.chains:
            return self._chain().ranges(offset, offset + 1)[0].plog_id

    def plog_starts(self) -> PlogStarts:
        """Return the offsets at which the plogs begin, counted from the log's first byte; nothing is copied."""
        with self._manager.chains:
            return PlogStarts(self._chain(), self._manager.chains)

    @uninterrupted
    def truncate(self, plog_id: PlogId) -> None:
        """Truncate the log, so that it begins with ``plog_id``; the plogs before it are deleted in the background."""
        with self._manager.lock:
            with self._manager.chains:
                self._place_of(plog_id)
            self._manager.record(Truncate(self.name, str(plog_id)))
        self._manager.sweep()

    def merge(
        self,
        first: PlogId,
        count: int,
        *,
        guard: AbstractContextManager[object] | None = None,
        rewrite: Callable[[memoryview, bytes], Sequence[Bytes]] | None = None,
    ) -> bool:
        """Copy ``count`` sealed plogs from ``first`` on into one, which replaces them; return whether it did.

        Offsets and the borders of appends stay. ``guard`` is held while the plogs are replaced, not while they are
        copied. Nothing changes if the plogs were truncated away meanwhile. The new plog has no label; ``rewrite`` may
        write the information of the labels into the appends, whose lengths must not change.
        """
        return self._manager.merge(self, first, count, guard=guard or nullcontext(), rewrite=rewrite)

    def splice(self, *sources: LogStream) -> None:
        """Append all bytes of other logs of this partition to this log, in one step, and delete those logs.

        The cost does not depend on the number of bytes.
        """
        self._manager.splice({self: sources})

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
        tail = self._current_tail()
        try:
            if self._last is not None:
                self._last.result()
            if self._switch is not None:
                self._switch.complete()
        except PenstockError:
            self.fail(tail)
            raise
        return tail

    def _chain(self) -> LogChain:
        self._check_there()
        return self._manager.partition.metadata.logs[self.name]

    def _place_of(self, plog_id: PlogId) -> tuple[int, int]:
        """Return the start and the length of a plog of this log."""
        chain = self._chain()
        try:
            start = chain.start_of(plog_id)
        except KeyError:
            raise NotInLog(self.name, plog_id) from None
        return start, (self._end() if plog_id == chain.active else chain.end_of(plog_id)) - start

    def _end(self) -> int:
        return self._chain().active_start + self._active_info().length

    def _active_info(self) -> PlogInfo:
        active = self._chain().active
        try:
            return self._plogs.info(active)
        except NoSuchPlog as error:
            raise self._gone(active) from error

    def _gone(self, plog_id: PlogId) -> PenstockError:
        """Return the error for a plog that does not exist; the caller holds ``chains``."""
        chain = None if self._deleted else self._manager.partition.metadata.logs.get(self.name)
        if chain is None or plog_id not in chain:
            return NotInLog(self.name, plog_id)
        reason = f"it is missing, and log {self.name!r} needs it (unless the log has a new owner)"
        return PlogCorrupt(self._plogs.where(plog_id), offset=None, reason=reason)
