"""The journal's records: their bytes on disk, and how a scan tells torn from damaged."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plog._journal_file import (
    DELETE,
    JOURNAL_HEAD_SIZE,
    RECORD_HEADER_SIZE,
    WRITE,
    JournalHead,
    JournalRecord,
    pack_record_header,
    scan_journal,
)

UID: Final = bytes(range(16))
HEAD: Final = bytes.fromhex("50454e534a524e4c 0001 0000 00000000 0000000000000007 0000000000001000 fb5f2484")
RECORD: Final = bytes.fromhex(
    "504a524e 00000008 0000000000000007 0000000000000200"  # magic, size, generation, place
    "0000000000000200 000102030405060708090a0b0c0d0e0f"  # synced, uid
    "0000000000001000 77726974 4080afc2"  # position, kind "writ"
)

Groups = list[list[bytes]]
groups = st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=4), max_size=4)


def record(
    payload: bytes, *, place: int, synced: int = JOURNAL_HEAD_SIZE, generation: int = 7, kind: bytes = WRITE
) -> bytes:
    parts = (payload[:3], payload[3:])
    header = pack_record_header(
        generation=generation, place=place, synced=synced, uid=UID, position=4096, kind=kind, parts=parts,
        size=len(payload),
    )  # fmt: skip
    return header + payload


def journal(groups: Groups, *, generation: int = 7, room: int = 100) -> bytes:
    """A journal file as it is after each group was written and synced."""
    data = JournalHead(generation, 4096).pack().ljust(JOURNAL_HEAD_SIZE, b"\0")
    for group in groups:
        synced = len(data)
        for payload in group:
            data += record(payload, place=len(data), synced=synced, generation=generation)
    return data + bytes(room)


def payloads(data: bytes, *, generation: int = 7) -> list[bytes]:
    return [bytes(found.payload) for found in scan_journal(memoryview(data), generation).records]


def test_head_has_the_bytes_of_format_1() -> None:
    """Stores that exist are read by every later version: these bytes never change."""
    assert JournalHead(7, 4096).pack() == HEAD


def test_record_has_the_bytes_of_format_1() -> None:
    """As above; a journal is read after the crash of an older version."""
    assert record(b"penstock", place=512) == RECORD + b"penstock"


@given(generation=st.integers(0, 2**64 - 1), size=st.integers(0, 2**64 - 1), previous_end=st.integers(0, 2**32 - 1))
def test_head_reads_back(generation: int, size: int, previous_end: int) -> None:
    """The generation decides which records count, the size and the end of the others whether some were cut off."""
    head = JournalHead(generation, size, previous_end)
    assert JournalHead.unpack(memoryview(head.pack().ljust(JOURNAL_HEAD_SIZE, b"\0"))) == head


def test_head_with_a_flipped_bit_is_refused() -> None:
    """A wrong generation would void acknowledged records, or bring back old ones."""
    for bit in range(8 * len(HEAD)):
        damaged = bytearray(HEAD)
        damaged[bit // 8] ^= 1 << bit % 8
        assert JournalHead.unpack(memoryview(damaged)) is None, f"bit {bit}"


def test_head_cut_short_is_refused() -> None:
    """An empty or cut file is no journal of generation 0."""
    for length in range(len(HEAD)):
        assert JournalHead.unpack(memoryview(HEAD[:length])) is None
        assert JournalHead.unpack(memoryview(HEAD[:length].ljust(len(HEAD), b"\0"))) is None or not any(HEAD[length:])


@pytest.mark.parametrize(("kind", "deletes"), [(WRITE, False), (DELETE, True)])
def test_record_reads_back_whole(kind: bytes, *, deletes: bool) -> None:
    """Replay needs the file, the place in it and the bytes, or that the file is gone."""
    data = bytes(JOURNAL_HEAD_SIZE) + record(b"payload", place=JOURNAL_HEAD_SIZE, kind=kind)
    scan = scan_journal(memoryview(data), 7)
    end = JOURNAL_HEAD_SIZE + RECORD_HEADER_SIZE + 7
    assert scan.records == [JournalRecord(UID, 4096, memoryview(b"payload"), deletes, JOURNAL_HEAD_SIZE, end)]
    assert scan.damaged_at is None


@given(groups=groups)
def test_journal_reads_back_in_order(groups: Groups) -> None:
    """Replay does again what was done, in the order in which it was done."""
    data = journal(groups)
    assert payloads(data) == [payload for group in groups for payload in group]
    assert scan_journal(memoryview(data), 7).damaged_at is None


@given(groups=groups, data=st.data())
def test_journal_cut_anywhere_gives_its_first_records(groups: Groups, data: st.DataObject) -> None:
    """The last group is torn by a crash like this, and what it says before the tear is true."""
    whole = journal(groups, room=0)
    scan = scan_journal(memoryview(whole)[: data.draw(st.integers(JOURNAL_HEAD_SIZE, len(whole)))], 7)
    flat = [payload for group in groups for payload in group]
    assert [bytes(found.payload) for found in scan.records] == flat[: len(scan.records)]
    assert scan.damaged_at is None


GROUPS: Final = [[b"one"], [b"two", b"", b"three"], [b"four"]]


def test_flipped_bit_in_an_acknowledged_group_is_damage_and_in_the_last_one_a_tear() -> None:
    """Torn is cut off, damaged is an error; a record that came later proves which of the two it is."""
    whole = journal(GROUPS)
    sound = scan_journal(memoryview(whole), 7).records
    starts = [JOURNAL_HEAD_SIZE, *(found.end for found in sound)]
    for bit in range(8 * JOURNAL_HEAD_SIZE, 8 * starts[-1]):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        scan = scan_journal(memoryview(damaged), 7)
        hit = max(index for index, start in enumerate(starts) if start <= bit // 8)
        assert scan.records == sound[:hit], f"bit {bit}"
        assert scan.damaged_at == (starts[hit] if hit < len(sound) - 1 else None), f"bit {bit}"


def test_hole_in_the_last_group_is_a_tear() -> None:
    """Sectors of one write reach the disk in any order: a later record of the same group proves nothing."""
    whole = journal([[b"one"], [b"two", b"three"]])
    first = scan_journal(memoryview(whole), 7).records[0]
    second = bytearray(whole)
    second[first.end : first.end + RECORD_HEADER_SIZE] = bytes(RECORD_HEADER_SIZE)
    scan = scan_journal(memoryview(second), 7)
    assert [bytes(found.payload) for found in scan.records] == [b"one"]
    assert scan.damaged_at is None


def test_records_of_another_generation_are_void() -> None:
    """A file that begins a new generation still holds the records of the last but one."""
    assert payloads(journal(GROUPS, generation=5), generation=7) == []
    old, new = journal(GROUPS, generation=5), journal([[b"one"]], generation=7, room=0)
    scan = scan_journal(memoryview(new + old[len(new) :]), 7)
    assert [bytes(found.payload) for found in scan.records] == [b"one"]
    assert scan.damaged_at is None


def test_record_at_another_place_is_refused() -> None:
    """A record written to the wrong place would be replayed out of order."""
    place = JOURNAL_HEAD_SIZE
    for shift in (-64, -1, 1, 64, 512):
        data = bytes(place) + record(b"payload", place=place + shift)
        assert payloads(data) == []


def test_payload_that_looks_like_records_is_a_payload() -> None:
    """Somebody will keep a copy of a journal in a plog."""
    inner = journal(GROUPS, room=0)
    outer = journal([[inner], [inner, b"x"]])
    assert payloads(outer) == [inner, inner, b"x"]
    torn = bytearray(outer)
    last = scan_journal(memoryview(outer), 7).records[-2]
    torn[last.end - 1] ^= 1
    scan = scan_journal(memoryview(torn), 7)
    assert [bytes(found.payload) for found in scan.records] == [inner]
    assert scan.damaged_at is None


def test_huge_size_is_refused_before_anything_is_read() -> None:
    """A length from a disk is checked, not believed."""
    data = bytearray(journal([[b"one"]]))
    data[JOURNAL_HEAD_SIZE + 4 : JOURNAL_HEAD_SIZE + 8] = b"\xff\xff\xff\xff"
    assert payloads(bytes(data)) == []


def test_journal_of_no_room_has_no_records() -> None:
    """A file cut off at its head, or inside a record's header, is read without a fault."""
    whole = journal([[b"one"]], room=0)
    for length in range(JOURNAL_HEAD_SIZE + RECORD_HEADER_SIZE + 3):
        assert payloads(whole[:length]) == []
