"""What plogs remember of each plog while calls overlap: deletions, open files, acknowledged bytes."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, DiskFailed, NoSuchPlog
from penstock.plog import FilePlogs, PlogId
from penstock.plog._open_plogs import OpenPlog
from penstock.ports import OsDisk
from penstock.testing import Fault, FaultyDisk, MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plog._journal import Ticket
    from penstock.ports import Disk, File


def small_plogs(disk: Disk, *, open_files_max: int = 8) -> FilePlogs:
    """Return plogs whose journal turns often."""
    return FilePlogs(disk, journal_size=8192, direct_size_min=1024, open_files_max=open_files_max)


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


def test_of_two_that_delete_a_plog_only_one_does(tmp_path: Path) -> None:
    """The slower one must not take away what was created again under the id."""
    disk = WatchedDisk(tmp_path)
    with small_plogs(disk) as plogs:
        plog_id = plogs.create(size=1000)
        second: list[BaseException] = []

        def delete_too() -> None:
            disk.before_datasync = lambda: None
            try:
                plogs.delete(plog_id)
            except NoSuchPlog as error:
                second.append(error)

        disk.before_datasync = delete_too
        plogs.delete(plog_id)
        assert len(second) == 1
        plogs.create(size=1000, plog_id=plog_id)
        assert plogs.append(plog_id, 0, b"new") == 3
        assert plogs.info(plog_id).length == 3


def test_two_that_delete_a_plog_at_once_do_not_stop_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has removed the file, the other's record is not durable yet: a checkpoint in between has nothing to do."""
    plogs = small_plogs(MemoryDisk())
    plog_id, other = plogs.create(size=1000), plogs.create(size=30_000)
    wait, second_is_in, first_is_done = plogs._journal.wait, threading.Event(), threading.Event()
    second = threading.Thread(target=plogs.delete, args=(plog_id,))

    def staged_wait(ticket: Ticket) -> None:
        if threading.current_thread() is second:
            second_is_in.set()
            first_is_done.wait()
            return wait(ticket)
        wait(ticket)
        monkeypatch.undo()
        for number in range(20):  # fill both journals, so that they turn before the second deletion
            plogs.submit(other, 1000 * number, bytes(1000))
        monkeypatch.setattr(plogs._journal, "wait", staged_wait)
        second.start()
        second_is_in.wait()
        return None

    monkeypatch.setattr(plogs._journal, "wait", staged_wait)
    plogs.delete(plog_id)
    first_is_done.set()
    second.join()
    monkeypatch.undo()
    assert plogs.append(other, 20_000, b"goes on") == 20_007
    plogs.close()


def test_plog_deleted_while_a_checkpoint_syncs_it_does_not_stop_the_store(tmp_path: Path) -> None:
    """The checkpoint syncs without the plog's lock: its descriptor must not be closed, or be another file's by then."""
    disk = WatchedDisk(tmp_path)
    with small_plogs(disk) as plogs:
        plog_id, other = plogs.create(size=1000), plogs.create(size=30_000)
        plogs.append(plog_id, 0, b"dirty")
        syncing, deleted = threading.Event(), threading.Event()

        def stop_in_the_checkpoint() -> None:
            if threading.current_thread().name == "penstock-checkpoint":
                syncing.set()
                assert deleted.wait(10)

        disk.before_datasync = stop_in_the_checkpoint
        for number in range(9):  # fill the journal, so that it changes files
            plogs.append(other, 900 * number, bytes(900))
        assert syncing.wait(10)
        plogs.delete(plog_id)
        deleted.set()
        assert plogs.append(other, 8100, b"goes on") == 8107
        with pytest.raises(NoSuchPlog):
            plogs.info(plog_id)
    assert not any(plog_id.uid in name for name in open_files())


def open_files() -> list[str]:
    """Return the names of the files that this process has open."""
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            names.append(str(entry.readlink()))
    return names


def test_a_file_that_cannot_be_written_fails_only_who_uses_it() -> None:
    """Files are closed for others to be opened; who opens another plog has no part in what is wrong with the first."""
    disk = FaultyDisk(MemoryDisk())
    plogs = small_plogs(disk, open_files_max=1)
    first = plogs.create(size=1000)
    plogs.append(first, 0, b"waits for its file")
    disk.fail(Fault.EIO, on="pwritev", call=None, name=f"{first.uid}.plog")
    for _ in range(3):
        other = plogs.create(size=1000)
        assert plogs.append(other, 0, b"fine") == 4
    with pytest.raises(DiskFailed):
        plogs.read(first, 0, 18)
    disk.heal()
    assert bytes(plogs.read(first, 0, 18)) == b"waits for its file"
    plogs.close()


def test_plogs_that_are_done_with_are_forgotten() -> None:
    """A store that makes plogs for years must not remember each of them."""
    with small_plogs(MemoryDisk()) as plogs:
        for _ in range(500):
            plog_id = plogs.create(size=100)
            plogs.append(plog_id, 0, bytes(100))
            plogs.seal(plog_id, 100)
        assert len(plogs._table._plogs) < 100


def test_plogs_that_cannot_be_forgotten_yet_are_not_tried_by_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their records fill the journal for long; to go through thousands of them each time takes milliseconds."""
    plogs = FilePlogs(MemoryDisk(), open_files_max=8)
    tried, evict = list[OpenPlog](), plogs._table._evict

    def counted_evict(plog: OpenPlog) -> None:
        tried.append(plog)
        evict(plog)

    monkeypatch.setattr(plogs._table, "_evict", counted_evict)
    for _ in range(300):
        plogs.append(plogs.create(size=100), 0, b"data")
    assert len(plogs._table._plogs) == 300
    assert len(tried) < 10 * 300
    plogs.close()


def test_appends_without_a_waiting_caller_do_not_keep_all_other_files_open() -> None:
    """Files with an append under way stay open; those behind them in the line must be closed all the same."""
    with small_plogs(MemoryDisk()) as plogs:
        for _ in range(8):
            plogs.submit(plogs.create(size=5000), 0, bytes(2000))
        for _ in range(50):
            plogs.append(plogs.create(size=100), 0, b"data")
        assert len(plogs._table._opened) <= 8 + 8


def test_bytes_acknowledged_by_two_syncs_at_once_stay_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal and a large block's own file are synced by different threads; the later word may be the smaller."""
    small_is_at_it, large_is_done = threading.Event(), threading.Event()

    def slow_max(acked: int, offset: int) -> int:
        if offset == 5:  # has read what was acknowledged before; let the other one come in between, if it can
            small_is_at_it.set()
            large_is_done.wait(0.2)
        return max(acked, offset)

    with small_plogs(MemoryDisk()) as plogs:
        plog_id = plogs.create(size=5000)
        small = plogs.submit(plog_id, 0, b"small")
        large = plogs.submit(plog_id, 5, bytes(2000))
        monkeypatch.setattr("penstock.plog._replica.max", slow_max, raising=False)
        thread = threading.Thread(target=small.result)
        thread.start()
        small_is_at_it.wait()
        large.result()
        large_is_done.set()
        thread.join()
        assert plogs.info(plog_id).length == 2005


def test_an_append_cut_off_by_a_seal_does_not_come_back_when_its_own_sync_is_done() -> None:
    """The small one is durable in the file already, by the large one's sync; its record comes with the seal's."""
    with small_plogs(MemoryDisk()) as plogs:
        plog_id = plogs.create(size=5000)
        small = plogs.submit(plog_id, 0, b"small")
        plogs.submit(plog_id, 5, bytes(2000))
        assert plogs.seal(plog_id, 3) == 3
        small.result()
        assert plogs.info(plog_id).length == 3
        assert bytes(plogs.read(plog_id, 0, 3)) == b"sma"


@pytest.mark.parametrize("plog_id", ["local/main/" + "0" * 32, None, 7])
def test_what_is_no_plog_id_is_refused(plog_id: object) -> None:
    """A text that looks like one is a common slip; it deserves more than an AttributeError."""
    with small_plogs(MemoryDisk()) as plogs, pytest.raises(BadArgument, match="use a PlogId"):
        plogs.info(plog_id)  # type: ignore[arg-type]
    with pytest.raises(BadArgument):
        PlogId("local", "main", plog_id)  # type: ignore[arg-type]
