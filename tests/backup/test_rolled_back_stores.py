"""Backups of stores that went on from an earlier copy of themselves: the target has other events of the same plogs."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.backup import backup_store, check_backup, restore_store
from penstock.embedded import open_store
from penstock.server import Config, Server
from tests.backup.harness import OTHER, SMALL, STREAM, contents
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store
    from penstock.log import PartitionSnapshot
    from penstock.model import PlogId
    from penstock.plog import RawBlocks

SEEDS = range(60) if EXPLORES else range(3)
STEPS = 14


def write(folder: Path, *values: int) -> None:
    """Write one block for each value, of the same size and by the same writer, so that only the values differ."""
    with open_store(folder, sizes=SMALL) as store, store.writer(STREAM, "sensor") as writer:
        for value in values:
            writer.write_event(b"%04d" % value * 100, "k").result()


def expect_point_equals(folder: Path, target: Path, restored: Path) -> int:
    """Back a store up, and expect its point to have what the store has; return how many bytes were copied."""
    with open_store(folder, sizes=SMALL) as store:
        report, before = backup_store(store, target), contents(store)
    assert check_backup(target).is_good
    restore_store(target, restored)
    with open_store(restored, sizes=SMALL) as store:
        assert contents(store) == before
    shutil.rmtree(restored)
    return report.copied_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
    return tmp_path / "a"


@pytest.mark.parametrize(
    ("undone", "instead"),
    [
        pytest.param([5], [6], id="the same length"),
        pytest.param([5], [6, 7], id="longer"),
        pytest.param([5, 6], [7], id="shorter"),
        pytest.param([5, 1], [6, 1], id="the same end"),
        pytest.param(range(40), range(50, 90), id="sealed at the same lengths"),
    ],
)
def test_what_was_rolled_back_is_not_in_the_next_point(
    folder: Path, tmp_path: Path, undone: list[int], instead: list[int]
) -> None:
    """A virtual machine is set back, and events are written to the same places: the point must have these."""
    write(folder, 1, 2)
    expect_point_equals(folder, tmp_path / "b", tmp_path / "r")
    shutil.copytree(folder, tmp_path / "snapshot")
    for value in undone:
        write(folder, value)
        expect_point_equals(folder, tmp_path / "b", tmp_path / "r") if len(undone) < 9 else None
    expect_point_equals(folder, tmp_path / "b", tmp_path / "r")
    shutil.rmtree(folder)
    (tmp_path / "snapshot").rename(folder)
    write(folder, *instead)
    assert expect_point_equals(folder, tmp_path / "b", tmp_path / "r") > 0
    write(folder, 9)
    expect_point_equals(folder, tmp_path / "b", tmp_path / "r")


def test_a_rollback_of_a_store_in_use_is_noticed(tmp_path: Path) -> None:
    """Appends are not in the metadata, so those of the point are the beginning of the store's; its events are not."""
    with open_store(tmp_path / "a") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM, "sensor") as writer:
            writer.write_event(b"before", "k").result()
        shutil.copytree(tmp_path / "a", tmp_path / "snapshot")
        with store.writer(STREAM, "sensor") as writer:
            writer.write_event(b"undone", "k").result()
        backup_store(store, tmp_path / "b")
    with open_store(tmp_path / "snapshot") as store:
        with store.writer(STREAM, "sensor") as writer:
            writer.write_event(b"instead", "k").result()
        backup_store(store, tmp_path / "b")
        before = contents(store)
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as store:
        assert contents(store) == before


def test_a_server_that_was_rolled_back_is_backed_up_as_it_is(tmp_path: Path) -> None:
    """The blocks are compared over the wire then, also where none of them ends where a piece does."""
    events = {"a": [b"before", b"undone" * 50], "snapshot": [b"instead" * 90]}
    for name, written in events.items():
        config = Config(store=str(tmp_path / name), port=0, http_port=0, anonymous=True)
        with Server(config) as server, penstock.connect(server.address) as store:
            store.create_stream(STREAM, exist_ok=True)
            for event in written:
                with store.writer(STREAM, "sensor") as writer:
                    writer.write_event(event, "k").result()
                if event == b"before":
                    shutil.copytree(tmp_path / name, tmp_path / "snapshot", ignore=shutil.ignore_patterns("*sock*"))
            backup_store(store, tmp_path / "b")
            before = contents(store)
        restore_store(tmp_path / "b", tmp_path / f"{name}-restored")
        with open_store(tmp_path / f"{name}-restored") as store:
            assert contents(store) == before


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_copies_and_rollbacks_of_any_order_share_a_target(folder: Path, tmp_path: Path, seed: int) -> None:
    """Whatever was copied, set back and continued: a point is the store that it was made of."""
    dice, folders, made = random.Random(seed), [folder], 0
    for _ in range(STEPS):
        each = dice.choice(folders)
        match dice.choice(["write", "write", "back up", "back up", "copy", "roll back", "restore"]):
            case "write":
                write(each, *(dice.randrange(2) for _ in range(dice.choice([1, 2, 15]))))
            case "back up":
                expect_point_equals(each, tmp_path / "b", tmp_path / "r")
                made += 1
            case "copy" if len(folders) < 4:
                folders.append(tmp_path / f"copy-{len(folders)}")
                shutil.copytree(each, folders[-1])
            case "roll back":
                other = dice.choice(folders)
                if other != each:
                    shutil.rmtree(each)
                    shutil.copytree(other, each)
            case "restore" if made:
                shutil.rmtree(each)
                restore_store(tmp_path / "b", each)
    for each in folders:
        expect_point_equals(each, tmp_path / "b", tmp_path / "r")


class ReadingStore:
    """A store that counts the bytes that a backup reads, by plog."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401
        self._store = store
        self.read_bytes: dict[PlogId, int] = {}

    def snapshot(self) -> PartitionSnapshot:
        snapshot: PartitionSnapshot = self._store.snapshot()
        read = snapshot.read

        def counted(plog_id: PlogId, offset: int, end: int) -> RawBlocks:
            raw = read(plog_id, offset, end)
            self.read_bytes[plog_id] = self.read_bytes.get(plog_id, 0) + len(raw.data)
            return raw

        snapshot.read = counted  # type: ignore[method-assign]
        return snapshot


def read_by_a_backup(store: Any, target: Path) -> int:  # noqa: ANN401
    reading = ReadingStore(store)
    backup_store(reading, target)  # type: ignore[arg-type]
    return sum(reading.read_bytes.values())


def test_sealed_plogs_are_not_read_again(tmp_path: Path) -> None:
    """A backup every hour is affordable only if it does not read everything every hour."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        store.create_stream(OTHER)
        with store.writer(STREAM) as writer:
            for _ in range(50):
                writer.write_batch([b"x" * 900] * 10)
                writer.flush()
        assert read_by_a_backup(store, tmp_path / "b") > 450_000
        assert read_by_a_backup(store, tmp_path / "b") < 40_000
        _switch_metadata(store, times=3)
        assert read_by_a_backup(store, tmp_path / "b") < 80_000, "also if the metadata are in another plog since"
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        assert read_by_a_backup(store, tmp_path / "b") < 60_000, "also if another process owns the store since"


def _switch_metadata(store: Store, *, times: int) -> None:
    """Create and delete streams until the metadata log has gone on in other plogs."""
    seen = set()
    for _ in range(300):
        with store.snapshot() as snapshot:  # type: ignore[attr-defined]
            seen.add(snapshot.metadata_plog)
        if len(seen) > times:
            return
        store.create_stream("plant/other")
        with store.writer("plant/other") as writer:
            writer.write_event(b"x").result()
        store.seal_stream("plant/other")
        store.delete_stream("plant/other")
    pytest.fail("the metadata log stays in its plog")
