"""Seals that nobody waits for: an append behind one in the journal is durable only if the seal is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import DiskFailed, PlogSealed
from penstock.plog import FilePlogs, PlogId
from penstock.plog._journal import Journal
from penstock.testing import Fault, FaultyDisk, MemoryDisk, RecordingDisk, SeededRandom
from tests.plog.test_plogs_crash import AtLast, AtOnce

if TYPE_CHECKING:
    import threading

    from penstock.plog._journal import Ticket
    from penstock.ports import Disk

A, B, C = (PlogId("local", "main", letter * 32) for letter in "abc")
JOURNAL_SIZE: Final = 2048
DIRECT_SIZE_MIN: Final = 300


def open_on(disk: Disk) -> FilePlogs:
    return FilePlogs(disk, random=SeededRandom(1), journal_size=JOURNAL_SIZE, direct_size_min=DIRECT_SIZE_MIN)


def with_two_plogs(disk: Disk, filler: int = 0) -> FilePlogs:
    """Open plogs A and B, with so many bytes in the journal that the next records turn it, or do not."""
    plogs = open_on(disk)
    for plog_id in (A, B):
        plogs.create(plog_id=plog_id, size=4000)
    plogs.append(A, 0, b"a" * 400)
    if filler:
        plogs.append(B, 0, b"f" * filler)
    return plogs


def test_a_seal_and_the_append_behind_it_share_a_sync() -> None:
    """A switch waited for the disk once for each of them."""
    with with_two_plogs(MemoryDisk()) as plogs:
        before = plogs.syncs.count
        length, pending = plogs.submit_seal(A, 4000)
        assert length == 400
        assert plogs.syncs.count == before
        assert plogs.keeps_order(B, 20)
        plogs.append(B, 0, b"b" * 20)
        assert plogs.syncs.count == before + 1
        assert pending is not None
        pending.result()
        assert plogs.syncs.count == before + 1, "it is durable already"


def test_a_plog_takes_no_append_from_the_moment_its_seal_is_submitted() -> None:
    """What follows the seal in the journal says where the plog ends."""
    with with_two_plogs(MemoryDisk()) as plogs:
        plogs.submit_seal(A, 4000)
        with pytest.raises(PlogSealed):
            plogs.append(A, 400, b"late")
        assert plogs.submit_seal(A, 400)[0] == 400, "again, by another thread"


def test_a_seal_that_is_durable_leaves_nothing_to_wait_for() -> None:
    """A plog that was sealed before the folder was opened has no change under way."""
    disk = MemoryDisk()
    with with_two_plogs(disk) as plogs:
        plogs.seal(A, 4000)
    with open_on(disk) as plogs:
        assert plogs.submit_seal(A, 400) == (400, None)


def test_who_waits_for_a_seal_after_its_sync_has_failed_gets_the_error() -> None:
    """The record may be there or not: nobody may be told that it is."""
    disk = FaultyDisk(MemoryDisk())
    plogs = with_two_plogs(disk)
    _, pending = plogs.submit_seal(A, 4000)
    disk.fail(Fault.EIO, on="datasync")
    with pytest.raises(DiskFailed):
        plogs.append(B, 0, b"b" * 20)
    assert pending is not None
    with pytest.raises(DiskFailed):
        pending.result()
    with pytest.raises(DiskFailed):
        plogs.close()


def test_an_append_after_such_a_group_waits_for_no_company(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three changes of one thread were taken for three threads, and the next change waited for the other two."""
    limits: list[float | None] = []
    turn_of = Journal._turn_of

    def noted(journal: Journal, ticket: Ticket, gate: threading.Lock, *, timed_out: bool) -> float | None:
        limits.append(turn_of(journal, ticket, gate, timed_out=timed_out))
        return limits[-1]

    monkeypatch.setattr(Journal, "_turn_of", noted)
    with with_two_plogs(MemoryDisk()) as plogs:
        plogs.submit_create(C, 4000)
        plogs.submit_seal(A, 4000)
        plogs.append(B, 0, b"b" * 20)
        plogs.append(B, 20, b"b" * 20)
    assert set(limits) == {0}, "each leads at once"


@pytest.mark.parametrize("thread", [AtOnce, AtLast])
def test_after_a_power_loss_no_append_is_there_without_the_seal_before_it(
    monkeypatch: pytest.MonkeyPatch, thread: type[AtOnce]
) -> None:
    """The group is torn at any sector, or the journal turns before the seal, between the two, or behind both."""
    monkeypatch.setattr("threading.Thread", thread)
    seen: set[tuple[bool, bool]] = set()
    turned = set[int]()
    for filler in (0, 150, 290):
        for more in range(0, 290, 30):
            disk = RecordingDisk()
            plogs = with_two_plogs(disk, filler)
            for _ in range(3):
                plogs.append(B, plogs.info(B).length, b"m" * (more + 1))
            length = plogs.info(B).length
            generation = plogs._journal._generation
            point = len(disk._record.operations)
            plogs.submit_seal(A, 4000)
            plogs.append(B, length, b"b" * 200)
            turned.add(plogs._journal._generation - generation)
            for crash in [at for at in disk.crash_points() if at >= point]:
                for state in disk.crash_states(crash, power_set_max=3):
                    with open_on(state.disk) as recovered:
                        is_sealed, is_there = recovered.info(A).sealed, recovered.info(B).length > length
                        assert is_sealed or not is_there, state.describe
                        assert recovered.info(A).length == 400, state.describe
                        seen.add((is_sealed, is_there))
            plogs.close()
    assert seen == {(False, False), (True, False), (True, True)}
    assert turned == {0, 1}, "the journal has turned in some of the cases"
