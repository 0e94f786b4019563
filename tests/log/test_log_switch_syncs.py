"""How often a switch waits for the disk, and what a power loss during it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.testing import MemoryDisk, RecordingDisk, SeededRandom
from tests.log.harness import Published, RecordedOracle, content
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from penstock.ports import Disk
    from penstock.testing import CrashState

SIZES: Final = PlogSizes(first=64, largest=64, ahead=False)
JOURNAL_SIZES: Final = (1536, 8192)  # one that turns again and again, and one that does not turn


def open_on(disk: Disk, cpo: Cpo, *, direct_size_min: int = 300, journal_size: int = 1 << 15) -> MetadataManager:
    """Open a partition; records of a switch are in the journal if they have less than ``direct_size_min`` bytes."""
    random = SeededRandom(1)
    plogs = FilePlogs(disk, journal_size=journal_size, direct_size_min=direct_size_min, random=random)
    return MetadataManager.open(plogs, cpo, "p0", sizes=SIZES)


def close(manager: MetadataManager) -> None:
    manager.close()
    manager.plogs.close()


def test_a_switch_waits_for_two_syncs(cpo: Cpo) -> None:
    """Creation, append, seal and record are small records of one journal; each had a sync of its own."""
    manager = open_on(MemoryDisk(), cpo)
    log = manager.log("log")
    log.append(b"1" * 60)
    before = manager.plogs.syncs.count
    log.append(b"2" * 60)
    syncs = manager.plogs.syncs.count - before
    close(manager)
    assert syncs == 2, "the append with the creation of its plog, and the seal with the record"


def test_a_splice_of_many_logs_waits_once_for_all_their_seals(cpo: Cpo) -> None:
    """Each source had a sync of its own for its seal."""
    manager = MetadataManager.open(FilePlogs(MemoryDisk()), cpo, "p0")
    target, sources = manager.log("target"), [manager.log(f"source-{number}") for number in range(5)]
    for log in sources:
        log.append(b"x" * 20)
    before = manager.plogs.syncs.count
    manager.splice({target: sources})
    syncs = manager.plogs.syncs.count - before
    close(manager)
    assert syncs == 1


def test_a_release_ends_when_its_seal_is_durable(cpo: Cpo) -> None:
    """No record follows that seal, which could wait for both."""
    disk = RecordingDisk()
    manager = open_on(disk, RecordedOracle(cpo, disk))  # type: ignore[arg-type]
    log = manager.log("log")
    log.append(b"1" * 20)
    log.release()
    end = disk.crash_points()[-1]
    [(active, _, _)] = log.plogs()
    close(manager)
    for state in disk.crash_states(end, power_set_max=3):
        with FilePlogs(state.disk, journal_size=1 << 15, direct_size_min=300) as plogs:
            assert plogs.info(active).sealed, state.describe


def check(state: CrashState, cpo: Cpo, size: int, acknowledged: int) -> tuple[int, int]:
    """Recover; see that every plog that a record says is full is sealed; return how many there are, and the length."""
    published = [note.plog_id for note in state.notes if isinstance(note, Published)]
    newest = cpo.metadata_plog("p0")
    cpo.set_metadata_plog("p0", published[-1], expected=newest.version if newest else 0)
    manager = open_on(state.disk, cpo)
    chain = manager.partition.metadata.logs["log"]
    for plog_id, length in chain.sealed:
        info = manager.plogs.info(plog_id)
        assert info.sealed, state.describe
        assert info.length == length, state.describe
    held = content(manager.log("log"))
    assert held == b"".join(b"%d" % number * size for number in range(len(held) // size)), state.describe
    assert len(held) >= acknowledged * size, state.describe
    sealed = len(chain.sealed)
    manager.log("log").append(b"more")
    close(manager)
    return sealed, len(held)


@pytest.mark.parametrize("journal_size", JOURNAL_SIZES)
@pytest.mark.parametrize(
    ("size", "direct_size_min"),
    [(40, 300), (40, 70), (320, 300)],
    ids=["all in the journal", "records in their own file", "appends in their own file"],
)
def test_after_a_power_loss_a_plog_is_sealed_if_the_record_of_the_switch_is_there(
    size: int, direct_size_min: int, journal_size: int
) -> None:
    """The seal is not waited for where the record is durable only behind it, and is waited for where it is not so."""
    disk = RecordingDisk()
    with open_cpo("memory:") as cpo:
        oracle: Cpo = RecordedOracle(cpo, disk)  # type: ignore[assignment]
        manager = open_on(disk, oracle, direct_size_min=direct_size_min, journal_size=journal_size)
        log = manager.log("log")
        log.append(b"0" * size)
        begin = len(disk._record.operations)
        for number in range(1, 4):
            log.append(b"%d" % number * size)
            disk.note(number)
        end = len(disk._record.operations)
        found = set()
        for point in [point for point in disk.crash_points() if begin <= point <= end]:
            states = list(disk.crash_states(point, power_set_max=3))
            for state in states if EXPLORES else states[point % 16 :: 16]:
                acknowledged = max((note for note in state.notes if isinstance(note, int)), default=0) + 1
                found.add(check(state, cpo, size, acknowledged))
        close(manager)
    assert len({sealed for sealed, _ in found}) >= 3, "before and behind the records of several switches"
