"""The status of a cluster, by its oracle: the servers of the store, and the plog servers with repair and scrub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import astuple

from penstock.errors import NoCluster
from penstock.server._leases import cluster_servers
from penstock.server._plog_server import plog_server_rows
from penstock.server._scrub_report import role_of
from penstock.wire import ClusterMember

if TYPE_CHECKING:
    from penstock.cpo import Cpo
    from penstock.plog import ReplicationUse
    from penstock.server._plog_server import PlogServerRow
    from penstock.server._session import Session

__all__ = ["cluster_members", "send_members"]

_NOTE_SIZE_MAX: Final = 200  # characters; a reason may come from anything that listens on the port of a plog server


def cluster_members(cpo: Cpo, use: ReplicationUse | None = None) -> list[ClusterMember]:
    """Return the servers of the store that an oracle is of, then the plog servers of the clusters in it.

    With the ``use`` of the owner, it is noted what the owner knows about the plog servers.
    """
    servers = [
        ClusterMember(
            server.address,
            "standby" if server.partition is None else "owner",
            server.partition,
            since=round(server.since * 1000),
            until=round(server.until * 1000),
            epoch=server.epoch,
        )
        for server in cluster_servers(cpo)
    ]
    plog_servers = [
        ClusterMember(
            server.address,
            role_of(server.scrub, is_running=server.is_running),
            f"{server.cluster}/{server.group}",
            until=round(server.until * 1000) if server.is_running else None,
            repair=server._replace(is_listed=_is_listed(server, use)).repair,
            scrub=None if server.scrub is None else server.scrub.percent,
            damaged=None if server.scrub is None else server.scrub.damaged,
            note=_note(server, use),
        )
        for server in plog_server_rows(cpo)
    ]
    return [*servers, *plog_servers]


def _is_listed(server: PlogServerRow, use: ReplicationUse | None) -> bool | None:
    """Return whether it is known what the group of a plog server lacks; None if a server of the group is away.

    A server that was just started has told the oracle, but perhaps the owner has not noticed yet. A server without an
    oracle is known to the owner alone.
    """
    if use is None or server.address not in use.listed or server.is_listed is False:
        return server.is_listed
    return use.listed[server.address]


def _note(server: PlogServerRow, use: ReplicationUse | None) -> str | None:
    """Return what is known about a plog server: one line, without characters that a terminal would obey."""
    address = server.address
    lost = server.lost if use is None else use.lost.get(address, server.lost)
    strays = None if use is None else use.strays.get(address)
    notes = [
        None if use is None else use.away.get(address),
        "is being looked through" if _is_listed(server, use) is False else None,
        f"plogs without a good replica: {lost}" if lost else None,
        f"plogs that no log knows: {strays}" if strays else None,
        None if use is None else use.repairs.get(address),
    ]
    text = "; ".join(note for note in notes if note)
    return "".join(part if part.isprintable() else " " for part in text[:_NOTE_SIZE_MAX]) or None


def send_members(session: Session) -> list[Any]:
    """Return the members for a client; ``NoCluster`` if the store of this server has one owner and no others."""
    members = cluster_members(session.store.manager.cpo, session.store.replication_use)
    if not members:
        raise NoCluster
    return [list(astuple(member)) for member in members]
