"""Ctrl-C while plogs write: the step under way is finished, and the store goes on."""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from penstock.plog import FilePlogs
from penstock.ports import OsDisk
from penstock.testing import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.ports import Disk, File


def small_plogs(disk: Disk, *, open_files_max: int = 8) -> FilePlogs:
    """Return plogs whose journal turns often."""
    return FilePlogs(disk, journal_size=8192, direct_size_min=1024, open_files_max=open_files_max)


@pytest.fixture
def usual_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in the background and it would be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class WatchedDisk(OsDisk):
    """A real disk that calls somebody before each sync of a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.before_datasync: Callable[[], None] = lambda: None

    def create(self, name: str) -> File:  # type: ignore[override]
        return self._watched(super().create(name))

    def open(self, name: str) -> File:  # type: ignore[override]
        return self._watched(super().open(name))

    def _watched(self, file: File) -> File:
        datasync = file.datasync

        class Watched:
            def __getattr__(_, name: str) -> object:  # noqa: N805
                return getattr(file, name)

            def datasync(_) -> None:  # noqa: N805
                self.before_datasync()
                datasync()

        return Watched()  # type: ignore[return-value]


@pytest.mark.usefixtures("usual_interrupts")
@pytest.mark.parametrize("size", [100, 5000], ids=["small", "large"])
def test_ctrl_c_waits_for_the_sync_and_leaves_a_store_that_goes_on(tmp_path: Path, size: int) -> None:
    """In a notebook one interrupts a loop and goes on with the same store; an interrupt is no failure of the disk."""
    disk = WatchedDisk(tmp_path)
    with small_plogs(disk) as plogs:
        plog_id = plogs.create(size=20_000)
        disk.before_datasync = lambda: os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            plogs.append(plog_id, 0, bytes(size))
        disk.before_datasync = lambda: None
        assert plogs.info(plog_id).length == size
        assert plogs.append(plog_id, size, bytes(size)) == 2 * size
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("usual_interrupts")
def test_ctrl_c_at_the_very_end_of_a_step_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who presses it once and sees nothing happen takes the program for stuck."""
    plogs = small_plogs(MemoryDisk())
    plog_id = plogs.create(size=1000)

    def signal_late(number: int, handler: Callable[..., object]) -> None:
        if handler is signal.default_int_handler:
            os.kill(os.getpid(), signal.SIGINT)
        signal.signal(number, handler)

    late = SimpleNamespace(SIGINT=signal.SIGINT, getsignal=signal.getsignal, signal=signal_late)
    monkeypatch.setattr("penstock.ports._interruption._signal", late)
    with pytest.raises(KeyboardInterrupt):
        plogs.append(plog_id, 0, b"data")
    monkeypatch.undo()
    assert plogs.append(plog_id, 4, b"more") == 8
    plogs.close()


@pytest.mark.usefixtures("usual_interrupts")
def test_interrupts_of_other_threads_work_are_not_held(tmp_path: Path) -> None:
    """Signals come to the main thread only; while another writes, Ctrl-C works as ever."""
    disk = WatchedDisk(tmp_path)
    with small_plogs(disk) as plogs:
        plog_id = plogs.create(size=1000)
        handlers: list[object] = []
        disk.before_datasync = lambda: handlers.append(signal.getsignal(signal.SIGINT))
        worker = threading.Thread(target=plogs.append, args=(plog_id, 0, b"data"))
        worker.start()
        worker.join()
        disk.before_datasync = lambda: None
    assert handlers == [signal.default_int_handler]
