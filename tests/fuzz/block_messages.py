"""What is said on a connection for blocks, for the fuzzer."""

from __future__ import annotations

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
    pack_block_message,
    unpack_block_message,
)

__all__ = ["read", "seeds"]


def read(data: bytes) -> None:
    """Read a message, as both sides do."""
    message = unpack_block_message(data)
    assert unpack_block_message(pack_block_message(message)) == message


def seeds() -> list[bytes]:
    """Return one message of each kind."""
    return [
        pack_block_message(message)
        for message in (
            Greeting(5, bytes(16)),
            OpenBlocks("name", bytes(16), bytes(32)),
            BlocksOpened(bytes(32)),
            PutShared(),
            PutBlock(1),
            AskBlocks("plant/readings", 0, 0, 9),
            BlocksAcknowledged(),
            SentBlocks(0, 0),
            BlocksEnd(),
            BlocksRefused(b"busy"),
            PutRows("transaction", 2, 0),
        )
    ]
