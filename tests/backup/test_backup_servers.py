"""Backups of stores whose plogs are on plog servers: restored into a folder, at one moment, while servers are lost."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.backup import backup_store, check_backup, check_store, restore_store
from penstock.cpo import open_cpo
from penstock.embedded import PARTITION, open_store
from penstock.errors import BadArgument
from penstock.log import READ_LIMIT, MetadataManager
from penstock.plog import FilePlogs, check_raw
from penstock.plog.replicated._appends import committed_offsets
from penstock.server import Server
from penstock.stream import Engine
from penstock.testing import FlakyGroups, MemoryDisk
from tests.backup.harness import OTHER, SMALL, STREAM, contents, fill
from tests.plog_servers import GROUPS, PlogServers
from tests.server.apart import eventually
from tests.server.cluster import config_of, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PlogServers]:
    servers = PlogServers(tmp_path / "servers", *GROUPS, cluster="plant")
    yield servers
    servers.close()


@pytest.fixture
def cpo(servers: PlogServers) -> Iterator[Cpo]:
    with servers.oracle() as cpo:
        yield cpo


@contextmanager
def owned(servers: PlogServers, cpo: Cpo) -> Iterator[Engine]:
    """Own the store, with an oracle that outlives the owner."""
    with ExitStack() as resources:
        plogs = resources.enter_context(servers.open(cpo=cpo))
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, PARTITION, sizes=SMALL))
        with Engine(manager, resources=resources.pop_all()) as store:
            yield store


def test_a_store_on_plog_servers_is_restored_into_a_folder(tmp_path: Path, servers: PlogServers, cpo: Cpo) -> None:
    """Three copies do not help against a mistake; and a later backup copies only what is new."""
    with owned(servers, cpo) as store:
        fill(store)
        backup_store(store, tmp_path / "b")
        with store.writer(OTHER) as writer:
            writer.write_event(b"later").result()
        assert backup_store(store, tmp_path / "b").copied_bytes < 3000
        report = check_store(store)
        assert (report.findings, report.streams) == ((), 2)
        before = contents(store)
    assert check_backup(tmp_path / "b").is_good
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as restored:
        assert contents(restored) == before
        with restored.writer(OTHER) as writer:
            writer.write_event(b"it goes on").result()


def test_a_backup_continues_after_a_server_is_lost_and_after_a_new_owner(
    tmp_path: Path, servers: PlogServers, cpo: Cpo
) -> None:
    """Logs move to another group, and plogs of the former owner are sealed: their pieces are those that were copied."""
    with owned(servers, cpo) as store:
        fill(store)
        backup_store(store, tmp_path / "b")
        servers.stop("east", 1)
        with store.writer(STREAM) as writer:
            writer.write_batch([b"moved"] * 5).result()
        backup_store(store, tmp_path / "b")
    servers.start("east", 1)
    with owned(servers, cpo) as store:
        with store.writer(STREAM) as writer:
            writer.write_batch([b"of the next owner"] * 5).result()
        backup_store(store, tmp_path / "b")
        before = contents(store)
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as restored:
        assert contents(restored) == before


def test_a_cut_has_no_effect_without_its_cause(servers: PlogServers, cpo: Cpo) -> None:
    """Of two plogs that are written in turns, the second is never ahead of the first, whenever the cut is made."""
    with servers.open(cpo=cpo) as plogs:
        first, second, *others = (plogs.create(size=200_000) for _ in range(40))
        stop = threading.Event()

        def write() -> None:
            for offset in range(100_000):
                if stop.is_set():
                    return
                plogs.append(first, offset, b"c")
                plogs.append(second, offset, b"e")

        thread = threading.Thread(target=write)
        thread.start()
        try:
            lengths: list[tuple[int, int]] = []
            while len(lengths) < 1000 or lengths[-1][1] < 100:
                cut = plogs.cut([first, *others, second])
                lengths.append((cut[first].length, cut[second].length))
        finally:
            stop.set()
            thread.join()
        assert all(cause - 1 <= effect <= cause for cause, effect in lengths)
        assert plogs.cut([plogs.new_id()]) == {}, "a plog that was never created"


def test_nothing_is_acknowledged_while_a_cut_is_made(servers: PlogServers, cpo: Cpo) -> None:
    """Appends to both plogs that come between the two reads of a cut would put the effect into it, not the cause."""
    with servers.open(cpo=cpo) as plogs:
        ids = [plogs.create(), plogs.create()]
        opened = [plogs._open[plog_id] for plog_id in ids]
        writers: list[threading.Thread] = []

        class SlowWindow:
            """The window of the first plog, which is looked at while others append."""

            plog_id, size = ids[0], 16 << 20

            @property
            def committed(self) -> int:
                """Let both plogs be appended to before this returns, if that is possible."""
                offset = window.committed
                if not writers:
                    writers.append(threading.Thread(target=lambda: [plogs.append(one, 0, b"x") for one in ids]))
                    writers[0].start()
                    writers[0].join(0.3)
                return offset

            def __getattr__(self, name: str) -> object:
                return getattr(window, name)

        window = opened[0].window
        opened[0].window = SlowWindow()  # type: ignore[assignment]
        assert committed_offsets(opened) == [0, 0]
        writers[0].join()
        assert committed_offsets(opened) == [1, 1]


def test_raw_blocks_are_complete_and_carry_their_checksums(servers: PlogServers, cpo: Cpo) -> None:
    """What is copied is checked wherever it arrives; a part that is no block is refused."""
    with servers.open(cpo=cpo) as plogs:
        plog_id = plogs.create()
        offset = 0
        for number in range(1, 20):
            offset = plogs.append(plog_id, offset, bytes([number]) * number * 100)
        raw = plogs.raw(plog_id, 0, offset, limit=READ_LIMIT)
        assert (raw.offset, raw.end, check_raw(raw, where="x")) == (0, offset, 19)
        part = plogs.raw(plog_id, 100, offset, limit=250)
        assert (part.offset, part.end, check_raw(part, where="x")) == (100, 600, 2), "complete blocks"
        assert plogs.raw(plog_id, offset, offset, limit=10).data == b""
        for wrong in ((50, offset), (0, 150)):
            with pytest.raises(BadArgument, match="no blocks of plog"):
                plogs.raw(plog_id, *wrong, limit=READ_LIMIT)


@pytest.mark.parametrize("seed", range(4))
def test_a_backup_between_moves_of_logs_has_all_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    """A plog that has lost a replica may have more than was acknowledged, and its log goes on in another group."""
    groups = FlakyGroups(FilePlogs(MemoryDisk()), chance=0.03, seed=seed)
    with ExitStack() as resources:
        cpo = resources.enter_context(open_cpo("memory:"))
        resources.enter_context(groups)
        manager = resources.enter_context(MetadataManager.open(groups, cpo, PARTITION, sizes=SMALL))
        with Engine(manager, resources=resources.pop_all()) as store:
            fill(store)
            backup_store(store, tmp_path / "b")
            with store.writer(OTHER) as writer:
                for number in range(40):
                    writer.write_event(b"%d" % number).result()
            backup_store(store, tmp_path / "b")
            before = contents(store)
    assert groups.losses
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as restored:
        assert contents(restored) == before


def test_a_server_with_plogs_on_plog_servers_is_backed_up_over_the_network(tmp_path: Path) -> None:
    """An operator backs up the cluster from another machine, which has neither its plogs nor its oracle."""
    servers = PlogServers(tmp_path / "servers", *GROUPS, cluster="plant")
    try:
        with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
            cpo.register_cluster("plant", {group: servers.addresses(group) for group in GROUPS})
        config = config_of(tmp_path, "a", plogs="cluster:plant")
        with Server(config) as server:
            eventually(lambda: status_of(server.http_port) == "ok")
            with penstock.connect(server.address) as store:
                fill(store)
                backup_store(store, tmp_path / "b")
                assert check_store(store).is_good
                before = contents(store)
    finally:
        servers.close()
    restore_store(tmp_path / "b", tmp_path / "c")
    with open_store(tmp_path / "c") as restored:
        assert contents(restored) == before
