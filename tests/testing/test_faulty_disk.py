"""Faults where and when a test wants them, and what a failed sync does to what it did not save."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, get_args

import pytest

from penstock.testing import Fault, FaultyDisk, MemoryDisk, RecordingDisk
from penstock.testing._faulty import Call

if TYPE_CHECKING:
    from collections.abc import Callable

EIO_MESSAGE = "Input/output error"


def survivors(disk: RecordingDisk, name: str) -> set[bytes | None]:
    """Return what the file may hold if the power goes now; None if it may be missing."""
    disks = [state.disk for state in disk.crash_states(disk.crash_points()[-1])]
    return {bytes(left.open(name).view(0, 100)) if name in left.names() else None for left in disks}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("call", get_args(Call))
def test_any_call_fails_with_any_fault_and_changes_nothing(call: Call, fault: Fault) -> None:
    """A store has to say what happened, and what it had before must be as it was."""
    memory = MemoryDisk()
    memory.create("old").pwritev([b"data"], 0)
    disk = FaultyDisk(memory)
    file = disk.open("old")
    uses: dict[Call, Callable[[], object]] = {
        "create": lambda: disk.create("new"),
        "open": lambda: disk.open("old"),
        "remove": lambda: disk.remove("old"),
        "rename": lambda: disk.rename("old", "new"),
        "sync": disk.sync,
        "pwritev": lambda: file.pwritev([b"DATA"], 0),
        "datasync": file.datasync,
        "reserve": lambda: file.reserve(100),
        "truncate": lambda: file.truncate(0),
    }
    disk.fail(fault, on=call)
    with pytest.raises(OSError, match=os.strerror(fault.value)) as caught:
        uses[call]()
    assert caught.value.errno == fault.value
    assert memory.names() == ["old"]
    assert bytes(file.view(0, 100)) == b"data"
    uses[call]()


def test_fault_comes_at_its_call_and_at_no_other() -> None:
    """A test puts a fault before each call of a run in turn: it must know which one it hit."""
    disk = FaultyDisk(MemoryDisk())
    file = disk.create("f")
    file.datasync()
    disk.fail(Fault.EIO, on="datasync", call=3)
    file.datasync()
    file.datasync()
    with pytest.raises(OSError, match=EIO_MESSAGE):
        file.datasync()
    file.datasync()
    assert disk.calls["datasync"] == 5


def test_fault_at_every_call_lasts_until_the_disk_is_healed() -> None:
    """A full disk stays full until somebody frees some room; then the store should go on."""
    disk = FaultyDisk(MemoryDisk())
    file = disk.create("f")
    disk.fail(Fault.ENOSPC, on="pwritev", call=None)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            file.pwritev([b"data"], 0)
    disk.heal()
    assert file.pwritev([b"data"], 0) == 4


def test_fault_hits_the_named_file_only() -> None:
    """The journal and a plog fail differently, so a test chooses which."""
    disk = FaultyDisk(MemoryDisk())
    journal, plog = disk.create("journal-0"), disk.create("plog")
    disk.fail(Fault.EIO, on="pwritev", call=2, name="journal-0")
    for _ in range(3):
        plog.pwritev([b"data"], 0)
    journal.pwritev([b"data"], 0)
    with pytest.raises(OSError, match=EIO_MESSAGE) as caught:
        journal.pwritev([b"data"], 0)
    assert caught.value.filename == "journal-0"


def test_calls_are_counted_by_kind() -> None:
    """The count of a sound run is the range of the loop that breaks each call in turn."""
    disk = FaultyDisk(MemoryDisk())
    file = disk.create("f")
    file.pwritev([b"a"], 0)
    file.pwritev([b"b"], 1)
    file.datasync()
    disk.sync()
    assert disk.calls == {"create": 1, "pwritev": 2, "datasync": 1, "sync": 1}


def test_short_write_puts_in_the_first_bytes_and_says_so() -> None:
    """This is how a nearly full disk answers, without any error."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    file = disk.create("f")
    disk.sync()
    disk.shorten(3, call=2, name="f")
    assert file.pwritev([b"whole"], 0) == 5
    assert file.pwritev([b"sh", b"ort"], 5) == 3
    file.datasync()
    assert survivors(recording, "f") == {b"wholesho"}


def test_disk_is_locked_and_named_as_the_one_below() -> None:
    """A store cannot tell that its disk is faulty."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    disk.lock()
    assert disk.where("f") == memory.where("f")
    disk.close()
    memory.lock()


def test_failed_datasync_is_not_made_good_by_the_next() -> None:
    """Linux takes the pages for clean after a failed fsync; a store that just tries again acks lost data."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    file = disk.create("f")
    disk.sync()
    file.pwritev([b"given up"], 0)
    disk.fail(Fault.EIO, on="datasync")
    with pytest.raises(OSError, match=EIO_MESSAGE):
        file.datasync()
    file.datasync()
    assert bytes(file.view(0, 8)) == b"given up"
    assert survivors(recording, "f") >= {b"", bytes(8), b"given up"}


def test_what_is_written_and_synced_after_a_failed_datasync_is_certain() -> None:
    """Only what was unsynced then is in doubt, and only where nothing was written over it."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    file = disk.create("f")
    disk.sync()
    file.pwritev([b"safe"], 0)
    file.datasync()
    file.pwritev([b"doubt"], 4)
    disk.fail(Fault.EIO, on="datasync")
    with pytest.raises(OSError, match=EIO_MESSAGE):
        file.datasync()
    file.pwritev([b"NEW"], 6)
    assert b"safe" in survivors(recording, "f")
    file.datasync()
    assert survivors(recording, "f") == {b"safedoNEW", b"safe\0\0NEW", b"safe\xa5\xa5NEW"}


def test_failed_datasync_leaves_other_files_alone() -> None:
    """One bad file must not take the others' promises with it."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    good, bad = disk.create("good"), disk.create("bad")
    disk.sync()
    good.pwritev([b"data"], 0)
    disk.fail(Fault.EIO, on="datasync", name="bad")
    with pytest.raises(OSError, match=EIO_MESSAGE):
        bad.datasync()
    good.datasync()
    assert survivors(recording, "good") == {b"data"}


def test_failed_folder_sync_is_not_made_good_by_the_next() -> None:
    """The name of a new journal is lost as its bytes are: a second sync that succeeds proves nothing."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    disk.create("doubt")
    disk.fail(Fault.EIO, on="sync")
    with pytest.raises(OSError, match=EIO_MESSAGE):
        disk.sync()
    disk.create("certain")
    disk.sync()
    assert survivors(recording, "doubt") == {None, b""}
    assert survivors(recording, "certain") == {b""}
