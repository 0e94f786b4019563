"""Restores into folders that are there already: empty ones, mount points, links to them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.backup import backup_store, check_folder, restore_store
from penstock.embedded import open_store
from penstock.errors import BadArgument, FolderInUse, FolderUnusable, NotABackup
from tests.backup.harness import STREAM, files_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"event").result()
        backup_store(store, tmp_path / "b")
    return tmp_path / "b"


def events_in(folder: Path) -> int:
    assert {path.name for path in folder.iterdir()} == {"plogs", "cpo.db"}, "and nothing is left"
    assert check_folder(folder).is_good
    with open_store(folder) as store:
        return store.stream(STREAM).events


def test_an_empty_folder_that_a_link_leads_to_is_filled(target: Path, tmp_path: Path) -> None:
    """The data disk of a machine is often behind a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    restore_store(target, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert events_in(tmp_path / "real") == 1
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FolderUnusable):
        restore_store(target, tmp_path / "broken")
    with pytest.raises(FolderInUse):
        restore_store(target, tmp_path / "link")


MOUNT = """
import os, sys
from penstock.backup import restore_store
from penstock.errors import FolderInUse
target, folder = sys.argv[1:]
os.mkdir(folder + "/lost+found")
restore_store(target, folder)
from penstock.embedded import open_store
print(sorted(os.listdir(folder)))
with open_store(folder) as store: print(store.stream("plant/readings").events)
try: restore_store(target, folder)
except FolderInUse: print("in use")
"""


def test_an_empty_mount_point_is_filled(target: Path, tmp_path: Path) -> None:
    """A new disk is mounted for the restored store, and a mount point can be neither removed nor replaced."""
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=64m tmpfs "$2" && exec "$3" -c "$4" "$1" "$2"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", str(target), str(tmp_path / "disk"), sys.executable, MOUNT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.stdout == "['cpo.db', 'lost+found', 'plogs']\n1\nin use\n", done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "disk"]


def test_a_restore_that_was_killed_in_an_empty_folder_is_begun_again(target: Path, tmp_path: Path) -> None:
    """It leaves no store, and nothing that the next restore takes for somebody's files."""
    folder = tmp_path / "c"
    folder.mkdir()
    code = (
        "import os, sys; from penstock.backup import restore_store\n"
        "restore_store(sys.argv[1], sys.argv[2], on_progress=lambda *_: os.kill(os.getpid(), 9))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(target), str(folder)], check=False)
    assert killed.returncode == -9
    assert {path.name for path in folder.iterdir()} == {".restoring", ".restoring.lock"}
    (folder / "cpo.db").write_bytes(b"moved by a restore that was killed right then")
    restore_store(target, folder)
    assert events_in(folder) == 1


def test_a_restore_that_fails_leaves_an_empty_folder_empty(target: Path, tmp_path: Path) -> None:
    """Also if another process makes a store there meanwhile: that one is not touched."""
    folder = tmp_path / "c"
    folder.mkdir()
    with pytest.raises(ZeroDivisionError):
        restore_store(target, folder, on_progress=lambda *_: 1 // 0)
    assert list(folder.iterdir()) == []

    def other(*_: object) -> None:
        if not (folder / "plogs").exists():
            open_store(folder).close()
            before.update(files_of(folder / "plogs"))

    before: dict[str, bytes] = {}
    with pytest.raises(FolderInUse):
        restore_store(target, folder, on_progress=other)
    assert files_of(folder / "plogs") == before
    assert sorted(os.listdir(folder)) == ["cpo.db", "plogs"]


def test_a_folder_with_files_of_others_is_refused(target: Path, tmp_path: Path) -> None:
    """An oracle without its plogs may be all that is left of a store."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "cpo.db").write_bytes(b"x")
    with pytest.raises(FolderInUse):
        restore_store(target, tmp_path / "c")
    assert files_of(tmp_path / "c") == {"cpo.db": b"x"}


@pytest.mark.parametrize("place", ["a", "a/b", "a/plogs/x", "link/b"])
def test_nothing_is_backed_up_or_restored_into_the_folder_of_a_store(target: Path, tmp_path: Path, place: str) -> None:
    """A backup that is in what it is a copy of is lost with it."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    before = files_of(tmp_path / "a")
    with open_store("memory:") as store, pytest.raises(BadArgument, match="choose a folder outside of stores"):
        backup_store(store, tmp_path / place)
    if place != "a":
        with pytest.raises(BadArgument, match="choose a folder outside of stores"):
            restore_store(target, tmp_path / place)
    assert files_of(tmp_path / "a") == before


def test_a_target_with_other_files_is_to_be_another_one(target: Path, tmp_path: Path) -> None:
    """Who named the folder knows that it is no backup yet."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter").write_text("x")
    with open_store("memory:") as store, pytest.raises(NotABackup, match="choose a new or empty folder"):
        backup_store(store, tmp_path / "documents")
    with pytest.raises(NotABackup, match="name the target of penstock backup"):
        restore_store(tmp_path / "documents", tmp_path / "c")
    assert target.is_dir()


FULL = """
import errno, os, sys
from penstock.backup import restore_store
from penstock.embedded import open_store
target, folder = sys.argv[1:]
restore_store(target, folder + "/r")
with open(folder + "/fill", "wb", buffering=0) as fill:
    try:
        while fill.write(bytes(4096)): pass
    except OSError as error: print(errno.errorcode[error.errno])
with open_store(folder + "/r") as store:
    print([batch["event"].to_pylist() for batch in store.read("plant/readings")])
"""


def test_a_restored_store_is_read_on_a_full_disk(target: Path, tmp_path: Path) -> None:
    """A disk may be full before the store is opened for the first time, and its events are all that there is."""
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=64m tmpfs "$2" && exec "$3" -c "$4" "$1" "$2"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", str(target), str(tmp_path / "disk"), sys.executable, FULL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.stdout == "ENOSPC\n[[b'event']]\n", done.stderr
