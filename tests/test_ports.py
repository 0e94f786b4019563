"""The real disk: its lock, its folder, and writing all of something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from penstock.errors import FolderUnusable, StoreLocked
from penstock.ports import (
    OsDisk,
    SystemClock,
    SystemRandom,
    interruptible,
    interruption_point,
    map_file,
    opened,
    uninterrupted,
    write_all,
)
from penstock.testing import FaultyDisk, MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_AND_WAIT: Final = """
import sys
from penstock.ports import OsDisk
OsDisk(sys.argv[1]).lock()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which owns the folder."""
    command = [sys.executable, "-c", LOCK_AND_WAIT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_lock_held_by_another_process_is_refused_by_its_name(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    """The message has to say which process to close."""
    with pytest.raises(StoreLocked, match=f"process {owner.pid} on ") as caught:
        OsDisk(tmp_path).lock()
    assert caught.value.folder == str(tmp_path)


def test_lock_is_gone_when_its_owner_is_killed(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    """After kill -9 no process is left to remove a lock, so it must not need removing."""
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    OsDisk(tmp_path).lock()


def test_lock_is_refused_within_one_process_too(tmp_path: Path) -> None:
    """Two stores of one program in one folder do the same harm as two programs."""
    first, second = OsDisk(tmp_path), OsDisk(tmp_path)
    first.lock()
    with pytest.raises(StoreLocked, match=f"process {os.getpid()} on "):
        second.lock()
    first.close()
    second.lock()
    second.close()


def test_lock_is_no_file_of_the_store(tmp_path: Path) -> None:
    """Recovery looks at every name and must not stumble over the lock."""
    disk = OsDisk(tmp_path)
    disk.lock()
    disk.create("journal-0").close()
    assert disk.names() == ["journal-0"]
    disk.close()


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/penstock"])
def test_folder_that_cannot_be_made_is_refused(tmp_path: Path, folder: str) -> None:
    """A mistyped folder is an everyday mistake: it gets our error, with the path and the system's reason."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FolderUnusable, match=folder) as caught:
        OsDisk(tmp_path / folder)
    assert caught.value.reason


def test_folder_that_cannot_be_written_is_refused_when_locked() -> None:
    """A folder that can be read but not written must fail before anything is served from it."""
    disk = OsDisk("/proc/self")
    with pytest.raises(FolderUnusable, match="/proc/self"):
        disk.lock()
    disk.close()


def test_new_folders_are_flushed_into_those_above_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything synced inside a folder is lost if the folder's own name is."""
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}"))))
    OsDisk(tmp_path / "new" / "store").close()
    assert synced == [tmp_path, tmp_path / "new"]
    OsDisk(tmp_path / "new" / "store").close()
    assert len(synced) == 2


def test_folder_stays_the_same_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder is meant as of the time it was given, whatever the program does later."""
    monkeypatch.chdir(tmp_path)
    disk = OsDisk("store")
    disk.create("journal-0").close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert disk.names() == ["journal-0"]
    assert disk.where("journal-0") == str(tmp_path / "store" / "journal-0")
    disk.close()


def test_concurrent_readers_of_a_growing_file_get_all_they_ask_for(tmp_path: Path) -> None:
    """One reader's mapping replaces another's: neither may come out shorter than what was written before it asked."""
    file = OsDisk(tmp_path).create("plog")
    write_count = 2000
    written = 0
    short: list[int] = []

    def read() -> None:
        while (end := written) < write_count:
            if len(file.view(0, end)) < end:
                short.append(end)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for offset in range(write_count):
        file.pwritev([b"x"], offset)
        written = offset + 1
    for reader in readers:
        reader.join()
    assert not short


def test_a_file_that_is_read_and_written_takes_one_descriptor(tmp_path: Path) -> None:
    """With two for each, a process ran out of them with half as many plogs as it may have files."""
    before = len(os.listdir("/dev/fd"))
    file = OsDisk(tmp_path).create("file")
    with_folder = len(os.listdir("/dev/fd"))
    file.pwritev([b"x" * 10], 0)
    assert file.view(0, 10) == b"x" * 10
    assert len(os.listdir("/dev/fd")) == with_folder == before + 2


def test_a_mapping_outlives_its_file_and_ends_with_its_last_view(tmp_path: Path) -> None:
    """A caller that holds a batch of events holds views; one that does not must not hold memory."""
    disk = OsDisk(tmp_path)
    file = disk.create("file")
    file.pwritev([b"0123456789"], 0)
    part = np.frombuffer(file.view(2, 3), np.uint8)
    file.close()
    disk.remove("file")
    assert bytes(part) == b"234"
    assert not part.flags.writeable
    assert str(tmp_path / "file") in Path("/proc/self/maps").read_text()
    del part
    assert str(tmp_path / "file") not in Path("/proc/self/maps").read_text()


def test_a_file_that_cannot_be_mapped_is_an_error(tmp_path: Path) -> None:
    """A wrong address would end the process at the first read."""
    with pytest.raises(OSError, match="Bad file descriptor"):
        map_file(-1, 10)
    (tmp_path / "empty").touch()
    fd = os.open(tmp_path / "empty", os.O_RDONLY)
    assert not map_file(fd, 0)
    os.close(fd)


def test_write_all_takes_more_parts_than_one_call(tmp_path: Path) -> None:
    """The kernel refuses a call with more than 1024 parts; a batch of small events has more."""
    parts = [b"%d," % number for number in range(5000)]
    file = OsDisk(tmp_path).create("journal-0")
    write_all(file, parts, 3)
    assert bytes(file.view(3, 1 << 20)) == b"".join(parts)


def test_write_all_passes_over_any_number_of_empty_parts() -> None:
    """A batch may open with thousands of empty events; a call that writes none of them is no failing disk."""
    file = MemoryDisk().create("journal-0")
    write_all(file, [b""] * 5000 + [b"data"], 0)
    assert bytes(file.view(0, 9)) == b"data"


def test_write_all_gives_up_on_a_disk_that_takes_nothing() -> None:
    """Trying the same again forever would hang the store."""
    disk = FaultyDisk(MemoryDisk())
    disk.shorten(0, call=None)
    with pytest.raises(OSError, match="wrote nothing"):
        write_all(disk.create("journal-0"), [b"data"], 0)


def test_write_all_of_nothing_is_done_at_once() -> None:
    """Empty events are events: a batch may be all empty."""
    file = MemoryDisk().create("journal-0")
    write_all(file, [], 0)
    write_all(file, [b"", b""], 0)
    assert file.size() == 0


def test_system_clock_and_random_are_those_of_the_machine() -> None:
    """Ids must differ between runs, and leases are compared with other machines' clocks."""
    assert time.time() <= SystemClock().now() <= time.time()
    assert len(SystemRandom().token(16)) == 16
    assert SystemRandom().token(16) != SystemRandom().token(16)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT interrupt, as it does not in a script that runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_for_a_step_but_not_for_what_the_step_waits_for() -> None:
    """A step that is half done must not be left, and a wait that has no end must be."""
    done = []

    @uninterrupted
    def step() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")
        interruption_point()
        done.append("not reached")

    @uninterrupted
    def wait() -> None:
        interruptible(lambda: signal.raise_signal(signal.SIGINT))
        done.append("not reached")

    for interrupted in (step, wait):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    assert done == ["the rest"]


def late(*_: object) -> None:
    raise TimeoutError("too late")


@pytest.fixture
def alarm() -> Iterator[None]:
    """Let SIGALRM raise, as a program that limits the time of a block sets it up."""
    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("ctrl_c", "alarm")
def test_every_signal_whose_handler_raises_waits_for_a_step_and_none_is_forgotten() -> None:
    """An alarm in the middle of a sync must neither stop the store nor swallow the Ctrl-C that came with it."""
    done = []

    @uninterrupted
    def step() -> None:
        for one in (signal.SIGINT, signal.SIGALRM):
            signal.raise_signal(one)
        done.append("the rest")

    with pytest.raises(TimeoutError, match="too late") as caught:
        step()
    assert isinstance(caught.value.__context__, KeyboardInterrupt)
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGALRM) is late
    with pytest.raises(TimeoutError):
        signal.raise_signal(signal.SIGALRM)


@pytest.mark.usefixtures("alarm")
def test_a_handler_that_is_set_within_a_step_stays() -> None:
    """Callbacks and serializers run within steps, and may limit their own time."""
    came: list[int] = []

    @uninterrupted
    def step() -> None:
        signal.signal(signal.SIGALRM, lambda number, _: came.append(number))
        signal.raise_signal(signal.SIGALRM)

    step()
    signal.raise_signal(signal.SIGALRM)
    assert came == [signal.SIGALRM] * 2


@pytest.mark.usefixtures("ctrl_c")
def test_what_was_opened_and_not_returned_is_closed() -> None:
    """The interrupt comes when it is open, and the caller never gets it."""
    closed: list[str] = []

    def open_it() -> str:
        signal.raise_signal(signal.SIGINT)
        return "it"

    with pytest.raises(KeyboardInterrupt):
        opened(open_it, closed.append)
    assert closed == ["it"]
