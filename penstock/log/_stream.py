"""The log stream: an endless log over many plogs.

How it grows is described in :mod:`penstock.log._end`. Readers take no lock of the log: they look up the plogs under
``chains``, and read plogs that never change but by growing.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.errors import BadArgument, NoSuchPlog, NotInLog, PenstockError, PlogCorrupt, ReadOutOfRange
from penstock.log._chain import PlogStarts, find_run
from penstock.log._end import LogEnd
from penstock.log._records import Truncate
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from penstock.log._chain import LogChain, PlogRange
    from penstock.model import PlogId
    from penstock.plog import LocatedBlocks, PlogInfo
    from penstock.ports import Bytes

__all__ = ["LogStream"]

T = TypeVar("T")
_STEP_SIZE: Final = 4 << 20  # the blocks of so much are checked before the first of them is returned


class LogStream(LogEnd):
    """A log: bytes are appended at its end and read from any place. Created by :meth:`MetadataManager.log`."""

    def read(self, plog_id: PlogId, offset: int, size: int) -> Iterator[memoryview]:
        """Return ``size`` bytes from ``offset`` of a plog on, across as many plogs as necessary.

        They come as they were appended, piece by piece, without a copy; each plog is opened when it is reached.
        """
        if offset < 0 or size < 0:
            raise BadArgument(f"invalid read of {size} bytes at {offset} of log {self.name!r}: use 0 or more for both")
        with self._with_end() as (chain, info):
            start, end = self._start_of(chain, plog_id), chain.active_start + info.length
            plog_length = (end if plog_id == chain.active else chain.end_of(plog_id)) - start
            if offset > plog_length or start + offset + size > end:
                raise ReadOutOfRange(plog_id, offset=offset, size=size, length=min(plog_length, end - start))
            parts = self._parts(start + offset, start + offset + size)
        low, high = start + offset, start + offset + size
        if size <= _STEP_SIZE:
            return (view for *_, views in self._by_plog(parts, high, self._plogs.views) for view in views)
        return (view[max(0, low - place) : high - place] for place, view, _ in self._blocks(parts, high))

    def _parts(self, offset: int, end: int) -> list[tuple[int, PlogRange]]:
        """Return the parts of plogs that hold these bytes, each with its plog's start; the caller holds ``chains``."""
        chain = self._chain()
        return [(chain.start_of(part.plog_id), part) for part in chain.ranges(offset, end)]

    def _blocks(self, parts: list[tuple[int, PlogRange]], end: int) -> Iterator[tuple[int, memoryview, bytes]]:
        """Return the blocks up to ``end``, with offset and label: a few megabytes of a plog are read at a time."""
        steps = [(start, step) for start, part in parts for step in part.steps(_STEP_SIZE)]
        reached = -1
        for start, label, blocks in self._by_plog(steps, end, self._plogs.blocks):
            for place, view in blocks:
                if start + place > reached:  # the first block of a step may be the last one of the step before
                    reached = start + place
                    yield reached, view, label

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
        with self._with_end() as (chain, info):
            sealed = [(plog_id, length, True) for plog_id, length in chain.sealed]
            return [*sealed, (chain.active, info.length, info.sealed)]

    @property
    def start(self) -> int:
        """The offset at which the log begins now: the number of bytes truncated away so far."""
        with self._manager.chains:
            return self._chain().start

    @property
    def length(self) -> int:
        """The offset at which the log ends: all bytes it ever had, including those truncated away and spliced in."""
        tail = self._tail
        if tail is not None and not tail.written and self._switch is None and not self._deleted:
            return tail.start  # as in a log that was just created: nothing is under way
        with self._with_end() as (chain, info):
            return chain.active_start + info.length

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
        yield from self._blocks(parts, end)

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
            (sealed, ends), offset = chain.sealed_copy(), chain.start
        starts = [offset, *ends]
        run = find_run([end - start for start, end in pairwise(starts)], starts, largest=largest, group=group)
        return None if run is None else (sealed[run.start], len(run))

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
                self._start_of(self._chain(), plog_id)
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

    def _start_of(self, chain: LogChain, plog_id: PlogId) -> int:
        try:
            return chain.start_of(plog_id)
        except KeyError:
            raise NotInLog(self.name, plog_id) from None

    @contextmanager
    def _with_end(self) -> Iterator[tuple[LogChain, PlogInfo]]:
        """Hold ``chains``, with the state of the active plog: its servers were asked before, without a lock."""
        while True:
            with self._manager.chains:
                active = self._chain().active
            try:
                info = self._plogs.info(active)
            except NoSuchPlog as error:
                with self._manager.chains:
                    if self._chain().active == active:
                        raise self._gone(active) from error
                continue
            with self._manager.chains:
                chain = self._chain()
                if chain.active == active:
                    yield chain, info
                    return

    def _gone(self, plog_id: PlogId) -> PenstockError:
        """Return the error for a plog that does not exist; the caller holds ``chains``."""
        chain = None if self._deleted else self._manager.partition.metadata.logs.get(self.name)
        if chain is None or plog_id not in chain:
            return NotInLog(self.name, plog_id)
        reason = f"it is missing, and log {self.name!r} needs it (unless the log has a new owner)"
        return PlogCorrupt(self._plogs.where(plog_id), offset=None, reason=reason)
