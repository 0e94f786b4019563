"""The block: the stored form of one append.

A block carries a checksum and its own offset, so neither a torn, a stale nor a misdirected write passes for a block.
Blocks follow each other after the plog's head; the offsets that readers use count the bodies only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.plog._checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Bytes

__all__ = ["PLOG_BLOCK_HEADER_SIZE", "PlogBlockHeader", "block_matches", "pack_block_header", "unpack_block_header"]

_HEADER: Final = struct.Struct(">HBxIQI")
_CHECKED: Final = struct.Struct(">HBxIQ")
PLOG_BLOCK_HEADER_SIZE: Final = _HEADER.size
assert PLOG_BLOCK_HEADER_SIZE == 20, "on disk since format 1: a new size needs a new kind"

_MAGIC: Final = 0x5042
_KIND: Final = 1


@dataclass(frozen=True, slots=True)
class PlogBlockHeader:
    """The 20 bytes before every block body, big-endian.

    0   2  magic      0x5042
    2   1  kind       1; stored, so a number is never given a new meaning
    4   4  body_size  bytes that follow
    8   8  offset     of the body in its plog, headers not counted
    16  4  checksum   crc32c of the plog's uid and birth, bytes 0-15, the body
    """

    body_size: int
    offset: int
    checksum: int


def pack_block_header(key: bytes, *, offset: int, body: Sequence[Bytes], body_size: int) -> bytes:
    """Return the header of a block at ``offset`` of the plog with ``key``, whose body is the parts of ``body``."""
    checked = _CHECKED.pack(_MAGIC, _KIND, body_size, offset)
    return checked + crc32c(0, key + checked, *body).to_bytes(4, "big")


def unpack_block_header(view: memoryview, position: int) -> PlogBlockHeader | None:
    """Return the header at ``position``, None if there is no header."""
    if position + PLOG_BLOCK_HEADER_SIZE > len(view):
        return None
    magic, kind, body_size, offset, checksum = _HEADER.unpack_from(view, position)
    if magic != _MAGIC or kind != _KIND:
        return None
    return PlogBlockHeader(body_size, offset, checksum)


def block_matches(key: bytes, view: memoryview, position: int) -> bool:
    """Return whether the block at ``position`` is complete, belongs to this plog and is where it was written."""
    header = unpack_block_header(view, position)
    if header is None:
        return False
    body_start = position + PLOG_BLOCK_HEADER_SIZE
    body = view[body_start : body_start + header.body_size]
    checked = bytes(view[position : position + _CHECKED.size])
    return len(body) == header.body_size and crc32c(0, key + checked, body) == header.checksum
