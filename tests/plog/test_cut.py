"""Cuts through many plogs at one moment, and the raw blocks that backups copy."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, NoSuchPlog, PlogCorrupt, ReadOutOfRange
from penstock.plog import FilePlogs, RawBlocks, check_raw, plog_file, plog_head, raw_from
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.testing import MemoryDisk, MemoryObjects

if TYPE_CHECKING:
    from penstock.plog import PlogId, Plogs

SIZE = 64 << 20
LIMIT = 1 << 30
DIRECT = 4096
"""Blocks of this size are written into their files at once."""


def opened(kind: str, disk: MemoryDisk | None = None) -> Plogs:
    if kind == "objects":
        return ObjectPlogs(MemoryObjects(), settings=ObjectSettings(group_wait_s=0.0))
    return FilePlogs(disk or MemoryDisk(), journal_size=8 * DIRECT, direct_size_min=DIRECT, open_files_max=16)


@pytest.mark.parametrize(("kind", "size"), [("files", 10), ("files", DIRECT), ("objects", 10)])
def test_nothing_is_in_a_cut_whose_cause_is_not(kind: str, size: int) -> None:
    """An event that follows from another one would be in a backup without it."""
    over = threading.Event()
    with opened(kind) as plogs:
        first, last = plogs.create(size=SIZE), plogs.create(size=SIZE)
        others = [plogs.create(size=100) for _ in range(60)]

        def write() -> None:
            offset = 0
            while not over.is_set() and offset + size <= SIZE:
                plogs.append(first, offset, bytes(size))
                offset = plogs.append(last, offset, bytes(size))

        writer = threading.Thread(target=write)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # else a whole cut is made before the other thread gets its turn
        writer.start()
        try:
            differences = set()
            while plogs.info(last).length < (100 if kind == "objects" else 5000) * size:
                infos = plogs.cut([first, *others, last])
                differences.add(infos[first].length - infos[last].length)
        finally:
            over.set()
            writer.join()
            sys.setswitchinterval(interval)
    assert differences <= {0, size}


def test_a_plog_that_leaves_the_table_during_a_cut_keeps_its_length() -> None:
    """Files are closed when others are used; what was appended meanwhile belongs to the cut."""
    with opened("files") as plogs:
        ids = [plogs.create(size=1000) for _ in range(100)]
        for number, plog_id in enumerate(ids):
            plogs.append(plog_id, 0, bytes(number + 1))
        infos = plogs.cut(ids)
    assert [infos[plog_id].length for plog_id in ids] == list(range(1, 101))


def filled(plogs: Plogs) -> PlogId:
    plog_id = plogs.create(size=SIZE)
    offset = 0
    for number in range(1, 9):
        offset = plogs.append(plog_id, offset, bytes([number]) * number * 1000)
    return plog_id


@pytest.mark.parametrize("kind", ["files", "objects"])
def test_raw_blocks_are_those_of_the_file(kind: str) -> None:
    """A backup is a copy of bytes that carry their checksums; they are the same wherever the plog is."""
    with opened(kind) as plogs:
        plog_id = filled(plogs)
        length = plogs.info(plog_id).length
        whole = plogs.raw(plog_id, 0, length, limit=LIMIT)
        assert (whole.key, whole.size, whole.end) == (plogs.key(plog_id), SIZE, length)
        assert check_raw(whole, where="x") == 8
        offset, parts = 0, []
        while offset < length:
            raw = plogs.raw(plog_id, offset, length, limit=3500)
            assert len(raw.data) <= 3500 + 8020, "one block, or as many as fit"
            parts.append(bytes(raw.data))
            offset = raw.end
        assert b"".join(parts) == bytes(whole.data)
        assert 3 < len(parts) < 8
        rest = raw_from(whole, 3000)
        assert bytes(rest.data) == bytes(plogs.raw(plog_id, 3000, length, limit=LIMIT).data)
        assert bytes(plogs.raw(plog_id, length, length, limit=1).data) == b""
        for bad in ((1, length), (0, length - 1)):
            with pytest.raises(BadArgument):
                plogs.raw(plog_id, *bad, limit=LIMIT)
        with pytest.raises(BadArgument):
            raw_from(whole, 1)
        with pytest.raises(ReadOutOfRange):
            plogs.raw(plog_id, 0, length + 1, limit=LIMIT)
        with pytest.raises(NoSuchPlog):
            plogs.key(plogs.new_id())


def test_a_head_and_raw_blocks_are_a_plog() -> None:
    """That is how a restore writes it."""
    disk = MemoryDisk()
    with opened("files") as plogs:
        plog_id = filled(plogs)
        raw = plogs.raw(plog_id, 0, 6000, limit=LIMIT)
        before = bytes(plogs.read(plog_id, 0, 6000))
    opened("files", disk).close()
    head = plog_head(plog_id, key=raw.key, size=raw.size, length=6000, sealed=True)
    disk.create(plog_file(plog_id)).pwritev([head, raw.data], 0)
    with opened("files", disk) as plogs:
        assert plogs.info(plog_id).sealed
        assert bytes(plogs.read(plog_id, 0, 6000)) == before


def test_every_flipped_byte_of_raw_blocks_is_found() -> None:
    """Damage is not copied into a backup."""
    with opened("files") as plogs:
        plog_id = plogs.create(size=SIZE)
        plogs.append(plog_id, plogs.append(plog_id, 0, b"first"), b"second")
        raw = plogs.raw(plog_id, 0, 11, limit=LIMIT)
    data, missed = bytes(raw.data), []
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            check_raw(RawBlocks(raw.key, raw.size, 0, 11, changed), where="x")
        except PlogCorrupt:
            continue
        missed.append(place)
    assert missed == []
    for shorter in (data[:-1], data[:25], data[:10]):
        with pytest.raises(PlogCorrupt):
            check_raw(RawBlocks(raw.key, raw.size, 0, 11, shorter), where="x")
