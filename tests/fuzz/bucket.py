"""Decoders of what is stored in an object store; their checksums are made right."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from penstock.checksums import crc32c
from penstock.errors import JournalCorrupt, PlogCorrupt
from penstock.model import PlogId
from penstock.plog.objects._checkpoint import StoreCheckpoint, pack_checkpoint, unpack_checkpoint
from penstock.plog.objects._records import (
    AppendRecord,
    CreateRecord,
    DeleteRecord,
    FenceRecord,
    JournalHeader,
    SealRecord,
    pack_table,
    unpack_table,
)
from penstock.plog.objects._state import Home, PlogState, StoreState, journal_needed
from penstock.plog.objects._stored import pack_plog, unpack_plog

UID, BIRTH, TOKEN = bytes(range(16)), bytes(range(8)), bytes(16)
PLOG_ID = PlogId("local", "main", UID.hex())
NAME = f"plogs/{UID.hex()}.{BIRTH.hex()}/3.plog"
_JOURNAL_HEADER, _PLOG_HEADER, _CHECKPOINT_HEADER = 68, 20, 16


def _state() -> StoreState:
    """Return a store with an open plog, a sealed one and one with an object of its own."""
    state = StoreState()
    for number, records in enumerate(_histories()):
        for record in records[:3]:
            state.apply(record, number=number, epoch=2, data_start=200, where="object")
    home = PlogId("local", "main", "f" * 32)
    state.homes[home.uid_bytes] = Home(home, "plogs/x.y/1.plog", 5, 10)
    state.deleted["plogs/z/"] = ("plogs/z/1.part",)
    return state


def _histories() -> list[list[CreateRecord | AppendRecord | SealRecord | DeleteRecord]]:
    other = bytes(16)
    return [
        [
            CreateRecord("local", "main", UID, 1000, BIRTH),
            AppendRecord(UID, 0, b"\3\0\0\0\4\0\0\0", 0),
            SealRecord(UID, 5),
            DeleteRecord(UID),
        ],
        [
            CreateRecord("local", "main", other, 1000, BIRTH),
            AppendRecord(other, 0, b"\3\0\0\0", 10),
            AppendRecord(other, 3, b"\2\0\0\0", 0, "plogs/x.part"),
        ],
    ]


def _check(plog: PlogState) -> None:
    """Do with a plog what readers do."""
    replica = plog.replica()
    for part in replica.slices(0, replica.acked):
        extent = plog.place_of(part.position)
        begin, end = plog.block(part.index)
        assert extent.start <= begin < end
        assert part.start < part.end <= end
    if plog.sealed:
        plog.drop_cut_off()


def records(data: bytes) -> None:
    """Read the table of a journal object, and apply its records to a store."""
    head = JournalHeader(3, 9, TOKEN, len(data), crc32c(0, data), 47).pack()
    image = memoryview(head + data)
    state = _state()
    found = unpack_table(JournalHeader.unpack(image, where="object"), image, where="object")
    with suppress(JournalCorrupt):
        for record in found:
            state.apply(record, number=9, epoch=3, data_start=len(image), where="object")
    for plog in state.plogs.values():
        _check(plog)


def tables() -> list[bytes]:
    """Return tables of records."""
    fence = pack_table([FenceRecord("process 7 on host", 1.5)], epoch=3, number=9, token=TOKEN, data_size=0)
    changes = [pack_table(table, epoch=3, number=9, token=TOKEN, data_size=47) for table in _histories()]
    return [table[_JOURNAL_HEADER:] for table in (fence, *changes)]


def plog(data: bytes) -> None:
    """Read the object of a plog."""
    head = b"PENSPLGO\0\1\0\0" + len(data).to_bytes(4, "big")
    checksum = crc32c(0, NAME.rpartition("/")[0].encode() + b"/", head, data).to_bytes(4, "big")
    _check(unpack_plog(memoryview(head + checksum + data), NAME, where="object"))


def plogs() -> list[bytes]:
    """Return the state of a plog that is sealed."""
    sealed = _state().plogs[UID]
    return [pack_plog(sealed, [(None, 0, *sealed.extents[0][2:])])[_PLOG_HEADER:]]


def checkpoint(data: bytes) -> None:
    """Read a checkpoint; it is written again as it was read."""
    image = b"PENSCHKP\0\1\0\0" + crc32c(0, data).to_bytes(4, "big") + data
    found = unpack_checkpoint(memoryview(image), where="object")
    again = unpack_checkpoint(memoryview(pack_checkpoint(found)), where="object")
    assert (again.number, again.epoch, again.journal) == (found.number, found.epoch, found.journal)
    for state in found.state.plogs.values():
        _check(state)
    journal_needed(found.state.plogs.values())


def checkpoints() -> list[bytes]:
    """Return a checkpoint of a store with a little of everything."""
    stored = StoreCheckpoint(20, 3, 7, TOKEN, "process", _state(), {17: 300, 18: 90})
    return [pack_checkpoint(stored)[_CHECKPOINT_HEADER:]]


def raw(data: bytes) -> None:
    """Read bytes as each kind of object, with the checksums that they have."""
    view = memoryview(data)
    with suppress(JournalCorrupt):
        unpack_checkpoint(view, where="object")
    with suppress(JournalCorrupt):
        unpack_table(JournalHeader.unpack(view, where="object"), view, where="object")
    with suppress(PlogCorrupt):
        unpack_plog(view, NAME, where="object")


def raws() -> list[bytes]:
    """Return an object of each kind."""
    sealed = _state().plogs[UID]
    return [
        pack_table(_histories()[0], epoch=3, number=9, token=TOKEN, data_size=47),
        pack_plog(sealed, [(None, 0, *sealed.extents[0][2:])]),
        pack_checkpoint(StoreCheckpoint(20, 3, 7, TOKEN, "process", _state(), {17: 300, 18: 90})),
        msgspec.msgpack.encode([1]),
    ]
