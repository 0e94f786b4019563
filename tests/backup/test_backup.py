"""Backups of stores in use, and what a restored store has."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.backup import backup_store, check_backup, list_points, restore_store, verify_backup
from penstock.embedded import open_store
from penstock.errors import (
    BackupCorrupt,
    BackupRunning,
    BadArgument,
    FolderInUse,
    FolderUnusable,
    FormatUnknown,
    NoSuchPoint,
    NotABackup,
    NotPermitted,
    PlogCorrupt,
)
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users
from penstock.testing import ManualClock
from tests.backup.harness import OTHER, SMALL, STREAM, contents, files_of, fill

if TYPE_CHECKING:
    from pathlib import Path


def test_a_restored_store_has_everything_and_goes_on(tmp_path: Path) -> None:
    """A backup that lacks a watermark, a position or a number is found out on the worst day."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        prepared = fill(store)
        before = contents(store)
        report = backup_store(store, tmp_path / "b")
    assert report.copied_bytes == report.size_bytes > 2_000_000
    restored = restore_store(tmp_path / "b", tmp_path / "c")
    assert (restored.point, restored.size_bytes) == (report.point, report.size_bytes)
    with open_store(tmp_path / "c", sizes=SMALL) as store:
        assert contents(store) == before
        with store.writer(STREAM, "sensor") as writer:
            assert writer.last_number == 120
            assert writer.write_event(b"0000" * 20, "k0", number=7).result() is None, "it is there already"
            writer.write_event(b"new", "k0").result()
        with store.reader_group("readers").reader("r") as reader:
            found = reader.read_next_event(timeout=5)
            assert found is not None
            assert found.event == before[STREAM]["events"][5]["event"]
        assert store.transactional_writer(STREAM, "job").commit_all([prepared], number=1)
        assert store.stream(STREAM).events == before[STREAM]["count"] + 2
    with open_store(tmp_path / "c") as store:
        assert store.stream(STREAM).events == before[STREAM]["count"] + 2, "also when it is opened again"


def test_a_second_backup_copies_only_what_is_new(tmp_path: Path) -> None:
    """Backups that copy everything each time are made once a week, and not every hour."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store)
        full = backup_store(store, tmp_path / "b")
        packs = files_of(tmp_path / "b" / "packs")
        assert backup_store(store, tmp_path / "b").copied_bytes == 0
        with store.writer(OTHER) as writer:
            writer.write_event(b"x" * 100).result()
        third = backup_store(store, tmp_path / "b")
        before = contents(store)
    assert 100 < third.copied_bytes < 2000 < full.copied_bytes
    assert packs.items() <= files_of(tmp_path / "b" / "packs").items(), "no pack is ever changed"
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_each_point_is_restored_as_the_store_was_then(tmp_path: Path) -> None:
    """A mistake is noticed days later; then the newest backup has it, too."""
    befores = {}
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        for number in range(3):
            with store.writer(STREAM) as writer:
                writer.write_batch([b"%d" % number * 500] * 20)
            befores[backup_store(store, tmp_path / "b").point] = contents(store)
        store.truncate_stream(STREAM, "tail")
        backup_store(store, tmp_path / "b")
    assert [point.name for point in list_points(tmp_path / "b")][:3] == list(befores)
    for number, (point, before) in enumerate(befores.items()):
        restore_store(tmp_path / "b", tmp_path / f"c{number}", at=point)
        with open_store(tmp_path / f"c{number}") as store:
            assert contents(store) == before


def test_keep_removes_older_points_and_what_only_they_need(tmp_path: Path) -> None:
    """A backup that only grows ends with a full disk."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        report, before = backup_store(store, tmp_path / "b"), contents(store)
        for number in range(4):
            with store.writer(STREAM) as writer:
                writer.write_batch([b"%d" % number * 900] * 60)
            store.truncate_stream(STREAM, "tail")
            report = backup_store(store, tmp_path / "b", keep_points=2)
            before = contents(store)
    assert len(report.removed_points) == 1
    assert len(list_points(tmp_path / "b")) == 2
    size = sum(map(len, files_of(tmp_path / "b" / "packs").values()))
    assert size < 3 * 60 * 900, "of the first two points, only what the others need is left"
    assert not verify_backup(tmp_path / "b").faults
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_restored_store_and_its_source_share_a_target_without_mixing(tmp_path: Path) -> None:
    """Both go on behind the same offset with different events: neither backup may take those of the other."""
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"common").result()
        backup_store(store, tmp_path / "b")
        restore_store(tmp_path / "b", tmp_path / "c")
        befores = {}
        with open_store(tmp_path / "c") as restored:
            for name, each in (("a", store), ("c", restored), ("a", store), ("c", restored)):
                with each.writer(STREAM) as writer:
                    writer.write_event(name.encode() * 10).result()
                befores[backup_store(each, tmp_path / "b").point] = contents(each)
    for number, (point, before) in enumerate(befores.items()):
        restore_store(tmp_path / "b", tmp_path / f"d{number}", at=point)
        with open_store(tmp_path / f"d{number}") as found:
            assert contents(found) == before


def test_plogs_that_are_truncated_during_a_backup_are_in_it(tmp_path: Path) -> None:
    """Retention runs at any moment; a backup of a moment before has what was there then."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_batch([b"x" * 900] * 200)
        before = contents(store)
        changes = iter([lambda: store.truncate_stream(STREAM, "tail"), lambda: store.create_stream(OTHER)])
        backup_store(store, tmp_path / "b", on_progress=lambda *_: next(changes, lambda: None)())
        files = len(list((tmp_path / "a" / "plogs").glob("*.plog")))
        after = contents(store)
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as found:
        assert contents(found) == before
    with open_store(tmp_path / "a") as store:
        assert contents(store) == after
        store.maintain()
    assert len(list((tmp_path / "a" / "plogs").glob("*.plog"))) <= files, "what was held is deleted afterwards"


def test_another_process_backs_up_a_store_that_is_in_use(tmp_path: Path) -> None:
    """Backups run from cron, and the folder belongs to the application."""
    code = (
        "import sys, penstock; from penstock.backup import backup_store\n"
        "with penstock.connect(sys.argv[1], own=False) as store: print(backup_store(store, sys.argv[2]).plogs)"
    )
    with penstock.connect(tmp_path / "a") as store:
        fill(store)
        command = [sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "b")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        before = contents(store)
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_server_is_backed_up_by_its_administrators_alone(tmp_path: Path) -> None:
    """A backup has all streams of all users."""
    (tmp_path / "a").mkdir()
    users = Users.open(tmp_path / "a" / USERS_FILE)
    users.add("root", "password-1")
    users.grant("root", "admin", "*")
    users.add("guest", "password-2")
    users.grant("guest", "read", "*")
    with Server(Config(store=str(tmp_path / "a"), port=0, http_port=0, tls=False)) as server:
        guest = penstock.connect(server.address, user="guest", password="password-2", tls=False)
        with guest, pytest.raises(NotPermitted):
            backup_store(guest, tmp_path / "b")
        with penstock.connect(server.address, user="root", password="password-1", tls=False) as store:
            fill(store)
            backup_store(store, tmp_path / "b")
            before = contents(store)
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_restore_never_writes_over_anything(tmp_path: Path) -> None:
    """The store that is to be saved may be in the way."""
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        backup_store(store, tmp_path / "b")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    before = files_of(tmp_path / "a")
    with pytest.raises(FolderInUse, match="name a folder that does not exist"):
        restore_store(tmp_path / "b", tmp_path / "a")
    with pytest.raises(FolderUnusable):
        restore_store(tmp_path / "b", tmp_path / "file")
    with pytest.raises(BadArgument):
        restore_store(tmp_path / "b", "penstock://host:1")
    assert files_of(tmp_path / "a") == before
    restore_store(tmp_path / "b", tmp_path / "empty")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "file", "empty"}, "nothing is left beside it"


def test_targets_that_are_no_backups_are_refused(tmp_path: Path) -> None:
    """A wrong path is corrected; packs among somebody's documents are not."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter").write_text("x")
    with open_store(tmp_path / "a") as store:
        with pytest.raises(NotABackup):
            backup_store(store, tmp_path / "documents")
        with pytest.raises(BadArgument, match="at least 1"):
            backup_store(store, tmp_path / "b", keep_points=0)
        for address in ("", "http://x", "s3://bucket/x?cache_folder=y"):
            with pytest.raises(BadArgument):
                backup_store(store, address)
        backup_store(store, tmp_path / "b")
        for point in ("yesterday", "2026-01-01T00-00-00.000Z", "../packs/x"):
            with pytest.raises(NoSuchPoint, match="penstock backup ls"):
                restore_store(tmp_path / "b", tmp_path / "c", at=point)
        (tmp_path / "b" / "backup").write_text("penstock backup, format 2\n")
        with pytest.raises(FormatUnknown, match="upgrade"):
            backup_store(store, tmp_path / "b")
    with pytest.raises(NotABackup):
        restore_store(tmp_path / "a", tmp_path / "c")
    with pytest.raises(NotABackup):
        list_points(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_one_process_at_a_time_changes_a_backup(tmp_path: Path) -> None:
    """Two of them would remove packs of each other."""
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)

        def second(*_: object) -> None:
            with pytest.raises(BackupRunning, match="process"):
                backup_store(store, tmp_path / "b")

        backup_store(store, tmp_path / "b", on_progress=second)
        backup_store(store, tmp_path / "b")


def test_a_clock_that_goes_back_makes_no_older_point(tmp_path: Path) -> None:
    """The newest point is the one that is restored, and the last to be removed."""
    clock = ManualClock(1e9)
    with open_store(tmp_path / "a") as store:
        first = backup_store(store, tmp_path / "b", clock=clock).point
        clock = ManualClock(1e8)
        second = backup_store(store, tmp_path / "b", clock=clock).point
    assert first == "2001-09-09T01-46-40.000Z"
    assert second == "2001-09-09T01-46-40.001Z"


def test_damage_in_the_store_ends_a_backup_and_names_the_file(tmp_path: Path) -> None:
    """A backup of damaged bytes would replace, after some days, the last good one."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_batch([b"x" * 900] * 60)
        good = backup_store(store, tmp_path / "b").point
        with store.writer(STREAM) as writer:
            writer.write_batch([b"y" * 900] * 60)
    plog = next(path for path in (tmp_path / "a" / "plogs").glob("*.plog") if b"yyyyy" in path.read_bytes())
    data = bytearray(plog.read_bytes())
    data[data.index(b"yyyyy")] ^= 1
    plog.write_bytes(data)
    with open_store(tmp_path / "a", sizes=SMALL) as store, pytest.raises(PlogCorrupt, match=plog.name):
        backup_store(store, tmp_path / "b", keep_points=1)
    assert [point.name for point in list_points(tmp_path / "b")] == [good]
    assert check_backup(tmp_path / "b").is_good


def test_every_flipped_byte_of_a_backup_is_found(tmp_path: Path) -> None:
    """Backups lie for years on disks that nobody reads."""
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"x" * 50).result()
        backup_store(store, tmp_path / "b")
    harmless = 0
    for name, data in files_of(tmp_path / "b").items():
        path = tmp_path / "b" / name
        for place in range(0, len(data), 7):
            path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
            harmless += not _is_found(tmp_path / "b", name)
        path.write_bytes(data[:-1])
        assert _is_found(tmp_path / "b", name) or name == "lock"
        path.unlink()
        assert _is_found(tmp_path / "b", name) or name == "lock"
        path.write_bytes(data)
    assert harmless <= 4, "reserved bytes in the heads of the two files"
    assert not verify_backup(tmp_path / "b").faults


def _is_found(target: Path, name: str) -> bool:
    if name == "lock":
        return True  # it says who has it, in messages
    try:
        return bool(verify_backup(target).faults) or not list_points(target)
    except (NotABackup, FormatUnknown):
        return True


def test_a_damaged_point_does_not_keep_others_from_being_restored(tmp_path: Path) -> None:
    """Each point is complete by itself."""
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        first = backup_store(store, tmp_path / "b").point
        second = backup_store(store, tmp_path / "b").point
        (tmp_path / "b" / "points" / second).write_bytes(b"garbage")
        with pytest.raises(BackupCorrupt, match="restore another point"):
            restore_store(tmp_path / "b", tmp_path / "c")
        assert not (tmp_path / "c").exists()
        assert [point.size_bytes is None for point in list_points(tmp_path / "b")] == [False, True]
        restore_store(tmp_path / "b", tmp_path / "c", at=first)
        report = verify_backup(tmp_path / "b")
        assert (report.damaged, len(report.faults)) == ((second,), 1)
        backup_store(store, tmp_path / "b")


def test_packs_that_were_removed_are_copied_again(tmp_path: Path) -> None:
    """The next backup is a good one, whatever happened to those before."""
    with open_store(tmp_path / "a") as store:
        fill(store)
        first = backup_store(store, tmp_path / "b")
        for pack in (tmp_path / "b" / "packs").iterdir():
            pack.unlink()
        assert backup_store(store, tmp_path / "b").copied_bytes == first.copied_bytes
        before = contents(store)
    assert verify_backup(tmp_path / "b").damaged == (first.point,)
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


@pytest.mark.parametrize("damage", ["cut", "empty", "removed"])
def test_packs_that_are_cut_or_removed_do_not_keep_backups_from_being_made(tmp_path: Path, damage: str) -> None:
    """The damage is noticed by the size, what was lost is copied again, and no later backup fails because of it."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store, events=20)
        report, before = backup_store(store, tmp_path / "b"), contents(store)
        first = report
        [pack] = (tmp_path / "b" / "packs").iterdir()
        data = pack.read_bytes()
        for number in range(3):
            with store.writer(OTHER) as writer:
                writer.write_event(b"%d" % number * 2000).result()
            if number == 1:
                pack.unlink()
                if damage != "removed":
                    pack.write_bytes(data[:-1] if damage == "cut" else b"")
            report = backup_store(store, tmp_path / "b", keep_points=3)
            assert (report.copied_bytes > first.size_bytes) == (number == 1)
            before = contents(store)
        assert report.removed_points == (first.point,)
        assert len(verify_backup(tmp_path / "b").damaged) == 1, "the second point, which had the pack, too"
        assert check_backup(tmp_path / "b").is_good
        backup_store(store, tmp_path / "b", keep_points=1)
    assert not verify_backup(tmp_path / "b").faults
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_damaged_pack_of_an_interrupted_backup_is_not_used(tmp_path: Path) -> None:
    """It is in no point, so nobody looks at it, and each backup that took pieces of it would fail."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store, events=20)
        backup_store(store, tmp_path / "b")
        for point in (tmp_path / "b" / "points").iterdir():
            point.unlink()
        [pack] = (tmp_path / "b" / "packs").iterdir()
        data = bytearray(pack.read_bytes())
        data[-1] ^= 1
        pack.write_bytes(data)
        backup_store(store, tmp_path / "b")
        before = contents(store)
    assert not verify_backup(tmp_path / "b").faults
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_damaged_point_keeps_the_packs_that_it_may_need(tmp_path: Path) -> None:
    """Backups are made meanwhile; what only it needed goes with it."""
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"x" * 900).result()
        first = backup_store(store, tmp_path / "b").point
        store.truncate_stream(STREAM, "tail")
        store.seal_stream(STREAM)
        store.delete_stream(STREAM)
        stored = (tmp_path / "b" / "points" / first).read_bytes()
        (tmp_path / "b" / "points" / first).write_bytes(stored[:-1])
        backup_store(store, tmp_path / "b")
        (tmp_path / "b" / "points" / first).write_bytes(stored)
        restore_store(tmp_path / "b", tmp_path / "c", at=first)
