"""The recorder: its timeline, and what it is for: finding the store that syncs too little."""

from __future__ import annotations

import threading
import zlib
from typing import TYPE_CHECKING, Final

import pytest

from penstock.testing import MemoryDisk, RecordingDisk

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.ports import File

RECORD_COUNT: Final = 4


def test_there_is_a_point_before_the_first_operation_and_after_each() -> None:
    """A power loss does not wait for a good moment."""
    disk = RecordingDisk()
    assert list(disk.crash_points()) == [0]
    file = disk.create("f")
    file.pwritev([b"a", b"b"], 0)
    file.datasync()
    file.reserve(10)
    file.truncate(5)
    disk.rename("f", "g")
    disk.sync()
    disk.remove("g")
    disk.note("done")
    assert list(disk.crash_points()) == list(range(10))


def test_looking_is_not_an_operation() -> None:
    """Reads change nothing, so a crash after one is a crash that was tried already."""
    disk = RecordingDisk()
    file = disk.create("f")
    before = disk.crash_points()
    file.pwritev([], 0)
    file.view(0, 1)
    file.size()
    disk.open("f").close()
    disk.names()
    assert disk.crash_points() == before


def test_notes_are_those_made_before_the_point() -> None:
    """What was acknowledged before the crash must be there after it, and nothing else has to be."""
    disk = RecordingDisk()
    disk.note("first")
    disk.create("f")
    disk.note({"cas": 2})
    notes = [next(disk.crash_states(point)).notes for point in disk.crash_points()]
    assert notes == [(), ("first",), ("first",), ("first", {"cas": 2})]


def test_record_keeps_what_was_written_not_the_buffer() -> None:
    """Writers use their buffers again."""
    disk = RecordingDisk()
    buffer = bytearray(b"first")
    disk.create("f").pwritev([memoryview(buffer)], 0)
    disk.sync()
    buffer[:] = b"other"
    final = list(disk.crash_states(3))
    assert b"first" in {bytes(state.disk.open("f").view(0, 9)) for state in final}


def test_failed_operation_is_not_recorded() -> None:
    """Nothing happened, so nothing can be half done."""
    disk = RecordingDisk()
    for use in (lambda: disk.open("f"), lambda: disk.remove("f"), lambda: disk.rename("f", "g")):
        with pytest.raises(FileNotFoundError):
            use()
    disk.create("f")
    with pytest.raises(FileExistsError):
        disk.create("f")
    assert list(disk.crash_points()) == [0, 1]


def test_crash_can_be_followed_by_a_crash_during_recovery() -> None:
    """Recovery is the code that runs right after a power loss, and power that failed once fails again."""
    first = RecordingDisk()
    first.create("f").pwritev([b"data"], 0)
    for state in first.crash_states(2):
        second = RecordingDisk(state.disk)
        survived = dict.fromkeys(second.names())
        second.create("recovered")
        outcomes = [set(again.disk.names()) for again in second.crash_states(1)]
        assert outcomes == [set(survived), {*survived, "recovered"}]


def test_threads_are_recorded_in_the_order_in_which_they_wrote() -> None:
    """If the record swapped two overlapping writes, it would replay a disk that never was."""
    disk = RecordingDisk()
    file = disk.create("f")
    disk.sync()

    def write(letter: int) -> None:
        for _ in range(200):
            file.pwritev([bytes([letter]) * 64], 0)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in b"abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.datasync()
    (state,) = disk.crash_states(disk.crash_points()[-1])
    assert bytes(state.disk.open("f").view(0, 64)) == bytes(file.view(0, 64))


class TinyLog:
    """The smallest log that survives a power loss, and three ways to get it wrong."""

    def __init__(self, disk: RecordingDisk | MemoryDisk, mistakes: Collection[str] = ()) -> None:
        self._mistakes = mistakes
        if "log" not in disk.names():
            disk.create("log")
            if "no folder sync" not in mistakes:
                disk.sync()
        self._file: File = disk.open("log")

    def append(self, data: bytes) -> None:
        check = 0 if "no checksum" in self._mistakes else zlib.crc32(data)
        header = len(data).to_bytes(4, "big") + check.to_bytes(4, "big")
        self._file.pwritev([header, data], self._end())
        if "no sync" not in self._mistakes:
            self._file.datasync()

    def records(self) -> list[bytes]:
        data, found, start = bytes(self._file.view(0, self._file.size())), [], 0
        while (size := int.from_bytes(data[start : start + 4], "big")) and start + 8 + size <= len(data):
            record = data[start + 8 : start + 8 + size]
            if "no checksum" not in self._mistakes and data[start + 4 : start + 8] != zlib.crc32(record).to_bytes(
                4, "big"
            ):
                break
            found.append(record)
            start += 8 + size
        return found

    def _end(self) -> int:
        return sum(8 + len(record) for record in self.records())


def first_loss(mistakes: Collection[str]) -> str | None:
    """Return the first state in which the log lost what it acknowledged or shows what was never appended."""
    disk = RecordingDisk()
    log = TinyLog(disk, mistakes)
    records = [bytes([number + 1]) * 700 for number in range(RECORD_COUNT)]
    for number, record in enumerate(records, start=1):
        log.append(record)
        disk.note(number)
    for state in disk.every_crash_state():
        left = TinyLog(state.disk, mistakes).records()
        acknowledged = len(state.notes)
        if left != records[: len(left)] or len(left) < acknowledged:
            return state.describe
    return None


def test_log_that_syncs_what_it_acknowledges_survives_everything() -> None:
    """The disk must not blame a store that does all that can be done."""
    assert first_loss([]) is None


@pytest.mark.parametrize("mistake", ["no sync", "no folder sync", "no checksum"])
def test_log_with_a_mistake_is_caught(mistake: str) -> None:
    """Each of these passes every test that only kills the process."""
    assert first_loss([mistake]) is not None
