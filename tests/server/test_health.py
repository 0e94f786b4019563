"""Whether the server is fit to work."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest

import penstock
from penstock import BySize, StreamConfig
from penstock.cpo import open_cpo
from penstock.embedded import open_store, open_store_at
from penstock.errors import DiskFailed, DiskFull, LogUnavailable, PenstockError
from penstock.plog._bucket_use import BucketUse, CacheCounts
from penstock.plog.objects import ObjectPlogs
from penstock.server import Config, Server, _health
from penstock.server._health import Health, Trouble
from penstock.server._log_counts import LogCounter
from penstock.server._metrics import new_registry
from penstock.server._users import USERS_FILE, Users
from penstock.testing import ManualClock, MemoryObjects
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports import Bytes
    from penstock.stream import Engine


@pytest.fixture
def health(store: Engine, tmp_path: Path) -> Health:
    return Health(store, tmp_path)


def reason(health: Health) -> str:
    trouble = health.trouble()
    assert trouble is not None
    return trouble.kind


def fail_sync(_: int) -> None:
    raise OSError(5, "Input/output error")


def next_second(store: Engine) -> None:
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(1)


def test_fit_server_has_no_trouble(health: Health, tmp_path: Path) -> None:
    """And leaves nothing behind."""
    assert health.trouble() is None
    assert list(tmp_path.iterdir()) == []


def test_disk_that_takes_nothing_is_trouble(
    health: Health, store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the first write; when the disk works again, so does the server."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail_sync)
        found = Trouble("the disk cannot be written", f"{tmp_path} cannot be written: Input/output error")
        assert health.trouble() == found
    next_second(store)
    assert health.trouble() is None


class SilentObjects(MemoryObjects):
    """A bucket whose puts may hang."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def put_new(self, name: str, *parts: Bytes) -> None:
        self.asked.set()
        assert self.answers.wait(60)
        super().put_new(name, *parts)


def test_bucket_that_does_not_answer_is_trouble(health: Health, store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write waits then, and nothing fails for a minute; a bucket that nobody asks anything is no trouble."""
    objects, clock = SilentObjects(), store.clock
    assert isinstance(clock, ManualClock)

    def used(silent_s: float) -> BucketUse:
        return BucketUse({}, CacheCounts(0, 0, 0, 0), silent_s)

    with ThreadPoolExecutor() as threads, ObjectPlogs(objects, clock=clock, use=used) as plogs:
        monkeypatch.setattr(type(store), "bucket_use", property(lambda _: plogs.bucket_use))
        clock.advance(100)
        assert health.trouble() is None
        objects.answers.clear()
        objects.asked.clear()
        creation = threads.submit(plogs.create)
        try:
            assert objects.asked.wait(60)
            clock.advance(9)
            assert health.trouble() is None
            clock.advance(2)
            assert reason(health) == "the bucket has not answered for 10 s"
        finally:
            objects.answers.set()
        creation.result()
        next_second(store)
        assert health.trouble() is None


def test_folder_that_is_gone_is_trouble(store: Engine) -> None:
    """Somebody took the disk away."""
    assert "No such file" in str(Health(store, Path("/nowhere")).trouble())


def test_store_that_stopped_is_trouble(health: Health, store: Engine) -> None:
    """After a failed sync it takes no more writes, although the disk may work again."""
    store._manager.plogs._journal.stop(OSError(5, "Input/output error"), "journal-0")  # type: ignore[attr-defined]
    assert "the store takes no more writes" in str(health.trouble())
    with pytest.raises(DiskFailed):
        store.close()


def test_closed_store_is_trouble(health: Health, store: Engine) -> None:
    """No client is served any more."""
    store.close()
    assert health.trouble() == ("the store is not open", "the store is closed: open it again")


def test_many_questions_cost_one_look_a_second(health: Health, store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No authentication is needed to ask, and a sync is not cheap."""
    looks: list[int] = []
    monkeypatch.setattr(os, "fdatasync", looks.append)
    for _ in range(10):
        assert health.trouble() is None
    assert len(looks) == 1
    next_second(store)
    health.trouble()
    assert len(looks) == 2


def test_clock_set_back_does_not_keep_an_old_answer(
    health: Health, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the server would be called well until the clock is where it was."""
    assert health.trouble() is None
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(-3600)
    store.clock.advance(60)
    monkeypatch.setattr(os, "fdatasync", fail_sync)
    assert health.trouble() is not None


def test_disk_that_hangs_is_trouble(health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next check gets an answer, and does not hang, too."""
    monkeypatch.setattr(_health, "_PATIENCE_S", 0.01)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        hangs.set()
        assert goes_on.wait(30)

    monkeypatch.setattr(os, "fdatasync", hang)
    first = threading.Thread(target=health.trouble)
    first.start()
    assert hangs.wait(30)
    assert reason(health) == "the disk has not answered for 0.01 s"
    goes_on.set()
    first.join()
    assert health.trouble() is None


def test_server_that_ends_says_so(health: Health) -> None:
    """No new client is sent to it then."""
    health.end()
    assert reason(health) == "the server is shutting down"


# The threads of the store


def test_maintenance_survives_whatever_happens_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An exit that a callback or a library raises ends the thread in which it is raised, and nothing is said."""
    runs = threading.Semaphore(0)

    def leave(*_: object) -> None:
        runs.release()
        raise SystemExit

    with open_store("memory:", maintenance_interval_s=0.01) as store:
        health = Health(store, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(store.maintenance, "_run", leave)
            store.create_stream("plant/readings", config=StreamConfig(retention=BySize(1)))
            for _ in range(3):
                assert runs.acquire(timeout=30)
            eventually(lambda: not store.maintenance._running.locked())
            found = health.trouble()
            assert found == ("background work of the store does not run", "maintenance fails (a run: SystemExit)")
        store.maintain()
        eventually(lambda: health.trouble() is None)


def test_maintenance_that_has_ended_is_trouble(store: Engine, health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams grow without end then, and transactions never expire."""
    over = threading.Thread(target=int)
    over.start()
    over.join()
    monkeypatch.setattr(store.maintenance, "_thread", over)
    assert reason(health) == "background work of the store does not run"
    monkeypatch.undo()
    monkeypatch.setattr(store.groups.positions, "_thread", over)
    next_second(store)
    found = health.trouble()
    assert found is not None
    assert "positions of readers" in found.detail


def test_maintenance_that_hangs_is_trouble(store: Engine, health: Health, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is alive, and does nothing."""
    begun, goes_on = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        assert goes_on.wait(30)

    monkeypatch.setattr(store.maintenance, "_run", hang)
    run = threading.Thread(target=store.maintain)
    run.start()
    assert begun.wait(30)
    assert health.trouble() is None
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(61)
    assert reason(health) == "background work of the store does not run"
    goes_on.set()
    run.join()
    next_second(store)
    assert health.trouble() is None


def test_positions_are_recorded_whatever_happens(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that nothing is recorded of read everything again after a restart."""
    failures = threading.Semaphore(0)

    def leave() -> bool:
        failures.release()
        raise SystemExit

    store.create_stream("plant/readings")
    with monkeypatch.context() as patch:
        patch.setattr(store.groups.positions, "run_once", leave)
        with store.create_reader_group("group", ["plant/readings"]).reader("reader"):
            for _ in range(2):
                assert failures.acquire(timeout=30)
            assert store.trouble() is None


def test_a_catalog_that_is_locked_for_long_is_trouble(
    store: Engine, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call waits for it, while it waits for what keeps the events: the log says for what."""
    monkeypatch.setattr(_health, "_PATIENCE_S", 0.01)
    with store.catalog.lock, ThreadPoolExecutor(1) as another:
        assert "the disk, the bucket or the control plane oracle" in str(another.submit(reason, health).result())
    next_second(store)
    assert health.trouble() is None


def test_trouble_of_the_store_is_logged_when_it_begins_and_when_it_ends(
    store: Engine, health: Health, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what health says, once."""
    caplog.set_level("INFO", "penstock.server")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail_sync)
        for _ in range(3):
            health.trouble()
            next_second(store)
    health.trouble()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "Input/output error" in caplog.messages[0]


# A full disk, over HTTP


def asked(port: int, path: str, *, user: str | None = None) -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        basic = "Basic " + base64.b64encode(f"{user}:secret".encode()).decode()
        connection.request("GET", path, headers={} if user is None else {"authorization": basic})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_is_trouble_as_soon_as_writes_fail(small_disk: Path) -> None:
    """A byte may still be written when no append is; an unauthenticated client learns no path."""
    folder = small_disk / "data"
    users = Users.open(folder / USERS_FILE)
    for name, stream in (("anna", "*"), ("berta", "other/*")):
        users.add(name, "secret")
        users.grant(name, "admin", stream)
    with (
        Server(Config(store=str(folder), port=0, http_port=0)) as server,
        penstock.connect(server.address, user="anna", password="secret") as store,
    ):
        store.create_stream("plant/readings")
        assert asked(server.http_port, "/healthz")[0] == 200
        with suppress(OSError), (small_disk / "stuffing").open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        with suppress(PenstockError), store.writer("plant/readings") as writer:
            for _ in range(1000):
                writer.write_event(bytes(1 << 20)).result()
        with pytest.raises(PenstockError), store.writer("plant/readings") as writer:
            writer.write_batch([bytes(1 << 20)] * 10)
        eventually(lambda: asked(server.http_port, "/healthz")[0] == 503)
        answers = [asked(server.http_port, "/healthz", user=user) for user in (None, "berta", "anna")]
        assert [status for status, _ in answers] == [503, 503, 503]
        assert [str(folder) in body for _, body in answers] == [False, False, True]
        assert json.loads(answers[0][1]) == {"status": "failing", "reason": "the disk is full"}
        assert "penstock_healthy 0.0" in asked(server.http_port, "/metrics", user="anna")[1]
        (small_disk / "stuffing").unlink()
        eventually(lambda: asked(server.http_port, "/healthz")[0] == 200)


def test_the_trouble_of_one_stream_is_for_users_who_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store works, so health is ok; what is wrong, and that there is such a stream, is not for everybody."""
    users = Users.open(tmp_path / "data" / USERS_FILE)
    for name, stream in (("anna", "plant/*"), ("berta", "other/*")):
        users.add(name, "secret")
        users.grant(name, "admin", stream)

    def fail(*_: object) -> None:
        raise DiskFull("/secret/path")

    monkeypatch.setattr("penstock.stream.maintenance._maintenance.Maintenance._retain", fail)
    config = Config(store=str(tmp_path / "data"), port=0, http_port=0, maintenance_interval_s=0.05)
    with Server(config) as server, penstock.connect(server.address, user="anna", password="secret") as store:
        store.create_stream("plant/readings", config=StreamConfig(retention=BySize(1)))
        eventually(lambda: "plant/readings" in asked(server.http_port, "/healthz", user="anna")[1])
        for user in (None, "berta"):
            status, body = asked(server.http_port, "/healthz", user=user)
            assert status == 200
            assert "plant" not in body
            assert "secret" not in body


def test_a_store_on_plog_servers_is_well_while_one_group_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no write succeeds: who watches the server has to learn it, and the operator which server to start."""
    monkeypatch.setattr(_health, "_GOOD_FOR_S", 0.0)
    url = f"sqlite:{tmp_path}/cpo.db"
    with closing(PlogServers(tmp_path, "east", "west")) as servers, open_cpo(url) as cpo:
        cpo.register_cluster("local", {group: servers.addresses(group) for group in ("east", "west")})
        with open_store_at("cluster:local", url, address="cluster:local") as store:
            store.create_stream("plant/readings")
            health = Health(store, None)
            servers.stop("east", 1)
            eventually(lambda: store.replication_use is not None and bool(store.replication_use.away))
            with store.writer("plant/readings") as writer:
                writer.write_event(b"1").result(60)
            assert health.trouble() is None
            servers.stop("west", 2)
            eventually(lambda: health.trouble() is not None)
            trouble = health.trouble()
            assert trouble is not None
            assert trouble.kind == "no group of plog servers is complete, so nothing can be written"
            away = [servers.addresses("east")[1], servers.addresses("west")[2]]
            assert all(address in trouble.detail and address not in trouble.kind for address in away)
            with pytest.raises(LogUnavailable) as raised:
                store.create_stream("plant/others")
            assert all(f"{address} (Connection refused)" in str(raised.value) for address in away)
            assert " are away; see that" in str(raised.value)
            assert str(raised.value).endswith("; see that the servers of its groups run, then append again")
            for group, place in list(servers.running):
                servers.stop(group, place)
            registry = new_registry(store, {}, list, health, None, sent_bytes=lambda: 0, logged=LogCounter())
            eventually(lambda: "penstock_plog_servers_away 6.0" in generate_latest(registry).decode())
            assert "penstock_healthy 0.0" in generate_latest(registry).decode()
            for place in range(3):
                servers.start("west", place)
            eventually(lambda: health.trouble() is None)
