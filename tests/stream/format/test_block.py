"""The stream block against plain lists: its bytes, its offsets, its refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamCorrupt
from penstock.stream.format._block import (
    BLOCK_HEADER_SIZE,
    CHUNK,
    EXTENT,
    NO_WRITER,
    WRITERS,
    Block,
    Chunk,
    Extent,
    StreamBlockHeader,
    pack_chunk,
    pack_extent,
    pack_lengths,
    read_block,
    read_header,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

WHERE: Final = "segment 0 of stream a/b"
START: Final = 1000

EVENTS_OF_ANY_SIZE = st.lists(st.binary(max_size=20), max_size=30)
EVENTS_OF_ONE_SIZE = st.integers(0, 8).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size)))
EVENTS = EVENTS_OF_ANY_SIZE | EVENTS_OF_ONE_SIZE


def packed(events: Sequence[bytes], header: StreamBlockHeader | None = None) -> bytes:
    header = header or StreamBlockHeader(count=len(events), time_ms=5)
    return header.pack() + pack_lengths(np.array([len(event) for event in events], np.int64)) + b"".join(events)


def block_of(events: Sequence[bytes], start: int = START) -> Block:
    block = read_block(memoryview(packed(events)), where=WHERE, start=start)
    assert isinstance(block, Block)
    return block


def chunk_of(data: bytes, *, number: int = 0, back: int = 0, partial: bool = False, start: int = START) -> Chunk:
    head = pack_chunk(len(data), number=number, back=back, partial=partial, time_ms=5)
    chunk = read_block(memoryview(head + data), where=WHERE, start=start)
    assert isinstance(chunk, Chunk)
    return chunk


def extent_of(size: int, span: int) -> Extent:
    data = StreamBlockHeader(kind=EXTENT, count=0, time_ms=5).pack() + pack_extent(size, span)
    extent = read_block(memoryview(data), where=WHERE, start=START)
    assert isinstance(extent, Extent)
    return extent


def model_offsets(events: Sequence[bytes]) -> list[int]:
    """Return the offset of each event as the seed has it: every event right behind its own length word."""
    offsets, offset = [], START + BLOCK_HEADER_SIZE
    for event in events:
        offsets.append(offset)
        offset += 4 + len(event)
    return offsets


def test_a_block_of_one_event_is_the_frame_of_the_seed() -> None:
    """The frame is the seed's, byte for byte: a 4-byte length, big-endian, and the bytes."""
    data = packed([bytes.fromhex("12345678")])
    assert data[BLOCK_HEADER_SIZE:].hex() == "0000000412345678"


def test_the_header_is_stored_as_documented() -> None:
    """It stands in every stream ever written."""
    header = StreamBlockHeader(
        kind=1, columns=3, flush_segments=0x0203, count=0x04050607, time_ms=0x08090A0B0C0D0E0F,
        writer=bytes(range(16, 32)), last_number=0x2021222324252627, flush_last=0x28292A2B2C2D2E2F,
        durable_floor=0x3031323334353637, before=0x38393A3B3C3D3E3F,
    )  # fmt: skip
    assert header.pack() == bytes([1, 3, *range(2, 64)])


def test_many_events_are_lengths_first() -> None:
    """That is what makes a block an Arrow array without touching an event."""
    data = packed([b"abc", b"", b"defgh"])
    assert data[BLOCK_HEADER_SIZE:] == bytes.fromhex("00000003 00000000 00000005") + b"abcdefgh"


def test_offsets_are_as_in_the_documented_example() -> None:
    """Events of 3 and 5 bytes behind a header that ends at 1000 are at 1000 and 1007, and the block ends at 1016."""
    block = block_of([b"abc", b"defgh"], start=1000 - BLOCK_HEADER_SIZE)
    assert block.offsets().tolist() == [1000, 1007, 1016]
    assert (block.start, block.end) == (1000 - BLOCK_HEADER_SIZE, 1016)


@given(
    st.builds(
        StreamBlockHeader,
        kind=st.integers(1, 4),
        flush_segments=st.integers(0, 2**16 - 1),
        count=st.integers(0, 2**32 - 1),
        time_ms=st.integers(0, 2**64 - 1),
        writer=st.binary(min_size=16, max_size=16),
        last_number=st.integers(0, 2**64 - 1),
        flush_last=st.integers(0, 2**64 - 1),
        durable_floor=st.integers(0, 2**64 - 1),
    )
)
def test_a_header_comes_back_as_it_was(header: StreamBlockHeader) -> None:
    """Every field over its whole range."""
    assert read_header(memoryview(header.pack()), where=WHERE, start=0) == header


@given(EVENTS)
def test_events_come_back_as_they_were(events: list[bytes]) -> None:
    """In all three forms, from any event on; those of one size are read by another way."""
    block = block_of(events)
    assert block.count == len(events)
    assert [block.event(index) for index in range(block.count)] == events
    for first in range(len(events) + 1):
        assert list(block.events(first)) == events[first:]
        assert block.arrow(first).to_pylist() == events[first:]
        assert block.arrow(first, first + 2).to_pylist() == events[first : first + 2]
    assert all(type(event) is bytes for event in block.events())
    block.arrow().validate(full=True)


@given(EVENTS)
def test_offsets_are_those_of_frames_one_after_another(events: list[bytes]) -> None:
    """Strictly increasing, for empty events too; the last event ends where the block ends."""
    block = block_of(events)
    offsets = model_offsets(events)
    assert block.offsets().tolist() == [*offsets, block.end]
    assert [block.offset_of(index) for index in range(block.count + 1)] == [*offsets, block.end]
    assert block.end == START + len(packed(events))
    ends = [offset + 4 + len(event) for offset, event in zip(offsets, events, strict=True)]
    assert ends == [*offsets[1:], block.end][: len(events)]


@given(EVENTS)
def test_index_at_finds_events_where_they_begin_and_nowhere_else(events: list[bytes]) -> None:
    """A pointer is a promise; one that points into an event, or beside the block, must not find anything."""
    block = block_of(events)
    expected = dict(zip(model_offsets(events), range(len(events)), strict=True))
    expected |= {START: 0, block.end: len(events)}
    for offset in range(START - 2, block.end + 3):
        assert block.index_at(offset) == expected.get(offset)


def test_a_table_of_writers_has_no_events() -> None:
    """Readers pass over it like over an empty block, however many entries it counts."""
    data = StreamBlockHeader(kind=WRITERS, count=3, time_ms=7).pack() + bytes(100)
    block = read_block(memoryview(data), where=WHERE, start=START)
    assert isinstance(block, Block)
    assert (block.count, block.time_ms, block.end) == (0, 7, START + len(data))
    assert list(block.events()) == block.arrow().to_pylist() == []
    assert block.offsets().tolist() == [block.end]
    assert block.index_at(block.end) == block.index_at(START) == 0


def test_a_block_without_events_is_one() -> None:
    """An empty batch, or an empty table of writers, is nothing but a header."""
    for kind in (1, 2):
        data = StreamBlockHeader(kind=kind, count=0, time_ms=7).pack()
        assert read_block(memoryview(data), where=WHERE, start=0).count == 0


@pytest.mark.parametrize("words", ["80000004", "f0000004", "00000003", "00000005", "ffffffff"])
def test_a_length_that_does_not_fit_is_refused(words: str) -> None:
    """Also the seed's slip ``f000 0004``: what no Penstock writes is damage, not a guess."""
    data = StreamBlockHeader(count=1, time_ms=0).pack() + bytes.fromhex(words) + b"\x12\x34\x56\x78"
    with pytest.raises(StreamCorrupt, match="segment 0 of stream a/b at byte 1000"):
        read_block(memoryview(data), where=WHERE, start=START)


def test_lengths_that_only_fit_when_they_overflow_are_refused() -> None:
    """Their sum is taken in 64 bits: two lengths of 2 GiB are not none."""
    data = StreamBlockHeader(count=2, time_ms=0).pack() + bytes.fromhex("80000000 80000000")
    with pytest.raises(StreamCorrupt, match="do not add up"):
        read_block(memoryview(data), where=WHERE, start=START)


def test_a_count_that_does_not_fit_is_refused_before_anything_is_allocated() -> None:
    """It could ask for 16 GiB."""
    data = StreamBlockHeader(count=2**32 - 1, time_ms=0).pack() + bytes(64)
    with pytest.raises(StreamCorrupt, match="too small for 4294967295 events"):
        read_block(memoryview(data), where=WHERE, start=START)


def test_bytes_behind_the_events_are_refused() -> None:
    """A block without events has nothing behind its header, either."""
    for count in (0, 1):
        data = StreamBlockHeader(count=count, time_ms=0).pack() + bytes(4 * count) + b"x"
        with pytest.raises(StreamCorrupt, match="do not add up"):
            read_block(memoryview(data), where=WHERE, start=START)


@pytest.mark.parametrize("size", [0, 1, BLOCK_HEADER_SIZE - 1])
def test_a_block_without_a_whole_header_is_refused(size: int) -> None:
    """It says so, and where."""
    with pytest.raises(StreamCorrupt, match=f"a block of {size} bytes has no header"):
        read_header(memoryview(bytes(size)), where=WHERE, start=START)


@pytest.mark.parametrize("kind", [0, 5, 255])
def test_a_block_of_another_kind_is_refused(kind: int) -> None:
    """A newer Penstock may have written it; reading it as events would be a guess."""
    with pytest.raises(StreamCorrupt, match=f"unknown kind {kind}"):
        read_header(memoryview(StreamBlockHeader(kind=kind, count=0, time_ms=0).pack()), where=WHERE, start=START)


def test_a_writer_without_an_id_is_zeros() -> None:
    """No hash of an id may be taken for it, and the default of a header is that."""
    assert StreamBlockHeader(count=0, time_ms=0).writer == NO_WRITER == bytes(16)


def test_two_chunks_are_the_frames_of_the_seed() -> None:
    """The seed's example of a chunked event, with one bit for "partial" as its text says, and not four."""
    head = pack_chunk(4, number=0, back=0, partial=True, time_ms=0)
    tail = pack_chunk(2, number=1, back=len(head) + 4, partial=False, time_ms=0)
    assert (head + bytes.fromhex("12345678"))[BLOCK_HEADER_SIZE:].hex(" ", -2) == "8000 0004 1234 5678"
    assert (tail + bytes.fromhex("9012"))[BLOCK_HEADER_SIZE:].hex(" ", -2) == "0000 0002 9012"
    first = read_block(memoryview(head + bytes.fromhex("12345678")), where=WHERE, start=START)
    last = read_block(memoryview(tail + bytes.fromhex("9012")), where=WHERE, start=first.end)
    assert isinstance(first, Chunk)
    assert isinstance(last, Chunk)
    assert (first.partial, last.partial) == (True, False)
    assert (bytes(first.data) + bytes(last.data)).hex() == "123456789012"


@pytest.mark.parametrize("word", ["f0000004", "90000004", "c0000004", "80000003", "80000005", "00000005", "ffffffff"])
def test_a_chunk_whose_length_word_lies_is_refused(word: str) -> None:
    """The seed's own ``f000 0004`` sets four bits: that is a length of 1.75 GiB, and so it is damage."""
    head = pack_chunk(4, number=0, back=0, partial=True, time_ms=0)[:BLOCK_HEADER_SIZE]
    with pytest.raises(StreamCorrupt, match=r"segment 0 of stream a/b at byte 1000 .* is not the size of its block"):
        read_block(memoryview(head + bytes.fromhex(word) + b"\x12\x34\x56\x78"), where=WHERE, start=START)


def test_a_chunk_is_stored_as_documented() -> None:
    """Its number and the way back to the first one stand where a block of events has a writer's numbers."""
    packed_chunk = pack_chunk(0x1234, number=0x0203, back=0x040506, partial=True, time_ms=0x0708)
    assert packed_chunk.hex(" ", -4) == (
        "03000000 00000001 00000000 00000708 00000000 00000000 00000000 00000000 "
        "00000000 00000000 00000000 00000203 00000000 00040506 "
        "00000000 00000000 80001234"
    )
    assert read_header(memoryview(packed_chunk), where=WHERE, start=0).kind == CHUNK


def test_an_extent_is_stored_as_documented() -> None:
    """How many bytes the event has, then how many its chunks have with their headers."""
    assert pack_extent(0x0102030405060708, 0x090A0B0C0D0E0F10) == bytes(range(1, 17))
    extent = extent_of(3 << 40, (3 << 40) + 60)
    assert (extent.size, extent.span) == (3 << 40, (3 << 40) + 60)
    assert (extent.start, extent.end, extent.count) == (START, START + BLOCK_HEADER_SIZE + 16, 0)


@pytest.mark.parametrize("size", [0, 8, 15])
def test_an_extent_of_another_size_is_refused(size: int) -> None:
    """It is read before any chunk is looked at, and believed."""
    data = StreamBlockHeader(kind=EXTENT, count=0, time_ms=0).pack() + bytes(size)
    with pytest.raises(StreamCorrupt, match="an extent of the wrong size"):
        read_block(memoryview(data), where=WHERE, start=START)


@pytest.mark.parametrize("size", [17, 32])
def test_an_extent_with_more_than_it_says_is_refused(size: int) -> None:
    """Behind it there are only the columns that its header names."""
    data = StreamBlockHeader(kind=EXTENT, count=0).pack() + bytes(size)
    with pytest.raises(StreamCorrupt, match="unknown columns"):
        read_block(memoryview(data), where=WHERE, start=START)


@given(st.binary(max_size=50), st.integers(0, 2**40), st.booleans())
def test_a_chunk_comes_back_as_it_was(data: bytes, number: int, partial: bool) -> None:
    """Also the last one when it is empty, which the seed allows."""
    if partial and not data:
        return
    back = 7 if number else 0
    chunk = chunk_of(data, number=number, back=back, partial=partial)
    assert (bytes(chunk.data), chunk.number, chunk.back, chunk.partial) == (data, number, back, partial)
    assert (chunk.start, chunk.end, chunk.time_ms) == (START, START + BLOCK_HEADER_SIZE + 4 + len(data), 5)


def test_a_chunk_with_more_to_come_is_not_empty() -> None:
    """All chunks but the last have the size of the first; from none, no place could be computed."""
    with pytest.raises(StreamCorrupt, match="empty, though more follows"):
        chunk_of(b"", partial=True)


@pytest.mark.parametrize(("number", "back"), [(0, 7), (1, 0), (1, START + 1)])
def test_a_chunk_that_leads_nowhere_is_refused(number: int, back: int) -> None:
    """Only the first one has nothing before it, and none begins before the segment does."""
    with pytest.raises(StreamCorrupt, match="does not follow"):
        chunk_of(b"abc", number=number, back=back)


@pytest.mark.parametrize("size", [BLOCK_HEADER_SIZE, BLOCK_HEADER_SIZE + 3])
def test_a_chunk_without_a_whole_length_word_is_refused(size: int) -> None:
    """Whatever its missing bytes are taken for."""
    head = pack_chunk(0, number=0, back=0, partial=False, time_ms=0)
    with pytest.raises(StreamCorrupt, match="is not the size of its block"):
        read_block(memoryview(head[:size]), where=WHERE, start=START)


def test_a_chunk_is_a_border_where_its_event_begins_or_ends() -> None:
    """A cut inside of a large event would leave a part of it, which is no event."""
    frame = START + BLOCK_HEADER_SIZE
    places = range(START - 1, frame + 10)
    for number, partial, borders in [
        (0, True, [START, frame]),
        (1, True, []),
        (1, False, [frame + 7]),
        (0, False, [START, frame, frame + 7]),
    ]:
        chunk = chunk_of(b"abc", number=number, back=7 * number, partial=partial)
        assert [place for place in places if chunk.index_at(place) is not None] == borders
    extent = extent_of(1, 1)
    assert [place for place in range(START - 1, extent.end + 2) if extent.index_at(place) is not None] == [
        START,
        extent.end,
    ]
