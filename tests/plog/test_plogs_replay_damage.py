"""A plog's file that the journal cannot make good: it ends a store of one copy, and costs a plog server that plog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import NoSuchPlog, PlogCorrupt
from penstock.model import PlogId
from penstock.plog import FilePlogs
from penstock.plog._block import HEAD_SIZE
from penstock.testing import MemoryDisk, RecordingDisk, SeededRandom

if TYPE_CHECKING:
    from penstock.ports import Disk

LOST, OTHER = (PlogId("local", "main", letter * 32) for letter in "ab")
NAME: Final = f"{LOST.uid}.plog"
LARGE, SMALL = b"L" * 300, b"s" * 20  # one is written into the file, the other into the journal
OLD: Final = LARGE + SMALL
NEW: Final = b"N" * 400
IN_BLOCK: Final = HEAD_SIZE + 100
SIZES: Final = (None, 0, 600, HEAD_SIZE, IN_BLOCK)  # of the damaged file; None: it is gone


class CopiedPlogs(FilePlogs):
    """The plogs of a folder, of which other folders have copies."""

    def __init__(self, disk: Disk) -> None:
        self.noted: dict[bytes, PlogCorrupt] = {}
        super().__init__(disk, random=SeededRandom(2), journal_size=2048, direct_size_min=100)

    def _note_damage(self, uid: bytes, error: PlogCorrupt) -> None:
        self.noted[uid] = error


def damaged_disk(*, seals: bool, size: int | None) -> MemoryDisk:
    """The disk of a store that was killed, and of which a file was cut to ``size``, or removed, afterwards."""
    disk = MemoryDisk()
    plogs = FilePlogs(disk, random=SeededRandom(1), journal_size=2048, direct_size_min=100)
    for plog_id in (LOST, OTHER):
        plogs.create(plog_id=plog_id, size=1000)
    plogs.append(OTHER, 0, SMALL)
    plogs.append(LOST, 0, LARGE)
    plogs.append(LOST, len(LARGE), SMALL)
    if seals:
        plogs.seal(LOST, len(OLD))
    if size is None:
        disk.remove(NAME)
    else:
        disk.open(NAME).truncate(size)
    return copy_of(disk)


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for name in disk.names():
        source, target = disk.open(name), copy.create(name)
        target.reserve(source.size())
        target.pwritev([source.view(0, source.size())], 0)
    return copy


# The blocks of a sealed plog are checked when they are read, and not before.
CASES: Final = [(seals, size) for seals in (True, False) for size in SIZES if not (seals and size == IN_BLOCK)]
cases = pytest.mark.parametrize(("seals", "size"), CASES)


@cases
def test_a_store_of_one_copy_is_not_opened_without_its_plog(*, seals: bool, size: int | None) -> None:
    """What was acknowledged is lost: the user has to know, and to find the file, as often as it is tried."""
    disk = damaged_disk(seals=seals, size=size)
    for _ in range(3):
        with pytest.raises(PlogCorrupt, match=NAME):
            FilePlogs(disk)


@cases
def test_a_store_with_other_copies_works_without_the_plog(*, seals: bool, size: int | None) -> None:
    """One file of thousands is damaged; and it stays so when the journal, which showed it, is empty."""
    disk = damaged_disk(seals=seals, size=size)
    first = CopiedPlogs(disk)
    assert list(first.noted) == [LOST.uid_bytes]
    for plogs in (first, CopiedPlogs(copy_of(disk))):
        assert bytes(plogs.read(OTHER, 0, len(SMALL))) == SMALL
        with pytest.raises(PlogCorrupt, match=NAME):
            plogs.info(LOST)
        plogs.append(plogs.create(size=10), 0, b"x")


def replace(disk: RecordingDisk) -> None:
    """Open a store with a damaged plog, and replace this one, as repair does; note each step."""
    plogs = CopiedPlogs(disk)
    disk.note("deletion")
    plogs.delete(LOST)
    disk.note("creation")
    plogs.create(plog_id=LOST, size=1000)
    for start, end in ((0, 20), (20, 390), (390, 400)):
        plogs.append(LOST, start, NEW[start:end])
        disk.note(end)
    plogs.seal(LOST, len(NEW))


@cases
def test_a_damaged_plog_is_replaced_whenever_the_power_fails(*, seals: bool, size: int | None) -> None:
    """The journal has records of the damaged plog, of its deletion and of the new one: none may keep the store shut."""
    disk = RecordingDisk(damaged_disk(seals=seals, size=size))
    replace(disk)
    for state in disk.every_crash_state(power_set_max=3):
        try:
            check_recovered(state.disk, state.notes[-1] if state.notes else None)
        except Exception as error:
            raise AssertionError(f"{state.describe}: {error!r}") from error


def check_recovered(disk: MemoryDisk, step: object) -> None:
    with CopiedPlogs(disk) as plogs:
        assert bytes(plogs.read(OTHER, 0, len(SMALL))) == SMALL
        try:
            length = plogs.info(LOST).length
        except PlogCorrupt:
            assert step in {None, "deletion", "creation"}
        except NoSuchPlog:
            assert step in {"deletion", "creation"}
        else:
            assert step not in {None, "deletion"}
            assert length >= (step if isinstance(step, int) else 0)
            assert bytes(plogs.read(LOST, 0, length)) == NEW[:length]
