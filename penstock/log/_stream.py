"""The log stream: one endless log over many plogs.

Many threads may append. Each takes its place under the lock, in order, and waits for the disk outside of it, so
that those who wait share a sync. When the active plog is full, the append that does not fit goes into the
pre-allocated one at once, and so do those behind it; none of them is acknowledged before the switch is recorded.
Whoever waits first records it. At most one switch is under way.

When anything fails whose outcome is unknown, all that was known about the log's end is thrown away. The next
append recovers it as after a crash, first sealing the plog in question, so that what could still arrive there
late is refused.
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
from penstock.log._chain import PlogStarts
from penstock.log._merging import find_run
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
    """A log: bytes in, at its end; bytes out, from anywhere. Get one from :meth:`MetadataManager.log`."""

    def __init__(self, manager: MetadataManager, name: str) -> None:
        forks.guard(self)
        self._manager, self.name = manager, name
        self._plogs = manager.plogs
        self.lock: Final = threading.Lock()  # held by who appends, until its place is taken
        self.next_lock: Final = threading.Lock()
        self._tail: LogTail | None = None
        self._switch: PlogSwitch | None = None
        self._last: PendingAppend | None = None
        self._failed = self._deleted = False

    def is_of(self, manager: MetadataManager) -> bool:
        """Whether it is, or was, one of the manager's logs."""
        return self._manager is manager

    def move_to(self, tail: LogTail | None) -> None:
        """Go on elsewhere, or nowhere, after a splice; the caller holds the lock."""
        self._tail, self._last = tail, None

    def mark_deleted(self) -> None:
        """Note that the log is gone, whatever is created under its name; the caller holds the manager's lock."""
        self._deleted = True

    @uninterrupted
    def append(self, *data: Buffer, expected: LogPosition | None = None) -> LogPosition:
        """Append ``data``, all parts as one; return the log's end behind it once it is durable.

        It lies in one plog, so it begins at ``offset - len(data)`` of the position returned. With ``expected``
        it is appended only if the log ends there: ``WrongPosition`` otherwise.
        """
        pending = self.submit(*data, expected=expected)
        pending.result()
        return pending.position

    @uninterrupted
    def submit(self, *data: Buffer, expected: LogPosition | None = None) -> PendingLogAppend:
        """Append without waiting; ``data`` must not change before the result is there."""
        size = sum([len(part) if type(part) is bytes else memoryview(part).nbytes for part in data])
        if size > APPEND_SIZE_MAX:
            raise AppendTooLarge(size=size, limit=APPEND_SIZE_MAX)
        with self.lock:
            tail = self._current_tail()
            if expected is not None and not tail.is_at(expected):
                raise WrongPosition(self.name, expected=expected, tail=tail.position)
            if not tail.fits(size):
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
        """Record a switch, unless somebody else did."""
        if switch.complete():
            self._manager.spawn(self.prepare_next)

    def give_up(self, tail: LogTail, error: PenstockError) -> None:
        """Note that an append failed; raise what it means to the log, if that is more than the error says."""
        with self.lock:
            self.fail(tail)
        if isinstance(error, FENCED):
            raise LogFenced(f"log {self.name!r}") from error

    def fail(self, tail: LogTail) -> None:
        """Find out anew where the log ends before the next append; the caller holds the lock."""
        if self._tail is tail:
            self._tail = self._switch = self._last = None
            self._failed = True

    def _current_tail(self) -> LogTail:
        """Return where the log ends, finding it out if need be; the caller holds the lock."""
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
            self._manager.run(ensure_next(self._manager.partition, self.name, tail, room=size))
            with self._manager.chains:
                new = tail.moved(self._chain().next)
        self._switch = PlogSwitch(self._manager, self.name, old=tail, new=new, last=self._last)
        self._tail, self._last = new, None
        return new

    def _complete_before(self, tail: LogTail, switch: PlogSwitch) -> None:
        """Record a switch before the next one begins, so that there is never more than one to undo."""
        try:
            switch.complete()
        except PenstockError:
            self.fail(tail)
            raise

    def prepare_next(self) -> None:
        """Pre-allocate the plog for the next switch, in the background; not behind an end that takes no appends."""
        with self.next_lock:
            tail = self._tail
            if tail is not None and tail.open and self._manager.partition.sizes_of(self.name).ahead:
                self._manager.run(ensure_next(self._manager.partition, self.name, tail, room=1))
        self._manager.sweep()

    def read(self, plog_id: PlogId, offset: int, size: int) -> Iterator[memoryview]:
        """Return ``size`` bytes from ``offset`` of a plog on, over as many plogs as it takes.

        They come as they were appended, piece by piece, without a copy; each plog is opened when its turn comes.
        """
        if offset < 0 or size < 0:
            raise BadArgument(f"cannot read {size} bytes at {offset} of log {self.name!r}: neither may be negative")
        with self._manager.chains:
            start, plog_length = self._place_of(plog_id)
            end = self._end()
            if offset > plog_length or start + offset + size > end:
                raise ReadOutOfRange(plog_id, offset=offset, size=size, length=min(plog_length, end - start))
            parts = self._parts(start + offset, start + offset + size)
        found = self._by_plog(parts, start + offset + size, self._plogs.views)
        return (view for *_, views in found for view in views)

    def _parts(self, offset: int, end: int) -> list[tuple[int, PlogRange]]:
        """Return which parts of which plogs some bytes are, each with where its plog begins; under ``chains``."""
        chain = self._chain()
        return [(chain.start_of(part.plog_id), part) for part in chain.ranges(offset, end)]

    def _by_plog(
        self, parts: list[tuple[int, PlogRange]], end: int, read: Callable[[PlogId, int, int], T]
    ) -> Iterator[tuple[int, bytes, T]]:
        """Read one part after another up to ``end``; where a plog was merged with others meanwhile, read that one.

        Return where the plog begins, its label, and what was read.
        """
        todo = parts[::-1]
        while todo:
            start, part = todo.pop()
            try:
                found = read(part.plog_id, part.offset, part.size)
            except NoSuchPlog as error:
                with self._manager.chains:
                    chain = None if self._deleted else self._manager.partition.metadata.logs.get(self.name)
                    if chain is None or part.plog_id in chain or start + part.offset < chain.start:
                        raise self._gone(part.plog_id) from error
                    todo = self._parts(start + part.offset, end)[::-1]
            else:
                yield start, part.label, found

    def plogs(self) -> list[tuple[PlogId, int, bool]]:
        """Return the log's plogs in order: id, length, whether sealed. The last takes the appends."""
        with self._manager.chains:
            chain = self._chain()
            sealed = [(plog_id, length, True) for plog_id, length in chain.sealed]
            info = self._active_info()
            return [*sealed, (chain.active, info.length, info.sealed)]

    @property
    def start(self) -> int:
        """How many bytes were truncated away so far: where the log begins now, counted from its first byte."""
        with self._manager.chains:
            return self._chain().start

    @property
    def length(self) -> int:
        """How many bytes the log has had so far, those truncated away and those taken over included."""
        with self._manager.chains:
            return self._end()

    @property
    def tail(self) -> LogPosition:
        """Where the next append goes."""
        with self.lock:
            return self._current_tail().position

    def next_append(self, size: int) -> NextAppend:
        """Return where the next append goes, if it is of this size, and whether it waits for what came before."""
        with self.lock:
            tail = self._current_tail()
            # In the next plog it counts from when the switch is recorded, and that is still to be submitted.
            in_order = not tail.fits(size) or self._plogs.keeps_order(tail.plog_id, size)
            return NextAppend(tail.position, tail.end, in_order)

    def blocks(self, offset: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Return every append that holds any byte from ``offset`` to ``end``, whole, with where in the log it begins.

        Here offsets count from the log's first byte. Each plog is opened when its turn comes.
        """
        return ((start, view) for start, view, _ in self.labelled_blocks(offset, end))

    def labelled_blocks(self, offset: int, end: int) -> Iterator[tuple[int, memoryview, bytes]]:
        """Return the same with the label of each, with which it was spliced into the log; empty if it was not."""
        with self._manager.chains:
            chain = self._chain()
            if not chain.start <= offset <= end:
                reason = f"cannot read from {offset} to {end} of log {self.name!r}, which begins at {chain.start}"
                raise BadArgument(reason)
            parts = self._parts(offset, end)
        for start, label, found in self._by_plog(parts, end, self._plogs.blocks):
            yield from ((start + place, view, label) for place, view in found)

    def locate(self, offset: int, end: int) -> list[tuple[int, bytes, LocatedBlocks]]:
        """Return where the appends are that hold any byte from ``offset`` to ``end``: by plog, with start and label."""
        with self._manager.chains:
            parts = self._parts(offset, end)
        return list(self._by_plog(parts, end, self._plogs.locate))

    def span(self, first: PlogId, count: int) -> tuple[int, int]:
        """Return where in the log ``count`` sealed plogs from ``first`` on begin and end."""
        with self._manager.chains:
            found = self._chain().span(first, count)
        if found is None:
            raise NotInLog(self.name, first)
        return found

    def small_plogs(self, *, largest: int, group: Callable[[int], int] | None = None) -> tuple[PlogId, int] | None:
        """Return the first of some plogs that had better be merged, and how many they are; None if there are none.

        Together they are no longer than ``largest``; ``group`` tells of a plog's start with which others it may be.
        """
        with self._manager.chains:
            chain = self._chain()
            sealed, offset = chain.sealed, chain.start
        starts = accumulate((length for _, length in sealed), initial=offset)
        run = find_run([length for _, length in sealed], list(starts), largest=largest, group=group)
        return None if run is None else (sealed[run.start][0], len(run))

    def plog_at(self, offset: int) -> PlogId:
        """Return the plog that holds the byte at ``offset``, counted from the log's first byte."""
        with self._manager.chains:
            return self._chain().ranges(offset, offset + 1)[0].plog_id

    def plog_starts(self) -> PlogStarts:
        """Return where each plog begins, counted from the log's first byte; nothing is copied."""
        with self._manager.chains:
            return PlogStarts(self._chain(), self._manager.chains)

    @uninterrupted
    def truncate(self, plog_id: PlogId) -> None:
        """Let the log begin with ``plog_id``; the plogs before it are deleted in the background."""
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
        """Copy ``count`` sealed plogs from ``first`` on into one, which takes their place; return whether it did.

        Offsets in the log and the borders of appends stay. ``guard`` is held while the plogs change, not while they are
        copied. Nothing changes if the plogs were truncated away meanwhile. The new plog has no label; ``rewrite`` may
        put what the labels said into the appends themselves, none of which may become longer or shorter.
        """
        return self._manager.merge(self, first, count, guard=guard or nullcontext(), rewrite=rewrite)

    def splice(self, *sources: LogStream) -> None:
        """Put all bytes of other logs of this partition behind this log's, in one step; those logs end.

        The cost does not depend on how many bytes they are.
        """
        self._manager.splice({self: sources})

    @uninterrupted
    def release(self) -> None:
        """Give back the allocated size that no append has used; the next append, if one comes, allocates anew."""
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
        """Let the next append go into a new plog, so that all there is can be truncated away."""
        self.release()
        with self.lock:
            tail = self.quiet_tail()
            if not tail.written:
                return
            self._begin_switch(tail, 1)
            self.quiet_tail()
        self._manager.spawn(self.prepare_next)

    def quiet_tail(self) -> LogTail:
        """Wait until nothing is under way; the caller holds the lock, so nothing new begins."""
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
        """Return where a plog of this log begins, and how long it is."""
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
        """Return what to say of a plog that is not there; the caller holds ``chains``."""
        chain = None if self._deleted else self._manager.partition.metadata.logs.get(self.name)
        if chain is None or plog_id not in chain:
            return NotInLog(self.name, plog_id)
        reason = f"it is missing, and log {self.name!r} needs it (unless the log has a new owner)"
        return PlogCorrupt(self._plogs.where(plog_id), offset=None, reason=reason)
