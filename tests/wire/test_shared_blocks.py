"""Small blocks of several writers go over the wire in one message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument
from penstock.wire import SHARED_HEAD_SIZE, SHARED_SIZE_MAX, pack_shared, unpack_shared
from penstock.wire._small_block import BLOCK_SIZE_MIN


@given(
    st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.binary(min_size=BLOCK_SIZE_MIN, max_size=200)), max_size=10)
)
def test_what_is_packed_is_unpacked(blocks: list[tuple[int, bytes]]) -> None:
    """Each block belongs to its writer."""
    assert unpack_shared(pack_shared(blocks)) == blocks


def test_these_are_the_bytes() -> None:
    """Clients and servers of other machines know them, too."""
    expected = bytes.fromhex("0000000000000005 00000003 616263 0000000000000006 00000000")
    assert pack_shared([(5, b"abc"), (6, b"")]) == expected


@pytest.mark.parametrize("cut", [1, 11, 12, 14])
def test_bytes_that_end_within_a_block_are_refused(cut: int) -> None:
    """A client that can connect can send anything."""
    with pytest.raises(BadArgument, match="these are not blocks"):
        unpack_shared(pack_shared([(5, bytes(BLOCK_SIZE_MIN))])[:cut])


def test_blocks_that_are_too_short_are_refused() -> None:
    """Each costs the server a check and an answer: a million of them in a message took it a gigabyte."""
    with pytest.raises(BadArgument, match="these are not blocks"):
        unpack_shared(pack_shared([(5, bytes(BLOCK_SIZE_MIN - 1))]))


def test_large_message_has_blocks_of_one_writer() -> None:
    """A client shares small messages only, and one that does not is not answered writer by writer."""
    block = bytes(1000)
    count = SHARED_SIZE_MAX // (len(block) + SHARED_HEAD_SIZE)
    assert len(unpack_shared(pack_shared((number, block) for number in range(count)))) == count
    assert len(unpack_shared(pack_shared((5, block) for _ in range(2 * count)))) == 2 * count
    with pytest.raises(BadArgument, match="of one writer only"):
        unpack_shared(pack_shared((number, block) for number in range(count + 1)))
