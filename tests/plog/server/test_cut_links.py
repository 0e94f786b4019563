"""Links to plog server processes that are cut, also in one direction only: what was in doubt is there once or not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import PersistenceCluster, open_cpo
from penstock.errors import GroupUnavailable, ReplicaLost, StoreFenced
from penstock.log import MetadataManager
from penstock.plog.replicated import open_cluster_plogs
from tests.cutting_proxy import CuttingProxy, cutting_proxy
from tests.plog_servers import GROUPS, PlogServerProcesses
from tests.sampling import in_case
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.log import LogStream
    from penstock.model import PlogId
    from penstock.plog.replicated import ReplicatedPlogs

pytestmark = pytest.mark.long


class ServersBehindProxies:
    """Two groups of plog server processes; the owner reaches each of them through a proxy.

    Each test has a partition of its own.
    """

    partition = ""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.processes = stack.enter_context(PlogServerProcesses(folder))
        self.proxies = {
            place: stack.enter_context(cutting_proxy(int(address.rpartition(":")[2])))
            for place, address in self.processes.addresses.items()
        }

    def cluster(self) -> PersistenceCluster:
        """Return the cluster whose addresses are those of the proxies."""
        groups = {group: [f"127.0.0.1:{proxy.port}" for proxy in self.of(group)] for group in GROUPS}
        return PersistenceCluster.of("plant", groups)

    def direct(self) -> PersistenceCluster:
        """Return the cluster without the proxies."""
        addresses = self.processes.addresses
        return PersistenceCluster.of(
            "plant", {group: [addresses[group, place] for place in range(3)] for group in GROUPS}
        )

    def oracle(self) -> Cpo:
        """Return an oracle in memory in which the proxies are registered."""
        cpo = open_cpo("memory:")
        cpo.register_cluster("plant", self.cluster().groups)
        return cpo

    def open(self, cpo: Cpo) -> ReplicatedPlogs:
        """Open the plogs as a new owner."""
        return open_cluster_plogs("plant", cpo, partition=self.partition)

    def of(self, group: str) -> list[CuttingProxy]:
        """Return the proxies of a group."""
        return [self.proxies[group, place] for place in range(3)]

    def has(self, plog_id: PlogId, place: int, content: bytes) -> bool:
        """Return whether the folder of a server has this content, in a replica or in its journal."""
        folder = self.processes.folder(plog_id.group, place) / f"partition-{self.partition}"
        return any(content in file.read_bytes() for file in folder.iterdir())

    def has_file(self, plog_id: PlogId, place: int) -> bool:
        """Return whether a server has a replica."""
        folder = self.processes.folder(plog_id.group, place) / f"partition-{self.partition}"
        return (folder / f"{plog_id.uid}.plog").exists()


@pytest.fixture(scope="module")
def all_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServersBehindProxies]:
    with ExitStack() as stack:
        yield ServersBehindProxies(tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture
def servers(all_servers: ServersBehindProxies, tmp_path: Path) -> ServersBehindProxies:
    all_servers.partition = tmp_path.name
    return all_servers


def is_fenced(plogs: ReplicatedPlogs) -> bool:
    """Return whether an owner has noticed that there is a newer one."""
    try:
        plogs.check_running()
    except StoreFenced:
        return True
    return False


def content_of(log: LogStream) -> bytes:
    return b"".join(bytes(view) for _, view in log.blocks(0, log.length))


def test_an_append_whose_answer_does_not_come_is_made_in_the_other_group_and_is_there_once(
    servers: ServersBehindProxies,
) -> None:
    """In one direction the link works: the server has the append, or has not, and the owner cannot know which."""
    with (
        servers.oracle() as cpo,
        servers.open(cpo) as plogs,
        MetadataManager.open(plogs, cpo, servers.partition) as manager,
    ):
        log, expected = manager.log("log"), b""
        for number, direction in enumerate(("answers", "requests", "answers")):
            with in_case(f"{number}: no {direction}"):
                log.append(b"before %d;" % number)
                plog_id = log.tail.plog_id
                passes = getattr(servers.proxies[plog_id.group, number], direction)
                passes.clear()
                log.append(b"in doubt %d;" % number)
                expected += b"before %d;in doubt %d;" % (number, number)
                assert log.tail.plog_id.group != plog_id.group
                assert servers.has(plog_id, number, b"in doubt %d;" % number) == (direction == "answers")
                assert content_of(log) == expected
                passes.set()  # what was held arrives now, if its connection is still there
                eventually(lambda: not plogs.replication_use.away and not cpo.keys("seal/"))
                assert content_of(log) == expected


def test_an_owner_that_reaches_no_server_says_so_and_goes_on_when_it_does(servers: ServersBehindProxies) -> None:
    """With no answer from anywhere, there is an error; what it was not sure of is there once or not at all."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, b"acknowledged")
        for direction in ("answers", "requests"):
            with in_case(direction):
                for proxy in servers.proxies.values():
                    getattr(proxy, direction).clear()
                with pytest.raises(ReplicaLost):
                    plogs.append(plog_id, 12, b"in doubt")
                with pytest.raises(GroupUnavailable):
                    plogs.seal(plog_id, 1000)
                with pytest.raises(GroupUnavailable):
                    plogs.create(size=1000)
                for proxy in servers.proxies.values():
                    getattr(proxy, direction).set()
                eventually(lambda: not plogs.replication_use.away)
                assert plogs.seal(plog_id, 1000) == 12
                assert bytes(plogs.read(plog_id, 0, 12)) == b"acknowledged"
                plog_id = plogs.create(size=1000)
                plogs.append(plog_id, 0, b"acknowledged")


@pytest.mark.parametrize("direction", ["answers", "requests"])
def test_what_an_owner_sent_before_its_successor_came_is_acknowledged_only_if_it_is_there(
    servers: ServersBehindProxies, direction: str
) -> None:
    """Its bytes were on their way all the time, and arrive on a connection that is open: the session is fenced.

    So nothing is created either that the successor, which has sealed what it found, does not know.
    """
    with servers.oracle() as cpo, servers.open(cpo) as former, ThreadPoolExecutor(1) as thread:
        plog_id, late = former.create(size=1000), former.new_id()
        former.append(plog_id, 0, b"acknowledged")
        for proxy in servers.proxies.values():
            getattr(proxy, direction).clear()
        pending = former.submit(plog_id, 12, b"in doubt")
        creation = thread.submit(former.create, size=1000, plog_id=late)
        if direction == "answers":
            eventually(lambda: all(servers.has(plog_id, place, b"in doubt") for place in range(3)))
            eventually(lambda: all(servers.has_file(late, place) for place in range(3)))
        cpo.change_cluster(servers.cluster(), servers.direct())
        with servers.open(cpo) as plogs:
            length = plogs.seal(plog_id, 1000)
            assert length == (20 if direction == "answers" else 12)
            for proxy in servers.proxies.values():
                getattr(proxy, direction).set()
            with suppress(StoreFenced, ReplicaLost):  # perhaps it has waited too long already
                assert (pending.result(), direction) == (length, "answers")
            with suppress(StoreFenced, GroupUnavailable):  # the same
                assert (creation.result(), direction) == (late, "answers")
            with pytest.raises((StoreFenced, ReplicaLost)):
                former.append(plog_id, 20, b"more")
            eventually(lambda: is_fenced(former))
            if direction == "requests":
                assert not any(servers.has_file(late, place) for place in range(3))
            eventually(lambda: not cpo.keys("seal/"))
            assert plogs.info(plog_id).length == length
            assert bytes(plogs.read(plog_id, 0, length)) == b"acknowledgedin doubt"[:length]
