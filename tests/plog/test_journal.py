"""The durations of syncs, and the failure of one."""

from __future__ import annotations

import pytest

from penstock.errors import DiskFailed
from penstock.plog import FilePlogs, SyncTimes
from penstock.plog._files import DIRECT_SIZE_MIN
from penstock.testing import Fault, FaultyDisk, MemoryDisk


def test_syncs_are_counted_by_their_time() -> None:
    """A bound belongs to what lies below it, as in Prometheus."""
    syncs = SyncTimes()
    for seconds in (0.0, 0.0009765625, 0.25, 0.5, 100.0):
        syncs.note(seconds)
    counts, total_s = syncs.figures()
    bounds = dict(zip([*SyncTimes.BOUNDS_S, "longer"], counts, strict=True))
    assert {bound: count for bound, count in bounds.items() if count} == {
        0.0001: 1,
        0.001: 1,
        0.25: 1,
        1.0: 1,
        "longer": 1,
    }
    assert total_s == 0.0009765625 + 0.25 + 0.5 + 100
    assert syncs.count == 5


def test_every_sync_that_an_append_waits_for_is_counted() -> None:
    """Small appends are synced in the journal, large ones in the plog's own file."""
    with FilePlogs(MemoryDisk()) as plogs:
        plog_id = plogs.create()
        before = plogs.syncs.count
        end = plogs.append(plog_id, 0, b"small")
        plogs.append(plog_id, end, bytes(DIRECT_SIZE_MIN))
        assert plogs.syncs.count - before == 2


def test_check_running_raises_the_failure_of_the_disk() -> None:
    """A health check must not have to write in order to know."""
    disk = FaultyDisk(MemoryDisk())
    plogs = FilePlogs(disk)
    plog_id = plogs.create()
    plogs.check_running()
    disk.fail(Fault.EIO, on="datasync")
    with pytest.raises(DiskFailed):
        plogs.append(plog_id, 0, b"lost")
    with pytest.raises(DiskFailed, match="the store takes no more writes"):
        plogs.check_running()
    with pytest.raises(DiskFailed):
        plogs.close()
