"""The example of a web service, with a real server: events in, events out, and clients that go away."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import penstock
from tests.shared_server import wait_for_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not find_spec("fastapi"), reason="FastAPI is not installed")

ROOT: Final = Path(__file__).parents[2]
STREAM: Final = "plant/readings"


@contextmanager
def service(folder: Path, *, end: signal.Signals = signal.SIGINT) -> Iterator[int]:
    """Run the example; return its port. In the end it gets a signal."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = os.environ | {"PENSTOCK_STORE": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=ROOT / "examples/service", env=environment, stderr=subprocess.PIPE)
    try:
        wait_for_port(port)
        yield port
    finally:
        process.send_signal(end)
        try:
            _, errors = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert errors == b"", errors.decode()


def call(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


@contextmanager
def following(port: int, last: str | None = None) -> Iterator[http.client.HTTPResponse]:
    """Follow the stream, behind the event with an id."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", "/events", headers={"Last-Event-ID": last} if last else {})
        with connection.getresponse() as answer:
            yield answer


def next_event(answer: http.client.HTTPResponse) -> tuple[str, str]:
    """Return the id and the data of the next event."""
    found: dict[str, str] = {}
    while "data" not in found:
        while line := answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
    return found["id"], found["data"]


def test_events_go_in_durably_and_come_out_in_order_for_clients_that_come_and_go(tmp_path: Path) -> None:
    """It is what people copy: an answer means durable, and a client that reconnects misses nothing."""
    with service(tmp_path / "data") as port:
        pointers = []
        for number in range(5):
            status, text = call(port, "POST", "/events?key=k", b"reading %d" % number)
            assert status == 201
            pointers.append(re.findall(r'"pointer":"([^"]+)"', text.decode())[0])
        assert call(port, "GET", f"/events/{pointers[3]}") == (200, b"reading 3")
        assert call(port, "GET", "/events/nonsense")[0] == 404
        assert call(port, "POST", "/events", bytes(2 << 20))[0] == 413
        with following(port) as answer:  # and leaves in the middle
            seen = [next_event(answer) for _ in range(2)]
        assert [data for _, data in seen] == ["reading 0", "reading 1"]
        with following(port, seen[-1][0]) as answer:
            assert [next_event(answer)[1] for _ in range(3)] == ["reading 2", "reading 3", "reading 4"]
            call(port, "POST", "/events", b"while it waits")
            assert next_event(answer)[1] == "while it waits"
            status, text = _follow_from(port, "nonsense")
            assert (status, b"cannot continue after" in text) == (400, True)
            wait_for_groups(tmp_path / "data", 1)
        call(port, "POST", "/events", b"finds out that no client is there")
        wait_for_groups(tmp_path / "data", 0)
    with penstock.connect(tmp_path / "data", exclusive=True) as store:
        assert sum(batch.num_rows for batch in store.read(STREAM)) == 7


def _follow_from(port: int, last: str) -> tuple[int, bytes]:
    with following(port, last) as answer:
        return answer.status, answer.read()


def wait_for_groups(folder: Path, count: int) -> None:
    """Wait until the service has so many reader groups: those of clients that left are deleted."""
    with penstock.connect(folder, own=False) as store:
        found: list[str] = []
        for _ in range(2000):
            found = store.reader_groups()
            if len(found) == count and all(store.reader_group(name).readers() for name in found):
                return
            time.sleep(0.01)
    raise AssertionError(found)


def test_an_upload_that_breaks_off_leaves_no_event(tmp_path: Path) -> None:
    """A client that dies in the middle of its request has not written anything."""
    with service(tmp_path / "data") as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf of it")
        assert call(port, "POST", "/events", b"whole")[0] == 201
    with penstock.connect(tmp_path / "data") as store:
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == [b"whole"]


def test_the_service_that_is_killed_has_every_event_that_it_acknowledged(tmp_path: Path) -> None:
    """201 is a promise."""
    acknowledged = []
    with service(tmp_path / "data", end=signal.SIGKILL) as port:
        for number in range(20):
            assert call(port, "POST", "/events", b"%d" % number)[0] == 201
            acknowledged.append(b"%d" % number)
    with penstock.connect(tmp_path / "data") as store:
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == acknowledged
