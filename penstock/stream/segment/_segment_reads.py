"""The blocks of a segment, out from any place: as they are stored, decoded, or as the places where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.stream.format import SpliceLabel, read_block, read_header
from penstock.stream.segment._readable import READ_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog import LocatedBlocks
    from penstock.stream.format import AnyBlock, StreamBlockHeader
    from penstock.stream.segment._segment_log import SegmentLog

__all__ = ["SegmentReads"]


class SegmentReads:
    """What a segment has up to its tail; the segment itself adds how it grows."""

    where: str
    tail: int
    _log: SegmentLog

    def blocks(self, offset: int, *, end: int | None = None, size: int = READ_SIZE) -> Iterator[AnyBlock]:
        """Return the blocks from the one that holds ``offset`` on, as far as they were acknowledged.

        They are about ``size`` bytes, at least one block if there is any. Some may hold no events.
        """
        stop = offset + size if end is None else min(offset + size, end)
        for start, view, commit_ms in self.views(offset, stop):
            yield read_block(view, where=self.where, start=start, commit_ms=commit_ms)

    def views(self, offset: int, end: int) -> Iterator[tuple[int, memoryview, int]]:
        """Return the blocks that hold any byte from ``offset`` to ``end``, as they are stored, and where they begin.

        With each comes when it became part of the segment, if it was written before that, in a transaction; else 0.
        """
        stop = min(self.tail, end)
        found = iter(()) if offset >= stop else self._log.with_data().labelled_blocks(offset, stop)
        return ((start, view, _commit_ms(label)) for start, view, label in found)

    def locate(self, offset: int, end: int) -> list[tuple[int, int, LocatedBlocks]]:
        """Return where the blocks are that hold any byte from ``offset`` to ``end``, by plog, as :meth:`views` does."""
        stop, log = min(self.tail, end), self._log.opened
        found = [] if log is None or offset >= stop else log.locate(offset, stop)
        return [(start, _commit_ms(label), located) for start, label, located in found]

    def headers(self, offset: int) -> Iterator[StreamBlockHeader]:
        """Return the headers of all blocks from ``offset`` on that are durable, shown or not."""
        log, end = self._log.opened, self._log.length
        if log is not None and offset < end:
            for start, view in log.blocks(offset, end):
                yield read_header(view, where=self.where, start=start)


def _commit_ms(label: bytes) -> int:
    return SpliceLabel.unpack(label).time_ms if label else 0
