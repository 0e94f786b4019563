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

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument, BadRecord
from penstock.repo._graph import check_acyclic
from penstock.repo._index import Index, decode_rows, encode_rows
from penstock.repo._keys import check_key, check_parents
from penstock.repo.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.repo._block import ItemBlock
    from penstock.repo._keys import Key

__all__ = [
    "INDEX_MAGIC",
    "INSERT_MAGIC",
    "INSERT_SIZE_MAX",
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


class _IndexHead(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    start: int
    end: int
    last_insert: int
    ghosts: list[tuple[bytes, ...]]
    earlier: list[IndexPart]


_INSERTS: Final = msgspec.msgpack.Decoder(InsertRecord)
_HEADS: Final = msgspec.msgpack.Decoder(_IndexHead)


def encode_insert_record(record: InsertRecord) -> bytes:
    """Return the event that ends an insert."""
    return INSERT_MAGIC + msgspec.msgpack.encode(record)


def decode_insert_record(event: bytes) -> InsertRecord:
    """Return the record in an event that begins with its magic; ``ValueError`` if it is damaged."""
    record = _INSERTS.decode(event[len(INSERT_MAGIC) :])
    if not all(ghost and all(ghost) for ghost in record.ghosts):
        raise ValueError("it names a parent by an empty key")
    return record


def invalidity(record: InsertRecord, blocks: Sequence[ItemBlock | None], offset: int) -> str | None:
    """Return why no repository has written an insert whose record is at an offset; None if one may have."""
    if None in blocks or len(blocks) != record.blocks or record.base > offset:
        return "its blocks are not there"
    parents: dict[Key, tuple[Key, ...]] = {}
    try:
        items = 0
        for block in filter(None, blocks):
            items += len(block.keys)
            for number, key in enumerate(block.keys):
                check_key(key)
                check_parents(key, block.parents(number))
                parents[key] = block.parents(number)
                if block.kind(number) not in KINDS:
                    return f"it has an item of the unknown kind {block.kind(number)!r}"
        check_acyclic(parents)
    except (BadArgument, BadRecord) as error:
        return str(error)
    return None if items == record.items else f"it has {items:,} items instead of {record.items:,}"


def encode_index_event(
    index: Index, *, start: int, end: int, last_insert: int, ghosts: list[Key], earlier: list[IndexPart]
) -> bytes:
    """Return an index event: the magic, the size of its head in 4 bytes, the head as a msgpack array, the rows."""
    head = msgspec.msgpack.encode(_IndexHead(start, end, last_insert, ghosts, earlier))
    return b"".join([INDEX_MAGIC, len(head).to_bytes(4, "big"), head, encode_rows(index)])


def decode_index_event(event: bytes) -> tuple[_IndexHead, Index]:
    """Return the head and the rows of an index event; ``ValueError`` if it is damaged or another event."""
    if event[:4] != INDEX_MAGIC:
        raise ValueError("it is not an index event")
    end = 8 + int.from_bytes(event[4:8], "big")
    head = _HEADS.decode(event[8:end])
    if not all(ghost and all(ghost) for ghost in head.ghosts):
        raise ValueError("it names a parent by an empty key")
    return head, decode_rows(memoryview(event)[end:])
