"""Blocks in objects are read by other processes from where the owner says they are."""

from __future__ import annotations

import pytest

from penstock.errors import NoSuchObject, PlogCorrupt
from penstock.plog import read_extents
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.testing import MemoryObjects
from tests.plog.conftest import crowded


@pytest.mark.parametrize("compacted", [False, True])
def test_another_process_reads_the_same_blocks_as_the_owner(*, compacted: bool) -> None:
    """A Spark task reads the bucket, and the owner sends it a few bytes."""
    bucket = MemoryObjects()
    with ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0, part_size_min=100)) as plogs:
        plog_id, offset = plogs.create(size=10_000), 0
        for number, size in enumerate((5, 150, 7, 30, 1, 400, 9)):
            offset = plogs.append(plog_id, offset, bytes([number]) * size)
        if compacted:
            plogs.seal(plog_id, offset)
    with ObjectPlogs(bucket, settings=crowded()) as plogs:
        if compacted:
            plogs.delete(plogs.create(size=1))
        for low in range(0, offset, 13):
            for size in (0, 1, 30, offset - low):
                if low + size <= offset:
                    located = plogs.locate(plog_id, low, size)
                    expected = [(start, bytes(view)) for start, view in plogs.blocks(plog_id, low, size)]
                    assert [(at, bytes(view)) for at, view in read_extents(located, bucket.get_range)] == expected
        located = plogs.locate(plog_id, 0, offset)
        part = [(at, bytes(view)) for at, view in read_extents(located.between(160, 200), bucket.get_range)]
        assert part == [(start, bytes(view)) for start, view in plogs.blocks(plog_id, 160, 40)]
    assert located.path == bucket.where()


def test_objects_that_are_gone_or_others_are_told() -> None:
    """The reader asks the owner again; it never gets bytes that were not written there."""
    bucket = MemoryObjects()
    with ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0)) as plogs:
        plog_id = plogs.create(size=100)
        plogs.append(plog_id, 0, b"data")
        located = plogs.locate(plog_id, 0, 4)
    with pytest.raises(PlogCorrupt):
        list(read_extents(located, lambda *_: memoryview(bytes(24))))
    bucket.delete(located.extents[0][0])
    with pytest.raises(NoSuchObject):
        list(read_extents(located, bucket.get_range))
