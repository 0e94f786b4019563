"""A small block on its way to the server: a message without a batch, which would take longer to make than to send."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument
from penstock.stream.format import BLOCK_HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.ports import Bytes

__all__ = ["BLOCK_SIZE_MIN", "LEFT_SIZE", "SMALL_SIZE_MAX", "SmallBlock"]

SMALL_SIZE_MAX: Final = 16 << 10  # of a message; a larger block goes as a batch, which is not copied
LEFT_SIZE: Final = 4
_HEAD: Final = struct.Struct(">Iq")
assert _HEAD.size == 12, "part of the protocol: another size is another version"
BLOCK_SIZE_MIN: Final = _HEAD.size + BLOCK_HEADER_SIZE


class SmallBlock(msgspec.Struct, frozen=True):
    """The message, big-endian. It begins as those with a batch do, which have nothing but ``left``.

    0   4  left      how many blocks follow that are acknowledged together with this one
    4   8  segment   that takes it
    12  64 header    of the block
    76     body      of the block
    """

    left: int
    segment_id: int
    header: memoryview
    body: memoryview

    @staticmethod
    def pack(left: int, segment_id: int, header: bytes, parts: Iterable[Bytes]) -> bytes:
        """Return the bytes; the body comes in parts."""
        return b"".join((_HEAD.pack(left, segment_id), header, *parts))

    @staticmethod
    def pack_head(left: int, segment_id: int, header: bytes) -> bytes:
        """Return what comes before the body."""
        return _HEAD.pack(left, segment_id) + header

    @classmethod
    def unpack(cls, message: Bytes, *, size_max: int = SMALL_SIZE_MAX) -> SmallBlock:
        """Return what :meth:`pack` was given; ``BadArgument`` if these are other bytes."""
        if not BLOCK_SIZE_MIN <= len(message) <= size_max:
            raise BadArgument("this is not a block")
        (left, segment_id), view = _HEAD.unpack_from(message), memoryview(message)
        return cls(left, segment_id, view[_HEAD.size : BLOCK_SIZE_MIN], view[BLOCK_SIZE_MIN:])

    @staticmethod
    def fits(body_size: int) -> bool:
        """Whether a block with a body of this size is a small one."""
        return BLOCK_SIZE_MIN + body_size <= SMALL_SIZE_MAX
