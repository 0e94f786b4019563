"""How long it takes until events are acknowledged again after the owner of a store was killed.

Three servers share a store, all on this machine: in a folder with SQLite, in S3 (SeaweedFS) with PostgreSQL, and on
two groups of three plog servers with PostgreSQL, each in a process of its own. A client writes an event, the owner
gets ``kill -9``, and the client writes the next one; then the killed server is started again, and so on. At the end
each event is there once.

Run it on an otherwise idle machine: ``python -m bench.failover [KILLS] [folder|s3|cluster]``.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import penstock
from bench._measure import Figure, report
from penstock.cpo import open_cpo
from penstock.server._leases import RENEW_S
from tests import postgres, s3
from tests.plog_servers import PlogServerProcesses
from tests.server.cluster import Servers

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS = 50
SERVERS = 3
PROMISED_S = 5.0
STREAM = "plant/readings"


def measure(folder: Path, kills: int, **settings: str) -> list[float]:
    """Return for each kill the seconds until the next acknowledgement."""
    seconds = []
    with Servers(folder, SERVERS, **settings) as servers, penstock.connect(servers.address) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM, writer_id="bench") as writer:
            writer.write_event(b"0", key="k").result()
            for number in range(1, kills + 1):
                owner = servers.owner()
                time.sleep(random.uniform(0, RENEW_S))  # at any time between two renewals
                killed = time.monotonic()
                servers.processes[owner].kill()
                writer.write_event(b"%d" % number, key="k").result()
                seconds.append(time.monotonic() - killed)
                servers.start_again(owner)
        written = [int(event) for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
        assert written == list(range(kills + 1)), "each event once, in order"
    return seconds


def on_folder(folder: Path, kills: int) -> list[float]:
    """Measure servers that share a folder and an SQLite file."""
    return measure(folder / "file", kills)


def on_s3(folder: Path, kills: int) -> list[float]:
    """Measure servers that share a bucket and a PostgreSQL."""
    with ExitStack() as stack:
        os.environ.update(stack.enter_context(s3.s3_server(folder / "s3")))
        database = stack.enter_context(postgres.postgres_server(is_durable=True))
        return measure(folder / "bucket", kills, plogs=f"s3://{s3.BUCKET}/failover", cpo=database.url)


def on_cluster(folder: Path, kills: int) -> list[float]:
    """Measure servers that share six plog servers and a PostgreSQL."""
    (folder / "plog-servers").mkdir()
    with ExitStack() as stack:
        database = stack.enter_context(postgres.postgres_server(is_durable=True))
        plog_servers = stack.enter_context(PlogServerProcesses(folder / "plog-servers"))
        with open_cpo(database.url) as cpo:
            plog_servers.register(cpo)
        return measure(folder / "owners", kills, plogs="cluster:plant", cpo=database.url)


LINES: Final[dict[str, tuple[str, Callable[[Path, int], list[float]]]]] = {
    "folder": ("folder, SQLite", on_folder),
    "s3": ("S3, PostgreSQL", on_s3),
    "cluster": ("2 groups of plog servers, PostgreSQL", on_cluster),
}


def distribution(name: str, seconds: list[float]) -> Figure:
    """Return the line of a report; the ratio is that of the promise and the slowest."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    detail = {"min s": min(seconds), "p50 s": cuts[49], "p90 s": cuts[89], "p99 s": cuts[98], "max s": max(seconds)}
    return Figure(f"{name}, {len(seconds)} kills", PROMISED_S / max(seconds), 1.0, detail | {"promised s": PROMISED_S})


def main(kills: int, lines: list[str]) -> None:
    """Measure and print."""
    if reason := postgres.missing():
        sys.exit(reason)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for line in lines:
            name, run = LINES[line]
            found.append(distribution(name, run(Path(folder), kills)))
    report("From kill -9 of the owner to the next acknowledgement", found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.failover")
    parser.add_argument("kills", nargs="?", type=int, default=KILLS)
    parser.add_argument("line", nargs="?", choices=LINES, help="measure this one only")
    given = parser.parse_args()
    main(given.kills, list(LINES) if given.line is None else [given.line])
