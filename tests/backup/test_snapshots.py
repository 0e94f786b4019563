"""Snapshots: what they hold, for how long, and what ends them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.backup import backup_store, list_points, restore_store
from penstock.client import RemoteStore
from penstock.embedded import open_store
from penstock.errors import BadArgument, PenstockError, SnapshotLost, StoreClosed
from penstock.plog import check_raw
from penstock.server import Config, Server
from tests.backup.harness import SMALL, STREAM, contents, fill

if TYPE_CHECKING:
    from pathlib import Path


def test_a_snapshot_is_of_its_moment_and_can_be_read_until_it_is_closed(tmp_path: Path) -> None:
    """The metadata log may switch, and plogs may be truncated away, while a backup reads."""
    with open_store(tmp_path / "a", sizes=SMALL) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_batch([b"x" * 900] * 60)
        with store.snapshot() as snapshot:
            store.truncate_stream(STREAM, "tail")
            for number in range(40):
                store.create_stream(f"plant/s{number}")
                with store.writer(f"plant/s{number}") as writer:
                    writer.write_event(b"x").result()
            assert store.manager.partition.plog_id != snapshot.metadata_plog, "the metadata log has switched"
            for cut in snapshot.plogs:
                offset = 0
                while offset < cut.length:
                    raw = snapshot.read(cut.plog_id, offset, cut.length)
                    check_raw(raw, where="x")
                    assert raw.key == cut.key
                    offset = raw.end
            with pytest.raises(BadArgument):
                snapshot.read(store.manager.plogs.new_id(), 0, 0)
            last = snapshot.plogs[0]
        with pytest.raises(StoreClosed):
            snapshot.read(last.plog_id, 0, last.length)
        snapshot.close()


def test_the_snapshot_of_a_client_ends_with_its_connection(tmp_path: Path) -> None:
    """Else every backup that was killed would keep retention from its work for ever."""
    with Server(Config(store=str(tmp_path / "a"), port=0, http_port=0, anonymous=True)) as server:
        with penstock.connect(server.address) as store:
            assert isinstance(store, RemoteStore)
            fill(store)
            snapshot = store.snapshot()
            cut = snapshot.plogs[1]
            assert snapshot.read(cut.plog_id, 0, cut.length).end
            with pytest.raises(BadArgument):
                snapshot.read(cut.plog_id, 1, cut.length)
            with pytest.raises(PenstockError):
                snapshot.read(cut.plog_id, 0, cut.length + 1)
            other = store.snapshot()
            other.close()
            other.close()
        with pytest.raises(SnapshotLost, match="run the backup again"):
            snapshot.read(cut.plog_id, 0, cut.length)
        snapshot.close()
    with open_store(tmp_path / "a") as engine:
        assert engine.snapshot().plogs


def test_a_server_that_ends_during_a_backup_ends_it_and_the_next_goes_on(tmp_path: Path) -> None:
    """Servers are restarted at night, when backups run."""
    config = Config(store=str(tmp_path / "a"), port=0, http_port=0, anonymous=True)
    running = ExitStack()
    with running:
        server = running.enter_context(Server(config))
        store = penstock.connect(server.address)
        fill(store)
        before = contents(store)
        with pytest.raises(SnapshotLost, match="the connection to the store was lost"):
            backup_store(store, tmp_path / "b", on_progress=lambda *_: running.close())
        store.close()
    assert list_points(tmp_path / "b") == []
    with Server(config) as server, penstock.connect(server.address) as store:
        backup_store(store, tmp_path / "b")
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as found:
        assert contents(found) == before
