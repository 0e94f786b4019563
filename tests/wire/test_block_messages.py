"""What a client and a server say on a connection for blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument
from penstock.wire import (
    AskBlocks,
    BlocksAcknowledged,
    BlocksEnd,
    BlocksOpened,
    BlocksRefused,
    Greeting,
    OpenBlocks,
    PutBlock,
    PutRows,
    PutShared,
    SentBlocks,
    block_mac,
    pack_block_message,
    unpack_block_message,
)

if TYPE_CHECKING:
    from penstock.wire import BlockMessage

GOLDEN = {
    "930105c410" + 16 * "61": Greeting(5, b"a" * 16),
    "9402a16ec410" + 16 * "61" + "c420" + 32 * "70": OpenBlocks("n", b"a" * 16, b"p" * 32),
    "9203c420" + 32 * "70": BlocksOpened(b"p" * 32),
    "9104": PutShared(),
    "920507": PutBlock(7),
    "9506a3612f62010203": AskBlocks("a/b", 1, 2, 3),
    "9107": BlocksAcknowledged(),
    "93080900": SentBlocks(9, 0),
    "9109": BlocksEnd(),
    "920ac40462757379": BlocksRefused(b"busy"),
    "940ba1740203": PutRows("t", 2, 3),
}


@pytest.mark.parametrize(("sent", "message"), GOLDEN.items())
def test_a_message_has_the_same_bytes_for_ever(sent: str, message: BlockMessage) -> None:
    """A client and a server of two versions understand each other, or find out that they do not."""
    assert pack_block_message(message).hex() == sent
    assert unpack_block_message(bytes.fromhex(sent)) == message


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    """Whatever comes in at the port, one error of ours ends that connection."""
    try:
        message = unpack_block_message(data)
    except BadArgument:
        return
    assert unpack_block_message(pack_block_message(message)) == message


@pytest.mark.parametrize("sent", ["930105c40161", "9205ff", "9204", "910b", "930ba17402", "9506a3612f6201", "c1", ""])
def test_a_message_that_does_not_have_its_form_is_refused(sent: str) -> None:
    """What a message has is used without another look."""
    with pytest.raises(BadArgument, match="not a message about blocks"):
        unpack_block_message(bytes.fromhex(sent))


def test_the_proof_of_one_side_is_none_of_the_other() -> None:
    """Or a program without the key could send a client's own proof back to it."""
    assert block_mac(b"key", "client", b"challenge") != block_mac(b"key", "server", b"challenge")
    assert block_mac(b"key", "client", b"challenge") != block_mac(b"yek", "client", b"challenge")
