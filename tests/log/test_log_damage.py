"""Damage: whatever happens to a file of a store, reading gives the right bytes or a clear error, never others."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.errors import (
    CorruptData,
    CpoCorrupt,
    CpoUnavailable,
    FormatUnknown,
    MetadataCorrupt,
    NotInLog,
    PlogCorrupt,
)
from penstock.log import MetadataManager, PlogSizes
from penstock.log._records import Drop, encode_records
from penstock.plog import FilePlogs
from penstock.plog._journal_file import scan_journal
from penstock.ports import OsDisk
from penstock.testing import MemoryDisk
from tests.log.harness import contents
from tests.sampling import EXPLORES

HEAD_SIZE: Final = 4096
PADDING: Final = frozenset((*range(72, 508), *range(536, HEAD_SIZE - 4)))  # of a plog's head: nothing is ever there
CPO_STEP: Final = 61  # every byte of an oracle is flipped in tests/cpo
JOURNAL_SIZE: Final = 6 << 10
DIRECT_SIZE_MIN: Final = 1 << 10
APPEND_SIZE_MAX: Final = 24  # of the writer below
NOTICED: Final = (CorruptData, FormatUnknown, CpoUnavailable)

WRITER: Final = """
import os, sys
from pathlib import Path
from penstock.cpo import open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.plog._journal_file import scan_journal
from penstock.ports import OsDisk

folder, how = Path(sys.argv[1]), sys.argv[2]
cpo = open_cpo(f"sqlite:{folder / 'cpo.db'}")
plogs = FilePlogs(OsDisk(folder / "plogs"), journal_size=int(sys.argv[3]), direct_size_min=int(sys.argv[4]))
manager = MetadataManager.open(plogs, cpo, "p0", sizes=PlogSizes(first=64, largest=64))
for number in range(3):
    manager.log("a").append(f"alpha {number}".encode() * 3)
    manager.log("b").append(f"beta {number}".encode() * 3)
manager.log("c").append(b"gamma")
manager.log("a").splice(manager.log("c"))
manager.log("b").append(b"la")
manager._background.submit(lambda: None).result()
manager.log("b").append(b"st")
manager.close()
if how == "killed":
    os.kill(os.getpid(), 9)
plogs.close()
cpo.close()
"""


@dataclass(frozen=True)
class Store:
    """A store's folder, and every byte of it as it should be."""

    folder: Path
    sound: dict[Path, bytes]
    data: dict[str, bytes]
    copy_of_oracle: Cpo

    def restore(self) -> None:
        """Undo the damage, and whatever a reader did to the files since."""
        for path in [*self.folder.glob("*"), *self.folder.glob("plogs/*")]:
            if path.is_file() and path not in self.sound:
                path.unlink()
        for path, content in self.sound.items():
            put(path, content)


def put(path: Path, content: bytes) -> None:
    """Make a file hold ``content``, in place: a file truncated and written anew is flushed by some file systems."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(fd).st_size != len(content):
            os.ftruncate(fd, len(content))
        if os.pread(fd, len(content) + 1, 0) != content:
            os.pwrite(fd, content, 0)
    finally:
        os.close(fd)


def read_store(folder: Path) -> dict[str, bytes]:
    """Read everything through an oracle and a manager that know nothing."""
    with open_cpo(f"sqlite:{folder / 'cpo.db'}") as cpo:
        return read_plogs(folder, cpo)


def read_plogs(folder: Path, cpo: Cpo) -> dict[str, bytes]:
    """Read everything through a manager that knows nothing."""
    with (
        FilePlogs(OsDisk(folder / "plogs"), journal_size=JOURNAL_SIZE, direct_size_min=DIRECT_SIZE_MIN) as plogs,
        MetadataManager.open(plogs, cpo, "p0", sizes=PlogSizes(first=64, largest=64)) as manager,
    ):
        return contents(manager)


@pytest.fixture(params=["closed", "killed"])
def store(request: pytest.FixtureRequest, tmp_path: Path, cpo: Cpo) -> Store:
    """A small store in a real folder."""
    return make_store(tmp_path, cpo, request.param)


@pytest.fixture
def killed(tmp_path: Path, cpo: Cpo) -> Store:
    """A small store whose process was killed, so that its journal is needed."""
    return make_store(tmp_path, cpo, "killed")


@cache
def files_of(how: str) -> dict[str, bytes]:
    """Let another process make a store, and end it; return its files by their names."""
    with TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:  # as those of tests are
        command = [sys.executable, "-c", WRITER, folder, how, str(JOURNAL_SIZE), str(DIRECT_SIZE_MIN)]
        assert subprocess.run(command, check=False).returncode == (-9 if how == "killed" else 0)
        paths = [path for path in Path(folder).glob("**/*") if path.is_file() and path.name != "LOCK"]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def make_store(folder: Path, cpo: Cpo, how: str) -> Store:
    """Copy a store to a folder, and read it there."""
    sound = {folder / name: content for name, content in files_of(how).items()}
    folder.joinpath("plogs").mkdir()
    for path, content in sound.items():
        put(path, content)
    with open_cpo(f"sqlite:{folder / 'cpo.db'}") as oracle:
        newest = oracle.metadata_plog("p0")
    assert newest is not None
    cpo.set_metadata_plog("p0", newest.plog_id, expected=0)
    data = read_store(folder)
    assert data == {
        "a": b"alpha 0" * 3 + b"alpha 1" * 3 + b"alpha 2" * 3 + b"gamma",
        "b": b"beta 0" * 3 + b"beta 1" * 3 + b"beta 2" * 3 + b"last",
    }
    made = Store(folder, sound, data, cpo)
    made.restore()
    assert len(sound) >= 10, "the store has become too small to prove anything"
    return made


def places(path: Path, content: bytes) -> list[int]:
    """Return which bytes of a file to flip: all of them, but where a test elsewhere does or nothing is kept."""
    used = len(content.rstrip(b"\0")) + 64
    if path.name == "cpo.db":
        return list(range(0, len(content), CPO_STEP))
    if path.suffix == ".plog":
        return [place for place in range(len(content)) if (place < used and place not in PADDING) or place % 487 == 0]
    if path.name.startswith("journal"):
        return [place for place in range(len(content)) if place < 32 or (place < used and place % 5 == 0)]
    return list(range(len(content)))


def last_group(store: Store) -> tuple[Path, range]:
    """Return where in the journals the records lie that were synced last: the killed store's last append."""
    journals = [path for path in store.sound if path.name.startswith("journal")]
    newest = max(journals, key=lambda path: store.sound[path][16:24])  # the generation
    content = memoryview(store.sound[newest])
    records = scan_journal(content, int.from_bytes(content[16:24], "big")).records
    return newest, range(records[-1].synced, records[-1].end) if records else range(0)


def check(store: Store, path: Path, what: str) -> bool:
    """Read the damaged store; return whether the damage was noticed."""
    try:
        is_oracle = path.name == "cpo.db"
        found = read_store(store.folder) if is_oracle else read_plogs(store.folder, store.copy_of_oracle)
    except NOTICED as error:
        if str(path) not in str(error) and not (path.name == "FORMAT" and f"{path.parent} " in str(error)):
            pytest.fail(f"{what} of {path.name} is noticed, but not where: {error}")
        return True
    assert found == store.data, f"{what} of {path.name}"
    return False


def test_a_flipped_byte_is_harmless_or_noticed(store: Store) -> None:
    """Disks do flip bits. A reader that gets other bytes than were written has no way to know."""
    noticed, (newest, last) = 0, last_group(store)
    for path, content in store.sound.items():
        for place in places(path, content)[:: 1 if EXPLORES else 10]:
            if path == newest and place in last:
                continue  # see the test of the journal's last group
            fd = os.open(path, os.O_RDWR)
            os.pwrite(fd, bytes([content[place] ^ 0xFF]), place)
            os.close(fd)
            noticed += check(store, path, f"byte {place}")
            store.restore()
    assert noticed > (100 if EXPLORES else 10), "something does not look at its checksums"


def test_a_file_cut_short_is_harmless_or_noticed(store: Store) -> None:
    """A copy that did not finish, or a file system that was repaired, leaves files that end too early."""
    for path, content in store.sound.items():
        sizes = {0, 1, 511, 512, 600, HEAD_SIZE, HEAD_SIZE + 10, len(content) // 2, len(content) - 1}
        for size in sorted(size for size in sizes if size < len(content)):
            if (path.name == "cpo.db" and size < 512) or path.name.startswith("journal"):
                continue  # see the tests of an oracle that is gone, and of a journal cut short
            os.truncate(path, size)
            check(store, path, f"size {size}")
            store.restore()


def test_a_journal_cut_short_is_noticed(killed: Store) -> None:
    """It is made in full length, so it can only be shorter if acknowledged records were cut off."""
    for path in [path for path in killed.sound if path.name.startswith("journal")]:
        for size in (28, 511, 512, 600, len(killed.sound[path]) // 2):
            os.truncate(path, size)
            check(killed, path, f"size {size}")
            killed.restore()


def test_a_flipped_byte_of_the_last_group_of_the_journal_is_never_wrong_data(killed: Store) -> None:
    """Nothing tells it from a write that a power loss tore, so it may be dropped (decision 2); all else is there."""
    path, places = last_group(killed)
    for place in places:
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, bytes([killed.sound[path][place] ^ 0xFF]), place)
        os.close(fd)
        for name, content in read_store(killed.folder).items():
            assert killed.data[name].startswith(content)
            assert len(killed.data[name]) - len(content) <= APPEND_SIZE_MAX, (
                f"byte {place} took more than the last append"
            )
        killed.restore()


def test_a_file_that_is_gone_is_harmless_or_noticed(store: Store) -> None:
    """To begin afresh where there were data would hide that they are lost, and then overwrite them."""
    noticed = 0
    for path in store.sound:
        if path.name == "cpo.db":
            continue  # see the test of an oracle that is gone
        path.unlink()
        noticed += check(store, path, "the whole")
        store.restore()
    assert noticed >= 3


def test_all_plogs_gone_is_an_error_not_a_fresh_start(store: Store) -> None:
    """The oracle still knows that there was a partition."""
    for path in store.sound:
        if path.parent.name == "plogs":
            path.unlink()
    newest = store.copy_of_oracle.metadata_plog("p0")
    assert newest is not None
    with pytest.raises(MetadataCorrupt, match=r"missing, unless .*cpo\.db, which names it, is an older copy") as caught:
        read_store(store.folder)
    assert caught.value.path == str(store.folder / "plogs" / f"{newest.plog_id.uid}.plog")


def test_an_oracle_that_is_gone_is_an_error_not_a_fresh_start(store: Store) -> None:
    """The plogs are all there, but which of them is the newest of the metadata log is unknown."""
    store.folder.joinpath("cpo.db").unlink()
    with pytest.raises(CpoCorrupt, match="does not know partition 'p0'") as caught:
        read_store(store.folder)
    assert caught.value.path == str(store.folder / "cpo.db")


def test_an_oracle_named_from_where_one_stands_is_found_from_anywhere(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path in an error is read later, in a log file, by somebody who stands elsewhere."""
    monkeypatch.chdir(store.folder)
    store.folder.joinpath("cpo.db").unlink()
    with open_cpo("sqlite:./cpo.db") as cpo, pytest.raises(CpoCorrupt) as caught:
        read_plogs(store.folder, cpo)
    assert caught.value.path == str(store.folder / "cpo.db")


@pytest.mark.parametrize("data", [b"no record", encode_records([Drop("no such log")])], ids=["foreign", "out of place"])
def test_a_metadata_plog_with_records_that_cannot_be_is_named(data: bytes, cpo: Cpo) -> None:
    """All checksums are good, so only the records themselves tell; and somebody has to know which file to look at."""
    with FilePlogs(MemoryDisk()) as plogs:
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, data)
        cpo.set_metadata_plog("p0", plog_id, expected=0)
        with pytest.raises(MetadataCorrupt, match="offset 0 of the plog") as caught:
            MetadataManager.open(plogs, cpo, "p0")
        assert caught.value.path == plogs.where(plog_id) == f"memory:{plog_id.uid}.plog"


def test_a_plog_that_is_missing_is_not_taken_for_one_that_was_truncated_away(manager: MetadataManager) -> None:
    """The one is a loss and somebody has to do something about it, the other is as it should be."""
    log = manager.log("a")
    for size in (64, 256, 1):  # each fills a plog
        log.append(bytes(size))
    first, second, active = (plog_id for plog_id, _, _ in log.plogs())
    views = log.read(first, 0, 64 + 256)
    manager.plogs.delete(second)
    with pytest.raises(PlogCorrupt, match="'a' needs it") as caught:
        list(views)
    assert caught.value.path == manager.plogs.where(second)
    manager.plogs.delete(active)
    with pytest.raises(PlogCorrupt) as caught:
        log.plogs()
    assert caught.value.path == manager.plogs.where(active)


def test_a_plog_that_was_truncated_away_while_it_is_read_is_not_called_missing(manager: MetadataManager) -> None:
    """See above."""
    log = manager.log("a")
    for size in (64, 256, 1):  # each fills a plog
        log.append(bytes(size))
    first, second, _ = (plog_id for plog_id, _, _ in log.plogs())
    views = log.read(first, 0, 64 + 256)
    log.truncate(second)
    assert manager._background is not None
    manager._background.submit(lambda: None).result()  # the plogs are deleted by then
    with pytest.raises(NotInLog):
        list(views)


def test_a_folder_of_a_newer_format_is_refused(store: Store) -> None:
    """What a newer Penstock writes, this one would misread."""
    store.folder.joinpath("plogs", "FORMAT").write_bytes(b"penstock plogs, format 2\n")
    with pytest.raises(FormatUnknown, match="format 2"):
        read_store(store.folder)


def test_a_plog_in_the_place_of_another_is_refused(store: Store) -> None:
    """A restored copy under the wrong name has good checksums, but not for that place."""
    plogs = [path for path in store.sound if path.suffix == ".plog"]
    for path, other in zip(plogs, plogs[1:] + plogs[:1], strict=True):
        put(path, store.sound[other])
        check(store, path, "swapped")
        store.restore()
