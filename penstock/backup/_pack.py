"""The pack: a file or an object of a backup with pieces of many plogs.

A pack is written once, complete: its head, its index, then the pieces, which are blocks of plogs as the files of plogs
have them. It has an index, so that a backup that was interrupted before it wrote its point need not copy again what is
in packs already.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import google_crc32c
import msgspec
import numpy as np

from penstock.errors import BackupCorrupt, FormatUnknown
from penstock.model import UNDECODABLE

if TYPE_CHECKING:
    from penstock.ports import Bytes

__all__ = [
    "PACK_HEAD_SIZE",
    "PACK_SIZE",
    "PackHead",
    "PackIndex",
    "PackedPiece",
    "checksum",
    "pack_start",
    "read_index",
    "read_pack_head",
]

_HEAD: Final = struct.Struct(">8sHxxIQQ")
PACK_HEAD_SIZE: Final = _HEAD.size
assert PACK_HEAD_SIZE == 32, "in backups since format 1"
PACK_SIZE: Final = 32 << 20
"""Bytes of pieces after which a pack is written; a pack that goes to a bucket is in memory until then."""
_MAGIC: Final = b"PENSPACK"
_FORMAT: Final = 1
_INDEX_SIZE_MAX: Final = 256 << 20
_POSITION_MAX: Final = 1 << 48


@dataclass(frozen=True, slots=True)
class PackHead:
    """The 32 bytes at the start of a pack, big-endian.

    0   8  magic       PENSPACK
    8   2  format      1
    12  4  index_crc   crc32c of the index
    16  8  index_size  bytes of the index, which follows
    24  8  data_size   bytes of the pieces, which follow the index
    """

    index_crc: int
    index_size: int
    data_size: int


class PackedPiece(msgspec.Struct, array_like=True, frozen=True):
    """Blocks of a plog from ``offset`` to ``end``: ``size`` bytes at ``position`` behind the index of the pack.

    ``key`` is the uid and the birth of the plog, ``plog_size`` the most bytes that it takes, ``crc`` the crc32c of the
    blocks.
    """

    plog: str
    key: bytes
    plog_size: int
    offset: int
    end: int
    position: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class PackIndex:
    """The pieces of a pack; their positions count from ``data_start``, and the pack ends at ``data_end``."""

    pieces: list[PackedPiece]
    data_start: int
    data_end: int


def checksum(*parts: Bytes, start: int = 0) -> int:
    """Return the crc32c of parts that follow each other, and follow what has the crc32c ``start``."""
    crc = start
    for part in parts:
        crc = google_crc32c.extend(crc, part if type(part) is bytes else np.frombuffer(part, np.uint8))
    return crc


def pack_start(pieces: list[PackedPiece]) -> bytes:
    """Return the head and the index of a pack with these pieces, in their order."""
    index = msgspec.msgpack.encode(pieces)
    data_size = sum(piece.size for piece in pieces)
    return _HEAD.pack(_MAGIC, _FORMAT, checksum(index), len(index), data_size) + index


def read_pack_head(data: Bytes, *, where: str) -> PackHead:
    """Return the head of a pack."""
    magic, form, crc, index_size, data_size = _HEAD.unpack(data)
    if magic != _MAGIC:
        raise BackupCorrupt(where, offset=0, reason="the pack does not begin as one")
    if form != _FORMAT:
        raise FormatUnknown(where, actual=f"a pack of format {form}", known=f"packs of format {_FORMAT}")
    if index_size > _INDEX_SIZE_MAX or data_size > _POSITION_MAX:
        raise BackupCorrupt(where, offset=16, reason="the sizes in its head are invalid")
    return PackHead(crc, index_size, data_size)


def read_index(head: PackHead, index: Bytes, *, where: str) -> PackIndex:
    """Return the pieces of a pack, in order, without a gap between them."""
    if checksum(index) != head.index_crc:
        raise BackupCorrupt(where, offset=PACK_HEAD_SIZE, reason="its index fails its checksum")
    try:
        pieces = msgspec.msgpack.decode(index, type=list[PackedPiece])
    except UNDECODABLE as error:
        raise BackupCorrupt(where, offset=PACK_HEAD_SIZE, reason=f"its index is invalid ({error})") from error
    position = 0
    for piece in pieces:
        if piece.position != position or piece.size < 0 or not 0 <= piece.offset < piece.end:
            raise BackupCorrupt(where, offset=PACK_HEAD_SIZE, reason="the pieces in its index do not fit together")
        position += piece.size
    if position != head.data_size:
        raise BackupCorrupt(where, offset=PACK_HEAD_SIZE, reason="its index and its head do not agree")
    start = PACK_HEAD_SIZE + head.index_size
    return PackIndex(pieces, start, start + head.data_size)
