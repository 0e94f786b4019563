"""The events of a repository's stream beside its blocks: the record that ends an insert, and parts of the index.

An insert is one transaction: its blocks, and behind them the record. The record says up to where the inserter had read
the stream, its ``base``, when it compared its items with what was stored. If another insert lies between, every reader
compares the items again, in the same way: an insert that disagrees with an earlier one is void for all of them. So
writers need no lock, and readers agree.

Events are not believed: what is none of these, or damaged, or an insert that no repository writes, is passed over by
every reader in the same way, and a check names it.

An index event lists the items from ``start`` to ``end``, and names the events that list the ones before.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec

from penstock.errors import BadArgument, BadRecord
from penstock.repo._graph import ParentRows
from penstock.repo._index import ROWS_MAX, Index, decode_rows, encode_rows
from penstock.repo._keys import check_key, check_parents
from penstock.repo.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.repo._block import ItemBlock
    from penstock.repo._keys import Key

__all__ = [
    "INDEX_MAGIC",
    "INSERT_MAGIC",
    "INSERT_SIZE_MAX",
    "IndexHead",
    "IndexPart",
    "InsertRecord",
    "decode_index_event",
    "decode_insert_record",
    "encode_index_event",
    "encode_insert_record",
    "invalidity",
]

INSERT_MAGIC: Final = b"PRI\x01"
INDEX_MAGIC: Final = b"PRX\x01"
INSERT_SIZE_MAX: Final = 64 << 20
_CIRCULAR: Final = "it is its own ancestor"


class InsertRecord(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The end of an insert, behind the magic as a msgpack array.

    ``id`` is random; ``blocks`` and ``items`` say how many there are; ``ghosts`` are parents that were nowhere.
    """

    id: bytes
    base: int
    blocks: int
    items: int
    ghosts: list[tuple[bytes, ...]]


class IndexPart(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An index event that comes before another one: where it is, from which offset on it lists items, and how many."""

    address: int
    start: int
    rows: int


class IndexHead(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The head of an index event: which offsets it lists, and what is not among its rows."""

    start: int
    end: int
    last_insert: int
    ghosts: list[tuple[bytes, ...]]
    earlier: Annotated[list[IndexPart], msgspec.Meta(max_length=64)]  # each at least twice as long as those behind it


_INSERTS: Final = msgspec.msgpack.Decoder(InsertRecord)
_HEADS: Final = msgspec.msgpack.Decoder(IndexHead)


class ItemBlocks(Protocol):
    """Some blocks, which can be read again and again."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[ItemBlock]: ...


def encode_insert_record(record: InsertRecord) -> bytes:
    """Return the event that ends an insert."""
    return INSERT_MAGIC + msgspec.msgpack.encode(record)


def decode_insert_record(event: bytes) -> InsertRecord:
    """Return the record in an event that begins with its magic; ``ValueError`` if it is damaged."""
    record = _INSERTS.decode(event[len(INSERT_MAGIC) :])
    if not all(ghost and all(ghost) for ghost in record.ghosts):
        raise ValueError("it names a parent by an empty key")
    return record


def invalidity(record: InsertRecord, blocks: ItemBlocks, offset: int) -> str | None:
    """Return why no repository has written an insert whose record is at an offset; None if one may have."""
    if len(blocks) != record.blocks or record.base > offset:
        return "its blocks are not there"
    try:
        items = ParentRows(_checked_items(blocks))
    except (BadArgument, BadRecord) as error:
        return str(error)
    if len(items) != record.items:
        return f"it has {len(items):,} items instead of {record.items:,}"
    row = items.circle()
    if row is None:
        return None
    return str(BadRecord(next(islice((key for block in blocks for key in block.keys), row, None)), _CIRCULAR))


def _checked_items(blocks: Iterable[ItemBlock]) -> Iterator[tuple[Key, tuple[Key, ...]]]:
    for block in blocks:
        for number, key in enumerate(block.keys):
            check_key(key)
            check_parents(key, block.parents(number))
            if block.kind(number) not in KINDS:
                raise BadRecord(key, f"it is of the unknown kind {block.kind(number)!r}")
            yield key, block.parents(number)


def encode_index_event(
    index: Index, *, start: int, end: int, last_insert: int, ghosts: list[Key], earlier: list[IndexPart]
) -> bytes:
    """Return an index event: the magic, the size of its head in 4 bytes, the head as a msgpack array, the rows."""
    head = msgspec.msgpack.encode(IndexHead(start, end, last_insert, ghosts, earlier))
    return b"".join([INDEX_MAGIC, len(head).to_bytes(4, "big"), head, encode_rows(index)])


def decode_index_event(event: bytes, *, rows_max: int = ROWS_MAX) -> tuple[IndexHead, Index]:
    """Return the head and the rows of an index event; ``ValueError`` if it is damaged, too large or another event."""
    if event[:4] != INDEX_MAGIC:
        raise ValueError("it is not an index event")
    end = 8 + int.from_bytes(event[4:8], "big")
    head = _HEADS.decode(event[8:end])
    if not all(ghost and all(ghost) for ghost in head.ghosts):
        raise ValueError("it names a parent by an empty key")
    return head, decode_rows(memoryview(event)[end:], rows_max=min(rows_max, max(0, head.end - head.start)))
