"""The stored forms in an object store: their bytes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FormatUnknown, JournalCorrupt, PlogCorrupt
from penstock.model import PlogId
from penstock.plog.objects._checkpoint import CheckpointCopy, StoreCheckpoint, pack_checkpoint, unpack_checkpoint
from penstock.plog.objects._records import (
    AppendRecord,
    CreateRecord,
    DeleteRecord,
    FenceRecord,
    JournalHeader,
    Record,
    SealRecord,
    pack_table,
    unpack_table,
)
from penstock.plog.objects._state import BlockRun, Home, PlogState, StoreState
from penstock.plog.objects._stored import pack_plog, store_plog, unpack_plog

UID = bytes(range(16))
BIRTH = bytes(range(8))
TOKEN = bytes(16)
PLOG_ID = PlogId("local", "main", UID.hex())
RECORDS: list[Record] = [
    CreateRecord("local", "main", UID, 1000, BIRTH),
    AppendRecord(UID, 0, b"\3\0\0\0\4\0\0\0", 0),
    AppendRecord(UID, 7, b"\2\0\0\0", 0, "plogs/x.part"),
    SealRecord(UID, 9),
    DeleteRecord(UID),
    FenceRecord("process 7 on host", 1.5),
]


def table(records: list[Record], data_size: int = 47) -> memoryview:
    return memoryview(pack_table(records, epoch=3, number=9, token=TOKEN, data_size=data_size))


def sealed_plog() -> PlogState:
    plog = PlogState(PLOG_ID, size=1000, birth=BIRTH, epoch=2)
    plog.append(b"\3\0\0\0\4\0\0\0", 17, 100)
    plog.append(b"\5\0\0\0", 18, 68)
    plog.append(b"\6\0\0\0", "plogs/part", 0)
    plog.seal(14)
    return plog


def test_journal_object_has_these_bytes() -> None:
    """Stored since format 2."""
    data = table([DeleteRecord(UID)], data_size=0)
    assert bytes(data).hex() == (
        "50454e534a524e4c00020000000000000000000000000003000000000000000900000000000000000000000000000000"
        "00000015" + bytes(data[52:56]).hex() + "0000000000000000" + bytes(data[64:68]).hex() + "919204c410" + UID.hex()
    )


def test_records_are_read_as_they_were_written() -> None:
    """All kinds of them."""
    data = table(RECORDS)
    header = JournalHeader.unpack(data, where="object")
    assert (header.epoch, header.number, header.token, header.data_size) == (3, 9, TOKEN, 47)
    assert unpack_table(header, data, where="object") == RECORDS
    assert header.size == len(data) + 47


@given(st.data())
def test_a_changed_byte_of_a_journal_object_is_found(data: st.DataObject) -> None:
    """Recovery applies what it reads, so it reads nothing that was not written."""
    stored = bytearray(table(RECORDS))
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises((JournalCorrupt, FormatUnknown)):
        unpack_table(JournalHeader.unpack(memoryview(stored), where="object"), memoryview(stored), where="object")


@pytest.mark.parametrize(
    "record",
    [
        AppendRecord(UID, 0, b"", 0),
        AppendRecord(UID, 0, b"\1\0\0", 0),
        AppendRecord(UID, 0, b"\0\0\0\0", 0),
        AppendRecord(UID, 0, b"\3\0\0\0", 25),
        AppendRecord(UID, 0, b"\1\0\x20\0", 0, "part"),
        AppendRecord(b"short", 0, b"\3\0\0\0", 0),
        CreateRecord("local", "main", UID, 0, BIRTH),
        SealRecord(UID, -1),
    ],
)
def test_impossible_record_is_refused(record: Record) -> None:
    """Its checksum is right, and no owner has written it."""
    data = table([record])
    with pytest.raises(JournalCorrupt):
        unpack_table(JournalHeader.unpack(data, where="object"), data, where="object")


@pytest.mark.parametrize(
    "records",
    [
        [AppendRecord(UID, 0, b"\1\0\0\0", 0)],
        [RECORDS[0], RECORDS[0]],
        [RECORDS[0], AppendRecord(UID, 1, b"\1\0\0\0", 0)],
        [RECORDS[0], AppendRecord(UID, 0, b"\xe9\3\0\0", 0)],
        [RECORDS[0], SealRecord(UID, 1)],
        [RECORDS[0], SealRecord(UID, 0), SealRecord(UID, 0)],
        [RECORDS[0], SealRecord(UID, 0), AppendRecord(UID, 0, b"\1\0\0\0", 0)],
        [DeleteRecord(UID)],
        [CreateRecord("no name!", "main", UID, 10, BIRTH)],
    ],
)
def test_record_that_does_not_fit_to_those_before_is_refused(records: list[Record]) -> None:
    """A gap in the journal must never be taken for a history."""
    state = StoreState()
    for record in records[:-1]:
        state.apply(record, number=1, epoch=1, data_start=68, where="object")
    with pytest.raises(JournalCorrupt):
        state.apply(records[-1], number=1, epoch=1, data_start=68, where="object")


def test_checkpoint_is_read_as_it_was_written() -> None:
    """Open plogs, sealed ones that are cut, those with an object of their own, and those that are deleted."""
    state = StoreState()
    state.plogs[UID] = sealed_plog()
    other = PlogId("local", "main", "f" * 32)
    state.homes[other.uid_bytes] = Home(other, "plogs/x/1.plog", 5, 10)
    state.deleted["plogs/y/"] = ("plogs/y/1.part",)
    checkpoint = StoreCheckpoint(20, 3, 7, TOKEN, "process", state, {17: 300, 18: 90})
    data = pack_checkpoint(checkpoint)
    read = unpack_checkpoint(memoryview(data), where="checkpoint")
    assert pack_checkpoint(read) == data
    assert (read.number, read.epoch, read.serial, read.journal) == (20, 3, 7, {17: 300, 18: 90})
    assert store_plog(read.state.plogs[UID]) == store_plog(sealed_plog())
    assert (read.state.homes, read.state.deleted) == (state.homes, state.deleted)
    for damaged in (b"", data[:-1], data[:20], b"x" + data[1:], data[:16] + b"\xc0" + data[17:]):
        with pytest.raises(JournalCorrupt):
            unpack_checkpoint(memoryview(damaged), where="checkpoint")
    with pytest.raises(FormatUnknown):
        unpack_checkpoint(memoryview(data[:8] + b"\0\2" + data[10:]), where="checkpoint")


def test_object_of_a_plog_is_read_as_it_was_written() -> None:
    """It holds the blocks that lay in the journal, and names the parts that stay where they are."""
    plog = sealed_plog()
    own = [(None, 0, 4096, 72), tuple(plog.extents[2])]
    head = pack_plog(plog, own)  # type: ignore[arg-type]
    name = f"{plog.folder}3.plog"
    read = unpack_plog(memoryview(head), name, where=name)
    assert (read.length, read.sealed, list(read.starts), read.home) == (14, True, [0, 3, 7, 12], name)
    assert [extent.name for extent in read.extents] == [name, "plogs/part"]
    assert read.extents[0].position == len(head)
    for damaged in (b"", head[:-1], head[:30] + b"x" + head[31:], b"x" + head[1:]):
        with pytest.raises(PlogCorrupt):
            unpack_plog(memoryview(damaged), name, where=name)
    with pytest.raises(PlogCorrupt):
        unpack_plog(memoryview(head), "plogs/another/3.plog", where=name)
    with pytest.raises(FormatUnknown):
        unpack_plog(memoryview(head[:8] + b"\0\2" + head[10:]), name, where=name)
    plog.sealed = False
    plog.length = plog.written
    with pytest.raises(PlogCorrupt, match="sealed"):
        unpack_plog(memoryview(pack_plog(plog, own)), name, where=name)  # type: ignore[arg-type]


def test_what_a_seal_cuts_off_is_not_compacted() -> None:
    """Blocks behind the end are never read again; the one that holds the end is needed for its checksum."""
    plog = sealed_plog()
    plog.seal(8)
    plog.drop_cut_off()
    assert (list(plog.starts), plog.written) == ([0, 3, 7], 12)
    assert [extent.source for extent in plog.extents] == [17, 18]
    plog.seal(0)
    plog.drop_cut_off()
    assert (list(plog.starts), plog.written, plog.extents) == ([], 0, [])


def test_a_checkpoint_is_of_the_moment_at_which_it_was_copied() -> None:
    """It is packed without the lock; a change that slipped in would be applied again from the journal."""
    state, other = StoreState(), bytes(16)
    for record in RECORDS[:2]:
        state.apply(record, number=1, epoch=1, data_start=68, where="object")
    state.homes[other] = Home(PlogId("local", "main", other.hex()), "plogs/other/1.plog", 5, 10)
    checkpoint = StoreCheckpoint(2, 1, 1, TOKEN, "owner", state, {1: 100})
    expected = pack_checkpoint(checkpoint)
    copy = CheckpointCopy(checkpoint)
    state.apply(RECORDS[2], number=2, epoch=1, data_start=68, where="object")
    state.apply(RECORDS[3], number=2, epoch=1, data_start=68, where="object")
    state.apply(DeleteRecord(other), number=2, epoch=1, data_start=68, where="object")
    assert copy.pack() == expected
    changed = unpack_checkpoint(memoryview(pack_checkpoint(checkpoint)), where="object").state
    assert (changed.plogs[UID].sealed, changed.plogs[UID].written, changed.homes) == (True, 9, {})
    changed.plogs[UID].move(BlockRun("plogs/moved", 0, *changed.plogs[UID].extents[0][2:]))
    moved = StoreCheckpoint(2, 1, 1, TOKEN, "owner", changed, {1: 100})
    assert b"plogs/moved" in pack_checkpoint(moved)
