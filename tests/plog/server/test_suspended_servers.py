"""A plog server that hangs, as one that is suspended does: owners and readers go on with the others soon."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.log import MetadataManager
from penstock.model import PlogId
from penstock.plog.replicated import _link, _links, open_cluster_plogs
from tests.cutting_proxy import CuttingProxy
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.plog.replicated import ReplicatedPlogs

LONG_S = 60.0  # what would be waited for a server that hangs; a test that does so fails after half of it


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PlogServers]:
    """Two groups."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers:
        yield servers


@pytest.fixture
def proxy(servers: PlogServers) -> Iterator[CuttingProxy]:
    """A proxy before a server of the first group, which hangs while the proxy lets nothing pass."""
    with closing(CuttingProxy(int(servers.addresses("east")[1].rpartition(":")[2]))) as proxy:
        yield proxy
        proxy.passes.set()


def oracle(servers: PlogServers, proxy: CuttingProxy, *groups: str) -> Cpo:
    """Return an oracle that knows the proxy in the place of its server."""
    cpo, east = open_cpo("memory:"), servers.addresses("east")
    addresses = {"east": [east[0], f"127.0.0.1:{proxy.port}", east[2]], "west": servers.addresses("west")}
    cpo.register_cluster("local", {group: addresses[group] for group in groups})
    return cpo


def test_a_new_owner_does_not_wait_for_a_server_that_hangs(
    servers: PlogServers, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took 5 seconds, which is all the time that a hand-over may take; the server is used when it is back."""
    monkeypatch.setattr(_links, "_SETTLE_S", LONG_S)
    monkeypatch.setattr(_link, "_HELLO_S", LONG_S)
    with oracle(servers, proxy, "east", "west") as cpo:
        with open_cluster_plogs("local", cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            manager.log("log").append(b"first;")
        proxy.passes.clear()
        start = time.monotonic()
        with open_cluster_plogs("local", cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            log = manager.log("log")
            log.append(b"second;")
            assert time.monotonic() - start < LONG_S / 2
            [reason] = plogs.replication_use.away.values()
            assert reason.startswith("no answer within ")
            proxy.passes.set()
            eventually(lambda: not plogs.replication_use.away)
            eventually(lambda: not cpo.keys("seal/"))
            assert b"".join(bytes(view) for _, view in log.blocks(0, log.length)) == b"first;second;"
            eventually(lambda: plogs.create(size=10).group == "east")


def test_a_new_owner_of_a_single_group_waits_for_all_of_its_servers(
    servers: PlogServers, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not create a plog, so the store would not open; a server may take long to make the fence durable."""
    monkeypatch.setattr(_links, "_GRACE_S", 0.0)
    with oracle(servers, proxy, "east") as cpo, ThreadPoolExecutor(1) as pool:
        proxy.passes.clear()
        opening = pool.submit(open_cluster_plogs, "local", cpo)
        eventually(lambda: all(servers.running["east", place].connections() for place in (0, 2)))
        proxy.passes.set()
        with opening.result() as plogs:
            assert plogs.is_up("east")


def test_a_read_of_a_replica_whose_server_hangs_is_answered_by_another_one_soon(
    servers: PlogServers, proxy: CuttingProxy
) -> None:
    """The first read took 5 seconds; now none does, and the server still counts as away after that time."""
    with oracle(servers, proxy, "east") as cpo, open_cluster_plogs("local", cpo) as plogs:
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, b"acknowledged")
        plogs.seal(plog_id, 12)
        plogs._links._answer_s = LONG_S
        proxy.passes.clear()
        start = time.monotonic()
        for _ in range(9):
            assert read_all(plogs, plog_id) == b"acknowledged"
        assert time.monotonic() - start < LONG_S / 2
        assert plogs.is_up("east"), "it may only be slow"
        links = plogs._links.of("east")
        assert links[1].late_since is not None
        links[1].late_since -= 2 * LONG_S
        for _ in range(3):
            assert read_all(plogs, plog_id) == b"acknowledged"
        states = [link.state for link in links]
        assert states == ["up", "down", "up"], "it has owed an answer for so long that it counts as away"
        proxy.passes.set()
        eventually(lambda: plogs.is_up("east"))


def test_a_slow_server_is_read_from_if_there_is_no_other(servers: PlogServers, proxy: CuttingProxy) -> None:
    """The two others are away: then the answer is worth waiting for."""
    with oracle(servers, proxy, "east") as cpo, open_cluster_plogs("local", cpo) as plogs:
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, b"acknowledged")
        plogs.seal(plog_id, 12)
        for place in (0, 2):
            servers.stop("east", place)
        eventually(lambda: len(plogs.replication_use.away) == 2)
        proxy.passes.clear()
        with ThreadPoolExecutor(3) as pool:
            reads = [pool.submit(read_all, plogs, plog_id) for _ in range(3)]
            eventually(lambda: plogs._links.of("east")[1].late_since is not None)
            proxy.passes.set()
            assert [read.result() for read in reads] == [b"acknowledged"] * 3


def read_all(plogs: ReplicatedPlogs, plog_id: PlogId) -> bytes:
    return bytes(plogs.read(plog_id, 0, 12))


def test_an_owner_that_ends_does_not_wait_long_for_a_server_that_hangs(
    servers: PlogServers, proxy: CuttingProxy
) -> None:
    """A hand-over took 12 seconds: each request of the owner, and of its repair, waited for 5 of them."""
    with oracle(servers, proxy, "east", "west") as cpo:
        plogs = open_cluster_plogs("local", cpo)
        plog_id = plogs.create(size=1000, plog_id=PlogId("local", "east", "1" * 32))
        plogs.append(plog_id, 0, b"acknowledged")
        plogs._links._answer_s = LONG_S
        proxy.passes.clear()
        with ThreadPoolExecutor(1) as pool:
            sealing = pool.submit(plogs.seal, plog_id, 12)  # before the owner ends
            eventually(lambda: bool(plogs._links.of("east")[1]._waiting))
            start = time.monotonic()
            plogs.prepare_close()
            assert sealing.result() == 12
            plogs.close()
        assert time.monotonic() - start < LONG_S / 6
        proxy.passes.set()
        with open_cluster_plogs("local", cpo) as plogs:
            assert read_all(plogs, plog_id) == b"acknowledged"
