"""The files of the journal: a head each, and a record for every change to a plog's file.

A record holds the bytes to write, and the file and the position to write them to. It carries a checksum, its generation
and its own place, so a record that an earlier generation left behind never passes for one of this generation.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import google_crc32c

from penstock.checksums import crc32c
from penstock.errors import JournalCorrupt
from penstock.ports import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports import Disk, File

__all__ = [
    "DELETE",
    "JOURNAL_HEAD_SIZE",
    "JOURNAL_NAMES",
    "RECORD_HEADER_SIZE",
    "WRITE",
    "JournalHead",
    "JournalRecord",
    "JournalScan",
    "create_journal",
    "pack_record_header",
    "read_journal",
    "scan_journal",
    "write_head",
]

JOURNAL_NAMES: Final = ("journal-0", "journal-1")
JOURNAL_HEAD_SIZE: Final = 512
_HEAD: Final = struct.Struct(">8sHxxIQQ")
_HEAD_MAGIC: Final = b"PENSJRNL"
_FORMAT: Final = 1

_HEADER: Final = struct.Struct(">IIQQQ16sQ4s")
RECORD_HEADER_SIZE: Final = _HEADER.size + 4
assert RECORD_HEADER_SIZE == 64, "on disk since format 1"
_MAGIC: Final = 0x504A524E
_MAGIC_BYTES: Final = _MAGIC.to_bytes(4, "big")
WRITE: Final = b"writ"
DELETE: Final = b"dele"
_ZEROS: Final = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A change; its payload follows 64 bytes, big-endian.

    0   4  magic       0x504A524E
    4   4  size        of the payload
    8   8  generation  of the journal file
    16  8  place       of this record in the journal file
    24  8  synced      the journal file was durable up to here when the record was written
    32  16 uid         of the plog
    48  8  position    in the plog's file
    56  4  kind        "writ": the payload is written there; "dele": the file is removed
    60  4  checksum    crc32c of bytes 0-59, the payload
    """

    uid: bytes
    position: int
    payload: memoryview
    deletes: bool
    synced: int
    end: int


@dataclass(frozen=True, slots=True)
class JournalScan:
    """The records of a journal file, and the place where it is damaged, if it is."""

    records: list[JournalRecord]
    damaged_at: int | None


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The 36 bytes at the start of a journal file, big-endian.

    0   8  magic         PENSJRNL
    8   2  format        1
    12  4  previous_end  where the records of the generation before end, in the other file; 0 if that is unknown
    16  8  generation    one more with every change between the two files
    24  8  size          the length of the file
    32  4  checksum      crc32c of bytes 0-31

    A generation begins when the records before it are durable: damage to the last of them is never a torn write.
    """

    generation: int
    size: int
    previous_end: int = 0

    def pack(self) -> bytes:
        """Return the bytes on disk."""
        body = _HEAD.pack(_HEAD_MAGIC, _FORMAT, self.previous_end, self.generation, self.size)
        return body + crc32c(0, body).to_bytes(4, "big")

    @classmethod
    def unpack(cls, view: memoryview) -> JournalHead | None:
        """Return the head, None if it fails its check."""
        body = bytes(view[: _HEAD.size])
        if crc32c(0, body).to_bytes(4, "big") != bytes(view[_HEAD.size : _HEAD.size + 4]):
            return None
        magic, form, previous_end, generation, size = _HEAD.unpack(body)
        return cls(generation, size, previous_end) if magic == _HEAD_MAGIC and form == _FORMAT else None


def pack_record_header(
    *,
    generation: int,
    place: int,
    synced: int,
    uid: bytes,
    position: int,
    kind: bytes,
    parts: tuple[bytes, ...],
    size: int,
) -> bytes:
    """Return the 64 bytes before a record's payload, which is ``parts``, ``size`` bytes in total."""
    body = _HEADER.pack(_MAGIC, size, generation, place, synced, uid, position, kind)
    crc: int = google_crc32c.value(body)
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return body + crc.to_bytes(4, "big")


def scan_journal(view: memoryview, generation: int, *, durable_end: int = 0) -> JournalScan:
    """Read records from the start up to the first that fails its check.

    At the end of the scan a crash may have torn the last group of records, of which none was acknowledged. If a later
    record or ``durable_end`` says that the journal was durable past this place, it was damaged afterwards instead.
    """
    records = list(_records(view, generation, JOURNAL_HEAD_SIZE))
    stop = records[-1].end if records else JOURNAL_HEAD_SIZE
    damaged = durable_end > stop or any(record.synced > stop for record in _records_after(view, generation, stop))
    return JournalScan(records, stop if damaged else None)


def _records(view: memoryview, generation: int, place: int) -> Iterator[JournalRecord]:
    while (record := _record_at(view, generation, place)) is not None:
        yield record
        place = record.end


def _records_after(view: memoryview, generation: int, place: int) -> Iterator[JournalRecord]:
    """Find records behind a gap by their magic number."""
    rest = bytes(view[place:])
    shift = rest.find(_MAGIC_BYTES)
    while shift >= 0:
        record = _record_at(view, generation, place + shift)
        if record is not None:
            yield record
        shift = rest.find(_MAGIC_BYTES, shift + 1)


def _record_at(view: memoryview, generation: int, place: int) -> JournalRecord | None:
    if place + RECORD_HEADER_SIZE > len(view):
        return None
    magic, size, record_generation, record_place, synced, uid, position, kind = _HEADER.unpack_from(view, place)
    if magic != _MAGIC or record_generation != generation or record_place != place:
        return None
    start = place + RECORD_HEADER_SIZE
    payload = view[start : start + size]
    checksum = bytes(view[start - 4 : start])
    if len(payload) != size or crc32c(0, view[place : start - 4], payload).to_bytes(4, "big") != checksum:
        return None
    return JournalRecord(uid, position, payload, deletes=kind == DELETE, synced=synced, end=start + size)


def write_head(file: File, head: JournalHead) -> None:
    """Begin a generation in a journal file: all records in it become void."""
    write_all(file, [head.pack()], 0)
    file.datasync()


def create_journal(disk: Disk, *, size: int) -> None:
    """Create the two files, empty; the caller syncs the folder."""
    for generation, name in enumerate(JOURNAL_NAMES):
        file = disk.create(name)
        try:
            for start in range(0, size, len(_ZEROS)):
                write_all(file, [_ZEROS[: size - start]], start)
            write_head(file, JournalHead(generation, size))
        finally:
            file.close()


def read_journal(disk: Disk) -> tuple[list[JournalRecord], JournalHead]:
    """Return the records of both generations, in order, and the head of the newer one."""
    heads = sorted(((_read_head(disk, name), name) for name in JOURNAL_NAMES), key=lambda pair: pair[0].generation)
    newest, records = heads[-1][0], list[JournalRecord]()
    for head, name in heads:
        file = disk.open(name)
        durable_end = 0 if head is newest else newest.previous_end
        scan = scan_journal(file.view(0, file.size()), head.generation, durable_end=durable_end)
        file.close()
        if scan.damaged_at is not None:
            reason = "an acknowledged record fails its checksum"
            raise JournalCorrupt(disk.where(name), offset=scan.damaged_at, reason=reason)
        records += scan.records
    return records, newest


def _read_head(disk: Disk, name: str) -> JournalHead:
    try:
        file = disk.open(name)
    except FileNotFoundError as error:
        raise JournalCorrupt(disk.where(name), offset=None, reason="it is missing") from error
    head, size = JournalHead.unpack(file.view(0, JOURNAL_HEAD_SIZE)), file.size()
    file.close()
    if head is None:
        raise JournalCorrupt(disk.where(name), offset=0, reason="its head fails its checksum")
    if size < head.size:
        raise JournalCorrupt(disk.where(name), offset=size, reason=f"it ends here and not at {head.size}")
    return head
