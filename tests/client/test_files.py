"""Files of plogs as a client reads them: the folder is probed, and nothing in it is opened but files of the store."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.client._files import PlogFiles
from penstock.errors import PlogCorrupt
from penstock.model import PLOGS_FOLDER
from penstock.plog import FilePlogs, folder_place
from penstock.ports import OsDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.plog import LocatedBlocks

BLOCKS = [b"first", b"second", b"third"]
PROBE = "access-probe-of-a-test"
HERE = "here"
MOUNTED = "mounted"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of plogs, with a probe in it."""
    folder = tmp_path / PLOGS_FOLDER
    folder.mkdir()
    (folder / PROBE).write_bytes(b"content")
    return folder


@pytest.fixture
def plogs(folder: Path) -> Iterator[FilePlogs]:
    (folder / PROBE).unlink()  # or it would not be an empty folder
    with FilePlogs(OsDisk(folder)) as plogs:
        (folder / PROBE).write_bytes(b"content")
        yield plogs


@pytest.fixture
def located(plogs: FilePlogs) -> LocatedBlocks:
    plog_id, offset = plogs.create(size=1 << 16), 0
    for block in BLOCKS:
        offset = plogs.append(plog_id, offset, block)
    return plogs.locate(plog_id, 0, offset)


def probed(folder: Path, where: str = HERE) -> PlogFiles:
    place = folder_place(folder) if where == HERE else ["another machine", 0, 0]
    files = PlogFiles.probed(str(folder), PROBE, b"content", place)
    assert files is not None
    return files


@pytest.mark.parametrize("where", [HERE, MOUNTED])
def test_blocks_are_read_where_they_were_located(folder: Path, located: LocatedBlocks, where: str) -> None:
    """Mapped on the machine of the server, copied through a mount: the same bytes, again and again."""
    files = probed(folder, where)
    for _ in range(2):
        assert [bytes(view) for _, view in files.read(located)] == BLOCKS


WRONG: dict[str, Callable[[Path], tuple[object, str, bytes]]] = {
    "another content": lambda folder: (str(folder), PROBE, b"contents"),
    "a part of the content": lambda folder: (str(folder), PROBE, b"conten"),
    "another name": lambda folder: (str(folder), "access-probe-of-another", b"content"),
    "a relative path": lambda folder: (os.path.relpath(folder), PROBE, b"content"),
    "a folder of another name": lambda folder: (str(folder.parent), f"{PLOGS_FOLDER}/{PROBE}", b"content"),
    "not a path": lambda _: (7, PROBE, b"content"),
    "a zero byte": lambda folder: (f"{folder}\0/{PLOGS_FOLDER}", PROBE, b"content"),
    "a missing folder": lambda folder: (f"{folder}-gone/{PLOGS_FOLDER}", PROBE, b"content"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_folder_is_read_only_if_the_probe_is_in_it(folder: Path, wrong: str) -> None:
    """The server names the folder; what is in another one at that path is not the server's."""
    path, name, content = WRONG[wrong](folder)
    assert PlogFiles.probed(path, name, content, folder_place(folder)) is None


def test_a_link_in_place_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """A hostile server would lead the client to any folder with it."""
    link = tmp_path / "elsewhere" / PLOGS_FOLDER
    link.parent.mkdir()
    link.symlink_to(folder)
    assert PlogFiles.probed(str(link), PROBE, b"content", folder_place(folder)) is None


@pytest.mark.parametrize("where", [HERE, MOUNTED])
@pytest.mark.parametrize("name", ["journal-0", "0" * 32, f"../{'0' * 32}.plog.txt", "cpo.db"])
def test_only_names_of_plogs_are_opened(folder: Path, located: LocatedBlocks, name: str, where: str) -> None:
    """The server names the file, too, and other files are none of its business."""
    with pytest.raises(OSError, match="not the name of a plog"):
        probed(folder, where).read(replace(located, path=str(folder / name)))


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize("where", [HERE, MOUNTED])
@pytest.mark.parametrize("put", [a_pipe, a_link, nothing])
def test_what_is_no_regular_file_is_an_error_at_once(
    folder: Path, located: LocatedBlocks, put: Callable[[Path], None], where: str
) -> None:
    """The caller has the server send the blocks then; opening a pipe would wait for ever."""
    files, path = probed(folder, where), folder / ("f" * 32 + ".plog")
    put(path)
    with pytest.raises(OSError, match=r"not a file of the store|No such file|symbolic links"):
        files.read(replace(located, path=str(path)))


@pytest.mark.parametrize("where", [HERE, MOUNTED])
def test_blocks_of_another_plog_are_not_returned(folder: Path, located: LocatedBlocks, where: str) -> None:
    """A file that was replaced has a key of its own, and its blocks fail their check."""
    other = replace(located, key=bytes(len(located.key)))
    with pytest.raises(PlogCorrupt):
        list(probed(folder, where).read(other))


def test_the_folder_is_let_go_with_its_files(folder: Path) -> None:
    """A client that reconnects for years has one folder open, not one for each connection."""
    files = probed(folder)
    assert times_open(folder) == 1
    del files
    assert times_open(folder) == 0


def times_open(folder: Path) -> int:
    """Return how many descriptors of this process are the folder."""
    wanted, count = folder.stat(), 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the one that was listed with
            count += os.path.samestat(os.fstat(fd), wanted)
    return count
