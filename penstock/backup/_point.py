"""The point: the record that makes a backup of it. It lists all plogs of a store at one moment, and their pieces.

======== ======= ====================================================================
place    size    what
======== ======= ====================================================================
0        16      magic ``PENSPOIN``, format (2 bytes, big-endian), zeros (2), crc32c of what follows (4)
16       …       a :class:`Point` in MessagePack, deflated
======== ======= ====================================================================

A point is written last. What is in packs without being in a point belongs to a backup that was interrupted.
"""

from __future__ import annotations

import re
import struct
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.backup._pack import checksum
from penstock.errors import BackupCorrupt, FormatUnknown
from penstock.model import TIME_MAX, UNDECODABLE, PlogId
from penstock.plog import BIRTH_SIZE

if TYPE_CHECKING:
    from penstock.ports import Bytes

__all__ = ["Place", "PlogAtPoint", "Point", "decode_point", "encode_point", "is_point_name", "point_name",
           "point_time_ms"]  # fmt: skip

_HEAD: Final = struct.Struct(">8sHxxI")
assert _HEAD.size == 16, "in backups since format 1"
_MAGIC: Final = b"PENSPOIN"
_FORMAT: Final = 1
_POINT_SIZE_MAX: Final = 1 << 30
_NAME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z")
_PACK: Final = re.compile(r"[0-9a-f]{32}")
_NAME_FORM: Final = "%Y-%m-%dT%H-%M-%S.%f"


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where a piece is: ``size`` bytes at ``position`` of a pack, by its number in the point."""

    pack: int
    offset: int
    end: int
    position: int
    size: int
    crc: int


class PlogAtPoint(msgspec.Struct, array_like=True, frozen=True):
    """A plog with its ``length`` at the point; ``log`` is the log that it belongs to, empty for the metadata plog."""

    plog: str
    key: bytes
    plog_size: int
    length: int
    log: str
    places: list[Place]


class Point(msgspec.Struct, array_like=True, frozen=True):
    """A store at one moment: when the backup began, the Penstock that made it, the packs, and the plogs."""

    time_ms: int
    version: str
    metadata_plog: str
    packs: list[str]
    plogs: list[PlogAtPoint]

    @property
    def size(self) -> int:
        """The bytes of all plogs, as they are stored."""
        return sum(place.size for plog in self.plogs for place in plog.places)


def encode_point(point: Point) -> bytes:
    """Return the bytes of a point."""
    body = zlib.compress(msgspec.msgpack.encode(point), 1)
    return _HEAD.pack(_MAGIC, _FORMAT, checksum(body)) + body


def decode_point(data: Bytes, *, where: str) -> Point:
    """Return a point, checked."""
    head, body = bytes(data[: _HEAD.size]), bytes(data[_HEAD.size :])
    if len(head) < _HEAD.size or head[:8] != _MAGIC:
        raise BackupCorrupt(where, offset=0, reason="the point does not begin as one")
    _, form, crc = _HEAD.unpack(head)
    if form != _FORMAT:
        raise FormatUnknown(where, actual=f"a point of format {form}", known=f"points of format {_FORMAT}")
    if checksum(body) != crc:
        raise BackupCorrupt(where, offset=_HEAD.size, reason="the point fails its checksum")
    try:
        inflater = zlib.decompressobj()
        plain = inflater.decompress(body, _POINT_SIZE_MAX)
        point = msgspec.msgpack.decode(plain, type=Point)
        _check(point)
    except (*UNDECODABLE, zlib.error) as error:
        raise BackupCorrupt(where, offset=_HEAD.size, reason=f"the point is invalid ({error})") from error
    return point


def _check(point: Point) -> None:
    """Raise ``ValueError`` if the parts of a point do not fit together."""
    if not 0 <= point.time_ms <= TIME_MAX:
        raise ValueError(f"its time is {point.time_ms}")
    if not all(map(_PACK.fullmatch, point.packs)):
        raise ValueError("a name in it is not that of a pack")  # which might lead to another folder
    PlogId.parse(point.metadata_plog)
    for plog in point.plogs:
        offset, uid = 0, PlogId.parse(plog.plog).uid_bytes
        if len(plog.key) != len(uid) + BIRTH_SIZE or not plog.key.startswith(uid):
            raise ValueError(f"the key of plog {plog.plog} is that of another")
        for place in plog.places:
            is_in_pack = 0 <= place.pack < len(point.packs) and place.position >= 0 and place.size >= 0
            if not is_in_pack or place.offset != offset or place.end <= offset:
                raise ValueError(f"the pieces of plog {plog.plog} do not follow each other")
            offset = place.end
        if offset != plog.length:
            raise ValueError(f"the pieces of plog {plog.plog} end at {offset} and not at {plog.length}")
    if point.metadata_plog not in {plog.plog for plog in point.plogs}:
        raise ValueError("the metadata plog is missing")


def point_name(time_ms: int) -> str:
    """Return the name of a point: its time, in UTC, without characters that a file name cannot have."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H-%M-%S}.{time_ms % 1000:03d}Z"


def is_point_name(name: str) -> bool:
    """Whether a name has the form of a point's."""
    return _NAME.fullmatch(name) is not None


def point_time_ms(name: str) -> int:
    """Return the time in the name of a point."""
    moment = datetime.strptime(name.removesuffix("Z") + "000", _NAME_FORM).replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
