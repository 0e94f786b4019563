"""What ``/metrics`` of an owner says of its plog servers, and of the repair of what they lost."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.cpo import open_cpo
from penstock.errors import LogUnavailable, WriterFailed
from penstock.server import Server
from tests.plog_servers import GROUPS, PlogServers
from tests.server.apart import eventually
from tests.server.cluster import config_of, status_of
from tests.server.metrics import figures_at

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 300_000
NAMES = ("penstock_plog_servers_away", "penstock_under_replicated_plogs")


def test_metrics_count_plogs_to_repair_and_the_bytes_that_repair_has_copied(tmp_path: Path) -> None:
    """An operator is woken by the first, and sees by the second that it gets better without him."""
    url = f"sqlite:{tmp_path}/cpo.db"
    with closing(PlogServers(tmp_path / "plog-servers", *GROUPS)) as servers, open_cpo(url) as cpo:
        cpo.register_cluster("local", {group: servers.addresses(group) for group in GROUPS})
        with Server(config_of(tmp_path, "a", plogs="cluster:local", cpo=url)) as server:

            def figures() -> dict[str, float]:
                return figures_at(server.http_port)

            eventually(lambda: status_of(server.http_port) == "ok")
            with penstock.connect(server.address) as store:
                store.create_stream("plant/readings")
                with suppress(WriterFailed), store.writer("plant/readings") as writer:
                    writer.write_event(bytes(SIZE)).result()
                    eventually(lambda: [figures()[name] for name in NAMES] == [0, 0])
                    assert figures()["penstock_repaired_bytes_total"] == 0
                    for group in GROUPS:
                        servers.stop(group, 1)
                    eventually(lambda: figures()["penstock_plog_servers_away"] == 2)
                    with pytest.raises(LogUnavailable):
                        writer.write_event(b"refused").result()
                    eventually(lambda: figures()["penstock_under_replicated_plogs"] >= 1)
                for group in GROUPS:
                    servers.start(group, 1)
                eventually(lambda: figures()["penstock_plog_servers_away"] == 0)
                with store.writer("plant/readings") as writer:
                    writer.write_event(b"the log leaves its plog").result()
                eventually(lambda: [figures()[name] for name in NAMES] == [0, 0])
                before = figures()["penstock_repaired_bytes_total"]
                for group in GROUPS:
                    servers.rob(group, 1)
                    servers.start(group, 1)
                eventually(lambda: figures()["penstock_repaired_bytes_total"] >= before + SIZE)
                eventually(lambda: [figures()[name] for name in NAMES] == [0, 0])
