"""Spark as a real cluster, whose processes are killed: an executor, a worker of Python, the store's owner, the driver.

All of them are killed while a task has half of its rows in the sink; in queries, when batches before it are done.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.feather
import pytest

import penstock
from penstock.cpo import open_cpo
from penstock.server._service import FlightService
from penstock.stream import Engine
from tests.plog_servers import PlogServerProcesses
from tests.sampling import only_exploring
from tests.server.cluster import Servers
from tests.spark.cluster import running_cluster
from tests.spark.processes import Gates, descendants, done, job, kill_session, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.spark.cluster import Cluster

IN, OUT = "plant/in", "plant/out"
EVENTS: Final = [b"%05d:" % number + bytes(1000) for number in range(16_000)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def filled(folder: Path) -> Path:
    """A folder with a stream of several segments and megabytes, and one to copy it to; no process has it open."""
    with penstock.connect(folder) as store:
        fill(store)
    return folder


def fill(store: penstock.Store) -> None:
    store.create_stream(IN, segments=3)
    store.create_stream(OUT, segments=2)
    with store.writer(IN) as writer:
        writer.write_batch(EVENTS, keys=[str(number) for number in range(len(EVENTS))])


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path / "gates")


def copied(folder: Path) -> Counter[bytes]:
    """Return what was copied."""
    with penstock.connect(folder) as store:
        return Counter(event for batch in store.read(OUT) for event in batch.column("event").to_pylist())


@contextmanager
def owned(folder: Path) -> Iterator[Engine]:
    """Let this process own a folder, so that it sees which transactions there are."""
    with penstock.connect(folder) as store:
        assert isinstance(store, Engine)
        yield store


def owner_of(folder: Path) -> int:
    """Return the process that owns a folder."""
    (found,) = {
        int(text[1])
        for path in folder.rglob("LOCK")
        if (text := re.match(r"process (\d+) on", path.read_text())) is not None
    }
    return found


@only_exploring
def test_executors_read_the_files_of_plogs_themselves(
    cluster: Cluster, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event once, in its place; and the owner, which is this process, has sent none of them."""
    calls: Counter[str] = Counter()
    for name in ("_blocks", "do_action"):
        monkeypatch.setattr(FlightService, name, counted(name, getattr(FlightService, name), calls))
    with penstock.connect(filled) as store:
        expected = {
            (segment, offset): event
            for batch in store.read(IN)
            for segment, offset, event in zip(
                *(batch.column(name).to_pylist() for name in ("segment_id", "offset", "event")), strict=True
            )
        }
        with job("read", cluster.master, filled, tmp_path / "read") as process:
            assert process.wait() == 0
    rows = pyarrow.feather.read_table(tmp_path / "read")
    places = zip(rows["segment_id"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    assert Counter(expected.values()) == Counter(EVENTS)
    assert rows.num_rows == len(EVENTS)
    assert dict(zip(places, rows["event"].to_pylist(), strict=True)) == expected
    assert calls["do_action"]
    assert not calls["_blocks"]


def counted(name: str, method: Callable[..., object], calls: Counter[str]) -> Callable[..., object]:
    """Return a method that is counted."""

    def call(*args: object) -> object:
        calls[name] += 1
        return method(*args)

    return call


def test_an_executor_and_workers_that_are_killed_are_replaced(
    cluster: Cluster, filled: Path, tmp_path: Path, gates: Gates
) -> None:
    """Spark runs their tasks again; of what the first attempts had written nothing is seen, and nothing is left."""
    checkpoint = tmp_path / "checkpoint"
    args = ("stream", cluster.master, filled, gates.folder, checkpoint, 4000)
    gates.shut(batch=1)
    gates.shut(batch=2)
    with owned(filled) as store, job(*args) as process:
        until(process, lambda: len(gates.waiting()) == 1 and has_some_rows(store))
        assert done(checkpoint) == 1
        os.kill(cluster.executor_of(*gates.waiting()), signal.SIGKILL)
        gates.open()
        until(process, lambda: done(checkpoint) == 2 and len(gates.waiting()) == 1 and has_some_rows(store))
        for pid in workers_of(cluster.executor_of(*gates.waiting())):
            os.kill(pid, signal.SIGKILL)
        gates.open()
        assert process.wait() == 0
        assert not store.transactions.open
        assert not store.catalog.prepared
    assert done(checkpoint) == 4
    assert copied(filled) == Counter(EVENTS)


def has_some_rows(store: Engine) -> bool:
    """Whether a task has written some of its rows, and not all."""
    return any(one.status == "open" and one._logs.is_used for one in list(store.transactions.open.values()))


def workers_of(executor: int) -> list[int]:
    """Return the processes of Python that run an executor's tasks; the one that starts them is left alone."""
    (daemon,) = [pid for pid in descendants(executor) if descendants(pid)]
    return descendants(daemon)


@only_exploring
def test_whoever_owns_the_store_is_killed_and_another_takes_over(cluster: Cluster, filled: Path, gates: Gates) -> None:
    """It is no process of Spark's; tasks whose transactions were open there send their rows again to the next one."""
    before = plogs(filled)
    gates.shut(2)
    with job("copy", cluster.master, filled, gates.folder) as process:
        until(process, lambda: len(gates.waiting()) == 2 and plogs(filled) >= before + 4)  # two for each transaction
        owner = owner_of(filled)
        assert b"penstock.local._owner_process" in Path(f"/proc/{owner}/cmdline").read_bytes()
        os.kill(owner, signal.SIGKILL)
        gates.open()
        assert process.wait() == 0
    assert copied(filled) == Counter(EVENTS)


def plogs(folder: Path) -> int:
    """Return how many plogs a folder has."""
    return len(list(folder.glob("plogs/*.plog")))


def test_executors_read_the_bucket_while_the_owner_is_killed(
    cluster: Cluster, tmp_path: Path, s3_address: str, gates: Gates
) -> None:
    """Each row once, no event from a server, and the keys of the bucket in no log, plan or checkpoint."""
    bucket = {
        "plogs": f"{s3_address}?cache_folder={tmp_path / 'copies'}",
        "plogs_secret_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "plogs_secret_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "plogs_secret_endpoint": os.environ["AWS_ENDPOINT_URL"],
        "plogs_secret_region": os.environ["AWS_REGION"],
        "plogs_secret_allow_http": "true",
    }
    told, checkpoint = tmp_path / "told", tmp_path / "checkpoint"
    told.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(told),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
    }
    gates.shut(batch=1)
    with Servers(tmp_path, 2, plogs=s3_address) as servers:
        owner = servers.owner()
        with penstock.connect(servers.address, plogs=f"{s3_address}?cache_folder={tmp_path}/own") as store:
            fill(store)
            args = ("stream", cluster.master, servers.address, gates.folder, checkpoint, 4000)
            with job(*args, log=told / "log", BUCKET=json.dumps(bucket), SETTINGS=json.dumps(settings)) as process:
                until(process, lambda: len(gates.waiting()) == 1)
                assert done(checkpoint) == 1
                assert servers.sent_bytes(owner) == 0
                batches = store.read(IN)
                read = next(batches)["event"].to_pylist()
                servers.processes[owner].kill()
                gates.open()
                assert process.wait() == 0
            read += [event for batch in batches for event in batch["event"].to_pylist()]
            assert Counter(read) == Counter(EVENTS)
            assert Counter(event for batch in store.read(OUT) for event in batch["event"].to_pylist()) == Counter(
                EVENTS
            )
        assert servers.sent_bytes(1 - owner) == 0
    files = [path for folder in (told, checkpoint) for path in folder.rglob("*") if path.is_file()]
    assert {"metadata", "0"} < {path.name for path in files}
    [events] = [path for path in files if path.name.startswith("events_")]
    for path in (events, told / "log"):
        assert "(redacted)" in path.read_text()
    said = "".join(path.read_text("latin-1") for path in (*files, *cluster.files()))
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in said
    assert os.environ["AWS_ACCESS_KEY_ID"] not in said


def test_a_query_copies_each_event_once_while_the_owner_and_a_plog_server_are_killed(
    cluster: Cluster, tmp_path: Path, gates: Gates
) -> None:
    """The sink commits exactly once also where the store is on plog servers, and goes on in their other group."""
    gates.shut(batch=1)
    with PlogServerProcesses(tmp_path / "plog-servers") as processes:
        with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
            processes.register(cpo)
        with Servers(tmp_path, 2, plogs="cluster:plant") as servers, penstock.connect(servers.address) as store:
            fill(store)
            checkpoint = tmp_path / "checkpoint"
            with job("stream", cluster.master, servers.address, gates.folder, checkpoint, 4000) as process:
                until(process, lambda: len(gates.waiting()) == 1)
                assert done(checkpoint) == 1
                servers.processes[servers.owner()].kill()
                processes.end("east", 0, by=signal.SIGKILL)
                gates.open()
                assert process.wait() == 0
            copies = Counter(event for batch in store.read(OUT) for event in batch["event"].to_pylist())
            assert copies == Counter(EVENTS)


@only_exploring
def test_a_driver_that_is_killed_goes_on(cluster: Cluster, filled: Path, tmp_path: Path, gates: Gates) -> None:
    """With another one and its checkpoint, while executors of the first may still be there."""
    checkpoint = tmp_path / "checkpoint"
    args = ("stream", cluster.master, filled, gates.folder, checkpoint, 8000)
    gates.shut(batch=1)
    with owned(filled) as store:
        with job(*args) as process:
            until(process, lambda: len(gates.waiting()) == 1 and has_some_rows(store))
            kill_session(process)
        gates.open()
        assert done(checkpoint) == 1
        assert 0 < len(copied(filled)) < len(EVENTS)
        with job(*args) as process:
            assert process.wait() == 0
        assert not store.transactions.open
        assert not store.catalog.prepared
    assert copied(filled) == Counter(EVENTS)
