"""Decoders of backups, whose checksums are made right; and good inputs for them."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Final

import msgspec

from penstock.backup._pack import PACK_HEAD_SIZE, PackedPiece, checksum, pack_start, read_index, read_pack_head
from penstock.backup._point import _HEAD, Place, PlogAtPoint, Point, decode_point, encode_point, point_name
from penstock.backup._point_snapshot import PointSnapshot
from penstock.backup._snapshots import blocks_of
from penstock.backup._target import BackupTarget
from penstock.errors import BackupCorrupt, CorruptData, FormatUnknown
from penstock.plog import check_raw
from penstock.testing import MemoryObjects

ERRORS: Final = (BackupCorrupt, FormatUnknown)
UID: Final = bytes(range(16))
PLOG: Final = f"local/main/{UID.hex()}"
KEY: Final = UID + bytes(range(8))
PACK: Final = "ab" * 16
_DATA: Final = bytes(64)
_PIECES: Final = [
    PackedPiece(PLOG, KEY, 1000, 0, 44, 0, 64, checksum(_DATA)),
    PackedPiece(PLOG, KEY, 1000, 44, 50, 64, 0, 0),
]


@cache
def _target() -> BackupTarget:
    """Return a backup with one pack."""
    target = BackupTarget(MemoryObjects(), unavailable_max_s=0.1)
    target._requests.put_own(f"packs/{PACK}", pack_start(_PIECES), _DATA)
    return target


def pack_head(data: bytes) -> None:
    """Read the head of a pack, and the index behind it if there is one."""
    head = read_pack_head(data[:PACK_HEAD_SIZE].ljust(PACK_HEAD_SIZE, b"\0"), where="pack")
    read_index(head, data[PACK_HEAD_SIZE : PACK_HEAD_SIZE + head.index_size], where="pack")


def pack_index(data: bytes) -> None:
    """Read the index of a pack."""
    start = bytearray(pack_start([]))
    start[12:16] = checksum(data).to_bytes(4, "big")
    start[16:24] = len(data).to_bytes(8, "big")
    start[24:32] = (64).to_bytes(8, "big")
    found = read_index(read_pack_head(bytes(start[:PACK_HEAD_SIZE]), where="pack"), data, where="pack")
    for piece in found.pieces:
        assert found.data_start <= found.data_start + piece.position <= found.data_end


def point(data: bytes) -> None:
    """Read a point, and all plogs of it, as a check does."""
    body = zlib.compress(data, 1)
    found = decode_point(_HEAD.pack(b"PENSPOIN", 1, checksum(body)) + body, where="point")
    assert found.size >= 0
    point_name(found.time_ms)
    snapshot = PointSnapshot(_target(), found)
    for cut in snapshot.plogs:
        snapshot.where(cut.plog_id)
        try:
            for raw in blocks_of(snapshot, cut):
                check_raw(raw, where="plog")
        except CorruptData:
            continue  # as a check notes it


def raw_point(data: bytes) -> None:
    """Read a point with the checksum that it has."""
    decode_point(data, where="point")


def pack_heads() -> list[bytes]:
    """Return packs."""
    return [pack_start(_PIECES), pack_start([])]


def pack_indexes() -> list[bytes]:
    """Return indexes of packs."""
    return [msgspec.msgpack.encode(_PIECES), msgspec.msgpack.encode(_PIECES[:1])]


def _points() -> list[Point]:
    places = [Place(0, 0, 44, PACK_HEAD_SIZE + 60, 64, checksum(_DATA)), Place(0, 44, 50, 32, 0, 0)]
    plogs = [PlogAtPoint(PLOG, KEY, 1000, 50, "", places)]
    return [Point(1_795_003_200_123, "1.0", PLOG, [PACK], plogs)]


def points() -> list[bytes]:
    """Return points, neither deflated nor with a checksum."""
    return [msgspec.msgpack.encode(found) for found in _points()]


def raw_points() -> list[bytes]:
    """Return points as they are stored."""
    return [encode_point(found) for found in _points()]


DECODERS: Final = {
    "pack": (pack_head, ERRORS, "bytes", pack_heads),
    "index": (pack_index, ERRORS, "msgpack", pack_indexes),
    "point": (point, ERRORS, "msgpack", points),
    "stored": (raw_point, ERRORS, "bytes", raw_points),
}
"""What there is to know of each, as a ``Decoder`` has it."""
