"""Small blocks of several writers in one message: all of them cost the connection as much as one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument
from penstock.wire._small_block import BLOCK_SIZE_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SHARED_HEAD_SIZE", "SHARED_SIZE_MAX", "pack_shared", "unpack_shared"]

SHARED_SIZE_MAX: Final = 64 << 10  # of a message with blocks of several writers
_HEAD: Final = struct.Struct(">QI")
SHARED_HEAD_SIZE: Final = _HEAD.size  # before each block
assert SHARED_HEAD_SIZE == 12, "part of the protocol: another size is another version"


def pack_shared(blocks: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the message, which has for each block, big-endian, what follows.

    0   8  writer  its number in the session
    8   4  size    of the block
    12     block   as :class:`SmallBlock` packs it
    """
    return b"".join([part for writer, block in blocks for part in (_HEAD.pack(writer, len(block)), block)])


def unpack_shared(message: bytes) -> list[tuple[int, bytes]]:
    """Return what :func:`pack_shared` was given; ``BadArgument`` if these are other bytes.

    Every writer in a message costs the server a check and an answer, so a large message has blocks of one writer only.
    """
    found, at = list[tuple[int, bytes]](), 0
    while at < len(message):
        if len(message) - at < _HEAD.size:
            raise BadArgument("these are not blocks")
        writer, size = _HEAD.unpack_from(message, at)
        at += _HEAD.size + size
        if size < BLOCK_SIZE_MIN or at > len(message):
            raise BadArgument("these are not blocks")
        if found and writer != found[0][0] and len(message) > SHARED_SIZE_MAX:
            raise BadArgument(f"a message of {len(message)} bytes has blocks of one writer only")
        found.append((writer, message[at - size : at]))
    return found
