"""Checks of stores: whatever is damaged is named, or does no harm; and nothing is changed by a check."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.backup import backup_store, check_backup, check_folder, check_store
from penstock.embedded import open_store
from penstock.errors import FolderUnusable, PenstockError, StoreLocked
from tests.backup.harness import OTHER, SMALL, STREAM, contents, files_of, fill
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.backup import CheckReport

PLACES = 60 if EXPLORES else 1
HEADS = (0, 9, 40, 66, 512, 525, 4096, 4100, 4110, 4120)
"""Places of which each means something in the file of a plog."""


@pytest.fixture
def store_folder(tmp_path: Path) -> Path:
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store, events=20)
    return tmp_path / "a"


def test_a_good_store_is_read_completely_and_not_changed(store_folder: Path) -> None:
    """A check that repairs, or only touches, what it looks at hides what was wrong."""
    before = files_of(store_folder)
    report = check_folder(store_folder)
    assert report.findings == ()
    assert (report.streams, report.segments, report.watermarks, report.groups) == (2, 4, 1, 1)
    assert report.events == 43
    assert files_of(store_folder) == before


def test_a_consumer_or_a_group_behind_the_head_is_no_damage(tmp_path: Path) -> None:
    """A stream may be truncated past them: the advice was to restore the store from a backup."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM, segments=2)
        store.create_reader_group("behind", [STREAM])
        with store.writer(STREAM) as writer:
            writer.write_batch([b"first"] * 20, keys=[str(number) for number in range(20)]).result()
            store.register_consumer(STREAM, "behind", store.head(STREAM))
            store.scale_stream(STREAM, seal=[0, 1], ranges=[(0.0, 1.0)])
            writer.write_event(b"last").result()
        store.truncate_stream(STREAM, store.tail(STREAM))
    assert check_folder(tmp_path / "a").findings == ()


def test_a_store_in_use_is_checked_through_its_owner(tmp_path: Path) -> None:
    """Nobody stops a store to see whether it is well."""
    with penstock.connect(tmp_path / "a") as store:
        fill(store, events=20)
        assert check_store(store).is_good
        with pytest.raises(StoreLocked):
            check_folder(tmp_path / "a")
        code = (
            "import sys, penstock; from penstock.backup import check_store\n"
            "with penstock.connect(sys.argv[1], own=False) as store: print(check_store(store).events)"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "a")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "43\n", done.stderr


def test_what_a_killed_process_left_is_good(tmp_path: Path) -> None:
    """Its last appends are in the journal only; a check replays it, in memory."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        fill(store, events=20)
        shutil.copytree(tmp_path / "a", tmp_path / "killed")
        before = contents(store)
    files = files_of(tmp_path / "killed")
    report = check_folder(tmp_path / "killed")
    assert (report.findings, report.events) == ((), 43)
    assert files_of(tmp_path / "killed") == files
    with open_store(tmp_path / "killed", sizes=SMALL) as store:
        assert contents(store) == before


def places_in(name: str, data: bytes, dice: random.Random) -> Iterator[int]:
    """Return places that mean something, some of the rest, and the last byte that is not zero."""
    if name.endswith(".plog"):
        yield from (place for place in (HEADS if EXPLORES else dice.sample(HEADS, 2)) if place < len(data))
    yield from (dice.randrange(len(data)) for _ in range(PLACES if len(data) > 20 else 1))
    yield max(len(data.rstrip(b"\0")) - 1, 0)


@pytest.mark.long
def test_every_kind_of_damage_is_named_or_does_no_harm(store_folder: Path, tmp_path: Path) -> None:
    """Flipped bytes, cut files, missing files: a check that overlooks one of them is worth nothing."""
    with open_store(store_folder, sizes=SMALL) as store:
        before = contents(store)
    dice, named, harmless = random.Random(7), 0, 0
    for name, data in files_of(store_folder).items():
        path = store_folder / name
        if name == "plogs/LOCK":
            continue
        damages: list[tuple[str, bytes | None]] = [
            (f"byte {place}", data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :])
            for place in places_in(name, data, dice)
        ]
        losses: list[tuple[str, bytes | None]] = [("cut", data[: len(data) // 2]), ("empty", b""), ("missing", None)]
        damages += losses if EXPLORES or not name.endswith(".plog") else [dice.choice(losses)]
        for what, damaged in damages:
            path.unlink() if damaged is None else path.write_bytes(damaged)
            report = check_folder(store_folder)
            if report.findings:
                named += 1
                assert _names(report, path), f"{what} of {name}: {report.findings}"
            else:
                harmless += 1
                _expect_harmless(store_folder, tmp_path / "copy", before, f"{what} of {name}")
            path.write_bytes(data)
    assert check_folder(store_folder).is_good
    assert named > harmless


def _names(report: CheckReport, path: Path) -> bool:
    """Whether a finding names the file, and says what to do."""
    text = [f"{finding.subject} {finding.path} {finding.reason}" for finding in report.findings]
    return any(path.name in line for line in text) and all(finding.advice for finding in report.findings)


def _expect_harmless(folder: Path, copy: Path, before: dict[str, Any], what: str) -> None:
    shutil.copytree(folder, copy)
    try:
        with open_store(copy, sizes=SMALL) as store:
            assert contents(store) == before, what
            for stream in (STREAM, OTHER):
                with store.writer(stream) as writer:
                    writer.write_batch([bytes(900)] * 30)
    except PenstockError as error:
        raise AssertionError(what) from error
    finally:
        shutil.rmtree(copy)


def test_plogs_that_are_exchanged_are_found(store_folder: Path) -> None:
    """Each passes its own checksums; it is the place that is wrong."""
    plogs = [path for path in sorted((store_folder / "plogs").glob("*.plog")) if len(path.read_bytes()) > 4200]
    first, second = plogs[0], plogs[1]
    ones, others = first.read_bytes(), second.read_bytes()
    first.write_bytes(others)
    second.write_bytes(ones)
    report = check_folder(store_folder)
    assert _names(report, first)
    first.write_bytes(ones)
    second.write_bytes(others)
    assert check_folder(store_folder).is_good


def test_a_finding_says_which_stream_and_segment(store_folder: Path) -> None:
    """An operator decides by what is lost, not by the name of a file."""
    plog = next(path for path in (store_folder / "plogs").glob("*.plog") if b"0003" * 20 in path.read_bytes())
    data = bytearray(plog.read_bytes())
    data[data.index(b"0003" * 20)] ^= 1
    plog.write_bytes(data)
    for report in (check_folder(store_folder), _checked_by_owner(store_folder)):
        [finding] = report.findings
        assert finding.subject.startswith(f"stream {STREAM}, segment ")
        assert plog.name in str(finding)
        assert "fails its checksum" in finding.reason
        assert "backup" in finding.advice


def _checked_by_owner(folder: Path) -> CheckReport:
    with open_store(folder, sizes=SMALL) as store:
        return check_store(store)


def test_a_damaged_backup_says_what_it_lacks(store_folder: Path, tmp_path: Path) -> None:
    """The same check reads a backup, as if it was restored."""
    with open_store(store_folder, sizes=SMALL) as store:
        point = backup_store(store, tmp_path / "b").point
    assert check_backup(tmp_path / "b", at=point).events == 43
    [pack] = (tmp_path / "b" / "packs").iterdir()
    data = bytearray(pack.read_bytes())
    data[data.index(b"0003" * 20)] ^= 1
    pack.write_bytes(data)
    findings = check_backup(tmp_path / "b").findings
    assert any(finding.subject.startswith(f"stream {STREAM}, segment ") for finding in findings)
    assert all(pack.name in str(finding) for finding in findings)


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    """It is not reported as an empty store that is well."""
    with pytest.raises(FolderUnusable, match="no store"):
        check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def damage(folder: Path) -> Path:
    """Damage an event of a store; return the file."""
    plog = next(path for path in (folder / "plogs").glob("*.plog") if b"0003" * 20 in path.read_bytes())
    data = bytearray(plog.read_bytes())
    data[data.index(b"0003" * 20)] ^= 1
    plog.write_bytes(data)
    return plog


def test_files_with_other_names_do_not_hide_damage(store_folder: Path) -> None:
    """Somebody has put a copy of a plog beside it, before he calls for help."""
    stray = store_folder / "plogs" / "copy-of-it.plog"
    plog = damage(store_folder)
    shutil.copyfile(plog, stray)
    (store_folder / "plogs" / "folder.plog").mkdir()
    report = check_folder(store_folder)
    assert [plog.name in str(finding) for finding in report.findings] == [True]
    assert str(stray) in report.unused_files
    stray.rename(stray.with_name("UPPER-CASE.PLOG.plog"))
    assert len(check_folder(store_folder).findings) == 1


@pytest.mark.parametrize("kind", ["folder", "pipe"])
@pytest.mark.parametrize("name", ["a plog", "plogs/journal-0", "plogs/FORMAT", "cpo.db"])
def test_a_folder_or_a_pipe_in_place_of_a_file_is_named(store_folder: Path, kind: str, name: str) -> None:
    """Opening a pipe waits for ever; the check must neither do that nor end without a word about it."""
    path = damage(store_folder) if name == "a plog" else store_folder / name
    path.unlink()
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    assert _names(check_folder(store_folder), path)


def test_a_store_that_cannot_be_written_is_checked(store_folder: Path) -> None:
    """A snapshot of a file system is mounted read-only; that is what one checks."""
    (store_folder / "plogs" / "LOCK").chmod(0o400)
    (store_folder / "plogs").chmod(0o500)
    try:
        code = "import sys; from penstock.backup import check_folder; print(check_folder(sys.argv[1]).events)"
        powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
        command = [*powerless, sys.executable, "-c", code, str(store_folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "43\n", done.stderr
        (store_folder / "plogs").chmod(0o700)
        (store_folder / "plogs" / "LOCK").unlink()
        assert check_folder(store_folder).is_good
        assert not (store_folder / "plogs" / "LOCK").exists()
    finally:
        (store_folder / "plogs").chmod(0o700)
