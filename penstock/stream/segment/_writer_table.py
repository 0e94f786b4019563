"""The table of writers: what each of them last wrote to a segment.

It makes a re-sent event harmless: one whose number is not above the last one of its writer is in the segment already.
The table is kept in memory while blocks come. It also stands in the segment itself, every few megabytes, in a block
without events. After a restart it is read again: the last stored table, found by reading backwards, and the blocks
behind it. Stored are, big-endian, behind the block's header:

    per entry of the segment's own: writer (16), last_number (8), flush_last (8), durable_floor (8), flush_segments (2),
                                    padding (6)
    per entry that was inherited:   the same, then low (8, double), high (8, double)

``count`` in the block's header says how many entries are the segment's own: first those of writers with an id, then
those of clients' writers without one. The latter send a block again only while they are open, so they have few places,
none of those of writers with an id, and are not inherited. Their hashes begin with ``anon``; of the hashes of ids, one
in four billion does.

A segment that follows others inherits their tables, each for its part of the key space: an event is there already if
its number is not above what the predecessor of *its* part had. It would not do to take the larger figure for all,
because the other predecessor may lack that event.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from penstock.errors import StreamCorrupt
from penstock.plog import APPEND_SIZE_MAX
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    CHUNK,
    NO_WRITER,
    WRITERS,
    StreamBlockHeader,
    block_digest,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.stream.segment._segment_log import SegmentLog

__all__ = [
    "ANONYMOUS_MAX",
    "ENTRIES_MAX",
    "TABLE_EVERY_BLOCKS",
    "TABLE_EVERY_BYTES",
    "Inherited",
    "NumbersTaken",
    "SegmentEnded",
    "SegmentWriters",
    "WriterEntry",
    "WriterTable",
    "anonymous_hash",
    "durable_number",
    "find_block",
    "highest_number",
    "inherit",
    "writer_hash",
]

ENTRIES_MAX: Final = 16_384  # the writer that was silent for longest is forgotten first
ANONYMOUS_MAX: Final = 2_048  # the same, of writers without an id
_ANONYMOUS: Final = b"anon"
_OWN: Final = struct.Struct(">16sQQQH6x")
_INHERITED: Final = struct.Struct(">16sQQQH6xdd")
assert (_OWN.size, _INHERITED.size) == (48, 64), "on disk since format 1: a new size needs a new kind"
_SIZE_MAX: Final = ENTRIES_MAX * (_OWN.size + _INHERITED.size) + ANONYMOUS_MAX * _OWN.size
assert BLOCK_HEADER_SIZE + _SIZE_MAX <= APPEND_SIZE_MAX, "a table is one append"
TABLE_EVERY_BYTES: Final = 8 << 20
TABLE_EVERY_BLOCKS: Final = 4096
_SEGMENT_AS_BLOCKS: Final = 512  # to go back to another segment takes as long as to read so many blocks
_FIRST_LOOK: Final = 256 << 10  # how far back the last table is looked for at first


def writer_hash(writer_id: str) -> bytes:
    """Return how blocks name a writer."""
    return blake2b(writer_id.encode(), digest_size=len(NO_WRITER)).digest()


def anonymous_hash(secret: str) -> bytes:
    """Return how blocks name a client's writer without an id: they show that it is one, and do not show its secret."""
    return _ANONYMOUS + blake2b(secret.encode(), digest_size=len(NO_WRITER) - len(_ANONYMOUS)).digest()


@dataclass(frozen=True, slots=True)
class WriterEntry:
    """What a writer last wrote; the fields are those of :class:`StreamBlockHeader`."""

    last_number: int
    flush_last: int
    durable_floor: int
    flush_segments: int


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a writer last wrote to a predecessor that had this part of the key space."""

    writer: bytes
    last_number: int
    flush_last: int
    durable_floor: int
    flush_segments: int
    low: float
    high: float


@dataclass(slots=True)
class WriterTable:
    """The writers of one segment, those with an id and the others, in the order in which they last wrote.

    ``blocks_behind`` and ``bytes_behind`` are not stored: they say how much has to be read of the segments before, from
    the last tables on, to know what was inherited.
    """

    own: dict[bytes, WriterEntry] = field(default_factory=dict)
    inherited: list[Inherited] = field(default_factory=list)
    anonymous: dict[bytes, WriterEntry] = field(default_factory=dict)
    blocks_behind: int = 0
    bytes_behind: int = 0

    def note(self, header: StreamBlockHeader) -> None:
        """Take in a block; one whose events have no numbers changes nothing.

        A block without events that says how far the numbers are durable may come behind higher numbers, of a flush that
        did not get through: only its floor counts then, because those events are here.
        """
        if header.writer == NO_WRITER or not header.last_number:
            return
        entries, most = self._place(header.writer)
        before = entries.pop(header.writer, None)
        if before is not None and before.last_number > header.last_number:
            entry = replace(before, durable_floor=max(before.durable_floor, header.durable_floor))
        else:
            entry = WriterEntry(header.last_number, header.flush_last, header.durable_floor, header.flush_segments)
        entries[header.writer] = entry
        if len(entries) > most:
            del entries[next(iter(entries))]

    def _place(self, writer: bytes) -> tuple[dict[bytes, WriterEntry], int]:
        """Return the entries among which a writer is, and how many there may be."""
        return (self.anonymous, ANONYMOUS_MAX) if writer.startswith(_ANONYMOUS) else (self.own, ENTRIES_MAX)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.own or self.inherited or self.anonymous)

    def get(self, writer: bytes) -> WriterEntry | None:
        """Return what a writer last wrote to this segment itself."""
        return self._place(writer)[0].get(writer)

    def forget(self, writer: bytes) -> None:
        """Give the place of a writer that never comes again to others."""
        self._place(writer)[0].pop(writer, None)

    def last(self, writer: bytes, position: float | None) -> int:
        """Return the number up to which the writer's events with this key are here; 0 if there are none.

        Without a key it is what the writer wrote to this segment itself.
        """
        entry = self.get(writer)
        before = (
            one.last_number
            for one in self.inherited
            if position is not None and one.low <= position < one.high and one.writer == writer
        )
        return max(entry.last_number if entry else 0, *before, 0)

    def pack(self, time_ms: int, events: int) -> bytes:
        """Return the block that holds the table, behind so many events of its segment."""
        count = len(self.own) + len(self.anonymous)
        header = StreamBlockHeader(kind=WRITERS, count=count, time_ms=time_ms, before=events)
        own = (
            _OWN.pack(writer, one.last_number, one.flush_last, one.durable_floor, one.flush_segments)
            for writer, one in (*self.own.items(), *self.anonymous.items())
        )
        rest = (
            _INHERITED.pack(
                one.writer, one.last_number, one.flush_last, one.durable_floor, one.flush_segments, one.low, one.high
            )
            for one in self.inherited
        )
        return b"".join((header.pack(), *own, *rest))

    @classmethod
    def unpack(cls, header: StreamBlockHeader, view: memoryview, *, where: str, start: int) -> WriterTable:
        """Read what :meth:`pack` wrote."""
        body = view[BLOCK_HEADER_SIZE:]
        split = header.count * _OWN.size
        if split > len(body) or (len(body) - split) % _INHERITED.size:
            raise StreamCorrupt(where, offset=start, reason="a table of writers of the wrong size")
        table = cls(inherited=[Inherited(*fields) for fields in _INHERITED.iter_unpack(body[split:])])
        for writer, *numbers in _OWN.iter_unpack(body[:split]):
            table._place(writer)[0][writer] = WriterEntry(*numbers)
        return table


def inherit(predecessors: Iterable[tuple[float, float, WriterTable]], *, low: float, high: float) -> WriterTable:
    """Return the table that a segment with this key range begins with."""
    found: list[tuple[int, Inherited]] = []
    for one_low, one_high, table in predecessors:
        entries = [*_still_needed(table), *_handed_on(table, low=one_low, high=one_high)]
        cut = (replace(one, low=max(low, one.low), high=min(high, one.high)) for one in reversed(entries))
        found += enumerate(one for one in cut if one.low < one.high)
    found.sort(key=itemgetter(0), reverse=True)  # of each predecessor, the writer that wrote last is last
    return WriterTable(inherited=[one for _, one in found[-ENTRIES_MAX:]])


def _still_needed(table: WriterTable) -> Iterator[Inherited]:
    """Return what a table inherited of writers that have not written more since."""
    for one in table.inherited:
        own = table.own.get(one.writer)
        if own is None or own.last_number < one.last_number:
            yield one


def _handed_on(table: WriterTable, *, low: float, high: float) -> Iterator[Inherited]:
    for writer, own in table.own.items():
        yield Inherited(writer, own.last_number, own.flush_last, own.durable_floor, own.flush_segments, low, high)


def durable_number(writer: bytes, tables: Iterable[WriterTable]) -> int:
    """Return the number up to which all of a writer's events are durable, whichever segment they went to.

    A flush that went to several segments counts as a whole once every one of them has its part; a part that several
    segments inherited counts once.
    """
    best = 0
    there: dict[tuple[int, int], set[int]] = {}  # by flush: the last number of each part, which no other part has
    for entry in _entries(writer, tables):
        best = max(best, entry.durable_floor)
        if entry.flush_segments:
            there.setdefault((entry.flush_last, entry.flush_segments), set()).add(entry.last_number)
    return max([best, *(last for (last, segments), found in there.items() if len(found) >= segments)])


def highest_number(writer: bytes, tables: Iterable[WriterTable]) -> int:
    """Return the highest number that a writer has used, in a flush that got through or in one that did not.

    A writer that sends such a flush again must not store the number of its segments: with a block of the first attempt,
    the flush could seem to be complete.
    """
    return max((max(entry.last_number, entry.flush_last) for entry in _entries(writer, tables)), default=0)


def _entries(writer: bytes, tables: Iterable[WriterTable]) -> Iterator[WriterEntry | Inherited]:
    for table in tables:
        entry = table.get(writer)
        if entry is not None:
            yield entry
        yield from (one for one in table.inherited if one.writer == writer)


class SegmentEnded(Exception):
    """The segment takes no more blocks; its successors do."""


class NumbersTaken(Exception):
    """There are other events under the numbers of a block: its writer was not the only one with its id."""


class SegmentWriters:
    """The table of writers of one segment; ``table`` is None until it is read, and after an append failed.

    ``stored_at`` is where the last stored table is, -1 if there is none; ``is_far`` whether that is too far away to be
    found quickly. ``inherit`` returns the table that the segment begins with. The caller of each method holds the
    segment.
    """

    def __init__(self, log: SegmentLog, inherit: Callable[[], WriterTable]) -> None:
        self._log, self._inherit = log, inherit
        self.table: WriterTable | None = None
        self.stored_at = -1
        self.is_far = False
        self._bytes_since = self._blocks_since = 0  # since the last stored table

    def note(self, header: StreamBlockHeader | None, *, blocks: int, size: int) -> None:
        """Take in a block of a writer, and count what was appended."""
        if header is not None:
            assert self.table is not None, "it is read before a block is appended"
            self.table.note(header)
        self._count(self._blocks_since + blocks, self._bytes_since + size)

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
            table.note(header)
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
        look, headers = _FIRST_LOOK, list[StreamBlockHeader]()
        table, self.stored_at = None, -1
        while log is not None and low > log.start and table is None:
            blocks = list(log.blocks(max(log.start, low - look), low))
            low, look = blocks[0][0], 2 * look
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


def find_block(segment_log: SegmentLog, writer: bytes, *, last: int, count: int, digest: bytes) -> int | None:
    """Return where a block of a writer is, by the number of its last event and its digest; None if it is not here.

    ``NumbersTaken`` if there are other events under its numbers.
    """
    log = segment_log.opened
    end = 0 if log is None else log.length
    while log is not None and end > log.start:
        blocks = list(log.blocks(max(log.start, end - _FIRST_LOOK), end))
        for start, view in reversed(blocks):
            header = read_header(view, where=segment_log.where, start=start)
            if header.writer == writer and header.last_number <= last:
                if header.last_number == last and block_digest(header, view[BLOCK_HEADER_SIZE:]) == digest:
                    return start
                if header.last_number > last - count:
                    raise NumbersTaken
                return None
        end = blocks[0][0]
    return None
