"""Small blocks go over the wire in messages of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument
from penstock.stream.format._block import BLOCK_HEADER_SIZE, StreamBlockHeader
from penstock.wire import SMALL_SIZE_MAX, SmallBlock

HEADER = StreamBlockHeader(
    count=1, time_ms=1_700_000_000_000, writer=bytes(range(16)), last_number=7, flush_last=7, durable_floor=6
).pack()


@given(st.integers(0, 63), st.integers(0, (1 << 63) - 1), st.binary(max_size=200), st.binary(max_size=200))
def test_what_is_packed_is_unpacked(left: int, segment_id: int, words: bytes, data: bytes) -> None:
    """The server appends what the writer made."""
    block = SmallBlock.unpack(SmallBlock.pack(left, segment_id, HEADER, (words, data)))
    assert (block.left, block.segment_id, bytes(block.header), bytes(block.body)) == (
        left,
        segment_id,
        HEADER,
        words + data,
    )


def test_these_are_the_bytes() -> None:
    """Clients and servers of other machines know them, too."""
    expected = bytes.fromhex(
        "000000020000000000000005"
        "010000010000000100 00018bcfe56800 000102030405060708090a0b0c0d0e0f"
        "0000000000000007 0000000000000007 0000000000000006 0000000000000000"
        "00000003 616263"
    )  # fmt: skip
    assert SmallBlock.pack(2, 5, HEADER, (bytes([0, 0, 0, 3]), b"abc")) == expected


@pytest.mark.parametrize("size", [0, 4, 12, 11 + BLOCK_HEADER_SIZE, SMALL_SIZE_MAX + 1])
def test_what_is_no_block_is_refused(size: int) -> None:
    """A client that can connect can send anything."""
    with pytest.raises(BadArgument, match="this is not a block"):
        SmallBlock.unpack(bytes(size))


def test_what_fits_is_what_can_be_unpacked() -> None:
    """To the byte: the next larger one goes as a batch."""
    most = SMALL_SIZE_MAX - 12 - BLOCK_HEADER_SIZE
    assert SmallBlock.fits(most)
    assert not SmallBlock.fits(most + 1)
    assert len(SmallBlock.unpack(SmallBlock.pack(0, 0, HEADER, [bytes(most)])).body) == most
