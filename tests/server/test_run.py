"""A server from its beginning to its end."""

from __future__ import annotations

import json
import os
import resource
import signal
import ssl
import subprocess
import sys
import threading
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import AddressUnusable, CertificateUnusable, StoreLocked, UsersCorrupt
from penstock.local import raise_file_limit
from penstock.server import Config, Server, _run
from penstock.server._run import stop_signals
from penstock.server._users import Users
from tests.server.recorded_service import RecordedService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG_S = 30
ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from penstock.server import Config, _run
from tests.server.recorded_service import RecordedService

def leave_something_to_flush(server):
    store = RecordedService.latest.store
    store.create_stream("plant/readings")
    store.writer("plant/readings").write_event(b"the last")
    print("ready", flush=True)

_run.start_service = RecordedService
config = Config(store=sys.argv[1], port=0, http_port=0, anonymous=True, log_format="json")
_run.run(config, ready=leave_something_to_flush)
"""


@pytest.fixture(autouse=True)
def recorded_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "start_service", RecordedService)


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Config]:
    """Settings for a server in an empty folder, at ports that are free."""

    def make(**settings: object) -> Config:
        given: dict[str, object] = {"store": str(tmp_path / "data"), "port": 0, "http_port": 0, "anonymous": True}
        return Config(**(given | settings))  # type: ignore[arg-type]

    return make


def health(server: Server) -> tuple[int, object]:
    with closing(HTTPConnection("127.0.0.1", server.http_port, timeout=LONG_S)) as connection:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        return response.status, json.loads(response.read())["status"]


def test_server_has_a_store_and_two_ports(configured: Callable[..., Config], tmp_path: Path) -> None:
    """And says where they are."""
    with Server(configured()) as server:
        assert health(server) == (200, "ok")
        assert server.address == f"penstock://127.0.0.1:{RecordedService.latest.port}"
        assert server.http_address == f"http://127.0.0.1:{server.http_port}"
        assert tmp_path.joinpath("data", "plogs").is_dir()


def test_metrics_count_the_connections_of_both_ports(configured: Callable[..., Config]) -> None:
    """They have limits of their own."""
    with (
        Server(configured()) as server,
        penstock.connect(server.address),
        closing(HTTPConnection("127.0.0.1", server.http_port)) as connection,
    ):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        assert 'penstock_connections{protocol="flight"} 1.0' in text
        assert 'penstock_connections{protocol="http"} 1.0' in text


def test_ports_are_closed_before_the_store(configured: Callable[..., Config], tmp_path: Path) -> None:
    """What clients have under way comes to its end in a store that is open."""
    with Server(configured()):
        RecordedService.latest.store.create_stream("plant/readings")
    assert RecordedService.latest.streams_at_the_end == ["plant/readings"]
    with penstock.connect(tmp_path / "data") as store:
        assert [one.name for one in store.streams()] == ["plant/readings"], "the folder is free again"


def test_health_tells_that_the_server_ends(configured: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server drains its clients, it gets no new ones."""
    found: list[tuple[int, object]] = []
    server = Server(configured())
    real = RecordedService.shutdown

    def look_and_shut_down(service: RecordedService) -> None:
        found.append(health(server))
        real(service)

    monkeypatch.setattr(RecordedService, "shutdown", look_and_shut_down)
    with server:
        assert health(server) == (200, "ok")
    assert found == [(503, "failing")]


def test_ipv6_address_is_written_as_urls_want_it(configured: Callable[..., Config]) -> None:
    """Otherwise it would look like a part of the port."""
    server = Server(configured(host="::1"))
    assert server.address == "penstock://[::1]:0"
    assert server.http_address == "http://[::1]:0"


def test_tls_is_for_both_ports(configured: Callable[..., Config], tmp_path: Path) -> None:
    """With our own certificate, for every name of this machine."""
    with Server(configured(tls=True)) as server:
        assert server.http_address.startswith("https://")
        context = ssl.create_default_context(cafile=str(tmp_path / "data" / "server.crt"))
        for host in ("localhost", "127.0.0.1"):
            with closing(HTTPSConnection(host, server.http_port, timeout=LONG_S, context=context)) as connection:
                connection.request("GET", "/healthz")
                assert connection.getresponse().status == 200
        certificate = RecordedService.latest.certificate
        assert certificate is not None
        assert certificate.cert == tmp_path.joinpath("data", "server-host.crt").read_bytes()


def test_given_certificate_is_used(configured: Callable[..., Config], tmp_path: Path) -> None:
    """And none of our own is made."""
    with Server(configured(tls=True, store=str(tmp_path / "other"))):
        pass
    host = tmp_path / "other" / "server-host"
    given = {"tls_cert": f"{host}.crt", "tls_key": f"{host}.key"}
    with Server(configured(**given)):
        assert RecordedService.latest.certificate is not None
    assert not tmp_path.joinpath("data", "server.crt").exists()


def test_users_are_those_of_the_folder(
    configured: Callable[..., Config], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without any user, every call is refused, and the server says what to do."""
    with Server(configured(anonymous=False)):
        assert "there are no users yet" in caplog.text
        Users.open(tmp_path / "data" / "users.json").add("anna", "secret")
        logins = RecordedService.latest.logins
        assert logins is not None
        assert logins.check("Basic YW5uYTpzZWNyZXQ=", "ipv4:192.0.2.1:5000").name == "anna"
    caplog.clear()
    with Server(configured(anonymous=False)):
        assert caplog.text == ""
    with Server(configured()):
        assert RecordedService.latest.logins is None


@pytest.mark.parametrize("port", ["port", "http_port"])
def test_port_in_use_is_told_before_anything_is_served(configured: Callable[..., Config], port: str) -> None:
    """Flight would share the port with the process that has it, and get every other client."""
    with Server(configured()) as server:
        taken = getattr(server, port)
        advice = f"choose another --{port.replace('_', '-')}"
        with pytest.raises(AddressUnusable, match=f"127.0.0.1:{taken}: Address already in use; {advice} "):
            Server(configured(store=configured().store + "2", **{port: taken})).__enter__()


def test_failed_start_leaves_nothing_open(configured: Callable[..., Config], tmp_path: Path) -> None:
    """Whatever it fails at; the next one works."""
    config = configured()
    with penstock.connect(config.store), pytest.raises(StoreLocked):
        Server(config).__enter__()
    broken = tmp_path / "broken.crt"
    broken.touch()
    with pytest.raises(CertificateUnusable):
        Server(configured(tls_cert=str(broken), tls_key=str(broken))).__enter__()
    tmp_path.joinpath("data", "users.json").write_text("{")
    with pytest.raises(UsersCorrupt):
        Server(configured(anonymous=False)).__enter__()
    with Server(config) as server:
        assert health(server) == (200, "ok")
        with pytest.raises(AddressUnusable):
            Server(configured(store=config.store + "2", http_port=server.http_port)).__enter__()
    with Server(configured(store=config.store + "2")):
        pass


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY)),
        ((1024, 1 << 30), (1 << 20, 1 << 30)),
        ((4096, 4096), None),
        ((1 << 21, 1 << 30), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_process_may_have_many_files_open(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    """Each connection is one; the limit is raised where it may be, and never lowered."""
    changes: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: changes.append(new))
    raise_file_limit()
    assert changes == ([] if expected is None else [expected])


# Signals


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_process_that_is_told_to_stop_flushes_first(tmp_path: Path, told: signal.Signals) -> None:
    """What was written and not yet acknowledged is in the store when the process has ended, with exit code 0."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    assert process.stderr is not None
    serving = json.loads(process.stderr.readline())
    process.send_signal(told)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    lines = [serving, *map(json.loads, err.splitlines())]
    assert [line["message"] for line in lines] == ["serving", "shutting down", "ended"]
    assert lines[0]["store"] == str(tmp_path / "data")
    assert lines[1]["signal"] == told.name
    with penstock.connect(tmp_path / "data") as store:
        batches = list(store.read("plant/readings"))
        assert [event for batch in batches for event in batch["event"].to_pylist()] == [b"the last"]


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """The signals that came to the handler that was set before."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    yield seen
    signal.signal(signal.SIGTERM, before)


def test_signal_that_comes_before_anybody_waits_counts(handled: list[int]) -> None:
    """A server may be told to stop while it starts."""
    with stop_signals() as wait:
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait() == "SIGTERM"
    assert handled == []


def test_second_signal_does_not_wait(handled: list[int]) -> None:
    """A shutdown that takes too long is ended by another Ctrl-C."""
    with stop_signals() as wait:
        os.kill(os.getpid(), signal.SIGTERM)
        wait()
        os.kill(os.getpid(), signal.SIGTERM)
        assert handled == [signal.SIGTERM]


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    """The kernel gives SIGTERM to any thread of a server that was stopped and goes on: it must not run for ever."""
    main, is_over = threading.main_thread().ident, threading.Event()
    assert main is not None

    def send() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        if not is_over.wait(10):
            signal.pthread_kill(main, signal.SIGINT)  # the test fails, and does not wait for ever

    with stop_signals() as wait:
        sender = threading.Timer(0.1, send)
        sender.start()
        assert wait() == "SIGTERM"
    is_over.set()
    sender.join()


def test_failed_start_leaves_signals_as_they_were(handled: list[int]) -> None:
    """It may be part of a program that goes on."""
    with pytest.raises(KeyError), stop_signals():
        raise KeyError
    os.kill(os.getpid(), signal.SIGTERM)
    assert handled == [signal.SIGTERM]
