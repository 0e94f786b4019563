"""Plog servers whose disk is full: they answer, so it takes a refused write to notice; then everybody can see it."""

from __future__ import annotations

import errno
import logging
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import pytest
from prometheus_client import generate_latest

from penstock.cpo import open_cpo
from penstock.embedded import open_store_at
from penstock.errors import GroupUnavailable, PenstockError
from penstock.model import PlogId
from penstock.plog.replicated import _disks
from penstock.ports import SystemRandom
from penstock.server import _health, cluster_members
from penstock.server._health import Health
from penstock.server._log_counts import LogCounter
from penstock.server._metrics import new_registry
from penstock.server._scrub_report import ScrubReport
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.plog.replicated import ReplicatedPlogs
    from penstock.plog.server._replicas import PartitionReplicas


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlogServers]:
    """Two groups, whose owner tries again at once."""
    monkeypatch.setattr(_disks, "_AGAIN_S", 0.02)
    with closing(PlogServers(tmp_path, "east", "west")) as servers:
        yield servers


def replicas_of(servers: PlogServers, group: str, place: int) -> PartitionReplicas:
    return servers.running[group, place].folder.partitions()["main"].replicas


def fill(patch: pytest.MonkeyPatch, servers: PlogServers, group: str, place: int) -> None:
    """Leave no space for a new file."""

    def full(_: str) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(replicas_of(servers, group, place)._disk, "create", full)


def create_in(plogs: ReplicatedPlogs, group: str) -> PlogId:
    return plogs.create(plog_id=PlogId.new(cluster="local", group=group, random=SystemRandom()), size=1000)


def has_complete_group(plogs: ReplicatedPlogs) -> bool:
    return plogs.replication_use.has_complete_group


def roles(cpo: Cpo) -> dict[str, str]:
    """Return the roles of the plog servers that run."""
    return {member.server: member.role for member in cluster_members(cpo) if member.until and member.scrub is not None}


def test_a_server_whose_disk_is_full_is_away_until_it_has_space(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The owner wrote nothing for minutes, and every figure said that all was well. The server says it once."""
    caplog.set_level(logging.INFO)
    address = servers.addresses("west")[1]
    with servers.oracle() as cpo, servers.open(cpo) as plogs, monkeypatch.context() as patch:
        fill(patch, servers, "west", 1)
        for _ in range(3):
            with pytest.raises(GroupUnavailable, match="no space left"):
                create_in(plogs, "west")
        assert plogs.replication_use.away == {address: "its disk is full"}
        assert has_complete_group(plogs)
        assert {plogs.create(size=1000).group for _ in range(4)} == {"east"}
        fill(patch, servers, "east", 0)
        with pytest.raises(GroupUnavailable, match="no space left"):
            create_in(plogs, "east")
        assert not has_complete_group(plogs)
        files = replicas_of(servers, "west", 1).uids()
        patch.undo()
        eventually(lambda: plogs.replication_use.away == {} and has_complete_group(plogs))
        eventually(lambda: replicas_of(servers, "west", 1).uids() == files)  # what was tried is deleted
        create_in(plogs, "west")
    of_server = [record.message for record in caplog.records if record.name == "penstock.plog_server"]
    assert [sum(text in message for message in of_server) for text in ("takes no writes", "writes again")] == [2, 2]


def test_a_server_that_was_restarted_is_not_away(servers: PlogServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk may be another one; if it is not, the next write is refused, too."""
    monkeypatch.setattr(_disks, "_AGAIN_S", 600.0)
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        with monkeypatch.context() as patch:
            fill(patch, servers, "west", 1)
            with pytest.raises(GroupUnavailable):
                create_in(plogs, "west")
        assert plogs.replication_use.away
        servers.stop("west", 1)
        servers.start("west", 1)
        eventually(lambda: plogs.replication_use.away == {})


def test_an_append_that_finds_no_space_makes_its_server_away(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plog has its space from the start, but not that of very many headers."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = create_in(plogs, "west")
        replicas = replicas_of(servers, "west", 2)
        with monkeypatch.context() as patch:
            fill(patch, servers, "west", 2)  # or what is tried at once would succeed

            def full(*_: object) -> NoReturn:
                raise replicas_full

            replicas_full = OSError(errno.ENOSPC, "No space left on device")
            with replicas._table.entered(plog_id) as plog:
                plog.allocated = 0
                patch.setattr(type(plog.open_file()), "reserve", full)
            with pytest.raises(PenstockError, match="it answered disk-full"):
                plogs.append(plog_id, 0, b"x")
            assert plogs.replication_use.away == {servers.addresses("west")[2]: "its disk is full"}
            assert not replicas.takes_writes
        eventually(lambda: plogs.replication_use.away == {} and replicas.takes_writes)


def test_health_metrics_and_status_show_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one group, every write fails meanwhile: who watches the server has to learn it."""
    monkeypatch.setattr(_health, "_GOOD_FOR_S", 0.0)
    monkeypatch.setattr(_disks, "_AGAIN_S", 0.02)
    url = f"sqlite:{tmp_path}/cpo.db"
    with closing(PlogServers(tmp_path, "east")) as servers, open_cpo(url) as cpo:
        cpo.register_cluster("local", {"east": servers.addresses("east")})
        server, address = servers.running["east", 1], servers.addresses("east")[1]
        cpo.acquire("plog-server/local/east/1", f"{address} 1", seconds=60)
        report = ScrubReport(cpo, server, server.folder.identity, address)
        with open_store_at("cluster:local", url, address="cluster:local") as store:
            health = Health(store, None)
            registry = new_registry(store, {}, list, health, None, sent_bytes=lambda: 0, logged=LogCounter())
            with monkeypatch.context() as patch:
                fill(patch, servers, "east", 1)
                plogs = store.manager.plogs
                with pytest.raises(GroupUnavailable):
                    plogs.create(size=1000)
                trouble = health.trouble()
                assert trouble is not None
                assert trouble.kind == "no group of plog servers is complete, so nothing can be written"
                assert f"{address} (its disk is full)" in trouble.detail
                metrics = generate_latest(registry).decode()
                assert "penstock_plog_servers_away 1.0" in metrics
                assert "penstock_healthy 0.0" in metrics
                report.write()
                assert roles(cpo) == {address: "unwritable"}
            eventually(lambda: health.trouble() is None)
            report.write()
            assert roles(cpo) == {address: "plog-server"}
