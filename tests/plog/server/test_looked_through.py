"""A server that comes back may have lost its disk: nobody is told that all is repaired before that is known."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from penstock.log import MetadataManager, PlogSizes
from penstock.plog.replicated._repairer import Repairer
from penstock.server import cluster_members
from penstock.server._plog_server import Presence
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from penstock.cpo import Cpo
    from penstock.plog.replicated import ReplicatedPlogs
    from penstock.wire import ClusterMember

LOOKED_THROUGH = "is being looked through"
SIZES = PlogSizes(first=200, largest=200)


def held(servers: PlogServers, group: str, place: int) -> set[str]:
    """Return the names of the replicas that a server has."""
    return {file.name for file in servers.folder(group, place).glob("partition-main/*.plog")}


def members(cpo: Cpo, plogs: ReplicatedPlogs | None, group: str) -> list[ClusterMember]:
    """Return what ``cluster status`` shows of a group, as the owner of the plogs sends it, or by the oracle alone."""
    use = None if plogs is None else plogs.replication_use
    return [member for member in cluster_members(cpo, use) if member.partition == f"local/{group}"]


def is_repaired(cpo: Cpo, plogs: ReplicatedPlogs | None, group: str) -> bool:
    """Return whether an operator may empty the next disk of a group, as far as ``cluster status`` shows."""
    return all(member.repair == 0 and not member.note for member in members(cpo, plogs, group))


def create_sealed(plogs: ReplicatedPlogs, group: str, count: int) -> None:
    """Create sealed plogs in a group, whatever is chosen for new ones."""
    made = 0
    while made < count:
        plog_id = plogs.new_id()
        if plog_id.group == group:
            plogs.create(size=100, plog_id=plog_id)
            plogs.append(plog_id, 0, b"x" * 10)
            plogs.seal(plog_id, 10)
            made += 1


@contextmanager
def presences(servers: PlogServers, cpo: Cpo) -> Iterator[None]:
    """Have all servers hold their leases, as they do in their own processes with ``--cpo``."""
    held = []
    for (group, place), server in servers.running.items():
        identity, address = server.folder.identity, servers.addresses(group)[place]
        name = f"plog-server/local/{group}/{identity.server}"
        held.append(Presence(cpo, name, f"{address} {identity.instance.hex()}"))
    yield
    for presence in held:
        presence.release()


def test_an_emptied_server_is_not_shown_as_repaired_before_its_replicas_are_back(tmp_path: Path) -> None:
    """An operator who empties one disk after another would delete the last copy of everything."""
    with closing(PlogServers(tmp_path)) as servers, servers.oracle() as cpo, servers.open(cpo) as plogs:
        create_sealed(plogs, "main", 50)
        eventually(lambda: is_repaired(cpo, plogs, "main"))
        everything = held(servers, "main", 0)
        for place in (0, 1, 2):
            servers.rob("main", place)
            eventually(lambda: bool(plogs.replication_use.away))
            assert not is_repaired(cpo, plogs, "main")
            assert None in {member.repair for member in members(cpo, plogs, "main")}
            servers.start("main", place)
            notes = set[str | None]()
            while not is_repaired(cpo, plogs, "main"):
                shown = members(cpo, plogs, "main")
                notes |= {member.note for member in shown}
                assert held(servers, "main", place) == everything or all(member.repair != 0 for member in shown)
            assert held(servers, "main", place) == everything
            assert LOOKED_THROUGH in notes


def test_a_server_that_comes_back_during_a_long_repair_is_listed_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair of a large disk takes hours, in which another group showed 0 though a server of it was empty."""
    begun, turns = threading.Event(), threading.Semaphore(0)
    copied = Repairer.copied

    def held_up(repairer: Repairer, group: str, size: int) -> None:
        copied(repairer, group, size)
        if group == "east":
            begun.set()
            assert turns.acquire(timeout=60)

    monkeypatch.setattr(Repairer, "copied", held_up)
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo, servers.open(cpo) as plogs:
        for group in ("east", "west"):
            create_sealed(plogs, group, 5)
        everything = held(servers, "west", 1)
        eventually(lambda: is_repaired(cpo, plogs, "east") and is_repaired(cpo, plogs, "west"))
        servers.rob("east", 1)
        servers.start("east", 1)
        assert begun.wait(60)
        servers.rob("west", 1)
        eventually(lambda: bool(plogs.replication_use.away))
        servers.start("west", 1)
        eventually(lambda: not plogs.replication_use.away)
        assert [member.note for member in members(cpo, plogs, "west")] == [LOOKED_THROUGH] * 3
        assert [member.repair for member in members(cpo, plogs, "west")] == [None] * 3
        assert not plogs.replication_use.is_known, "the metric is not a number"
        turns.release()  # one plog
        eventually(lambda: members(cpo, plogs, "west")[1].repair == len(everything))
        assert held(servers, "west", 1) == set()
        assert (members(cpo, plogs, "east")[1].repair or 0) >= 3, "most of the first group is still to be repaired"
        turns.release(100)
        eventually(lambda: is_repaired(cpo, plogs, "east") and is_repaired(cpo, plogs, "west"))
        assert held(servers, "west", 1) == everything


def test_the_oracle_alone_tells_whether_a_server_was_looked_through_since_it_started(tmp_path: Path) -> None:
    """Without an owner, a server that was emptied stays empty, however many rows there are."""
    with closing(PlogServers(tmp_path)) as servers, servers.oracle() as cpo:
        with presences(servers, cpo):
            assert {(m.repair, m.note) for m in members(cpo, None, "main")} == {(None, LOOKED_THROUGH)}
            with servers.open(cpo) as plogs:
                create_sealed(plogs, "main", 5)
                eventually(lambda: is_repaired(cpo, None, "main") and is_repaired(cpo, plogs, "main"))
            assert is_repaired(cpo, None, "main")
        everything = held(servers, "main", 1)
        servers.rob("main", 1)
        assert [member.repair for member in members(cpo, None, "main")] == [None] * 3, "a server is away"
        servers.start("main", 1)
        with presences(servers, cpo):
            assert {(m.repair, m.note) for m in members(cpo, None, "main")} == {(None, LOOKED_THROUGH)}
            with servers.open(cpo) as plogs:
                eventually(lambda: is_repaired(cpo, None, "main"))
                assert held(servers, "main", 1) == everything
                assert is_repaired(cpo, plogs, "main")


def test_plogs_that_no_server_has_any_more_are_noted(tmp_path: Path) -> None:
    """There is nothing to copy, so nothing is to be repaired; but the events are lost."""
    with (
        closing(PlogServers(tmp_path)) as servers,
        servers.oracle() as cpo,
        servers.open(cpo) as plogs,
        MetadataManager.open(plogs, cpo, "main") as manager,
    ):
        log = manager.log("log", sizes=SIZES)
        log.append(b"x" * 150)
        log.append(b"y" * 150)
        sealed = log.plogs()[0][0]
        servers.stop("main", 0)
        servers.start("main", 0)
        repairer = plogs._repairer
        assert repairer is not None
        eventually(lambda: sealed in repairer._held.get("main", set()))
        for place in range(3):
            servers.stop("main", place)
        for place in range(3):
            (servers.folder("main", place) / "partition-main" / f"{sealed.uid}.plog").unlink()
            servers.start("main", place)
        eventually(lambda: members(cpo, plogs, "main")[0].note == "plogs without a good replica: 1")
        assert "plogs without a good replica: 1" in (members(cpo, None, "main")[0].note or "")
