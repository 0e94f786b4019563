"""The block: its bytes on disk, and that nothing but the very block passes for it."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plog._block import (
    PLOG_BLOCK_HEADER_SIZE,
    PlogBlockHeader,
    block_matches,
    pack_block_header,
    unpack_block_header,
)

KEY: Final = bytes(range(16)) + b"newborn!"  # uid and birth
BODY: Final = b"penstock"
GOLDEN: Final = bytes.fromhex("5042 01 00 00000008 0000000000001234 94269b4a")

keys = st.binary(min_size=24, max_size=24)
offsets = st.integers(0, 2**64 - 1)
bodies = st.binary(max_size=300)


def block(key: bytes = KEY, *, offset: int = 0x1234, body: bytes = BODY) -> bytes:
    return pack_block_header(key, offset=offset, body=(body,), body_size=len(body)) + body


def matches(data: bytes, *, key: bytes = KEY, position: int = 0) -> bool:
    return block_matches(key, memoryview(data), position)


def test_block_has_the_bytes_of_format_1() -> None:
    """Stores that exist are read by every later version: these bytes never change."""
    assert block() == GOLDEN + BODY


@given(key=keys, offset=offsets, body=bodies, before=st.binary(max_size=40), behind=st.binary(max_size=40))
def test_block_reads_back_from_any_place_of_a_file(
    key: bytes, offset: int, body: bytes, before: bytes, behind: bytes
) -> None:
    """What stands around a block says nothing about it."""
    data = before + block(key, offset=offset, body=body) + behind
    header = unpack_block_header(memoryview(data), len(before))
    checksum = int.from_bytes(data[len(before) + 16 : len(before) + 20], "big")
    assert header == PlogBlockHeader(len(body), offset, checksum)
    assert matches(data, key=key, position=len(before))


@given(body=bodies)
def test_header_is_the_same_for_bytes_and_for_a_view_of_them(body: bytes) -> None:
    """Appends come as bytes or as views, and a reader cannot know which it was."""
    view = memoryview(bytearray(b"x" + body + b"x"))[1:-1]
    header = pack_block_header(KEY, offset=5, body=(view,), body_size=len(body))
    assert header + body == block(offset=5, body=body)


def test_block_with_a_flipped_bit_is_refused() -> None:
    """Every bit counts, that of the unused byte too: a block is what was written or it is nothing."""
    for bit in range(8 * len(GOLDEN + BODY)):
        data = bytearray(block())
        data[bit // 8] ^= 1 << bit % 8
        assert not matches(bytes(data)), f"bit {bit}"


@given(data=st.data(), body=st.binary(min_size=1, max_size=300))
def test_block_with_any_byte_changed_is_refused(data: st.DataObject, body: bytes) -> None:
    """A crc finds every change of up to 32 bits in a row, wherever it is."""
    damaged = bytearray(block(body=body))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    assert not matches(bytes(damaged))


def test_block_of_another_plog_is_refused() -> None:
    """Room on a disk is used again: what a deleted plog left there, even one of our id, must not pass for ours."""
    for place in range(len(KEY)):
        other = bytearray(KEY)
        other[place] ^= 1
        assert not matches(block(), key=bytes(other))


def test_block_from_another_offset_says_so() -> None:
    """A misdirected write is whole; only the offset, which the checksum covers, gives it away."""
    data = block(offset=4096)
    header = unpack_block_header(memoryview(data), 0)
    assert header is not None
    assert header.offset == 4096
    moved = data[:8] + (0).to_bytes(8, "big") + data[16:]
    assert not matches(moved)


def test_block_cut_short_is_refused() -> None:
    """This is how a crash leaves the last block of a file that was growing."""
    data = block()
    for length in range(len(data)):
        assert not matches(data[:length])


def test_block_not_at_the_place_asked_for_is_refused() -> None:
    """A reader that is one byte off must notice."""
    data = bytes(3) + block() + bytes(3)
    assert [place for place in range(len(data)) if matches(data, position=place)] == [3]


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\xa5", b"P", b"PB"])
def test_room_without_a_block_holds_no_header(filler: bytes) -> None:
    """Allocated room reads as zeros or as whatever was there before."""
    room = memoryview(filler * 64)
    if filler == b"PB":  # the magic number, but no kind that we know
        assert unpack_block_header(room, 1) is None
    assert unpack_block_header(room, 0) is None
    assert not block_matches(KEY, room, 0)


def test_header_past_the_end_is_none() -> None:
    """Where less than a header is left nothing is read, least of all from somewhere else."""
    view = memoryview(block())
    assert unpack_block_header(view, 0) is not None
    for position in (1, len(view) - PLOG_BLOCK_HEADER_SIZE + 1, len(view), 10 * len(view)):
        assert unpack_block_header(view, position) is None


def test_huge_body_size_is_refused_before_anything_is_read() -> None:
    """A length from a disk is checked, not believed: 4 GiB are not there."""
    data = block()
    assert not matches(data[:4] + b"\xff\xff\xff\xff" + data[8:])
