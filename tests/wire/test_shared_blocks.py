"""Small blocks of several writers go over the wire in one message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument
from penstock.wire import pack_shared, unpack_shared


@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.binary(max_size=200)), max_size=10))
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
        unpack_shared(pack_shared([(5, b"abc")])[:cut])
