"""Backups that end at any step: the points before are as they were, and the next backup goes on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from penstock.backup import BackupTarget, backup_store, list_points, restore_store, verify_backup
from penstock.embedded import open_store
from penstock.errors import BackupRunning, DiskFailed, DiskFull, PenstockError, StorageUnavailable
from penstock.testing import FaultyObjects, MemoryObjects, ObjectFault
from tests.backup.harness import SMALL, STREAM, contents, files_of, fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock import Store

pytestmark = pytest.mark.long

LEASE_S = 0.02


class Crash(BaseException):
    """The process is killed here."""


class MortalObjects(MemoryObjects):
    """Objects of a process that is killed before or after one of its changes; then it changes nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left = 0

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        found = super().__getattribute__(name)
        return self._mortal(found) if name in {"put_new", "replace", "delete"} else found

    def _mortal(self, change: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any, **more: Any) -> object:  # noqa: ANN401
            if args[0] == "lease":  # renewed at any time
                if self.changes_left == -1:
                    raise StorageUnavailable("memory:", reason="the process is dead")
                return change(*args, **more)
            self._live()
            done = change(*args, **more)
            self._live()
            return done

        return call

    def _live(self) -> None:
        if self.changes_left == -1:
            raise Crash
        if self.changes_left:
            self.changes_left -= 1
            if not self.changes_left:
                self.changes_left = -1
                raise Crash


def target_of(objects: Any) -> BackupTarget:  # noqa: ANN401
    return BackupTarget(objects, lease_s=LEASE_S, unavailable_max_s=0.0)


def write(store: Store, number: int) -> None:
    with store.writer(STREAM) as writer:
        writer.write_batch([b"%d" % number * 300] * 40)


def test_a_backup_that_is_killed_at_any_step_leaves_what_was_there(tmp_path: Path) -> None:
    """The only time that nothing may go wrong with a backup is always."""
    objects = MortalObjects()
    befores: dict[str, dict[str, Any]] = {}
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        write(store, 0)
        befores[backup_store(store, target_of(objects)).point] = contents(store)
        for steps in count(1):
            write(store, steps)
            store.truncate_stream(STREAM, "tail")
            before, objects.changes_left = contents(store), steps
            with suppress(Crash):
                befores[backup_store(store, target_of(objects), keep_points=2).point] = before
            is_killed, objects.changes_left = objects.changes_left == -1, 0
            report = verify_backup(target_of(objects))
            assert not report.faults
            assert report.points, "one of them is always there"
            newest = report.points[-1]
            restore_store(target_of(objects), tmp_path / f"c{steps}")
            with open_store(tmp_path / f"c{steps}") as restored:
                assert contents(restored) == befores.setdefault(newest, before)
            if not is_killed:
                break
        assert steps > 6
        backup_store(store, target_of(objects), keep_points=1)
        assert len(list_points(target_of(objects))) == 1


def test_a_killed_process_goes_on_where_it_was(tmp_path: Path) -> None:
    """The real thing, once: a process, a signal that cannot be caught, and files."""
    code = (
        "import os, sys; from penstock.backup import _backup, backup_store; from penstock.embedded import open_store\n"
        "_backup.PACK_SIZE = 100_000\n"
        "def tell(act, done, total): done > total // 2 and os.kill(os.getpid(), 9)\n"
        "with open_store(sys.argv[1]) as store: backup_store(store, sys.argv[2], on_progress=tell)"
    )
    with open_store(tmp_path / "a") as store:
        fill(store)
        before = contents(store)
    command = [sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "b")]
    assert subprocess.run(command, check=False).returncode == -9
    assert list_points(tmp_path / "b") == []
    packs = files_of(tmp_path / "b" / "packs")
    assert packs
    with open_store(tmp_path / "a") as store:
        report = backup_store(store, tmp_path / "b")
    assert report.copied_bytes < report.size_bytes, "what was copied before is not copied again"
    assert not [name for name in files_of(tmp_path / "b") if "draft" in name]
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_full_disk_leaves_the_backup_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of backups fills up at some time; what is on it stays good."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        write(store, 0)
        backup_store(store, tmp_path / "b")
        before = files_of(tmp_path / "b")
        write(store, 1)

        def full(fd: int, parts: list[memoryview]) -> int:
            os.write(fd, bytes(parts[0][:10]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", full)
            with pytest.raises(DiskFull, match="free some space"):
                backup_store(store, tmp_path / "b")
        assert files_of(tmp_path / "b") == before
        backup_store(store, tmp_path / "b")


def test_a_restore_that_runs_out_of_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a store that looks like a whole one is worse than none."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store)
        before = contents(store)
        backup_store(store, tmp_path / "b")
    left = [9]

    def pwritev(fd: int, parts: Any, offset: int) -> int:  # noqa: ANN401
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, parts, offset)

    real = os.pwritev
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", pwritev)
        for step in (9, 22, 30):
            left[0] = step
            with pytest.raises((DiskFull, DiskFailed)):
                restore_store(tmp_path / "b", tmp_path / "c")
            assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_restore_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    """What it left is in nobody's way, and is not taken for a store."""
    with open_store(tmp_path / "a") as store:
        fill(store)
        backup_store(store, tmp_path / "b")

    def crash(*_: object) -> None:
        os._exit(9)

    pid = os.fork()
    if not pid:
        restore_store(tmp_path / "b", tmp_path / "c", on_progress=crash)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert not (tmp_path / "c").exists()
    restore_store(tmp_path / "b", tmp_path / "c")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c"}


@pytest.mark.parametrize("seed", range(6))
def test_a_bucket_that_fails_by_chance_never_holds_a_bad_point(tmp_path: Path, seed: int) -> None:
    """Requests are lost, and answers too: nobody knows which of them were carried out."""
    objects = MemoryObjects()
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        done = 0
        for number in range(12):
            write(store, number)
            faulty = FaultyObjects(objects, chance=0.02, seed=100 * seed + number)
            with suppress(PenstockError):
                backup_store(store, target_of(faulty), keep_points=3)
                done += 1
            assert not verify_backup(target_of(objects)).faults if list(objects.names("backup")) else True
        assert done
        before, _ = contents(store), backup_store(store, target_of(objects), keep_points=3)
    restore_store(target_of(objects), tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_request_whose_answer_was_lost_is_repeated(tmp_path: Path) -> None:
    """A bucket that is away for a second costs a second, and not the backup."""
    objects = MemoryObjects()
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        for call in ("put_new", "replace", "get", "names"):
            for fault in (ObjectFault.LOST, ObjectFault.UNANSWERED):
                faulty = FaultyObjects(objects)
                faulty.fail(fault, on=call, call=2)
                write(store, 1)
                backup_store(store, BackupTarget(faulty, lease_s=LEASE_S))
    assert not verify_backup(target_of(objects)).faults


def test_a_lease_in_a_bucket_keeps_a_second_process_away(tmp_path: Path) -> None:
    """There is no lock in a bucket; the owner renews its lease, and a process that was killed does not."""
    objects = MemoryObjects()
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)

        def second(*_: object) -> None:
            with pytest.raises(BackupRunning, match="process"):
                backup_store(store, BackupTarget(objects, lease_s=0.6))

        first = BackupTarget(objects, lease_s=0.3)
        backup_store(store, first, on_progress=lambda act, *_: second() if act == "verifying" else None)
        tag = objects.get("lease").tag
        objects.replace("lease", b'{"owner": "process 7 on host, which was killed"}', tag=tag)
        backup_store(store, target_of(objects))


def test_an_owner_that_lost_its_lease_writes_no_point(tmp_path: Path) -> None:
    """It was suspended; meanwhile another process may have removed what its point would need."""
    objects = MemoryObjects()
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)

        def steal(act: str, *_: object) -> None:
            if act == "verifying":
                objects.replace("lease", b"{}", tag=objects.get("lease").tag)

        with pytest.raises(BackupRunning):
            backup_store(store, BackupTarget(objects, lease_s=60), on_progress=steal)
    assert list_points(target_of(objects)) == []


def test_ctrl_c_leaves_nothing_half_done(tmp_path: Path) -> None:
    """People press it; the store goes on with its retention, and the next backup with the rest."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store)
        with pytest.raises(KeyboardInterrupt):
            backup_store(store, tmp_path / "b", on_progress=interrupt)
        assert store.manager._held == [], "the snapshot is closed"
        backup_store(store, tmp_path / "b")
        before = contents(store)
    with pytest.raises(KeyboardInterrupt):
        restore_store(tmp_path / "b", tmp_path / "c", on_progress=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before
