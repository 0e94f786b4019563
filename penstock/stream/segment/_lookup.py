"""Looking up a segment by time and by count: every block says when it was appended, and how many events lie before it.

So each answer takes one read, or a few for a search by time, however long the segment is. The last answers are
remembered, because retention and lag ask for the same places again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.stream.format import Block, Chunk, read_block, read_header

if TYPE_CHECKING:
    from penstock.stream.segment._segment_log import SegmentLog

__all__ = ["Lookup"]

_TIMES_MAX: Final = 8  # that are remembered


class Lookup:
    """Times and counts of one segment. ``head`` is where it begins now, and how many of its events lie before."""

    def __init__(self, log: SegmentLog, head: tuple[int, int]) -> None:
        self._log = log
        self.head = head
        self._times: dict[int, int] = {}
        self._counted = (-1, 0)  # the place and the count of the last answer

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
        counted = self._counted
        if counted[0] == offset:
            return counted[1]
        if offset <= self.head[0]:
            return self.head[1]
        count = self._count_before(offset)
        if is_final:
            self._counted = (offset, count)
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
