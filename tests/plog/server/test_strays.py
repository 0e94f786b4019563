"""Plogs that one server alone has: those that a log needs are copied, and those that were deleted do not come back."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.embedded import open_store_at
from penstock.log import MetadataManager, PlogSizes
from penstock.model import PlogId
from penstock.plog.replicated._strays import Strays
from penstock.server import cluster_members
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.plog.replicated import ReplicaSteps, ReplicatedPlogs

SIZES = PlogSizes(first=200, largest=200)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PlogServers]:
    """One group."""
    with closing(PlogServers(tmp_path)) as servers:
        yield servers


def held(servers: PlogServers, place: int) -> set[str]:
    """Return the uids of the plogs that a server has."""
    return {file.stem for file in (servers.folder("main", place) / "partition-main").glob("*.plog")}


def await_session(servers: PlogServers, plogs: ReplicatedPlogs, place: int) -> None:
    """Wait until a server that was started again is used."""
    instance = servers.running["main", place].folder.identity.instance
    eventually(lambda: plogs._servers["main", place][1] == instance and plogs.is_up("main"))


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "open"])
def test_a_deleted_plog_does_not_come_back_if_a_folder_is_set_back(
    servers: PlogServers, caplog: pytest.LogCaptureFixture, *, sealed: bool
) -> None:
    """Two servers have lost it, as it seems; but what a user has deleted must not be copied to all three again."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
        deleted, kept = manager.log("deleted"), manager.log("kept", sizes=SIZES)
        deleted.append(b"secret")
        kept.append(b"x" * 150)
        kept.append(b"y" * 150)  # does not fit: the first plog is sealed
        plog_id = deleted.tail.plog_id
        if sealed:
            deleted.release()
        servers.save("main", 2)
        await_session(servers, plogs, 2)
        manager.delete_log("deleted")
        eventually(lambda: all(plog_id.uid not in held(servers, place) for place in range(3)) and not cpo.keys("seal/"))
        servers.set_back("main", 2)
        eventually(lambda: "alone has plogs that no log knows" in caplog.text)
        repairer = plogs._repairer
        assert repairer is not None
        alone = {PlogId("local", "main", uid) for uid in held(servers, 2) - held(servers, 0)}
        count = len(alone - manager.known_among(alone))
        assert plog_id in repairer.strays
        eventually(lambda: plogs.replication_use.strays == {servers.addresses("main")[2]: count})
        notes = {member.server: member.note for member in cluster_members(cpo, plogs.replication_use)}
        assert f"plogs that no log knows: {count}" in (notes[servers.addresses("main")[2]] or "")
        repairer.note_damaged(plog_id, frozenset({2}))
        eventually(lambda: not repairer._damaged)
        eventually(lambda: not cpo.keys("seal/"))  # else repair would try to mend it for ever
        assert [plog_id.uid in held(servers, place) for place in range(3)] == [False, False, True]
        assert b"".join(bytes(view) for _, view in kept.blocks(0, 300)) == b"x" * 150 + b"y" * 150


def test_a_plog_of_a_log_is_copied_though_one_server_alone_has_it(servers: PlogServers) -> None:
    """Two servers that lose their disks at once leave one copy, which is everything that there is."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            log = manager.log("log", sizes=SIZES)
            log.append(b"x" * 150)
            log.append(b"y" * 150)
            sealed = log.plogs()[0][0]
        for place in (0, 1):
            (servers.folder("main", place) / "partition-main" / f"{sealed.uid}.plog").unlink()
            servers.stop("main", place)
            servers.start("main", place)
        with servers.open(cpo) as plogs:
            eventually(lambda: plogs._repairer is not None and sealed in plogs._repairer.strays)
            assert plogs.replication_use.strays == {}, "before the logs are open, no plog is known"
            with MetadataManager.open(plogs, cpo, "main") as manager:
                eventually(lambda: all(sealed.uid in held(servers, place) for place in range(3)))
                eventually(lambda: not cpo.keys("seal/"))
                assert plogs.replication_use.strays == {}
                log = manager.log("log")
                assert b"".join(bytes(view) for _, view in log.blocks(0, 300)) == b"x" * 150 + b"y" * 150


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_plog_whose_creation_is_under_way_while_its_group_is_listed_is_no_stray(*, is_alone: bool) -> None:
    """It would never be repaired: its damage was dropped, if the first server alone had it at that moment."""
    strays, plog_id = Strays(), PlogId("local", "main", "a" * 32)

    def looked_at_again(asked: PlogId, steps: ReplicaSteps[bool]) -> bool:
        assert (asked, plog_id in strays) == (plog_id, True), "it is not repaired meanwhile"
        steps.close()
        return is_alone

    strays.find("main", {plog_id: 0}, looked_at_again)
    assert (plog_id in strays) == is_alone


def test_every_plog_that_a_store_has_made_is_known(tmp_path: Path, servers: PlogServers) -> None:
    """One that is not would be left with a single copy, if it ever has but one."""
    url = f"sqlite:{tmp_path}/cpo.db"
    with open_cpo(url) as cpo:
        cpo.register_cluster("local", {"main": servers.addresses("main")})

    def stored() -> set[PlogId]:
        return {PlogId("local", "main", uid) for place in range(3) for uid in held(servers, place)}

    for turn in range(3):
        with open_store_at("cluster:local", url, address="cluster:local") as store:
            if not turn:
                store.create_stream("plant/readings")
                store.create_stream("plant/others")
            manager = store.manager

            def unknown(manager: MetadataManager = manager) -> set[PlogId]:
                found = stored() - manager.known_among(stored())
                return found & stored()  # a plog that was deleted meanwhile is not known any more

            with store.writer("plant/readings") as writer:
                for number in range(30):
                    writer.write_event(b"%d" % number * 1000)
                writer.write_event(b"large" * 1_000_000).result()
                assert not unknown()
            with store.transactional_writer("plant/readings") as writes, writes.begin() as transaction:
                transaction.write_event(b"in a transaction")
                assert not unknown()
            store.seal_stream("plant/others")
            store.delete_stream("plant/others")
            assert not unknown()
            store.create_stream("plant/others")
            assert not unknown()
            assert len(stored()) > 5
