"""How long it takes until events are acknowledged again after the owner of a store was killed.

Three servers share a store, in a folder with SQLite and in S3 (SeaweedFS) with PostgreSQL, all on this machine. A
client writes an event, the owner gets ``kill -9``, and the client writes the next one; then the killed server is
started again, and so on. At the end each event is there once.

Run it on an otherwise idle machine: ``python -m bench.failover [KILLS]``.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import penstock
from bench._measure import Figure, report
from penstock.server._leases import RENEW_S
from tests import postgres, s3
from tests.server.cluster import Servers

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


def distribution(name: str, seconds: list[float]) -> Figure:
    """Return the line of a report; the ratio is that of the promise and the slowest."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    detail = {"min s": min(seconds), "p50 s": cuts[49], "p90 s": cuts[89], "p99 s": cuts[98], "max s": max(seconds)}
    return Figure(f"{name}, {len(seconds)} kills", PROMISED_S / max(seconds), 1.0, detail)


def main(kills: int) -> None:
    """Measure and print."""
    if reason := postgres.missing():
        sys.exit(reason)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = [distribution("folder, SQLite", measure(folder / "file", kills))]
        os.environ.update(stack.enter_context(s3.s3_server(folder / "s3")))
        database = stack.enter_context(postgres.postgres_server(is_durable=True))
        there = {"plogs": f"s3://{s3.BUCKET}/failover", "cpo": database.url}
        found.append(distribution("S3, PostgreSQL", measure(folder / "bucket", kills, **there)))
    report("From kill -9 of the owner to the next acknowledgement", found)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS)
