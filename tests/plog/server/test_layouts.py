"""Which servers may be away before a store cannot be opened, and a layout of groups for four machines."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import PenstockError
from penstock.log import MetadataManager
from penstock.plog.replicated import open_cluster_plogs
from penstock.server import Server
from tests.plog_servers import PlogServers
from tests.sampling import in_case
from tests.server.apart import eventually
from tests.server.cluster import ask, config_of, status_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cpo import Cpo

MACHINES: Final = (1, 2, 3, 4)
LAYOUT: Final = {
    "a": (1, 2, 3),
    "b": (1, 2, 4),
    "c": (1, 3, 4),
    "d": (2, 3, 4),
}  # by group, the machines of its servers


def appended(cpo: Cpo, data: bytes) -> bytes:
    """Open the store as a new owner, append, and return all that it has."""
    with open_cluster_plogs("local", cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
        log = manager.log("log")
        log.append(data)
        return b"".join(bytes(view) for _, view in log.blocks(0, log.length))


def set_machine(servers: PlogServers, machine: int, *, runs: bool) -> None:
    """Stop or start all plog servers of a machine."""
    for group, machines in LAYOUT.items():
        if machine in machines:
            (servers.start if runs else servers.stop)(group, machines.index(machine))


def test_with_four_groups_on_four_machines_any_one_of_them_may_die(tmp_path: Path) -> None:
    """One group has no server on it: a living owner goes on there, and a new one opens and writes."""
    with closing(PlogServers(tmp_path, *LAYOUT)) as servers, servers.oracle() as cpo:
        written = b""
        for machine in MACHINES:
            with in_case(f"machine {machine}"):
                with open_cluster_plogs("local", cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
                    log = manager.log("log")
                    log.append(b"before %d;" % machine)
                    set_machine(servers, machine, runs=False)
                    log.append(b"while %d is away;" % machine)
                    assert plogs.replication_use.has_complete_group
                    written += b"before %d;while %d is away;" % (machine, machine)
                    assert b"".join(bytes(view) for _, view in log.blocks(0, log.length)) == written
                written += b"by a new owner;"
                assert appended(cpo, b"by a new owner;") == written
                set_machine(servers, machine, runs=True)
                written += b"after;"
                assert appended(cpo, b"after;") == written


def test_a_new_owner_without_a_complete_group_is_told_which_servers_are_missing(tmp_path: Path) -> None:
    """An owner that lives reads on; a new one has to create a plog to open the store, and a standby tries again."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo:
        with open_cluster_plogs("local", cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            log = manager.log("log")
            log.append(b"first;")
            servers.stop("east", 1)
            servers.stop("west", 2)
            assert bytes(plogs.read(log.tail.plog_id, 0, 6)) == b"first;"
        with pytest.raises(PenstockError) as raised:
            appended(cpo, b"second;")
        for group, place in (("east", 1), ("west", 2)):
            assert f"{servers.addresses(group)[place]} (Connection refused)" in str(raised.value)
        assert str(raised.value).endswith(" are away; try again when its servers run")
        servers.start("west", 2)
        assert appended(cpo, b"second;") == b"first;second;"


def test_a_server_that_stands_by_serves_as_soon_as_one_group_is_complete(tmp_path: Path) -> None:
    """Its health says until then which plog servers are missing; nobody has to restart it."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers:
        with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
            cpo.register_cluster("local", {group: servers.addresses(group) for group in ("east", "west")})
        servers.stop("east", 1)
        servers.stop("west", 2)
        with Server(config_of(tmp_path, "a", plogs="cluster:local")) as server:
            missing = [servers.addresses("east")[1], servers.addresses("west")[2]]
            eventually(lambda: all(address in ask(server.http_port)[1] for address in missing))
            assert ask(server.http_port)[0] == 503
            servers.start("west", 2)
            eventually(lambda: status_of(server.http_port) == "ok")
