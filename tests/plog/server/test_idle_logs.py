"""Logs that the present owner has not used: an owner before has left their last plogs open on all three servers."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from penstock.log import MetadataManager
from tests.plog_servers import GROUPS, PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model import PlogId

LOGS = ("a", "b", "c", "d")


def test_plogs_of_logs_that_no_owner_has_used_since_are_rebuilt(tmp_path: Path) -> None:
    """They count as under-replicated nowhere, so three servers that lost their disks in turn took all of them."""
    with closing(PlogServers(tmp_path, *GROUPS)) as servers, servers.oracle() as cpo:
        with servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            for name in LOGS:
                manager.log(name).append(name.encode())
        with servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            chains = [manager.partition.metadata.logs[name] for name in LOGS]
            present = [chain.active for chain in chains] + [chain.next for chain in chains]
            for place in range(3):
                for group in GROUPS:
                    servers.rob(group, place)
                    servers.start(group, place)
                eventually(lambda: all(has_replica(servers, plog_id, place) for plog_id in present))  # noqa: B023
                eventually(lambda: not plogs.replication_use.under_replicated and not cpo.keys("seal/"))
            for name in LOGS:
                log = manager.log(name)
                assert b"".join(bytes(view) for _, view in log.blocks(0, log.length)) == name.encode()
                log.append(b" and more")


def has_replica(servers: PlogServers, plog_id: PlogId, place: int) -> bool:
    """Return whether a server has a sealed replica of a plog."""
    partitions = servers.running[plog_id.group, place].folder.partitions()
    if "main" not in partitions or plog_id.uid not in (replicas := partitions["main"].replicas).uids():
        return False
    return replicas.info(plog_id).sealed
