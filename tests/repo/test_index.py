"""The index: lookups in its sorted part and in what was added since, and its stored form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.repo._events import (
    IndexPart,
    InsertRecord,
    decode_index_event,
    decode_insert_record,
    encode_index_event,
    encode_insert_record,
)
from penstock.repo._index import Index, decode_rows, encode_rows, merge

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"r1", b"r2", b"r3", b"r4"]))


def index_of(blocks: list[list[tuple[bytes, ...]]], start: int = 0) -> Index:
    index = Index()
    for number, keys in enumerate(blocks):
        index.add([(start + 100 * number, keys)])
    return index


@given(st.lists(st.lists(KEYS, max_size=4), max_size=6), st.integers(0, 6))
def test_lookups_find_what_was_added(blocks: list[list[tuple[bytes, ...]]], split: int) -> None:
    """Sorted, added, stored and merged parts answer alike."""
    wanted: dict[tuple[bytes, ...], list[tuple[int, int]]] = {}
    for number, keys in enumerate(blocks):
        for place, key in enumerate(keys):
            wanted.setdefault(key, []).append((100 * number, place))
    plain = index_of(blocks)
    mixed = index_of(blocks[:split]).sorted()
    for number, keys in enumerate(blocks[split:], start=split):
        mixed.add([(100 * number, keys)])
    parts = [index_of(blocks[:split]).sorted(), index_of(blocks[split:], 100 * split).sorted()]
    for index in (plain, mixed, plain.sorted(), merge(parts), decode_rows(encode_rows(mixed.sorted()))):
        assert len(index) == sum(map(len, blocks))
        assert {key: index.find(key) for key in wanted} == wanted
        assert index.find((b"a", b"unknown")) == []
        for revision in (b"r1", b"r4"):
            places = sorted(place for key, found in wanted.items() if key[-1] == revision for place in found)
            assert index.of_revisions([revision]) == places
        assert index.addresses() == [100 * number for number, keys in enumerate(blocks) if keys]
        assert index.doubtful() == {place for found in wanted.values() if len(found) > 1 for place in found}
        assert len(index.between(100 * split, 10_000)) == sum(map(len, blocks[split:]))


def test_an_insert_is_seen_as_a_whole() -> None:
    """A thread that searches meanwhile would stream revisions without their texts, and the copy lacks them for ever."""
    index, seen = Index(), list[list[int]]()

    def keys(file: bytes) -> Iterator[tuple[bytes, ...]]:
        for revision in (b"r1", b"r2"):
            seen.append([*index.addresses(), *(address for address, _ in index.of_revisions([b"r1", b"r2"]))])
            yield file, revision

    index.add([(0, keys(b"a")), (100, keys(b"b"))])
    assert seen == [[], [], [], []]
    assert index.addresses() == [0, 100]


def test_a_stored_index_can_be_read_for_ever() -> None:
    """These bytes are in repositories."""
    golden = bytes.fromhex(
        "5db91b8f0000000328b52ffd2060e50100d4028748f3262ef69ca44eed76f3577ceef405c92cf43532c829194dbf6ba2a439"
        "7424008403000100000000000000050000012000ee10378c21250e"
    )
    index = decode_rows(golden)
    assert index.find((b"texts", b"f", b"r1")) == [(36, 0)]
    assert index.find((b"revisions", b"r1")) == [(900, 1)]


def test_every_flipped_byte_is_noticed() -> None:
    """A damaged index would send readers to other items."""
    data = encode_rows(index_of([[(b"a", b"r1")], [(b"b", b"r2"), (b"c", b"r1")]]).sorted())
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        with pytest.raises(ValueError, match="index"):
            decode_rows(bytes(damaged))


def test_the_events_beside_the_blocks_come_back() -> None:
    """What ends an insert, and where the parts of an index are."""
    record = InsertRecord(b"id" * 8, 1234, 3, 99, [(b"a", b"ghost")])
    event = encode_insert_record(record)
    assert decode_insert_record(event) == record
    assert event == bytes.fromhex("50524901") + bytes.fromhex("95c410") + b"id" * 8 + bytes.fromhex(
        "cd04d203639192c40161c40567686f7374"
    )
    rows = index_of([[(b"a", b"r1")]]).sorted()
    earlier = [IndexPart(10, 0, 5), IndexPart(400, 10, 2)]
    stored = encode_index_event(rows, start=500, end=900, last_insert=850, ghosts=[(b"g",)], earlier=earlier)
    head, index = decode_index_event(stored)
    assert (head.start, head.end, head.last_insert, head.earlier) == (500, 900, 850, earlier)
    assert head.ghosts == [(b"g",)]
    assert index.find((b"a", b"r1")) == [(0, 0)]


@pytest.mark.parametrize(
    "event", [b"", b"PRX\x01", b"PRB\x01" + bytes(40), b"PRX\x01\xff\xff\xff\xff", b"PRX\x01\0\0\0\1\x90"]
)
def test_damaged_index_events_are_errors(event: bytes) -> None:
    """Whoever opens the repository reads the history instead."""
    with pytest.raises(ValueError, match=r"index|Expected|Invalid|truncated"):
        decode_index_event(event)
