"""Blocks on a socket of their own: what a client and a server say there, each in the header of a frame.

gRPC takes several threads and copies for each message, a socket takes none of them. A server without TLS has a port for
blocks beside that of Flight, and its welcome names the port. A client that cannot use it sends blocks over Flight.

Both sides prove that they have the key of the session, which was in the welcome; the key itself is not sent, because
another program may listen at that port of the machine that the client reaches::

    server  Greeting      a challenge
    client  OpenBlocks    the name of the session, another challenge, and its proof
    server  BlocksOpened  its proof

Then the client sends one request after another, and gets the answer of each before the next.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from penstock.errors import BadArgument
from penstock.model import NUMBER_MAX, UNDECODABLE

__all__ = [
    "BLOCK_CHALLENGE_SIZE",
    "BLOCK_MESSAGE_SIZE_MAX",
    "AskBlocks",
    "BlockMessage",
    "BlocksAcknowledged",
    "BlocksEnd",
    "BlocksOpened",
    "BlocksRefused",
    "Greeting",
    "OpenBlocks",
    "PutBlock",
    "PutRows",
    "PutShared",
    "SentBlocks",
    "block_mac",
    "pack_block_message",
    "unpack_block_message",
]

BLOCK_CHALLENGE_SIZE: Final = 16
BLOCK_MESSAGE_SIZE_MAX: Final = 4 << 20
"""The most that one frame may have: a block has 2 MiB at most."""
_MAC_SIZE: Final = 32
_Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
_Challenge = Annotated[bytes, Meta(min_length=BLOCK_CHALLENGE_SIZE, max_length=BLOCK_CHALLENGE_SIZE)]
_Mac = Annotated[bytes, Meta(min_length=_MAC_SIZE, max_length=_MAC_SIZE)]


class _BlockMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message; its tag is sent, so a tag is never given a new meaning."""


class Greeting(_BlockMessage, frozen=True, tag=1):
    """The first message of a connection."""

    protocol: int
    challenge: _Challenge


class OpenBlocks(_BlockMessage, frozen=True, tag=2):
    """Which session the connection belongs to."""

    name: Annotated[str, Meta(max_length=100)]
    challenge: _Challenge
    mac: _Mac


class BlocksOpened(_BlockMessage, frozen=True, tag=3):
    """The client may send blocks."""

    mac: _Mac


class PutShared(_BlockMessage, frozen=True, tag=4):
    """Small blocks of some writers, as ``pack_shared`` packs them; they are acknowledged together."""


class PutBlock(_BlockMessage, frozen=True, tag=5):
    """One block of a writer, as :class:`SmallBlock` packs it; it says how many follow that are acknowledged with it."""

    writer: _Number


class AskBlocks(_BlockMessage, frozen=True, tag=6):
    """Asks for the blocks of a segment that hold any byte from ``offset`` to ``end``."""

    stream: str
    segment: _Number
    offset: _Number
    end: _Number


class BlocksAcknowledged(_BlockMessage, frozen=True, tag=7):
    """The acknowledgement: of one writer, or a list of them."""


class SentBlocks(_BlockMessage, frozen=True, tag=8):
    """A block that was asked for: where it begins, and from when on it counts."""

    start: _Number
    commit_ms: int


class BlocksEnd(_BlockMessage, frozen=True, tag=9):
    """There are no more."""


class BlocksRefused(_BlockMessage, frozen=True, tag=10):
    """Why nothing was done: ``BUSY``, or an error."""

    info: bytes


class PutRows(_BlockMessage, frozen=True, tag=11):
    """Events of a transaction: the length of each and the position of its key in 4 bytes each, events, columns."""

    transaction: str
    count: _Number
    flags: int


BlockMessage = (
    Greeting
    | OpenBlocks
    | BlocksOpened
    | PutShared
    | PutBlock
    | AskBlocks
    | BlocksAcknowledged
    | SentBlocks
    | BlocksEnd
    | BlocksRefused
    | PutRows
)
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[BlockMessage]] = msgspec.msgpack.Decoder(BlockMessage)


def pack_block_message(message: BlockMessage) -> bytes:
    """Return the header of a frame."""
    return _encoder.encode(message)


def unpack_block_message(header: bytes) -> BlockMessage:
    """Return the message in the header of a frame; ``BadArgument`` if these are other bytes."""
    try:
        return _decoder.decode(header)
    except UNDECODABLE as error:
        raise BadArgument(f"this is not a message about blocks ({error})") from error


def block_mac(key: bytes, side: Literal["client", "server"], challenge: bytes) -> bytes:
    """Return the message authentication code that only a side with the key can answer to a challenge."""
    return hmac.digest(key, side.encode() + challenge, hashlib.sha256)
