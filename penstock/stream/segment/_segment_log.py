"""The log of one segment, and lookups in it by time and by count.

The log is created with the first block, so a segment that was never written to costs nothing. Every block says when it
was appended, and how many events lie before it. So each lookup takes one read, or a few for a search by time, however
long the segment is. The last answers are remembered, because retention and lag ask for the same places again and again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchLog, PenstockError
from penstock.stream.format import BLOCK_HEADER_SIZE, Block, Chunk, SpliceLabel, read_block, read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from penstock.log import LogStream, MetadataManager, PlogSizes, PlogStarts
    from penstock.ports import Bytes

__all__ = ["Lookup", "SegmentLog"]

_TIMES_MAX: Final = 8  # that are remembered


class SegmentLog:
    """The log called ``name``, if it is there; ``where`` names the segment in errors."""

    def __init__(self, manager: MetadataManager, name: str, *, where: str, sizes: PlogSizes | None) -> None:
        self._manager, self._name, self._sizes = manager, name, sizes
        self.where = where
        self.known: LogStream | None = None  # the log, once it was created or found

    @property
    def opened(self) -> LogStream | None:
        """The log, None if it was not created yet."""
        if self.known is None and self._manager.has_log(self._name):
            self.known = self._manager.log(self._name, sizes=self._sizes)
        return self.known

    def created(self) -> LogStream:
        """Return the log, which is created now if it was not there; the caller holds the segment."""
        if self.known is None:
            self.known = self._manager.log(self._name, sizes=self._sizes)
        return self.known

    def missing(self) -> tuple[str, PlogSizes | None] | None:
        """Return the name and the sizes of the log if it is still to be created, None if it is there."""
        return None if self.opened is not None else (self._name, self._sizes)

    def with_data(self) -> LogStream:
        """Return the log of a segment that has data; ``NoSuchLog`` if it was truncated away, or its stream deleted."""
        log = self.opened
        if log is None:
            raise NoSuchLog(self._name, partition=self._manager.partition.name)
        return log

    @property
    def start(self) -> int:
        """Where the first plog that is left begins."""
        log = self.opened
        return 0 if log is None else log.start

    @property
    def length(self) -> int:
        """Where the last durable block ends."""
        log = self.opened
        return 0 if log is None else log.length

    def block_at(self, offset: int) -> tuple[int, memoryview, SpliceLabel | None]:
        """Return the block that holds the byte at ``offset``: where it begins, its bytes, its label if it has one."""
        log = self.opened
        assert log is not None, "what was acknowledged is in a log"
        start, view, label = next(log.labelled_blocks(offset, offset + 1))
        return start, view, SpliceLabel.unpack(label) if label else None

    def resize(self, sizes: PlogSizes) -> bool:
        """Let the plogs from the next one on have other sizes; return whether it is time to begin that one now."""
        is_smaller = self._sizes is not None and sizes.largest < self._sizes.largest
        self._sizes = sizes
        if self.opened is None:
            return False
        self._manager.log(self._name, sizes=sizes)
        return is_smaller

    def roll(self) -> None:
        """Let the next block go into a new plog."""
        log = self.opened
        if log is not None:
            log.roll()

    def release(self) -> None:
        """Give back the allocated size that no block has used, because no more come; where that fails, it is kept."""
        log = self.opened
        if log is not None:
            with suppress(PenstockError):
                log.release()

    def truncate(self, offset: int) -> None:
        """Delete the plogs that lie before ``offset``."""
        log = self.opened
        if log is not None and log.start < offset:
            log.truncate(log.plog_at(offset))

    def plog_starts(self) -> Sequence[int] | PlogStarts:
        """Return where each plog begins, in order; nothing is copied."""
        log = self.opened
        return () if log is None else log.plog_starts()

    def merge_plogs(self, *, guard: AbstractContextManager[object], group: Callable[[int], int] | None) -> None:
        """Merge small plogs, only such as ``group`` gives the same number, by where they begin.

        ``guard`` is held whenever the plogs change.
        """
        log = self.opened
        if log is None:
            return
        largest = (self._sizes or self._manager.partition.sizes).largest
        while (found := log.small_plogs(largest=largest, group=group)) is not None:
            log.merge(*found, guard=guard, rewrite=self._without_label)

    def _without_label(self, view: memoryview, label: bytes) -> tuple[Bytes, ...]:
        """Return a block that is copied into another plog, with the time and the count that its label says."""
        if not label:
            return (view,)
        header, spliced = read_header(view, where=self.where, start=0), SpliceLabel.unpack(label)
        return header.pack_at(spliced.time_ms, spliced.events + header.before), view[BLOCK_HEADER_SIZE:]


class Lookup:
    """Times and counts of one segment. ``head`` is where it begins now, and how many of its events lie before."""

    def __init__(self, log: SegmentLog, head: tuple[int, int]) -> None:
        self._log = log
        self.head = head
        self._times: dict[int, int] = {}
        self._counted = (-1, 0)  # the place and the count of the last answer
        self.tail_counted = (-1, 0)  # the same of the last answer on a tail that may still move

    def time_at(self, offset: int) -> int:
        """Return when the byte at ``offset`` became part of the segment, in milliseconds since 1970."""
        time_ms = self._times.get(offset)
        if time_ms is None:
            time_ms = self._block_time(offset)[1]
            self._times = {**(self._times if len(self._times) < _TIMES_MAX else {}), offset: time_ms}
        return time_ms

    def last_time(self) -> int:
        """Return when the last block was appended; 0 if there is none."""
        log = self._log
        return 0 if log.length <= log.start else self._block_time(log.length - 1)[1]

    def offset_at_time(self, time_ms: int, *, low: int, high: int) -> int:
        """Return where the first block from ``low`` on begins that is not older than a time; ``high`` if all are."""
        while low < high:
            (start, end), found_ms = self._block_time((low + high) // 2)
            if found_ms < time_ms:
                low = end
            else:
                high = max(start, low)
        return low

    def _block_time(self, offset: int) -> tuple[tuple[int, int], int]:
        """Return where the block at ``offset`` begins and ends, and when it became part of the segment."""
        start, view, label = self._log.block_at(offset)
        header = read_header(view, where=self._log.where, start=start)
        return (start, start + len(view)), header.time_ms if label is None else label.time_ms

    def count_before(self, offset: int, *, is_final: bool) -> int:
        """Return how many events lie before ``offset``, where one begins or ends; events that are gone count, too.

        ``is_final`` is False for a tail that still moves: remembering its count would only push out another.
        """
        for counted in (self._counted, self.tail_counted):
            if counted[0] == offset:
                return counted[1]
        if offset <= self.head[0]:
            return self.head[1]
        count = self._count_before(offset)
        if is_final:
            self._counted = (offset, count)
        else:
            self.tail_counted = (offset, count)
        return count

    def _count_before(self, offset: int) -> int:
        if offset >= self._log.length:
            return self._count_behind(offset)
        start, view, label = self._log.block_at(offset)
        base = 0 if label is None else label.events
        block = read_block(view, where=self._log.where, start=start)
        if isinstance(block, Chunk):  # the extent before it was counted already
            return base + read_header(view, where=self._log.where, start=start).before - 1
        return base + block.before + ((block.index_at(offset) or 0) if isinstance(block, Block) else 0)

    def count_all(self) -> int:
        """Return how many events there are."""
        log = self._log
        return self.head[1] if log.length <= log.start else self._count_behind(log.length)

    def _count_behind(self, offset: int) -> int:
        """Return how many events lie before a place where a block ends."""
        start, view, label = self._log.block_at(offset - 1)
        header = read_header(view, where=self._log.where, start=start)
        return (0 if label is None else label.events) + header.before + header.events
