"""The block: items of a repository, compressed together, with a table of what they are.

A block describes itself, so a stream of blocks can be read without anything else: a repository stores each as an event,
a bundle one behind another in its file, and a server sends them as they are. Items that resemble each other share a
block, because what they have in common is then stored once. The table can be read without the body.

A small block may be compressed with the texts of earlier items as its dictionary, its basis: what is inserted revision
by revision stays small, too. ``depth`` says how many blocks have to be read one after the other to decode this one.
"""

from __future__ import annotations

import hashlib
import struct
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import msgspec
import zstandard

from penstock.model import UNDECODABLE
from penstock.repo._keys import TEXT_SIZE_MAX, Key, key_name
from penstock.repo._records import FULLTEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "ALONE_SIZE",
    "BLOCK_HEAD_SIZE",
    "BLOCK_MAGIC",
    "DEPTH_MAX",
    "BlockDamaged",
    "Item",
    "ItemBlock",
    "block_size",
    "checked_block",
    "encode_block",
    "size_in_block",
    "table_size",
]

BLOCK_MAGIC: Final = b"PRB\x01"
_HEAD: Final = struct.Struct(">4sIIQQII")
BLOCK_HEAD_SIZE: Final = _HEAD.size
assert BLOCK_HEAD_SIZE == 36, "stored since format 1: a new size needs a new magic"

DEPTH_MAX: Final = 16  # of blocks that build on each other
TABLE_SIZE_MAX: Final = 16 << 20  # in memory it takes some twenty times as much
_ITEM_SIZE, _ELEMENT_SIZE = 40, 6  # what an item, and an element of a key, take in a table beside their bytes, at most
ITEMS_MAX: Final = 10_000  # repositories store up to 2,000 in a block
ALONE_SIZE: Final = 1 << 20  # a larger item gets a block of its own
_AT_ONCE: Final = 64 << 20  # a larger body is decompressed bit by bit, so that a lie about its size allocates nothing
_LEVEL: Final = 9
_CHECKED_SIZE_MAX: Final = 8 << 20


class BlockDamaged(Exception):
    """The bytes are not a whole block; the one who read them knows where they come from."""


class Item(msgspec.Struct, frozen=True):
    """One item, as it is stored: ``data`` is of ``kind``, ``sha1`` is that of the full text."""

    key: Key
    parents: tuple[Key, ...]
    sha1: bytes
    kind: str
    data: bytes
    compressor_data: dict[str, Any] | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes in a block, before they are compressed."""
        return size_in_block(self.key, self.parents, self.data)


class _ItemTable(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Column by column, because equal things compress best side by side. ``compressor_data`` has only what is there."""

    keys: list[tuple[bytes, ...]]
    parents: list[tuple[tuple[bytes, ...], ...]]
    sha1s: bytes
    kinds: list[str]
    sizes: list[int]
    compressor_data: dict[int, dict[str, Any]]
    basis: list[tuple[bytes, ...]]
    depth: int


_TABLES: Final = msgspec.msgpack.Decoder(_ItemTable)
_ENCODER: Final = msgspec.msgpack.Encoder()


class ItemBlock:
    """A block that was read: its table, and the items in it.

    0   4  magic       tells a block from the other events of a repository
    4   4  table_size  bytes of the table, compressed with zstd
    8   4  table_raw   bytes of the table, a msgpack array of columns
    12  8  body_size   bytes of the body, compressed with zstd
    20  8  body_raw    bytes of all items, one behind another
    28  4  head_check  crc32c of bytes 0-27 and the table
    32  4  body_check  crc32c of the body

    The table follows at byte 36, and the body behind it.
    """

    __slots__ = ("_body", "_compressed", "_crc", "_raw_size", "_starts", "_table", "_table_memory", "size")

    def __init__(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        if len(view) < BLOCK_HEAD_SIZE:
            raise BlockDamaged(f"{len(view)} bytes are too few for a block")
        magic, table_size_, table_raw, body_size, self._raw_size, head_check, self._crc = _HEAD.unpack_from(view)
        end = BLOCK_HEAD_SIZE + table_size_
        if magic != BLOCK_MAGIC or len(view) < end:
            raise BlockDamaged("its head is damaged")
        if table_raw > TABLE_SIZE_MAX or self._raw_size > TEXT_SIZE_MAX:
            raise BlockDamaged(f"it promises {table_raw:,} and {self._raw_size:,} bytes, more than a block has")
        table = bytes(view[BLOCK_HEAD_SIZE:end])
        if google_crc32c.extend(google_crc32c.value(bytes(view[:28])), table) != head_check:
            raise BlockDamaged("its head does not match its checksum")
        self._table = _table(table, table_raw)
        self._starts = [0, *accumulate(self._table.sizes)]
        if self._starts[-1] != self._raw_size:
            raise BlockDamaged("its table is of another size than its body")
        parents = sum(map(len, self._table.parents)) + len(self._table.basis)
        self._table_memory: int = 400 * len(self.keys) + 200 * parents + table_raw
        self.size = end + body_size
        self._compressed = bytes(view[end : self.size]) if len(view) >= self.size else None
        self._body: memoryview | None = None

    @property
    def keys(self) -> Sequence[Key]:
        """The keys of its items."""
        return self._table.keys

    @property
    def basis(self) -> Sequence[Key]:
        """The items whose texts are needed to decode it."""
        return self._table.basis

    @property
    def depth(self) -> int:
        """How many blocks have to be decoded before it."""
        return self._table.depth

    @property
    def raw_size(self) -> int:
        """How many bytes all its items have, as they are stored."""
        return self._starts[-1]

    @property
    def is_alone(self) -> bool:
        """Whether it has one item only, a large one, and needs no other block."""
        return len(self.keys) == 1 and not self.basis and self._raw_size > ALONE_SIZE

    @property
    def is_whole(self) -> bool:
        """Whether its body was read, too."""
        return self._compressed is not None or self._body is not None

    @property
    def is_unpacked(self) -> bool:
        """Whether its items are in memory as they are."""
        return self._body is not None

    @property
    def memory_size(self) -> int:
        """About how many bytes it takes while it is in memory."""
        return self._table_memory + (len(self._body) if self._body is not None else len(self._compressed or b""))

    def parents(self, number: int) -> tuple[Key, ...]:
        """Return the parents of an item."""
        return self._table.parents[number]

    def sha1(self, number: int) -> bytes:
        """Return the sha1 of an item's full text: 20 bytes."""
        return self._table.sha1s[20 * number : 20 * number + 20]

    def kind(self, number: int) -> str:
        """Return the storage kind of an item."""
        return self._table.kinds[number]

    def compressor_data(self, number: int) -> dict[str, Any] | None:
        """Return what the storage kind of an item needs beside its bytes."""
        return self._table.compressor_data.get(number)

    def item_size(self, number: int) -> int:
        """Return how many bytes an item has, as it is stored."""
        return self._table.sizes[number]

    def data(self, number: int, get_text: Callable[[Key], bytes]) -> memoryview:
        """Return the bytes of an item; ``get_text`` is asked for the texts of the basis."""
        if self._body is None:
            self._body = memoryview(self._decompress(get_text))
            self._compressed = None
        return self._body[self._starts[number] : self._starts[number + 1]]

    def forget_body(self) -> None:
        """Drop the items: what is left is the table."""
        self._compressed = self._body = None

    def _decompress(self, get_text: Callable[[Key], bytes]) -> bytes:
        assert self._compressed is not None, "only the table was read"
        if google_crc32c.value(self._compressed) != self._crc:
            raise BlockDamaged("its body does not match its checksum")
        dictionary = _dictionary([get_text(key) for key in self.basis])
        return _decompressed(self._compressed, self._raw_size, zstandard.ZstdDecompressor(dict_data=dictionary))


def checked_block(data: bytes) -> ItemBlock:
    """Return a block without its body; ``BlockDamaged`` if a text that is at hand is not what its sha1 says.

    At hand are the full texts of a block that is there as a whole, builds on no other, and is not larger than a packer
    makes one: nothing more is read for them, and a few bytes that stand for a gigabyte are not unpacked.
    """
    block = ItemBlock(data)
    if block.is_whole and not block.basis and block.raw_size <= _CHECKED_SIZE_MAX:
        for number, key in enumerate(block.keys):
            if block.kind(number) == FULLTEXT:
                digest = hashlib.sha1(block.data(number, _no_text), usedforsecurity=False).digest()
                if digest != block.sha1(number):
                    raise BlockDamaged(f"the text of {key_name(key)} is not what its sha1 says")
    block.forget_body()
    return block


def _no_text(key: Key) -> bytes:
    raise BlockDamaged(f"it builds on {key_name(key)}, and does not say so")


def encode_block(
    items: Sequence[Item], *, basis: Sequence[tuple[Key, bytes]] = (), depth: int = 0, level: int = _LEVEL
) -> bytes:
    """Return a block of these items; ``basis`` are the keys and texts of items that it is compressed against."""
    table = _ItemTable(
        keys=[item.key for item in items],
        parents=[item.parents for item in items],
        sha1s=b"".join(item.sha1 for item in items),
        kinds=[item.kind for item in items],
        sizes=[len(item.data) for item in items],
        compressor_data={number: item.compressor_data for number, item in enumerate(items) if item.compressor_data},
        basis=[key for key, _ in basis],
        depth=depth,
    )
    raw_table = _ENCODER.encode(table)
    assert len(raw_table) <= TABLE_SIZE_MAX
    table_bytes = zstandard.ZstdCompressor(level=level).compress(raw_table)
    raw = b"".join(item.data for item in items)
    dictionary = _dictionary([text for _, text in basis])
    body = zstandard.ZstdCompressor(compression_params=_parameters(len(raw), level), dict_data=dictionary).compress(raw)
    head = _HEAD.pack(BLOCK_MAGIC, len(table_bytes), len(raw_table), len(body), len(raw), 0, 0)[:28]
    check = google_crc32c.extend(google_crc32c.value(head), table_bytes)
    return b"".join([head, struct.pack(">II", check, google_crc32c.value(body)), table_bytes, body])


def size_in_block(key: Key, parents: Sequence[Key], data: bytes) -> int:
    """Return about how many bytes an item takes in a block, or in memory."""
    return len(data) + _ITEM_SIZE + sum(_ELEMENT_SIZE + len(element) for name in (key, *parents) for element in name)


def table_size(data: bytes | memoryview) -> int:
    """Return how many bytes of a block, of which at least the head is given, its head and its table take."""
    if len(data) < BLOCK_HEAD_SIZE or bytes(data[:4]) != BLOCK_MAGIC:
        raise BlockDamaged("its head is damaged")
    size = int(_HEAD.unpack_from(data)[1])
    if size > 2 * TABLE_SIZE_MAX:  # what cannot be compressed takes a little more
        raise BlockDamaged(f"it promises a table of {size:,} bytes, more than a block has")
    return BLOCK_HEAD_SIZE + size


def block_size(data: bytes) -> int:
    """Return how many bytes a block has, of which at least the head is given."""
    size = table_size(data) + int(_HEAD.unpack_from(data)[3])
    if size > 2 * TEXT_SIZE_MAX:
        raise BlockDamaged(f"it promises {size:,} bytes, more than a block has")
    return size


def _parameters(size: int, level: int) -> zstandard.ZstdCompressionParameters:
    """Return the settings for a body: a window over all of it, so that the first item helps to store the last."""
    return zstandard.ZstdCompressionParameters.from_level(
        level, source_size=size, window_log=max(10, min(27, (size or 1).bit_length())), enable_ldm=size > 4 << 20
    )


def _dictionary(texts: list[bytes]) -> zstandard.ZstdCompressionDict | None:
    return zstandard.ZstdCompressionDict(b"".join(texts), dict_type=zstandard.DICT_TYPE_RAWCONTENT) if texts else None


def _table(data: bytes, raw_size: int) -> _ItemTable:
    raw = _decompressed(data, raw_size, zstandard.ZstdDecompressor())
    try:
        table = _TABLES.decode(raw)
    except UNDECODABLE as error:
        raise BlockDamaged(f"its table cannot be decoded: {error}") from None
    count = len(table.keys)
    if count > ITEMS_MAX:
        raise BlockDamaged(f"it has {count:,} items, more than {ITEMS_MAX:,}")
    keys = (key and all(key) for key in chain(table.keys, chain.from_iterable(table.parents), table.basis))
    columns = (len(table.parents), len(table.kinds), len(table.sizes), len(table.sha1s) / 20)
    if any(length != count for length in columns) or min(table.sizes, default=0) < 0 or not all(keys):
        raise BlockDamaged("the columns of its table do not fit together")
    if not bool(table.basis) <= table.depth <= DEPTH_MAX:
        raise BlockDamaged(f"its depth is {table.depth:,}")
    return table


def _decompressed(data: bytes, size: int, decompressor: zstandard.ZstdDecompressor) -> bytes:
    try:
        if size <= _AT_ONCE:
            raw = decompressor.decompress(data, max_output_size=size) if size else b""
        else:
            with decompressor.stream_reader(data) as reader:
                raw = _read(reader, size)
    except (zstandard.ZstdError, MemoryError) as error:
        raise BlockDamaged(f"it cannot be decompressed: {error}") from None
    if len(raw) != size:
        raise BlockDamaged(f"it has {len(raw):,} bytes instead of {size:,}")
    return raw


def _read(reader: zstandard.ZstdDecompressionReader, size: int) -> bytes:
    """Read up to a size, a part at a time; memory grows with what there is, not with what was promised."""
    parts = []
    while size and (part := reader.read(min(size, _AT_ONCE))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
