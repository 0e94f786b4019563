"""Many clients of one server: readers that follow one stream, and writers that wait for each of their events.

Run it on an otherwise idle machine: ``python -m bench.crowd [FOLDER]``; the folder is made, filled and removed. Every
reader has a connection of its own; writers have one for each process, or one each. All of them share the processors
with the server.
"""

from __future__ import annotations

import statistics
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from bench._measure import Figure, report
from bench.server import SERVE, process, said, started

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES = 4
READERS, PER_S, EVENTS = 500, 5, 51
WRITERS, ACKS_S = 200, 10.0
LATE_S = 0.5  # the median delay of an event that is good enough
ACKS_PER_S = 5_000
STREAM = "bench/crowd"

FOLLOW = """
import struct, sys, threading, time
import penstock
port, name, readers, events = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
late = []

def follow(number):
    with penstock.connect(f"penstock://127.0.0.1:{port}") as store:
        group = store.create_reader_group(f"{name}-{number}", ["bench/crowd"], "tail")
        with group.reader("reader") as reader:
            reader.read_next_event(timeout=0)
            ready.wait()
            for _ in range(events):
                found = reader.read_next_event(timeout=60)
                late.append(time.time() - struct.unpack("d", found.event)[0])

ready = threading.Barrier(readers + 1)
threads = [threading.Thread(target=follow, args=(number,)) for number in range(readers)]
for thread in threads:
    thread.start()
ready.wait()
print("ready", flush=True)
for thread in threads:
    thread.join()
print(*late, flush=True)
"""

WRITE = """
import sys, threading, time
import penstock
port, writers, seconds, connections = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
counts = []
stores = [penstock.connect(f"penstock://127.0.0.1:{port}") for _ in range(connections)]

def write(number):
    with stores[number % connections].writer("bench/crowd") as writer:
        writer.write_event(bytes(100)).result()
        ready.wait()
        ready.wait()
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            writer.write_event(bytes(100)).result()
            count += 1
        counts.append(count)

ready = threading.Barrier(writers + 1)
threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
for thread in threads:
    thread.start()
ready.wait()
print("ready", flush=True)
sys.stdin.readline()
ready.wait()
for thread in threads:
    thread.join()
print(sum(counts), flush=True)
"""


def readers(folder: Path) -> Iterator[Figure]:
    """Show how late each of many readers has each event."""
    with ExitStack() as stack:
        port = stack.enter_context(process(SERVE, str(folder)))
        store = stack.enter_context(penstock.connect(f"penstock://127.0.0.1:{port}"))
        store.create_stream(STREAM)
        begun = time.monotonic()
        args = (str(READERS // PROCESSES), str(EVENTS))
        crowd = [stack.enter_context(started(FOLLOW, str(port), f"group-{one}", *args)) for one in range(PROCESSES)]
        for one in crowd:
            assert said(one) == "ready\n", "the readers did not start"
        start_s = time.monotonic() - begun
        with store.writer(STREAM) as writer:
            begun = time.monotonic()
            for number in range(EVENTS):
                time.sleep(max(0.0, begun + number / PER_S - time.monotonic()))
                writer.write_event(struct.pack("d", time.time())).result()
        late = sorted(float(word) for one in crowd for word in said(one).split())
    p50, p99 = statistics.median(late), late[len(late) * 99 // 100]
    detail = {"p50 s": p50, "p99 s": p99, "delivered": len(late), "of": READERS * EVENTS, "s until all follow": start_s}
    yield Figure(
        f"{READERS} readers of {PER_S} events/s: {LATE_S:g} s against the median delay", LATE_S / p50, 1.0, detail
    )


def writers(folder: Path, connections: int) -> Iterator[Figure]:
    """Show how many events many writers write that wait for each of them, over so many connections a process."""
    with ExitStack() as stack:
        port = stack.enter_context(process(SERVE, str(folder)))
        store = stack.enter_context(penstock.connect(f"penstock://127.0.0.1:{port}"))
        store.create_stream(STREAM, 4)
        args = (str(WRITERS // PROCESSES), str(ACKS_S), str(connections))
        crowd = [stack.enter_context(started(WRITE, str(port), *args)) for _ in range(PROCESSES)]
        for one in crowd:
            assert said(one) == "ready\n", "the writers did not start"
        for one in crowd:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        acks = sum(int(said(one)) for one in crowd)
    found, shared = acks / ACKS_S, connections < WRITERS // PROCESSES
    name = f"{WRITERS} writers of single events, {PROCESSES * connections} connections: acks/s against {ACKS_PER_S}"
    yield Figure(name, found / ACKS_PER_S, 1.0 if shared else None, {"/s": found})


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        folder = Path(name)
        figures = [*readers(folder / "readers")]
        for connections in (1, WRITERS // PROCESSES):
            figures += writers(folder / f"writers-{connections}", connections)
    report("many clients of one server", figures)


if __name__ == "__main__":
    main()
