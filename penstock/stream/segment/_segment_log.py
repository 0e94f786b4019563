"""The log of one segment. It is created with the first block, so a segment that was never written to costs nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import NoSuchLog, PenstockError
from penstock.stream.format import BLOCK_HEADER_SIZE, SpliceLabel, read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from penstock.log import LogStream, MetadataManager, PlogSizes, PlogStarts
    from penstock.ports import Bytes

__all__ = ["SegmentLog"]


class SegmentLog:
    """The log called ``name``, if it is there; ``where`` names the segment in errors."""

    def __init__(self, manager: MetadataManager, name: str, *, where: str, sizes: PlogSizes | None) -> None:
        self._manager, self._name, self._sizes = manager, name, sizes
        self.where = where
        self._log: LogStream | None = None

    @property
    def opened(self) -> LogStream | None:
        """The log, None if it was not created yet."""
        if self._log is None and self._manager.has_log(self._name):
            self._log = self._manager.log(self._name, sizes=self._sizes)
        return self._log

    def created(self) -> LogStream:
        """Return the log, which is created now if it was not there; the caller holds the segment."""
        if self._log is None:
            self._log = self._manager.log(self._name, sizes=self._sizes)
        return self._log

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
