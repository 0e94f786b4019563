"""The writers of one segment: their table, where it was last stored, and a block that one of them has sent before.

After a restart the table is found by reading backwards; ``_writer_table`` has what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.stream.format import BLOCK_HEADER_SIZE, CHUNK, WRITERS, StreamBlockHeader, block_digest, read_header
from penstock.stream.segment._writer_table import WriterTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.stream.segment._segment_log import SegmentLog
    from penstock.stream.segment._writer_table import Owners

__all__ = [
    "TABLE_EVERY_BLOCKS",
    "TABLE_EVERY_BYTES",
    "NumbersTaken",
    "SegmentEnded",
    "SegmentWriters",
    "SentBlock",
    "find_blocks",
]

TABLE_EVERY_BYTES: Final = 8 << 20
TABLE_EVERY_BLOCKS: Final = 4096
_SEGMENT_AS_BLOCKS: Final = 512  # to go back to another segment takes as long as to read so many blocks
_FIRST_READ_SIZE: Final = 256 << 10  # how far back the last table is looked for at first


class SegmentEnded(Exception):
    """The segment takes no more blocks; its successors do."""


class NumbersTaken(Exception):
    """There are other events under the numbers of a block: its writer was not the only one with its id."""


class SegmentWriters:
    """The table of writers of one segment; ``table`` is None until it is read, and after an append failed.

    ``stored_at`` is where the last stored table is, -1 if there is none; ``is_far`` whether that is too far away to be
    found quickly. ``inherit`` returns the table that the segment begins with, ``owners`` whose the writers are. The
    caller of each method holds the segment.
    """

    def __init__(self, log: SegmentLog, inherit: Callable[[], WriterTable], owners: Owners) -> None:
        self._log, self._inherit, self._owners = log, inherit, owners
        self.table: WriterTable | None = None
        self.stored_at = -1
        self.is_far = False
        self._bytes_since = self._blocks_since = 0  # since the last stored table

    def note(self, header: StreamBlockHeader | None, *, blocks: int, size: int) -> None:
        """Take in a block of a writer, and count what was appended."""
        self._count(self._blocks_since + blocks, self._bytes_since + size)
        if header is not None and header.last_number:  # a block without numbers changes nothing in the table
            assert self.table is not None, "it is read before a block is appended"
            self.table.note(header, self._owners)

    def _count(self, blocks: int, size: int) -> None:
        """Set what lies behind the last stored table."""
        self._blocks_since, self._bytes_since = blocks, size
        self.is_far = size > TABLE_EVERY_BYTES or blocks > TABLE_EVERY_BLOCKS

    def pack(self, time_ms: int, events: int) -> bytes:
        """Return the block that stores the table, behind so many events of the segment."""
        assert self.table is not None, "only a table that is known is stored"
        self._count(0, 0)
        return self.table.pack(time_ms, events)

    def behind(self) -> tuple[int, int]:
        """Return how many blocks and bytes a successor has to read to know this table."""
        return self._blocks_since + _SEGMENT_AS_BLOCKS, self._bytes_since

    def read(self) -> int:
        """Read the last stored table, or inherit one, and take in the blocks behind it; return where those end."""
        table, headers, end = self._find()
        if table is None:
            table = self._inherit()
            self.note(None, blocks=table.blocks_behind, size=table.bytes_behind)
        for header in reversed(headers):
            table.note(header, self._owners)
        self.table = table
        return end

    def is_stored(self) -> tuple[bool, int]:
        """Return whether the segment has a stored table, and where its last durable block ends."""
        table, _, end = self._find()
        return table is not None, end

    def _find(self) -> tuple[WriterTable | None, list[StreamBlockHeader], int]:
        """Find the last stored table, reading backwards; return it, the headers behind it, last first, and the end."""
        log, where = self._log.opened, self._log.where
        low = end = 0 if log is None else log.length
        size, headers = _FIRST_READ_SIZE, list[StreamBlockHeader]()
        table, self.stored_at = None, -1
        while log is not None and low > log.start and table is None:
            blocks = list(log.blocks(max(log.start, low - size), low))
            low, size = blocks[0][0], 2 * size
            for start, view in reversed(blocks):
                header = read_header(view, where=where, start=start)
                if header.kind == WRITERS:
                    table, self.stored_at = WriterTable.unpack(header, view, where=where, start=start), start
                    break
                if header.kind == CHUNK and header.durable_floor:
                    low = start - header.durable_floor  # where the large event begins: what lies between is all chunks
                    break
                headers.append(header)
        self._count(len(headers), end - max(self.stored_at, 0))
        return table, headers, end


class SentBlock(NamedTuple):
    """A block that a writer has sent, and may be in a segment: the number of its last event, how many, and a digest."""

    last: int
    events: int
    digest: bytes


def find_blocks(segment_log: SegmentLog, writer: bytes, sent: Sequence[SentBlock]) -> dict[SentBlock, int]:
    """Return where blocks of a writer are, those that are here; the segment is read backwards, once for all of them.

    ``NumbersTaken`` if there are other events under the numbers of a block.
    """
    left, found = sorted(sent), dict[SentBlock, int]()
    log = segment_log.opened
    end = 0 if log is None else log.length
    while left and log is not None and end > log.start:
        blocks = list(log.blocks(max(log.start, end - _FIRST_READ_SIZE), end))
        for start, view in reversed(blocks):
            header = read_header(view, where=segment_log.where, start=start)
            if header.writer != writer or not left or header.last_number > left[-1].last:
                continue
            here = SentBlock(header.last_number, header.count, b"")
            while left and here.last <= left[-1].last:
                block = left.pop()
                if here.last == block.last and not here.digest:
                    here = here._replace(digest=block_digest(header, view[BLOCK_HEADER_SIZE:]))
                if here.last == block.last and here.digest == block.digest:
                    found[block] = start
                elif here.last > block.last - block.events:
                    raise NumbersTaken
        end = blocks[0][0]
    return found
