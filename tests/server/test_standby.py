"""Servers that stand by, in this process: what they answer, and when they serve."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.cpo import open_cpo
from penstock.embedded import open_store, open_store_at
from penstock.errors import (
    AddressUnusable,
    BadArgument,
    BadConfig,
    LeaseHeld,
    LogFenced,
    NoSuchCluster,
    PenstockError,
    StorageUnavailable,
    StorageUnusable,
    StoreUnreachable,
)
from penstock.server import Server, _health, _leases, _run, _standby
from tests.server.apart import eventually, free_port
from tests.server.cluster import ask, config_of, status_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cpo import Cpo, Lease
    from penstock.stream import Engine

STREAM = "plant/readings"


def await_status(server: Server, status: str) -> None:
    eventually(lambda: status_of(server.http_port) == status)


def events(store: penstock.Store) -> list[bytes]:
    return [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


def stolen(cpo: Cpo) -> Lease:
    """Take the lease from the owner, which acquires it again where it can."""
    while True:
        held = cpo.lease("partition/main")
        if held is not None:
            cpo.release(held)
        with suppress(LeaseHeld):
            return cpo.acquire("partition/main", "other:1 id 0", seconds=60)


def test_a_server_stands_by_while_another_owns_the_store(tmp_path: Path) -> None:
    """It is well, says so, and sends clients away at once, so that they look for the owner."""
    with Server(config_of(tmp_path, "b")) as second:
        await_status(second, "ok")
        with Server(config_of(tmp_path, "a")) as first:
            assert status_of(first.http_port) == "standby"
            assert "penstock_owner 0.0" in ask(first.http_port, "/metrics")[1]
            assert 'penstock_log_records_total{level="error"} 0.0' in ask(first.http_port, "/metrics")[1]
            assert ask(first.http_port, "/futoin", "POST")[0] == 503
            with pytest.raises(StoreUnreachable, match="one does that stands by: name all servers of the store"):
                penstock.connect(first.address)
            with penstock.connect(f"{first.address},{second.address.removeprefix('penstock://')}") as far:
                far.create_stream(STREAM)
                with far.writer(STREAM, writer_id="w") as writer:
                    writer.write_event(b"0", key="k").result(60)
                    second._parts.close()
                    writer.write_event(b"1", key="k").result(60)
                await_status(first, "ok")
                assert "penstock_owner 1.0" in ask(first.http_port, "/metrics")[1]
                assert events(far) == [b"0", b"1"]


def test_an_owner_that_loses_the_lease_stands_by_and_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same process, without an event lost or twice, though it closed the store without writing."""
    monkeypatch.setattr(_leases, "RENEW_S", 0.05)
    with Server(config_of(tmp_path, "a")) as server, open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
        address = server.address.removeprefix("penstock://")
        with penstock.connect(f"penstock://{address},127.0.0.1:{free_port()}") as far:
            far.create_stream(STREAM)
            with far.writer(STREAM, writer_id="w") as writer:
                writer.write_event(b"0", key="k").result(60)
                other = stolen(cpo)
                await_status(server, "standby")
                under_way = writer.write_event(b"1", key="k")
                cpo.release(other)
                under_way.result(60)
                assert events(far) == [b"0", b"1"]


def test_a_store_that_is_fenced_writes_no_more_not_even_when_it_is_closed(tmp_path: Path) -> None:
    """Another process may own it by then."""
    store = open_store(tmp_path / "data")
    store.create_stream(STREAM)
    writer = store.writer(STREAM, writer_id="w")
    writer.write_event(b"0", key="k").result()
    store.fence()
    refused = writer.write_event(b"1", key="k")
    with pytest.raises(LogFenced):
        refused.result()
    with pytest.raises(LogFenced):
        store.check_owned()
    with pytest.raises(LogFenced):
        store.create_stream("plant/others")
    store.close()
    with penstock.connect(tmp_path / "data") as again:
        assert events(again) == [b"0"]
        assert len(again.streams()) == 1


def test_a_server_that_cannot_open_the_store_lets_another_one_try(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health says why, the lease is free again, and the log says it once, however often it is tried."""
    caplog.set_level("INFO", "penstock.server")
    monkeypatch.setattr(_standby, "_PAUSE_S", 0.01)
    attempts = itertools.count()

    def open_some(plogs: str, *given: str, **settings: object) -> Engine:
        if plogs.endswith("broken"):
            raise StorageUnusable(f"s3://bucket/probe/{next(attempts)}", reason="the credentials are wrong")
        return open_store_at(plogs, *given, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(_run, "open_store_at", open_some)
    with Server(config_of(tmp_path, "a", plogs=f"file:{tmp_path}/broken")) as broken:
        await_status(broken, "failing")
        with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
            eventually(lambda: (held := cpo.lease("partition/main")) is not None and held.epoch > 3)
        assert caplog.messages.count("standing by") == 1
        assert sum("cannot take the store over" in message for message in caplog.messages) == 1
        with Server(config_of(tmp_path, "b")) as server:
            await_status(server, "ok")


def test_the_disk_that_counts_for_health_is_that_of_the_plogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a server has no events. If it is full, the server can go on; others would find it full, too."""
    monkeypatch.setattr(_health, "_GOOD_FOR_S", 0.0)
    with Server(config_of(tmp_path, "a")) as server:
        await_status(server, "ok")
        (tmp_path / "a").rename(tmp_path / "away")
        assert status_of(server.http_port) == "ok"
        (tmp_path / "plogs").rename(tmp_path / "a")
        assert status_of(server.http_port) == "failing"
        (tmp_path / "a").rename(tmp_path / "plogs")
        assert status_of(server.http_port) == "ok"
    assert _run._folder_of_plogs(config_of(tmp_path, "a", plogs="s3://bucket/prefix")) is None


def test_a_server_that_is_stopped_while_it_opens_the_store_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the lock of the plogs, and the lease, would stay for as long as the process."""
    begun, may_open = threading.Event(), threading.Event()

    def open_slowly(*given: str, **settings: object) -> Engine:
        begun.set()
        assert may_open.wait(60)
        return open_store_at(*given, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(_run, "open_store_at", open_slowly)
    server = Server(config_of(tmp_path, "a"))
    with server:
        assert begun.wait(60)
        assert status_of(server.http_port) == "standby"
        threading.Timer(0.1, may_open.set).start()
    with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
        assert cpo.leases() == []
    open_store_at(f"file:{tmp_path}/plogs", f"sqlite:{tmp_path}/cpo.db", address="shared").close()


def test_a_server_that_is_stopped_while_it_gives_the_store_up_releases_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the second of two things that happen at once comes to its end."""
    monkeypatch.setattr(_leases, "RENEW_S", 0.01)
    with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
        with Server(config_of(tmp_path, "a")) as server:
            await_status(server, "ok")
            other = stolen(cpo)
        assert cpo.leases() == [other]
    open_store_at(f"file:{tmp_path}/plogs", f"sqlite:{tmp_path}/cpo.db", address="shared").close()


def test_two_servers_with_one_port_are_noticed_while_both_stand_by(tmp_path: Path) -> None:
    """Not when the second one is needed."""
    with Server(config_of(tmp_path, "a")) as server, pytest.raises(AddressUnusable):
        Server(config_of(tmp_path, "b", port=server.port)).__enter__()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"plogs": None}, "plogs is missing"),
        ({"cpo": None}, "cpo is missing"),
        ({"plogs": "memory:"}, "unknown kind of address"),
        ({"plogs": "ftp://host"}, "unknown kind of address"),
        ({"cpo": "redis://:secret@host"}, "unknown kind of address"),
        ({"advertise": "a"}, "use host:port"),
        ({"advertise": "penstock://a:1"}, "use host:port"),
        ({"advertise": "a:1", "plogs": None, "cpo": None}, "only servers that share a store advertise"),
    ],
)
def test_settings_that_make_no_cluster_are_refused(tmp_path: Path, settings: dict[str, object], reason: str) -> None:
    """Before anything is started, and without showing a password."""
    with pytest.raises(BadConfig, match=reason) as raised:
        config_of(tmp_path, "a", **settings)
    assert "secret" not in str(raised.value)


def test_a_server_advertises_where_it_listens_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    """Clients and other servers know it by this name."""
    assert config_of(tmp_path, "a", port=1).advertised == "127.0.0.1:1"
    assert config_of(tmp_path, "a", port=1, host="::1").advertised == "[::1]:1"
    assert config_of(tmp_path, "a", port=1, advertise="plant:2").advertised == "plant:2"
    assert config_of(tmp_path, "a", port=1, host="::", anonymous=False).advertised.partition(":")[0] not in ("", "[")


@pytest.mark.parametrize(
    ("plogs", "error", "message"),
    [
        ("cluster:plnt", NoSuchCluster, "no persistence cluster 'plnt' is registered: .* 'penstock cluster create'"),
        ("s3://bucket/plant?group_wait=1", BadArgument, "unknown setting 'group_wait' of an object store"),
        ("s3://bucket/plant?group_wait_s=x", BadArgument, "invalid group_wait_s 'x'"),
        ("s3://bucket/plant", StorageUnavailable, "it refuses connections"),
    ],
)
def test_a_server_with_a_wrong_address_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plogs: str, error: type[PenstockError], message: str
) -> None:
    """It would be found out only when the server has to take over, which may be months later."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    if plogs.startswith("cluster:"):
        open_cpo(f"sqlite:{tmp_path}/cpo.db").close()
    files = list(tmp_path.iterdir())
    with pytest.raises(error, match=message):
        Server(config_of(tmp_path, "a", plogs=plogs)).__enter__()
    assert list(tmp_path.iterdir()) == files


@pytest.mark.parametrize("content", [None, "no certificate"], ids=["absent", "invalid"])
def test_a_server_with_wrong_certificates_for_plog_servers_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """It would stand by, look well, and could not reach the plog servers when it has to take over."""
    authority = tmp_path / "ca.crt"
    if content is not None:
        authority.write_text(content)
    monkeypatch.setenv("PENSTOCK_PLOG_CA", str(authority))
    with open_cpo(f"sqlite:{tmp_path}/cpo.db") as cpo:
        cpo.register_cluster("plant", {"east": ["a:1", "b:1", "c:1"]})
    files = list(tmp_path.iterdir())
    with pytest.raises(BadArgument, match=r"cannot read the certificates in .*ca.crt \(PENSTOCK_PLOG_CA\)"):
        Server(config_of(tmp_path, "a", plogs="cluster:plant")).__enter__()
    assert list(tmp_path.iterdir()) == files


def test_a_server_is_stopped_while_the_plogs_do_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a store may wait for a bucket for a minute; what stops servers kills them after some seconds."""
    is_opening, is_answered, opened = threading.Event(), threading.Event(), []

    def open_late(*given: str, **settings: object) -> Engine:
        is_opening.set()
        assert is_answered.wait(60)
        opened.append(open_store_at(*given, **settings))  # type: ignore[arg-type]
        return opened[0]

    monkeypatch.setattr(_run, "open_store_at", open_late)
    monkeypatch.setattr(_standby, "_OPENING_S", 0.05)
    with Server(config_of(tmp_path, "a")):
        assert is_opening.wait(60)
    is_answered.set()
    eventually(lambda: bool(opened) and opened[0]._closed)
