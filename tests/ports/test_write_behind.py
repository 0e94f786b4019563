"""Large writes to files, which the disk begins with at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.ports import OsDisk, _disk

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MIB = 1 << 20
WRITE_ONLY = 2  # SYNC_FILE_RANGE_WRITE


def test_the_disk_begins_with_a_large_write_and_not_with_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other flag would wait for the disk, or take the error that the sync has to report."""
    begun: list[tuple[int, ...]] = []
    monkeypatch.setattr(_disk, "_sync_file_range", lambda _, *call: begun.append(call))
    disk = OsDisk(tmp_path)
    file = disk.create("file")
    assert file.pwritev([b"small"], 0) == 5
    assert file.pwritev([bytes(MIB), b"more"], 4096) == MIB + 4
    assert begun == [(4096, MIB + 4, WRITE_ONLY)]
    file.close()
    disk.close()


def test_a_large_write_is_there_and_durable_with_the_call_of_the_system_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux alone has the call; what is written does not depend on it."""
    disk = OsDisk(tmp_path)
    for name in ("with", "without"):
        file = disk.create(name)
        assert file.pwritev([b"head", b"x" * MIB], 10) == MIB + 4
        file.datasync()
        assert bytes(file.view(10, MIB + 4)) == b"head" + b"x" * MIB
        file.close()
        monkeypatch.setattr(_disk, "_sync_file_range", None)
    disk.close()
