"""The journal object: the changes of one group, and the bytes of small appends.

Journal objects have consecutive numbers, and each is put only if there is none of its name. So one owner writes at a
time: an object of another owner at the next number ends the writing of the owner before it, for ever.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Annotated, Final, Self

import msgspec
import numpy as np

from penstock.checksums import crc32c
from penstock.errors import FormatUnknown, JournalCorrupt
from penstock.model import UNDECODABLE
from penstock.plog._block import PLOG_BLOCK_HEADER_SIZE
from penstock.plog._replica import APPEND_SIZE_MAX, PLOG_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "JOURNAL_HEADER_SIZE",
    "JOURNAL_PREFIX",
    "AppendRecord",
    "CreateRecord",
    "DeleteRecord",
    "FenceRecord",
    "JournalHeader",
    "Record",
    "SealRecord",
    "blocks_size",
    "journal_name",
    "pack_table",
    "unpack_table",
]

TOKEN_SIZE: Final = 16
JOURNAL_PREFIX: Final = "journal/"
_MAGIC: Final = b"PENSJRNL"
_FORMAT: Final = 2
_HEADER: Final = struct.Struct(">8sHBxxxxxQQ16sIIQ")
_CHECKSUM_SIZE: Final = 4
JOURNAL_HEADER_SIZE: Final = _HEADER.size + _CHECKSUM_SIZE
assert JOURNAL_HEADER_SIZE == 68, "stored since format 2"

Uid = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Birth = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=PLOG_SIZE_MAX)]
Position = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]


class CreateRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """A new plog."""

    cluster: str
    group: str
    uid: Uid
    size: Annotated[int, msgspec.Meta(ge=1, le=PLOG_SIZE_MAX)]
    birth: Birth


class AppendRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """Blocks of a plog that follow each other, at ``position`` behind the table, or in the object ``part``."""

    uid: Uid
    offset: Offset
    sizes: bytes  # of the blocks' bodies, 4 bytes each, little-endian
    position: Position
    part: str | None = None


class SealRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """The plog takes no more appends."""

    uid: Uid
    length: Offset


class DeleteRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """The plog is gone."""

    uid: Uid


class FenceRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """A new owner begins, alone in its object, which is never deleted."""

    owner: str
    time: float


Record = CreateRecord | AppendRecord | SealRecord | DeleteRecord | FenceRecord
_TABLE: Final = msgspec.msgpack.Decoder(list[Record])
_ENCODER: Final = msgspec.msgpack.Encoder()


class JournalHeader(msgspec.Struct, frozen=True):
    """The 68 bytes at the start of a journal object, big-endian; the table and the blocks follow.

    0   8  magic       PENSJRNL
    8   2  format      2
    10  1  pending     how many numbers right before this one were not acknowledged yet when it was made
    16  8  epoch       of the owner that put it; every new owner has a higher one
    24  8  number      of this object
    32  16 token       random: tells the owner's own objects from all others
    48  4  table_size  bytes of the table of records, in msgpack
    52  4  table_crc   crc32c of the table
    56  8  data_size   bytes of the blocks
    64  4  checksum    crc32c of bytes 0-63
    """

    epoch: int
    number: int
    token: bytes
    table_size: int
    table_crc: int
    data_size: int
    pending: int = 0

    @property
    def size(self) -> int:
        """The size of the object."""
        return self.data_start + self.data_size

    @property
    def data_start(self) -> int:
        """The position of the blocks."""
        return JOURNAL_HEADER_SIZE + self.table_size

    def pack(self) -> bytes:
        """Return the stored bytes."""
        body = _HEADER.pack(
            _MAGIC, _FORMAT, self.pending, self.epoch, self.number, self.token, self.table_size, self.table_crc,
            self.data_size,
        )  # fmt: skip
        return body + crc32c(0, body).to_bytes(_CHECKSUM_SIZE, "big")

    @classmethod
    def unpack(cls, data: memoryview, *, where: str) -> Self:
        """Return the header at the start of ``data``; ``JournalCorrupt`` if it fails its check."""
        body, checksum = bytes(data[: _HEADER.size]), bytes(data[_HEADER.size : JOURNAL_HEADER_SIZE])
        if body[:8] != _MAGIC or crc32c(0, body).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
            raise JournalCorrupt(where, offset=0, reason="its header fails its checksum")
        _, form, pending, epoch, number, token, table_size, table_crc, data_size = _HEADER.unpack(body)
        if form != _FORMAT:
            raise FormatUnknown(where, actual=f"journal format {form}", known=f"journal format {_FORMAT}")
        return cls(epoch, number, token, table_size, table_crc, data_size, pending)


def journal_name(number: int) -> str:
    """Return the name of the journal object with this number."""
    return f"{JOURNAL_PREFIX}{number:020d}"


def pack_table(
    records: Sequence[Record], *, epoch: int, number: int, token: bytes, data_size: int, pending: int = 0
) -> bytes:
    """Return the header and the table of a journal object; the blocks follow them."""
    table = _ENCODER.encode(records)
    header = JournalHeader(epoch, number, token, len(table), crc32c(0, table), data_size, pending)
    return header.pack() + table


def unpack_table(header: JournalHeader, data: memoryview, *, where: str) -> list[Record]:
    """Return the records of a journal object; ``JournalCorrupt`` if they fail a check."""
    table = bytes(data[JOURNAL_HEADER_SIZE : header.data_start])
    if len(table) != header.table_size or crc32c(0, table) != header.table_crc:
        raise JournalCorrupt(where, offset=JOURNAL_HEADER_SIZE, reason="its table of records fails its checksum")
    try:
        records = _TABLE.decode(table)
    except UNDECODABLE as error:
        raise JournalCorrupt(where, offset=JOURNAL_HEADER_SIZE, reason=f"its table is invalid: {error}") from error
    for record in records:
        if isinstance(record, AppendRecord) and not _is_valid(record, header.data_size):
            raise JournalCorrupt(where, offset=JOURNAL_HEADER_SIZE, reason="an append lies outside of its object")
    return records


def blocks_size(sizes: bytes) -> tuple[int, int]:
    """Return the bytes of the bodies of blocks of these sizes, and of the blocks with their headers."""
    bodies = int(np.frombuffer(sizes, "<u4").sum(dtype=np.int64))
    return bodies, bodies + len(sizes) // 4 * PLOG_BLOCK_HEADER_SIZE


def _is_valid(record: AppendRecord, data_size: int) -> bool:
    if not record.sizes or len(record.sizes) % 4:
        return False
    sizes = np.frombuffer(record.sizes, "<u4")
    if int(sizes.min()) < 1 or int(sizes.max()) > APPEND_SIZE_MAX:
        return False
    return record.part is not None or record.position + blocks_size(record.sizes)[1] <= data_size
