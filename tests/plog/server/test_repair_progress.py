"""What operators see of repair: what it waits for, and that it gets on."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from penstock.errors import ReplicaLost
from penstock.plog.replicated._repairer import Repairer
from penstock.server import cluster_members
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.plog.replicated import ReplicatedPlogs


def notes(cpo: Cpo, plogs: ReplicatedPlogs) -> dict[str, str]:
    """Return the notes of ``cluster status`` by server, as the owner of the plogs sends them."""
    return {member.server: member.note for member in cluster_members(cpo, plogs.replication_use) if member.note}


def test_status_shows_which_server_repair_waits_for_and_how_much_it_has_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repair of a large disk takes hours: an operator has to see whether it gets on, or has to start a server."""
    has_copied, may_go_on = threading.Event(), threading.Event()
    copied = Repairer.copied

    def held_up(repairer: Repairer, group: str, size: int) -> None:
        copied(repairer, group, size)
        has_copied.set()
        may_go_on.wait(60)

    monkeypatch.setattr(Repairer, "copied", held_up)
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=10_000)
        plogs.append(plog_id, 0, b"x" * 5000)
        addresses = servers.addresses(plog_id.group)
        eventually(lambda: notes(cpo, plogs) == {})
        servers.rob(plog_id.group, 1)
        with pytest.raises(ReplicaLost):
            plogs.append(plog_id, 5000, b"in doubt")
        plogs.seal(plog_id, 10_000)
        waits = f"repair waits for {addresses[1]}"
        eventually(lambda: notes(cpo, plogs).get(addresses[0]) == waits)
        assert notes(cpo, plogs)[addresses[1]].endswith(f"; {waits}")
        assert notes(cpo, plogs)[addresses[1]] != f"; {waits}", "and why it is away"
        servers.start(plog_id.group, 1)
        assert has_copied.wait(60)
        progress = "repair is under way, 5,000 bytes copied so far"
        assert notes(cpo, plogs) == dict.fromkeys(addresses, progress)
        may_go_on.set()
        eventually(lambda: notes(cpo, plogs) == {})
        assert plogs.replication_use.copied_size == 5000
