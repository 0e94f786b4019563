"""Damage, foreign folders and full disks: the right bytes or one clear error, never other bytes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from penstock.errors import (
    CorruptData,
    DiskFull,
    FolderUnusable,
    FormatUnknown,
    JournalCorrupt,
    NoSuchPlog,
    PenstockError,
    PlogCorrupt,
    StoreLocked,
)
from penstock.plog import FilePlogs, PlogId, PlogInfo, open_plogs
from penstock.plog._block import HEAD_SIZE
from penstock.plog._journal import Journal
from penstock.plog._journal_file import JOURNAL_HEAD_SIZE, JOURNAL_NAMES, read_journal
from penstock.ports import OsDisk
from penstock.testing import MemoryDisk, SeededRandom
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.ports import Disk

KIB: Final = 1 << 10
JOURNAL_SIZE: Final = 2048
DIRECT_SIZE_MIN: Final = 100
A, B, C, D, E, F = (PlogId("local", "main", letter * 32) for letter in "abcdef")
NAMES: Final = {f"{plog_id.uid}.plog": plog_id for plog_id in (A, B, C, D, E, F)}

Files: TypeAlias = dict[str, bytes]
Contents: TypeAlias = dict[PlogId, tuple[PlogInfo, bytes]]


def open_on(disk: Disk, *, open_files_max: int = 256) -> FilePlogs:
    return FilePlogs(
        disk,
        random=SeededRandom(1),
        journal_size=JOURNAL_SIZE,
        direct_size_min=DIRECT_SIZE_MIN,
        open_files_max=open_files_max,
    )


def fill(plogs: FilePlogs, plog_id: PlogId, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        offset = plogs.info(plog_id).length
        plogs.append(plog_id, offset, bytes((offset + number + place) % 255 + 1 for place in range(size)))


def first_session(plogs: FilePlogs) -> None:
    for plog_id in (A, B, C, D, E):
        plogs.create(plog_id=plog_id, size=900)
    fill(plogs, A, 10, 30, 20)
    fill(plogs, B, 5, 150, 6)
    fill(plogs, C, 40, 120, 7)
    plogs.seal(C, 60)
    plogs.seal(E, 0)


def second_session(plogs: FilePlogs) -> None:
    fill(plogs, A, 15)
    fill(plogs, B, 130, 110)
    plogs.create(plog_id=F, size=500)
    fill(plogs, F, 160)


def files_of(disk: MemoryDisk) -> Files:
    opened = {name: disk.open(name) for name in disk.names()}
    return {name: bytes(file.view(0, file.size())) for name, file in opened.items()}


def disk_of(files: Files) -> MemoryDisk:
    disk = MemoryDisk()
    for name, data in files.items():
        file = disk.create(name)
        if data:
            file.pwritev([data], 0)
    return disk


def clean_store(*, open_files_max: int = 256) -> Files:
    """A store that was closed, opened, used and closed."""
    disk = MemoryDisk()
    for session in (first_session, second_session):
        with open_on(disk, open_files_max=open_files_max) as plogs:
            session(plogs)
    return files_of(disk)


def killed_store() -> Files:
    """A store whose last process was killed while much of it stood in the journal only."""
    disk = MemoryDisk()
    with open_on(disk) as plogs:
        first_session(plogs)
    second_session(open_on(disk))
    return files_of(disk)


def look(plogs: FilePlogs, plog_id: PlogId) -> tuple[PlogInfo, bytes]:
    info = plogs.info(plog_id)
    return info, bytes(plogs.read(plog_id, 0, info.length))


def contents_of(files: Files) -> Contents:
    with open_on(disk_of(files)) as plogs:
        return {plog_id: look(plogs, plog_id) for name, plog_id in NAMES.items() if name in files}


def check(files: Files, name: str, sound: Contents, *, prefix: bool = False) -> bool:
    """Read everything; return whether somebody noticed that the file ``name`` is damaged."""
    errors: dict[PlogId | None, PenstockError] = {}
    try:
        plogs = open_on(disk_of(files))
    except (CorruptData, FormatUnknown) as error:
        errors[None] = error
    else:
        for plog_id, (info, data) in sound.items():
            try:
                found_info, found = look(plogs, plog_id)
            except CorruptData as error:
                errors[plog_id] = error
                continue
            assert found == data[: len(found)], f"{plog_id} has other bytes"
            assert (found_info, found) == (info, data) or prefix, f"{plog_id} is {found_info} instead of {info}"
        with contextlib.suppress(PenstockError):
            plogs.close()
    assert set(errors) <= {None, NAMES.get(name)}, f"damage shows elsewhere: {errors}"
    assert all(name in str(error) for error in errors.values()), f"the error names another file: {errors}"
    return bool(errors)


def interesting(name: str, data: bytes) -> Iterator[int]:
    """Every byte that says anything, and of long runs of zeros a few."""
    for place, byte in enumerate(data):
        used = byte or any(data[max(0, place - 20) : place + 20]) or not name.endswith(".plog")
        if used or place % 97 == 0:
            yield place


def flipped(data: bytes, place: int, mask: int) -> bytes:
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


MASKS: Final = pytest.mark.parametrize(
    "mask",
    [lambda place: 1 << place % 8, *([lambda _: 0xFF] if EXPLORES else [])],
    ids=["one bit", *(["all bits"] if EXPLORES else [])],
)


@MASKS
def test_no_flipped_byte_of_a_closed_store_gives_other_bytes(mask: Callable[[int], int]) -> None:
    """Disks lie; every byte of every file is tried, and what was acknowledged is read or named as damaged."""
    files = clean_store()
    sound = contents_of(files)
    noticed: dict[str, int] = {}
    for name, data in files.items():
        for place in interesting(name, data):
            try:
                found = check({**files, name: flipped(data, place, mask(place))}, name, sound)
            except Exception as error:
                raise AssertionError(f"byte {place} of {name}: {error!r}") from error
            noticed[name] = noticed.get(name, 0) + found
    assert noticed["FORMAT"] == len(files["FORMAT"])
    assert noticed["journal-0"] == noticed["journal-1"] == 36
    blocks = {A: (10, 30, 20, 15), B: (5, 150, 6, 130, 110), C: (40, 120), D: (), E: (), F: (160,)}
    for name, plog_id in NAMES.items():
        known = 68 + 20 + sum(20 + size for size in blocks[plog_id])
        assert noticed[name] >= known, f"{name}: {noticed[name]} of {known} bytes are covered"


def test_plog_whose_file_was_closed_early_is_protected_as_well() -> None:
    """Files are closed when there are too many; what a large append put there is known all the same."""
    files = clean_store(open_files_max=1)
    sound = contents_of(files)
    for name in (f"{B.uid}.plog", f"{F.uid}.plog"):
        for place in range(HEAD_SIZE, len(files[name].rstrip(b"\0"))):
            assert check({**files, name: flipped(files[name], place, 0x10)}, name, sound), f"byte {place} of {name}"


@MASKS
def test_no_flipped_byte_of_a_killed_store_gives_other_bytes(mask: Callable[[int], int]) -> None:
    """What was written last may pass for torn and be cut off; nothing else may go, and nothing may change."""
    files = killed_store()
    sound = contents_of(files)
    for name, data in files.items():
        for place in interesting(name, data):
            try:
                check({**files, name: flipped(data, place, mask(place))}, name, sound, prefix=True)
            except Exception as error:
                raise AssertionError(f"byte {place} of {name}: {error!r}") from error


def test_no_flipped_byte_of_a_full_journal_passes_for_a_torn_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last group was acknowledged, too, and no other file has it if the process is killed before the checkpoint."""
    monkeypatch.setattr(Journal, "_checkpoint", lambda *_: None)  # as if it had not begun
    disk = MemoryDisk()
    plogs = open_on(disk)
    plogs.create(plog_id=A, size=900)
    _, head = read_journal(disk)
    while read_journal(disk)[1] == head:
        fill(plogs, A, 20)
    name = JOURNAL_NAMES[head.generation % 2]
    files = files_of(disk)
    monkeypatch.undo()
    sound = contents_of(files)
    for place in range(JOURNAL_HEAD_SIZE, len(files[name].rstrip(b"\0"))):
        assert check({**files, name: flipped(files[name], place, 1 << place % 8)}, name, sound), f"byte {place}"


def test_reading_damaged_files_does_not_make_it_worse() -> None:
    """A bad cable flips bits on the way: with a good one everything must be there again."""
    files = clean_store()
    sound = contents_of(files)
    for name in NAMES:
        for place in interesting(name, files[name]):
            disk = disk_of({**files, name: flipped(files[name], place, 0x10)})
            plogs = open_on(disk)
            for plog_id in sound:
                with contextlib.suppress(CorruptData):
                    look(plogs, plog_id)
            plogs.close()
            after = files_of(disk)
            if after[name] != files[name]:
                after[name] = flipped(after[name], place, 0x10)
            assert contents_of(after) == sound, f"byte {place} of {name}"


def lengths(data: bytes) -> Iterator[int]:
    """Every length in the first and the last part that is used, and some between and behind."""
    end = len(data.rstrip(b"\0"))
    for length in range(len(data)):
        if length < 70 or abs(length - end) < 40 or 500 < length < 540 or length % 13 == 0:
            yield length


def test_no_cut_of_a_closed_store_gives_other_bytes() -> None:
    """A copy that was interrupted, a file system that lost its mind."""
    files = clean_store()
    sound = contents_of(files)
    for name, data in files.items():
        for length in lengths(data):
            try:
                check({**files, name: data[:length]}, name, sound)
            except NoSuchPlog:
                # An empty file is what the crash of a creation leaves that was not acknowledged.
                assert length == 0, f"{name} cut to {length} passes for a plog that was never created"
            except Exception as error:
                raise AssertionError(f"{name} cut to {length}: {error!r}") from error


def test_no_cut_of_a_killed_store_gives_other_bytes() -> None:
    """As above, with the last appends in the journal only."""
    files = killed_store()
    sound = contents_of(files)
    for name, data in files.items():
        for length in lengths(data):
            try:
                check({**files, name: data[:length]}, name, sound, prefix=True)
            except NoSuchPlog:
                continue  # the head is in the journal, or is not
            except Exception as error:
                raise AssertionError(f"{name} cut to {length}: {error!r}") from error


def test_damage_of_one_plog_leaves_the_others_usable() -> None:
    """One bad file is no reason to stop everything; its plog can be deleted and its id used again."""
    files = clean_store()
    name = f"{A.uid}.plog"
    for place in (3, 515, HEAD_SIZE + 2, HEAD_SIZE + 25):
        disk = disk_of({**files, name: flipped(files[name], place, 1)})
        with open_on(disk) as plogs:
            with pytest.raises(PlogCorrupt, match=name):
                look(plogs, A)
            fill(plogs, B, 20)
            fill(plogs, D, 20)
            plogs.delete(A)
            with pytest.raises(NoSuchPlog):
                plogs.info(A)
            plogs.create(plog_id=A, size=100)
            fill(plogs, A, 20)
        with open_on(disk) as plogs:
            assert [plogs.info(plog_id).length for plog_id in (A, D)] == [20, 20]


def test_acknowledged_record_that_is_damaged_stops_the_opening() -> None:
    """A journal with a hole would bring back a part of what was acknowledged and call it all."""
    files = killed_store()
    name = max(("journal-0", "journal-1"), key=lambda name: len(files[name].rstrip(b"\0")))
    with pytest.raises(JournalCorrupt, match=f"{name} at byte 512 is damaged"):
        open_on(disk_of({**files, name: flipped(files[name], 600, 1)}))


@pytest.mark.parametrize("name", ["journal-0", "journal-1"])
def test_missing_journal_is_damage(name: str) -> None:
    """What was acknowledged last may have been in it."""
    files = clean_store()
    del files[name]
    with pytest.raises(JournalCorrupt, match=f"{name} is damaged: it is missing"):
        open_on(disk_of(files))


def test_plog_under_the_name_of_another_is_damage() -> None:
    """A file that was copied or renamed by hand is not what its name says."""
    files = clean_store()
    name = f"{D.uid}.plog"
    files[name] = files[f"{A.uid}.plog"]
    with open_on(disk_of(files)) as plogs, pytest.raises(PlogCorrupt, match=name):
        plogs.info(D)


def test_damage_found_on_disk_names_the_path(folder: Path) -> None:
    """The user has to find the file."""
    with open_plogs(f"file:{folder}") as plogs:
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, b"data")
    path = folder / f"{plog_id.uid}.plog"
    path.write_bytes(flipped(path.read_bytes(), HEAD_SIZE + 21, 1))
    with open_plogs(f"file:{folder}") as plogs, pytest.raises(PlogCorrupt) as caught:
        plogs.read(plog_id, 0, 4)
    assert str(path) in str(caught.value)
    assert (caught.value.path, caught.value.offset) == (str(path), HEAD_SIZE)


# Folders


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "LOCK"}


@pytest.mark.parametrize("text", ["penstock plogs, format 2\n", "penstock plogs, format 10\n", "", "something else"])
def test_folder_of_another_format_is_refused_and_left_alone(folder: Path, text: str) -> None:
    """A newer Penstock wrote it: the older one must neither guess nor harm it."""
    with open_plogs(f"file:{folder}") as plogs:
        plogs.create(size=100)
    (folder / "FORMAT").write_text(text)
    before = snapshot(folder)
    with pytest.raises(FormatUnknown) as caught:
        open_plogs(f"file:{folder}")
    assert str(folder / "FORMAT") in str(caught.value)
    assert caught.value.actual == text.strip()
    assert "format 1" in caught.value.known
    assert snapshot(folder) == before


@pytest.mark.parametrize("name", ["thesis.tex", "journal", "FORMAT.txt", f"{A.uid}.plog"])
def test_folder_with_other_files_is_refused_and_left_alone(folder: Path, name: str) -> None:
    """A mistyped path may be somebody's home."""
    folder.mkdir()
    (folder / name).write_text("precious")
    (folder / "journal-0").write_text("not ours either")
    before = snapshot(folder)
    with pytest.raises(FormatUnknown, match=str(folder)):
        open_plogs(f"file:{folder}")
    assert snapshot(folder) == before


def test_other_files_in_a_folder_of_ours_do_no_harm(folder: Path) -> None:
    """Backup programs and humans leave things behind."""
    with open_plogs(f"file:{folder}") as plogs:
        plog_id = plogs.create(size=100)
        plogs.append(plog_id, 0, b"data")
    (folder / "notes.txt").write_text("do not delete")
    (folder / "zz.plog").write_text("no plog")
    (folder / "FORMAT.new").write_text("a draft")
    with open_plogs(f"file:{folder}") as plogs:
        assert bytes(plogs.read(plog_id, 0, 4)) == b"data"
    assert (folder / "notes.txt").read_text() == "do not delete"


@pytest.mark.parametrize("below", ["", "/below"])
def test_folder_that_is_a_file_is_refused(folder: Path, below: str) -> None:
    """The message says which path it is."""
    folder.write_text("a file")
    with pytest.raises(FolderUnusable, match=str(folder)):
        open_plogs(f"file:{folder}{below}")
    assert folder.read_text() == "a file"


def test_unwritable_folder_is_refused() -> None:
    """Better when it is opened than at the first append."""
    with pytest.raises(FolderUnusable, match="/proc"):
        open_plogs("file:/proc/penstock")


OWNER: Final = """
import sys
from penstock.plog import open_plogs
plogs = open_plogs("file:" + sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_folder_of_another_process_is_refused_until_it_ends(folder: Path) -> None:
    """Two processes that write one journal would destroy it; the message says whom to end."""
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        with pytest.raises(StoreLocked, match=f"process {owner.pid} ") as caught:
            open_plogs(f"file:{folder}")
        assert caught.value.folder == str(folder)
        owner.kill()
        owner.wait()
    open_plogs(f"file:{folder}").close()


def test_folder_is_refused_to_a_second_store_of_the_same_process(folder: Path) -> None:
    """A program that opens a store twice by mistake gets the same answer."""
    with open_plogs(f"file:{folder}"), pytest.raises(StoreLocked, match=f"process {os.getpid()} "):
        open_plogs(f"file:{folder}")
    open_plogs(f"file:{folder}").close()


# Full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with room for 512 KiB."""
    path = tmp_path / "small"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root; a full disk is tried with FaultyDisk in test_plogs_faults.py only")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def open_small(path: Path) -> FilePlogs:
    return FilePlogs(OsDisk(path / "plogs"), journal_size=32 * KIB, direct_size_min=4 * KIB)


def test_full_disk_is_said_at_creation_and_loses_nothing(small_disk: Path) -> None:
    """A plog has its room or is not created; those that are there go on, and after a deletion there is room again."""
    contents: dict[PlogId, bytes] = {}
    with open_small(small_disk) as plogs:
        with pytest.raises(DiskFull, match=str(small_disk)):
            contents.update((plogs.create(size=64 * KIB), b"") for _ in range(100))
        assert len(contents) >= 4
        for plog_id in contents:
            plogs.append(plog_id, 0, plog_id.uid_bytes)
            contents[plog_id] = plog_id.uid_bytes + bytes(8 * KIB) + b"end"
            plogs.append(plog_id, 16, bytes(8 * KIB))
            plogs.append(plog_id, 16 + 8 * KIB, b"end")
        with pytest.raises(DiskFull):
            plogs.create(size=64 * KIB)
        gone = next(iter(contents))
        plogs.delete(gone)
        del contents[gone]
        new = plogs.create(size=64 * KIB)
        contents[new] = b"new"
        plogs.append(new, 0, b"new")
    with open_small(small_disk) as plogs:
        for plog_id, data in contents.items():
            assert bytes(plogs.read(plog_id, 0, plogs.info(plog_id).length)) == data


def test_disk_that_others_fill_up_loses_nothing(small_disk: Path) -> None:
    """Blocks beyond the allocated room are refused with the disk full, and taken when there is room again."""
    with open_small(small_disk) as plogs:
        plog_id = plogs.create(size=64 * KIB)
        stuffing = small_disk / "stuffing"
        with contextlib.suppress(OSError), stuffing.open("wb", buffering=0) as file:
            while file.write(bytes(KIB)):
                pass
        offsets = [0]
        with pytest.raises(DiskFull, match=plog_id.uid):
            offsets.extend(
                plogs.append(plog_id, offset, bytes([offset % 251]) * 10) for offset in range(0, 64 * KIB, 10)
            )
        acked = offsets[-1]
        assert acked > 10 * KIB
        assert plogs.info(plog_id).length == acked
        stuffing.unlink()
        assert plogs.append(plog_id, acked, b"more") == acked + 4
    with open_small(small_disk) as plogs:
        data = bytes(plogs.read(plog_id, 0, acked + 4))
        assert data == b"".join(bytes([offset % 251]) * 10 for offset in range(0, acked, 10)) + b"more"


def test_store_is_not_made_on_a_full_disk_and_is_made_when_there_is_room(small_disk: Path) -> None:
    """Half a folder must not stand in the way of the second try."""
    with pytest.raises(DiskFull, match=str(small_disk)):
        open_plogs(f"file:{small_disk / 'plogs'}")
    with open_small(small_disk) as plogs:
        assert plogs.append(plogs.create(size=100), 0, b"data") == 4
