"""The stored form of a plog's state: in the checkpoint, and at the start of an object of its own.

========  ====================================================================================================
bytes     of ``plogs/UID.BIRTH/EPOCH-N.plog``, big-endian
========  ====================================================================================================
8         magic       PENSPLGO
2 + 2     format      1, then zero
4         table_size  bytes of the state, in msgpack
4         checksum    crc32c of the plog's folder in the bucket, bytes 0-15 and the state
========  ====================================================================================================

The state follows, then the blocks of the extents whose source is None.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np

from penstock.checksums import crc32c
from penstock.errors import BadArgument, FormatUnknown, PlogCorrupt
from penstock.model import UNDECODABLE, PlogId
from penstock.plog._block import HEAD_SIZE
from penstock.plog._replica import PLOG_SIZE_MAX
from penstock.plog.objects._records import Birth, Offset, Position, Uid  # noqa: TC001 - the decoder needs them
from penstock.plog.objects._state import BlockRun, PlogState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "PLOG_HEADER_SIZE",
    "StoredPlog",
    "pack_plog",
    "packed_plog",
    "plog_header_size",
    "store_plog",
    "stored_plog",
    "unpack_plog",
]

_MAGIC: Final = b"PENSPLGO"
_FORMAT: Final = 1
_HEADER: Final = struct.Struct(">8sHxxI")
_CHECKSUM_SIZE: Final = 4
PLOG_HEADER_SIZE: Final = _HEADER.size + _CHECKSUM_SIZE
assert PLOG_HEADER_SIZE == 20, "stored since format 1"


class StoredPlog(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A plog's state; ``starts`` has 4 bytes for each block, little-endian."""

    cluster: str
    group: str
    uid: Uid
    size: Annotated[int, msgspec.Meta(ge=1, le=PLOG_SIZE_MAX)]
    birth: Birth
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    sealed: bool
    length: Offset
    written: Offset
    starts: bytes
    extents: list[tuple[int | str | None, Position, Position, Position]]


_DECODER: Final = msgspec.msgpack.Decoder(StoredPlog)


def store_plog(plog: PlogState, extents: Sequence[tuple[int | str | None, int, int, int]] | None = None) -> StoredPlog:
    """Return the stored form of a plog, with other extents if they are given."""
    plog_id = plog.plog_id
    return StoredPlog(
        plog_id.cluster, plog_id.group, plog_id.uid_bytes, plog.size, plog.birth, plog.epoch, plog.sealed, plog.length,
        plog.written, np.frombuffer(plog.starts, np.uintc).astype("<u4").tobytes(),
        list(plog.extents if extents is None else extents),
    )  # fmt: skip


def packed_plog(plog: PlogState) -> bytes:
    """Return the stored form in msgpack, which is made again only after a change."""
    if plog.packed is None:
        plog.packed = msgspec.msgpack.encode(store_plog(plog))
    return plog.packed


def stored_plog(stored: StoredPlog, *, where: str, name: str | None = None, data_start: int = 0) -> PlogState:
    """Return the plog of a stored form; extents without a source lie in the object ``name``, behind ``data_start``."""
    try:
        plog_id = PlogId(stored.cluster, stored.group, stored.uid.hex())
    except BadArgument as error:
        raise PlogCorrupt(where, offset=None, reason=str(error)) from error
    plog = PlogState(plog_id, size=stored.size, birth=stored.birth, epoch=stored.epoch)
    plog.sealed, plog.length, plog.written = stored.sealed, stored.length, stored.written
    if len(stored.starts) % 4:
        raise PlogCorrupt(where, offset=None, reason="its list of blocks is incomplete")
    starts = np.frombuffer(stored.starts, "<u4")
    plog.starts = array("I", starts.astype(np.uintc).tobytes())
    for source, position, start, size in stored.extents:
        if source is not None:
            plog.extents.append(BlockRun(source, position, start, size))
        elif name is not None:
            plog.extents.append(BlockRun(name, position + data_start, start, size))
        else:
            raise PlogCorrupt(where, offset=None, reason="an extent has no source")
    _check(plog, starts.astype(np.int64), where)
    return plog


def _check(plog: PlogState, starts: np.ndarray[tuple[int], np.dtype[np.int64]], where: str) -> None:
    """Refuse a state that no plog can have."""
    ends = np.append(starts, plog.written)
    if int(ends[0]) or (np.diff(ends) <= 0).any():
        raise PlogCorrupt(where, offset=None, reason="its blocks do not follow each other")
    if plog.length > plog.written or plog.written > plog.size or (plog.length != plog.written and not plog.sealed):
        raise PlogCorrupt(where, offset=None, reason="its length is impossible")
    position = HEAD_SIZE
    for extent in plog.extents:
        if extent.start != position or not extent.size:
            raise PlogCorrupt(where, offset=None, reason="its extents do not follow each other")
        position += extent.size
    if position != plog.place():
        raise PlogCorrupt(where, offset=None, reason="its extents do not hold all of its blocks")


def pack_plog(plog: PlogState, extents: Sequence[tuple[int | str | None, int, int, int]]) -> bytes:
    """Return the beginning of the object of a plog; the blocks of the extents without a source follow it."""
    table = msgspec.msgpack.encode(store_plog(plog, extents))
    head = _HEADER.pack(_MAGIC, _FORMAT, len(table))
    return head + crc32c(0, plog.folder.encode(), head, table).to_bytes(_CHECKSUM_SIZE, "big") + table


def plog_header_size(data: memoryview, *, where: str) -> int:
    """Return how many bytes of the object :func:`unpack_plog` needs; ``PlogCorrupt`` if it holds no plog."""
    if len(data) < PLOG_HEADER_SIZE or bytes(data[:8]) != _MAGIC:
        raise PlogCorrupt(where, offset=0, reason="it does not begin as the object of a plog does")
    _, form, size = _HEADER.unpack_from(data)
    if form != _FORMAT:
        raise FormatUnknown(where, actual=f"plog object format {form}", known=f"plog object format {_FORMAT}")
    return PLOG_HEADER_SIZE + int(size)


def unpack_plog(data: memoryview, name: str, *, where: str) -> PlogState:
    """Return the plog in the object ``name`` that begins with ``data``; ``PlogCorrupt`` if it fails a check."""
    end = plog_header_size(data, where=where)
    head, table = bytes(data[: _HEADER.size]), bytes(data[PLOG_HEADER_SIZE:end])
    folder = name.rpartition("/")[0] + "/"
    checksum = crc32c(0, folder.encode(), head, table).to_bytes(_CHECKSUM_SIZE, "big")
    if len(table) != end - PLOG_HEADER_SIZE or checksum != bytes(data[_HEADER.size : PLOG_HEADER_SIZE]):
        raise PlogCorrupt(where, offset=0, reason="its state fails its checksum")
    try:
        stored = _DECODER.decode(table)
    except UNDECODABLE as error:
        raise PlogCorrupt(where, offset=PLOG_HEADER_SIZE, reason=f"its state is invalid: {error}") from error
    plog = stored_plog(stored, where=where, name=name, data_start=end)
    if not plog.sealed:
        raise PlogCorrupt(where, offset=PLOG_HEADER_SIZE, reason="it is not sealed")
    plog.home = name
    return plog
