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

After a merge, a writer can have as many entries as there were segments. If that is more than the table holds, those of
a writer are joined to one. That loses nothing where all of its numbers are known to be durable. Elsewhere the entry is
inexact: it says which numbers are durable, and which is the highest. The numbers between may be there or not, and the
writer is refused, because neither answer would be right. Only a writer whose id belongs to no user is ever dropped.
"""

from __future__ import annotations

import heapq
import struct
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from penstock.errors import StreamCorrupt, WriterForgotten
from penstock.plog import APPEND_SIZE_MAX
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    NO_WRITER,
    WRITERS,
    StreamBlockHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Owners = Callable[[], Mapping[bytes, str]]
    """Returns the users that writers belong to; asked for only when a table is full."""

__all__ = [
    "ANONYMOUS_MAX",
    "ENTRIES_MAX",
    "Inherited",
    "WriterEntry",
    "WriterTable",
    "anonymous_hash",
    "check_exact",
    "durable_number",
    "highest_number",
    "inherit",
    "no_owners",
    "writer_hash",
]

ENTRIES_MAX: Final = 16_384  # of writers without an owner, the one that was silent for longest is forgotten first
ANONYMOUS_MAX: Final = 2_048  # the same, of writers without an id
_ANONYMOUS: Final = b"anon"
_FORGOTTEN_AT_ONCE: Final = 256  # writers: to ask for the owners of all takes as long as many blocks
_INEXACT: Final = 0xFFFF  # in place of the number of segments, which is never as high
_OWN: Final = struct.Struct(">16sQQQH6x")
_INHERITED: Final = struct.Struct(">16sQQQH6xdd")
assert (_OWN.size, _INHERITED.size) == (48, 64), "on disk since format 1: a new size needs a new kind"
_SIZE_MAX: Final = ENTRIES_MAX * (_OWN.size + _INHERITED.size) + ANONYMOUS_MAX * _OWN.size
assert BLOCK_HEADER_SIZE + _SIZE_MAX <= APPEND_SIZE_MAX, "a table is one append"


def writer_hash(writer_id: str) -> bytes:
    """Return how blocks name a writer."""
    return blake2b(writer_id.encode(), digest_size=len(NO_WRITER)).digest()


def no_owners() -> Mapping[bytes, str]:
    """Return that no writer belongs to a user, as in a folder without a server."""
    return {}


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

    @property
    def is_exact(self) -> bool:
        """Whether all numbers up to the last are there, those of this part of the key space."""
        return self.flush_segments != _INEXACT


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

    def note(self, header: StreamBlockHeader, owners: Owners = no_owners) -> None:
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
            _forget_silent(entries, owners() if entries is self.own else {})

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
        self.inherited = [entry for entry in self.inherited if entry.writer != writer]

    def last(self, writer: bytes, position: float | None, *, durable: int = 0) -> int:
        """Return the number up to which the writer's events with this key are here; 0 if there are none.

        Without a key it is what the writer wrote to this segment itself. The caller may know up to where everything is
        ``durable``; ``WriterForgotten`` if it is not known exactly what is here above that.
        """
        entry = self.get(writer)
        last = entry.last_number if entry else 0
        for inherited in self.inherited:
            if position is not None and inherited.low <= position < inherited.high and inherited.writer == writer:
                if not inherited.is_exact and inherited.last_number > max(last, durable):
                    raise _forgotten([inherited])
                last = max(last, inherited.last_number)
        return last

    def pack(self, time_ms: int, events: int) -> bytes:
        """Return the block that holds the table, behind so many events of its segment."""
        count = len(self.own) + len(self.anonymous)
        header = StreamBlockHeader(kind=WRITERS, count=count, time_ms=time_ms, before=events)
        own = (
            _OWN.pack(writer, entry.last_number, entry.flush_last, entry.durable_floor, entry.flush_segments)
            for writer, entry in (*self.own.items(), *self.anonymous.items())
        )
        rest = (
            _INHERITED.pack(
                entry.writer,
                entry.last_number,
                entry.flush_last,
                entry.durable_floor,
                entry.flush_segments,
                entry.low,
                entry.high,
            )
            for entry in self.inherited
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


def _forget_silent(entries: dict[bytes, WriterEntry], owners: Mapping[bytes, str]) -> None:
    """Drop the writers without an owner that were silent for longest; if all have one, then any."""
    at_once = min(_FORGOTTEN_AT_ONCE, 1 + len(entries) // 64)
    silent = list(islice((writer for writer in entries if writer not in owners), at_once))
    for writer in silent or list(islice(entries, 1)):
        del entries[writer]


def inherit(
    predecessors: Iterable[tuple[float, float, WriterTable]], *, low: float, high: float, owners: Owners = no_owners
) -> WriterTable:
    """Return the table that a segment with this key range begins with."""
    found: list[tuple[int, Inherited]] = []
    for one_low, one_high, table in predecessors:
        entries = [*_still_needed(table), *_handed_on(table, low=one_low, high=one_high)]
        cut = (replace(entry, low=max(low, entry.low), high=min(high, entry.high)) for entry in reversed(entries))
        found += enumerate(entry for entry in cut if entry.low < entry.high)
    found.sort(key=itemgetter(0), reverse=True)  # of each predecessor, the writer that wrote last is last
    inherited = [entry for _, entry in found]
    return WriterTable(inherited=inherited if len(inherited) <= ENTRIES_MAX else _fitted(inherited, owners()))


def _fitted(inherited: Sequence[Inherited], owners: Mapping[bytes, str]) -> list[Inherited]:
    """Return no more entries than a table holds, in the same order: joined, and those of some writers dropped."""
    entries: dict[bytes, list[Inherited]] = {}  # by writer; the one that wrote last is first
    for entry in reversed(inherited):
        entries.setdefault(entry.writer, []).append(entry)
    joined = {writer: _joined(of_writer) for writer, of_writer in entries.items()}
    entries |= {writer: [entry] for writer, entry in joined.items() if entry.is_exact}
    too_many = sum(map(len, entries.values())) - ENTRIES_MAX
    for writer in _most_greedy_first(entries, owners):
        if too_many <= 0:
            break
        too_many -= len(entries[writer]) - 1
        entries[writer] = [joined[writer]]
    silent = (writer for writer in reversed(entries) if writer not in owners)
    for writer in list(islice(silent, max(too_many, 0))):
        del entries[writer]
    return [entry for of_writer in reversed(entries.values()) for entry in reversed(of_writer)]


def _joined(entries: Sequence[Inherited]) -> Inherited:
    """Return one entry for all of a writer: exact if all that it wrote is durable, so that it is there everywhere."""
    last, durable = max(entry.last_number for entry in entries), _durable(entries)
    return Inherited(
        entries[0].writer,
        last,
        max(_highest(entries), durable),
        durable,
        0 if last <= durable else _INEXACT,
        min(entry.low for entry in entries),
        max(entry.high for entry in entries),
    )


def _most_greedy_first(entries: Mapping[bytes, Sequence[Inherited]], owners: Mapping[bytes, str]) -> Iterator[bytes]:
    """Return the writers with several entries: always one of the user that has most, silent for longest.

    What is returned is taken to have one entry from then on. Writers without an owner count as those of one user.
    """
    of_user: dict[str, list[bytes]] = {}
    sizes: dict[str, int] = {}
    for writer, of_writer in entries.items():
        user = owners.get(writer, "")
        sizes[user] = sizes.get(user, 0) + len(of_writer)
        if len(of_writer) > 1:
            of_user.setdefault(user, []).append(writer)
    heap = [(-sizes[user], user) for user in of_user]
    heapq.heapify(heap)
    while heap:
        size, user = heap[0]
        writer = of_user[user].pop()
        yield writer
        if of_user[user]:
            heapq.heapreplace(heap, (size + len(entries[writer]) - 1, user))
        else:
            heapq.heappop(heap)


def _still_needed(table: WriterTable) -> Iterator[Inherited]:
    """Return what a table inherited of writers that have not written more since."""
    for entry in table.inherited:
        own = table.own.get(entry.writer)
        if own is None or own.last_number < entry.last_number:
            yield entry


def _handed_on(table: WriterTable, *, low: float, high: float) -> Iterator[Inherited]:
    for writer, own in table.own.items():
        yield Inherited(writer, own.last_number, own.flush_last, own.durable_floor, own.flush_segments, low, high)


def durable_number(writer: bytes, tables: Iterable[WriterTable]) -> int:
    """Return the number up to which all of a writer's events are durable, whichever segment they went to.

    A flush that went to several segments counts as a whole once every one of them has its part; a part that several
    segments inherited counts once.
    """
    return _durable(_entries(writer, tables))


def _durable(entries: Iterable[WriterEntry | Inherited]) -> int:
    best = 0
    there: dict[tuple[int, int], set[int]] = {}  # by flush: the last number of each part, which no other part has
    for entry in entries:
        best = max(best, entry.durable_floor)
        if entry.flush_segments:
            there.setdefault((entry.flush_last, entry.flush_segments), set()).add(entry.last_number)
    return max([best, *(last for (last, segments), found in there.items() if len(found) >= segments)])


def highest_number(writer: bytes, tables: Iterable[WriterTable]) -> int:
    """Return the highest number that a writer has used, in a flush that got through or in one that did not.

    A writer that sends such a flush again must not store the number of its segments: with a block of the first attempt,
    the flush could seem to be complete.
    """
    return _highest(_entries(writer, tables))


def _highest(entries: Iterable[WriterEntry | Inherited]) -> int:
    return max((max(entry.last_number, entry.flush_last) for entry in entries), default=0)


def check_exact(writer: bytes, tables: Iterable[WriterTable]) -> None:
    """Refuse a writer of which it is not known any more which of its events above the durable ones are there."""
    entries = list(_entries(writer, tables))
    durable = _durable(entries)
    if any(isinstance(entry, Inherited) and not entry.is_exact and entry.last_number > durable for entry in entries):
        raise _forgotten(entries)


def _forgotten(entries: Sequence[WriterEntry | Inherited]) -> WriterForgotten:
    """Return the error about a writer with these entries; numbers as callers see them are lower by one."""
    durable = _durable(entries)
    return WriterForgotten(durable=durable - 1 if durable else None, highest=_highest(entries) - 1)


def _entries(writer: bytes, tables: Iterable[WriterTable]) -> Iterator[WriterEntry | Inherited]:
    for table in tables:
        entry = table.get(writer)
        if entry is not None:
            yield entry
        yield from (entry for entry in table.inherited if entry.writer == writer)
