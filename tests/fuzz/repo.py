"""Decoders of repository streams: blocks and indexes with right checksums, bundles, deltas from elsewhere."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import google_crc32c
import msgspec
import zstandard

from penstock import errors
from penstock.repo import Bundle, Everything, Inventory, InventoryEntry, Ref, RevisionText
from penstock.repo._block import _HEAD, BlockDamaged, Item, ItemBlock, encode_block
from penstock.repo._events import (
    InsertRecord,
    decode_index_event,
    decode_insert_record,
    encode_index_event,
    encode_insert_record,
    invalidity,
)
from penstock.repo._index import Index, decode_rows
from penstock.repo._refs import decode_refs, encode_refs
from penstock.repo._revision import join_signature, split_signature
from penstock.repo.kinds import decode, encode
from tests.repo.streams import Items, history

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.repo import Key

_BODY: Final = bytes(range(256)) * 16
_KEY: Final = (b"texts", b"f", b"r2")
_PARENTS: Final = ((b"texts", b"f", b"r1"),)
_ITEM: Final = Item(_KEY, _PARENTS, bytes(20), "fulltext", b"text")
_BASIS: Final = b"alpha\nbeta\ngamma\n"
_TEXTS: Final = (b"alpha\nBETA\ngamma\ndelta", b"", b"alpha\nbeta\n", b"version x\n1,2,1\nend r2\n")

REPO_ERRORS: Final = (errors.RepositoryError, errors.CorruptData, errors.BadArgument)
BLOCK_ERRORS: Final = (BlockDamaged,)


def table(data: bytes) -> None:
    """Read a block whose table is the input, and all that is in it."""
    size = 0
    with suppress(msgspec.DecodeError, UnicodeDecodeError, TypeError, IndexError, KeyError, RecursionError):
        sizes = msgspec.msgpack.decode(data)[4]
        size = min(sum(number for number in sizes if type(number) is int and number > 0), len(_BODY))
    packed, body = zstandard.compress(data), zstandard.compress(_BODY[:size])
    head = _HEAD.pack(b"PRB\x01", len(packed), len(data), len(body), size, 0, 0)[:28]
    check = google_crc32c.extend(google_crc32c.value(head), packed)
    block = ItemBlock(b"".join([head, struct.pack(">II", check, google_crc32c.value(body)), packed, body]))
    for number in range(len(block.keys)):
        block.parents(number), block.sha1(number), block.kind(number), block.compressor_data(number)
        assert len(block.data(number, lambda _: _BASIS)) == block.item_size(number)


def tables() -> list[bytes]:
    """Return tables of blocks as they are stored."""
    items = [Item(_KEY, _PARENTS, bytes(20), "knit-delta", b"x" * 70, {"noeol": True})] * 2
    blocks = [encode_block(items), encode_block(items, basis=[(_PARENTS[0], _BASIS)], depth=1)]
    return [zstandard.decompress(block[36 : 36 + size]) for block in blocks for size in [_HEAD.unpack_from(block)[1]]]


def block_index(data: bytes) -> None:
    """Read an index whose columns are the input, and look something up."""
    count = len(data) // 32
    body = struct.pack(">I", count) + zstandard.compress(data[: 32 * count])
    index = decode_rows(struct.pack(">I", google_crc32c.value(body)) + body)
    index.find(_KEY), index.addresses(), index.doubtful(), index.of_revisions([b"r2"])
    assert len(index.between(70, 99)) <= len(index) == count


def block_indexes() -> list[bytes]:
    """Return the columns of an index."""
    index = Index()
    index.add([(36, [_KEY, (b"revisions", b"r2")])])
    index.add([(99, [_KEY])])
    return [index.sorted().columns.tobytes(), b""]


def index_event(data: bytes) -> None:
    """Read an event of the index as it is stored."""
    decode_index_event(data)


def index_events() -> list[bytes]:
    """Return events of the index."""
    index = Index()
    index.add([(36, [_KEY])])
    return [encode_index_event(index.sorted(), start=0, end=99, last_insert=70, ghosts=[_KEY], earlier=[])]


def insert_record(data: bytes) -> None:
    """Read the record of an insert, which may say anything, of a block with one item."""
    record = decode_insert_record(data)
    reason = invalidity(record, [ItemBlock(encode_block([_ITEM]))], 99)
    assert (reason is None) <= (record.blocks == record.items == 1 and record.base <= 99)


def insert_records() -> list[bytes]:
    """Return records of inserts."""
    return [encode_insert_record(InsertRecord(b"id", base, 1, 1, [_KEY])) for base in (0, 99, 1 << 40)]


class _File:
    """A bundle in memory."""

    name = "memory"

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]

    def close(self) -> None:
        """There is nothing to let go of."""


def bundle(data: bytes) -> None:
    """Open a bundle, and read everything in it."""
    found = Bundle(_File(data))
    for record in found.get_repository_stream(Everything()).iter_contents():
        for factory in record.entries:
            factory.get_bytes_as(factory.storage_kind)


def bundles() -> list[bytes]:
    """Return small bundles."""
    written = []
    for stream in (history(2), Items()):
        file = io.BytesIO()
        Bundle.write(file, stream)
        written.append(file.getvalue())
    return written


def delta(kind: str) -> Callable[[bytes], None]:
    """Return the decoder of a storage kind."""

    def run(data: bytes) -> None:
        for noeol in (False, True):
            compressor_data = {"noeol": noeol} if kind != "mpdiff" else None
            with suppress(errors.BadRecord):
                decode(kind, data, key=_KEY, parents=_PARENTS, compressor_data=compressor_data, get_text=_basis)

    return run


def deltas(kind: str) -> list[bytes]:
    """Return texts in a storage kind."""
    return [encode(kind, text, key=_KEY, parents=_PARENTS, get_text=_basis)[0] for text in _TEXTS]


def _basis(key: Key) -> bytes:
    assert key == _PARENTS[0]
    return _BASIS


def inventory(data: bytes) -> None:
    """Read an inventory, from the beginning and as one that follows another, and write it again."""
    read = Inventory(b"r", data)
    assert read.text == data
    for path, entry in read.items():
        assert read.path_of(entry.file_id) == path
        assert b".." not in path.split(b"/")
        assert entry.kind
    again = Inventory(b"r", data, like=Inventory(b"r", inventories()[0]))
    assert not again.changes_from(read)


def inventories() -> list[bytes]:
    """Return inventories with all kinds of files, and with moved ones."""
    entries = {
        b"a b": InventoryEntry(0o100755, b"r1", b"old id"),
        b"dir/\xff\x7f": InventoryEntry(0o100644, b"r1", b"\\"),
        b"line\nfeed": InventoryEntry(0o120000, b"r2", b"line\nfeed"),
        b"z": InventoryEntry(0o160000, b"r2", b"z"),
    }
    return [Inventory(b"r").changed(b"r", entries).text, b""]


def revision(data: bytes) -> None:
    """Read the text of a revision, with its signature and without."""
    text, signature = split_signature(data)
    assert join_signature(text, signature) == data
    read = RevisionText.parse(b"r", text)
    for person in (read.author, read.committer):
        read.decoded(person.name), abs(person.time)
    read.decoded(read.message), read.parents


def revisions() -> list[bytes]:
    """Return commits of git, one of them signed."""
    people = b"author A <a@b> 1700000000 +0100\ncommitter \xff <> -5 -0000\nencoding ISO-8859-1\n"
    plain = b"tree 1\nparent 2\nparent 3\n" + people
    return [plain + b"\nSay why\n", plain + b"gpgsig -----BEGIN\n abc\n -----END\n\nSay why"]


def refs(data: bytes) -> None:
    """Read a list of names, and write it again."""
    assert encode_refs(decode_refs((b"refs", b"0"), data)) == data


def names() -> list[bytes]:
    """Return lists of names."""
    return [encode_refs({b"HEAD": Ref(b"r1"), b"refs/tags/a b\n": Ref(b"r1", b"t1")}), b""]
