"""Servers in processes of their own, of which the owner is killed or stopped: what clients notice of it."""

from __future__ import annotations

import io
import os
import shutil
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

import penstock
from bench import failover
from penstock.client import _connection, _servers
from penstock.cpo import open_cpo
from penstock.embedded import open_store_at
from penstock.errors import PenstockError, StorageUnusable, StoreUnreachable
from penstock.plog.objects import open_object_plogs
from penstock.ports import Bucket
from penstock.server import Server
from penstock.server._standby import reachable_plogs
from tests.plog_servers import PlogServerProcesses
from tests.server.apart import eventually, suspend
from tests.server.cluster import LONG_S, Servers, config_of, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.postgres import Postgres

pytestmark = pytest.mark.long
STREAM = "plant/readings"
LARGE = bytes(range(256)) * (12 << 10)


@pytest.fixture
def bucket(s3_address: str, postgres: Postgres) -> dict[str, str]:
    """The settings of servers whose plogs are in S3, and whose oracle is on PostgreSQL."""
    with psycopg.connect(f"host={postgres.folder} user=postgres", autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS penstock_cpo")
    return {"plogs": s3_address, "cpo": postgres.url}


@pytest.fixture
def plog_servers(tmp_path: Path) -> Iterator[PlogServerProcesses]:
    """Two groups of plog servers, registered in an oracle."""
    with PlogServerProcesses(tmp_path / "plog-servers") as processes:
        with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
            processes.register(cpo)
        yield processes


def test_clients_go_on_when_the_owner_is_killed_on_s3_and_postgresql(tmp_path: Path, bucket: dict[str, str]) -> None:
    """Each event once, in order, and to one reader; what was not whole is not there, and can be written again."""
    kill_the_owner(tmp_path, bucket, lambda: None)


def test_clients_go_on_when_the_owner_and_a_plog_server_are_killed(
    tmp_path: Path, plog_servers: PlogServerProcesses
) -> None:
    """The same on plog servers, of which one in each group is killed, too: a machine fails as a whole."""
    kill_the_owner(tmp_path, {"plogs": "cluster:plant"}, partial(kill_one_of_each_group, plog_servers))


def kill_one_of_each_group(processes: PlogServerProcesses) -> None:
    """Kill a plog server in one group for good, and restart one in the other: both groups lose what is under way."""
    processes.end("east", 1, by=signal.SIGKILL)
    processes.end("west", 2, by=signal.SIGKILL)
    processes.start_again("west", 2)


def kill_the_owner(tmp_path: Path, place: dict[str, str], and_others: Callable[[], None]) -> None:
    """Kill it while clients write, read and have begun what is not whole."""
    with Servers(tmp_path, 2, **place) as servers, penstock.connect(servers.address) as store:
        store.create_stream(STREAM)
        group = store.create_reader_group("all", [STREAM])
        with store.writer(STREAM, writer_id="w") as writer, group.reader("r") as reader:
            acks = [writer.write_event(b"%d" % number, key="k") for number in range(100)]
            transaction = store.transactional_writer(STREAM, writer_id="t").begin(lease=LONG_S)
            transaction.write_event(b"in vain", key="k")
            out = writer.begin_write_event("k")
            out.write(LARGE[: 2 << 20])
            read = [reader.read_next_event(timeout=LONG_S) for _ in range(50)]
            servers.processes[servers.owner()].kill()
            and_others()
            acks += [writer.write_event(b"%d" % number, key="k") for number in range(100, 200)]
            for ack in acks:
                ack.result(LONG_S)
            with pytest.raises(PenstockError):
                transaction.commit()
            with pytest.raises(PenstockError):  # noqa: PT012 - either of them
                out.write(LARGE[2 << 20 :])
                out.close()
            with writer.begin_write_event("k") as again:
                shutil.copyfileobj(io.BytesIO(LARGE), again)
            with store.transactional_writer(STREAM, writer_id="t").begin(lease=LONG_S) as second:
                second.write_event(b"whole", key="k")
            expected = [*(b"%d" % number for number in range(200)), LARGE, b"whole"]
            read += [reader.read_next_event(timeout=LONG_S) for _ in range(150)]
            with reader.read_next_event_as_stream(timeout=LONG_S) as large:  # type: ignore[union-attr]
                content = large.read()
            last = reader.read_next_event(timeout=LONG_S)
            assert [event.event for event in [*read, last] if event is not None] == [*expected[:200], b"whole"]
            assert content == LARGE
        batches = store.read(STREAM, max_event_size=len(LARGE))
        assert [event for batch in batches for event in batch["event"].to_pylist()] == expected


def test_events_are_acknowledged_within_five_seconds_after_a_kill(tmp_path: Path) -> None:
    """As promised; a busy machine may need longer, so the best of some kills counts. See bench.failover for more."""
    assert min(failover.measure(tmp_path, kills=2)) < failover.PROMISED_S


def test_an_owner_that_was_stopped_gives_the_store_up_when_it_wakes_up(tmp_path: Path) -> None:
    """It finds that another server had the lease meanwhile."""
    with Servers(tmp_path, 2) as servers, penstock.connect(servers.address) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM, writer_id="w") as writer:
            writer.write_event(b"0", key="k").result(LONG_S)
            first = servers.owner()
            suspend(servers.processes[first].pid)
            eventually(lambda: servers.status(1 - first) == "failing")  # it has the lease, and the folder is locked
            ack = writer.write_event(b"1", key="k")
            os.kill(servers.processes[first].pid, signal.SIGCONT)
            ack.result(LONG_S)
            servers.processes[servers.owner()].kill()
            writer.write_event(b"2", key="k").result(LONG_S)
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == [b"0", b"1", b"2"]


def test_an_owner_that_was_stopped_never_acknowledges_again_on_s3_and_postgresql(
    tmp_path: Path, bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server has taken over meanwhile: what comes to the former owner when it wakes up is not written."""
    suspend_the_owner(tmp_path, bucket, monkeypatch)


@pytest.mark.usefixtures("plog_servers")
def test_an_owner_that_was_stopped_never_acknowledges_again_on_plog_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the fence is the session of the next owner."""
    suspend_the_owner(tmp_path, {"plogs": "cluster:plant"}, monkeypatch)


def suspend_the_owner(tmp_path: Path, place: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspend it while a client writes to it alone, and wake it up when another server has taken over."""
    monkeypatch.setattr(_servers, "CHECK_S", 0.1)
    monkeypatch.setattr(_connection, "_PATIENCE_S", 1.0)
    with Servers(tmp_path, 2, **place) as servers, penstock.connect(servers.address) as store:
        store.create_stream(STREAM)
        first = servers.owner()
        process = servers.processes[first]
        with store.writer(STREAM, writer_id="w") as writer, suppress(StoreUnreachable):
            bound = penstock.connect(servers.addresses[first])  # which knows no other server
            late = bound.writer(STREAM, writer_id="late")
            late.write_event(b"0", key="k").result(LONG_S)
            writer.write_event(b"1", key="k").result(LONG_S)
            suspend(process.pid)
            too_late = late.write_event(b"too late", key="k")
            writer.write_event(b"2", key="k").result(LONG_S)
            os.kill(process.pid, signal.SIGCONT)
            with pytest.raises(StoreUnreachable):
                too_late.result(LONG_S)
            assert servers.status(first) == "standby"
            bound.close()
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == [b"0", b"1", b"2"]


def test_the_owner_goes_on_while_postgresql_is_away(tmp_path: Path, bucket: dict[str, str], postgres: Postgres) -> None:
    """Clients do not even notice, and the lease is there again when the oracle is."""
    config = config_of(tmp_path, "a", cpo=bucket["cpo"])
    with Server(config) as server:
        eventually(lambda: status_of(server.http_port) == "ok")
        with penstock.connect(server.address) as store, open_cpo(bucket["cpo"]) as cpo:
            channel = store.connection.channel  # type: ignore[attr-defined]
            store.create_stream(STREAM)
            with store.writer(STREAM) as writer:
                postgres.stop()
                writer.write_event(b"0", key="k").result(LONG_S)
                postgres.start()
                eventually(lambda: cpo.lease("partition/main") is not None)
                writer.write_event(b"1", key="k").result(LONG_S)
            assert store.connection.channel is channel  # type: ignore[attr-defined]


def test_a_signal_ends_a_server_that_stands_by(tmp_path: Path) -> None:
    """Nothing that it waits for keeps it."""
    with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
        cpo.acquire("partition/main", "another:1 id 0", seconds=3600)
        with Servers(tmp_path, 2) as servers:
            for number, process in zip((signal.SIGTERM, signal.SIGINT), servers.processes, strict=True):
                process.send_signal(number)
                assert process.wait(LONG_S) == 0


@pytest.mark.usefixtures("s3_address")
def test_a_bucket_that_is_missing_is_an_error_at_the_start(tmp_path: Path) -> None:
    """Not only when the server has to take over."""
    with pytest.raises(StorageUnusable, match="missing"):
        Server(config_of(tmp_path, "a", plogs="s3://missing/prefix")).__enter__()


def test_a_bucket_of_another_store_is_refused_before_its_owner_is_fenced(tmp_path: Path, s3_address: str) -> None:
    """A server with one wrong address would stop that store again and again, for as long as it tries."""
    with open_store_at(s3_address, f"sqlite:{tmp_path}/a.db", address="a") as store:
        for _ in range(2):
            with pytest.raises(StorageUnusable, match=r"not that of the control plane oracle .*/b\.db"):
                open_store_at(s3_address, f"sqlite:{tmp_path}/b.db", address="b")
        store.create_stream(STREAM)
    with open_store_at(s3_address, f"sqlite:{tmp_path}/a.db", address="a") as store:
        assert [info.name for info in store.streams()] == [STREAM]


def test_a_server_that_starts_does_not_list_the_objects_of_its_store(
    tmp_path: Path, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be millions of them."""
    open_object_plogs(s3_address).close()
    monkeypatch.setattr(Bucket, "names", lambda *_: pytest.fail("a listing"))
    assert reachable_plogs(s3_address, tmp_path) == f"{s3_address}?cache_folder={tmp_path}"
