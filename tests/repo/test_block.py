"""Blocks: bytes to items and back, and what damage does."""

from __future__ import annotations

import hashlib
import io
import struct
from typing import TYPE_CHECKING

import google_crc32c
import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.repo import Bundle, ContentFactory, Record, RepositoryStream
from penstock.repo._block import (
    _HEAD,
    BLOCK_HEAD_SIZE,
    TABLE_SIZE_MAX,
    BlockDamaged,
    Item,
    ItemBlock,
    encode_block,
    table_size,
)
from penstock.repo._keys import TEXT_SIZE_MAX
from penstock.repo._serialised import blocks_of

if TYPE_CHECKING:
    from penstock.repo import Key

KEYS = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=3).map(tuple)


def item(
    key: Key,
    data: bytes,
    *,
    parents: tuple[Key, ...] = (),
    kind: str = "fulltext",
    compressor_data: dict[str, bool] | None = None,
) -> Item:
    sha1 = hashlib.sha1(data, usedforsecurity=False).digest()
    return Item(key, parents, sha1, kind, data, compressor_data)


def no_text(key: Key) -> bytes:
    raise AssertionError(key)


@given(
    st.lists(
        st.builds(
            item,
            KEYS,
            st.binary(max_size=200),
            parents=st.lists(KEYS, max_size=3).map(tuple),
            kind=st.sampled_from(["fulltext", "knit-delta"]),
            compressor_data=st.none() | st.just({"noeol": True}),
        ),
        max_size=5,
    )
)
def test_items_come_back(items: list[Item]) -> None:
    """Any bytes may be in keys, parents and texts."""
    block = ItemBlock(encode_block(items))
    assert list(block.keys) == [item.key for item in items]
    for number, stored in enumerate(items):
        assert bytes(block.data(number, no_text)) == stored.data
        assert block.parents(number) == stored.parents
        assert block.sha1(number) == stored.sha1
        assert block.kind(number) == stored.kind
        assert block.compressor_data(number) == stored.compressor_data


def test_a_stored_block_can_be_read_for_ever() -> None:
    """These bytes are in repositories: a change of the format needs a new magic."""
    golden = bytes.fromhex(
        "505242010000004700000047000000000000000e0000000000000005cf4dcd334fc7206228b52ffd2047f501004403989193"
        "c4057465787473c40166c40272319130c414aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d91a866756c6c910580900002"
        "002d1538d4cd3028b52ffd200529000068656c6c6f"
    )
    made = encode_block([item((b"texts", b"f", b"r1"), b"hello", parents=((b"texts", b"f", b"r0"),))])
    for block in (ItemBlock(golden), ItemBlock(made)):
        assert list(block.keys) == [(b"texts", b"f", b"r1")]
        assert block.parents(0) == ((b"texts", b"f", b"r0"),)
        assert bytes(block.data(0, no_text)) == b"hello"
    assert made[:4] == golden[:4]


def test_the_table_alone_can_be_read() -> None:
    """To walk the graph of parents, no text is decompressed."""
    data = encode_block([item((b"texts", b"f", b"r1"), b"text" * 1000)])
    block = ItemBlock(data[: table_size(data[:BLOCK_HEAD_SIZE])])
    assert list(block.keys) == [(b"texts", b"f", b"r1")]
    assert not block.is_whole


def test_a_block_is_decoded_with_its_basis() -> None:
    """A small change of a long text takes a few bytes, if the text before is known."""
    before = hashlib.shake_128(b"x").digest(20_000)
    after = before[:10_000] + b"change" + before[10_000:]
    data = encode_block([item((b"f", b"r2"), after)], basis=[((b"f", b"r1"), before)], depth=1)
    assert len(data) < 500
    texts: dict[Key, bytes] = {(b"f", b"r1"): before}
    block = ItemBlock(data)
    assert (list(block.basis), block.depth) == ([(b"f", b"r1")], 1)
    assert bytes(block.data(0, texts.__getitem__)) == after


def test_every_flipped_byte_is_noticed() -> None:
    """Damage is an error, never other content."""
    data = encode_block([item((b"texts", b"f", b"r1"), b"hello, hello, hello")])
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        with pytest.raises(BlockDamaged):
            ItemBlock(bytes(damaged)).data(0, no_text)


def forged(table: object, body: bytes, *, raw_size: int | None = None) -> bytes:
    """Return a block that a hostile server or bundle could hold: its checksums are right."""
    raw = msgspec.msgpack.encode(table)
    packed, compressed = zstandard.compress(raw), zstandard.compress(body)
    size = len(body) if raw_size is None else raw_size
    head = _HEAD.pack(b"PRB\x01", len(packed), len(raw), len(compressed), size, 0, 0)[:28]
    check = google_crc32c.extend(google_crc32c.value(head), packed)
    return b"".join([head, struct.pack(">II", check, google_crc32c.value(compressed)), packed, compressed])


@pytest.mark.parametrize(
    "table",
    [
        [],
        {},
        "text",
        [[[b"k"]], [[]], bytes(20), ["fulltext"], [], {}, [], 0],
        [[[b"k"]], [[]], bytes(19), ["fulltext"], [5], {}, [], 0],
        [[[b"k"]], [], bytes(20), ["fulltext"], [5], {}, [], 0],
        [[[b"k"]], [[]], bytes(20), ["fulltext"], [-5], {}, [], 0],
        [[[b"k"], [b"l"]], [[], []], bytes(40), ["fulltext", "fulltext"], [10, -5], {}, [], 0],
        [[[b"k"]], [[]], bytes(20), ["fulltext"], [6], {}, [], 0],
        [[[b""]], [[]], bytes(20), ["fulltext"], [5], {}, [], 0],
        [[[]], [[]], bytes(20), ["fulltext"], [5], {}, [], 0],
        [[[b"k"]], [[[]]], bytes(20), ["fulltext"], [5], {}, [], 0],
        [[["text"]], [[]], bytes(20), ["fulltext"], [5], {}, [], 0],
        [[[b"k"]], [[]], bytes(20), ["fulltext"], [5], {}, [], 0, "more"],
    ],
    ids=repr,
)
def test_forged_tables_are_refused(table: object) -> None:
    """A bundle from elsewhere may say anything; its sizes and columns have to agree."""
    with pytest.raises(BlockDamaged):
        ItemBlock(forged(table, b"hello"))


def test_a_lie_about_the_size_allocates_nothing() -> None:
    """A few bytes that promise gigabytes end with an error, not with the memory."""
    size = TEXT_SIZE_MAX
    table = [[[b"k"]], [[]], bytes(20), ["fulltext"], [size], {}, [], 0]
    with pytest.raises(BlockDamaged, match="instead of"):
        ItemBlock(forged(table, b"hello", raw_size=size)).data(0, no_text)


@pytest.mark.parametrize(
    ("sha1s", "size"), [(bytes(20), TEXT_SIZE_MAX + 1), (bytes(TABLE_SIZE_MAX), 5)], ids=["body", "table"]
)
def test_a_bomb_is_refused_before_it_is_unpacked(sha1s: bytes, size: int) -> None:
    """A file of 9 kB took gigabytes: zeros by the gigabyte, or a table of millions of keys; also of a server."""
    table = [[[b"k"]], [[]], sha1s, ["fulltext"], [size], {}, [], 0]
    with pytest.raises(BlockDamaged, match="more than a block has"):
        ItemBlock(forged(table, b"hello", raw_size=size))


def test_long_keys_are_cut_into_blocks() -> None:
    """A table has a limit, so keys and parents count as bytes of a block, not only texts."""
    parents = tuple((b"p" * 60_000, b"%d" % number) for number in range(60))
    items = [ContentFactory((b"k", b"%d" % number), parents, b"") for number in range(6)]
    blocks = list(blocks_of(RepositoryStream(iter([Record((), iter(items))]))))
    assert [len(ItemBlock(block).keys) for block in blocks] == [1] * 6
    file = io.BytesIO()
    Bundle.write(file, RepositoryStream(iter([Record((), iter(items))])))
    assert file.getvalue().count(b"PRB\x01") == 6
