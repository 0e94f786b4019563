"""Logs on real plog servers, of which one stops."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from penstock.log import MetadataManager
from tests.plog_servers import PlogServers

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_continues_in_another_group_when_a_server_stops_and_the_next_owner_reads_it(tmp_path: Path) -> None:
    """What FlakyGroups stand for: callers wait for a moment, and with two servers left nothing is lost."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo:
        with servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            log = manager.log("log")
            log.append(b"begin;")
            group = log.tail.plog_id.group
            appends = [log.submit(f"{number};".encode()) for number in range(100)]
            servers.stop(group, 1)
            appends += [log.submit(f"{number};".encode()) for number in range(100, 200)]
            assert [append.result() for append in appends] == [append.end for append in appends]
            log.append(b"200;")  # the two that are left may have had all of the others
            assert log.tail.plog_id.group != group
        with servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
            log = manager.log("log")
            assert [bytes(view) for _, view in log.blocks(0, log.length)] == [
                b"begin;", *(f"{number};".encode() for number in range(201)),
            ]  # fmt: skip
            log.append(b"and so on")
