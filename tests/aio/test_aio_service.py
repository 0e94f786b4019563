"""The example of a web service, with a real server: events in, events out, and clients that go away."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
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
def service(folder: Path, *, end: signal.Signals = signal.SIGINT, logs: str = "") -> Iterator[int]:
    """Run the example; return its port. In the end it gets a signal; it logs nothing else than it should."""
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
    assert re.fullmatch(logs, errors.decode()), errors.decode()


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
        for nowhere in (f"{STREAM}:0@1", f"{STREAM}:7@0", "plant/none:0@0", "nonsense"):
            assert call(port, "GET", f"/events/{nowhere}")[0] == 404
        assert call(port, "POST", "/events", bytes(2 << 20))[0] == 413
        with following(port) as answer:  # and leaves in the middle
            seen = [next_event(answer) for _ in range(2)]
        assert [data for _, data in seen] == ["reading 0", "reading 1"]
        with following(port, seen[-1][0]) as answer:
            assert [next_event(answer)[1] for _ in range(3)] == ["reading 2", "reading 3", "reading 4"]
            call(port, "POST", "/events", b"while it waits")
            assert next_event(answer)[1] == "while it waits"
            for last in ("nonsense", f"{STREAM}:0@1", "other/stream:0@0"):
                status, text = _follow_from(port, last)
                assert (status, b"cannot continue after" in text) == (400, True)
    with penstock.connect(tmp_path / "data", exclusive=True) as store:
        assert sum(batch.num_rows for batch in store.read(STREAM)) == 6


def _follow_from(port: int, last: str) -> tuple[int, bytes]:
    with following(port, last) as answer:
        return answer.status, answer.read()


def test_a_client_that_reconnects_anywhere_misses_nothing(tmp_path: Path) -> None:
    """Events of several segments come in turns, and a position behind a split has other segments."""
    with penstock.connect(tmp_path / "data") as store:
        store.create_stream(STREAM, segments=2)
        numbers = iter(range(1000))

        def write(count: int) -> None:
            with store.writer(STREAM) as writer:
                for number in [next(numbers) for _ in range(count)]:
                    writer.write_event(b"%d" % number, str(number))

        write(8)
        store.scale_stream(STREAM, [0], [(0.0, 0.2), (0.2, 0.5)])
        write(8)
    with service(tmp_path / "data") as port:
        with following(port) as answer:
            seen = [next_event(answer) for _ in range(16)]
        assert {int(data) for _, data in seen} == set(range(16))
        for place, (last, _) in enumerate(seen[:-1]):
            with following(port, last) as answer:
                again: list[str] = []
                while not again or again[-1] != seen[-1][1]:
                    again.append(next_event(answer)[1])
            assert {data for _, data in seen[place + 1 :]} <= set(again)
        assert call(port, "POST", "/events", b"new")[0] == 201
        with following(port, seen[-1][0]) as answer:
            assert next_event(answer)[1] == "new"


def test_an_event_that_cannot_be_read_now_is_not_called_missing(tmp_path: Path) -> None:
    """A client that is told 404 gives up for good, and so do the caches before it."""
    event = b"an event that is damaged " * 20
    with penstock.connect(tmp_path / "data") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            pointer = writer.write_event(event).result()
            for _ in range(3):
                writer.write_event(b"behind it").result()
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file() and event in file.read_bytes():
            file.write_bytes(file.read_bytes().replace(event, event[:-1] + b"!"))
    with service(tmp_path / "data", logs=r"ERROR: +GET .* is damaged.*\n") as port:
        status, text = call(port, "GET", f"/events/{pointer}")
        assert (status, b"Corrupt" in text, str(tmp_path).encode() in text) == (503, True, False), text


def test_an_upload_that_breaks_off_leaves_no_event(tmp_path: Path) -> None:
    """A client that dies in the middle of its request has not written anything."""
    with service(tmp_path / "data") as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf of it")
        assert call(port, "POST", "/events", b"whole")[0] == 201
    with penstock.connect(tmp_path / "data") as store:
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == [b"whole"]


def test_the_service_that_is_killed_has_every_event_that_it_acknowledged(tmp_path: Path) -> None:
    """201 is a promise; and nothing is left behind of the clients that it had."""
    acknowledged = []
    with ExitStack() as clients, service(tmp_path / "data", end=signal.SIGKILL) as port:
        answer = clients.enter_context(following(port))
        for number in range(20):
            assert call(port, "POST", "/events", b"%d" % number)[0] == 201
            acknowledged.append(b"%d" % number)
        assert [next_event(answer)[1].encode() for _ in range(20)] == acknowledged
    with penstock.connect(tmp_path / "data") as store:
        assert store.reader_groups() == [], "they would hold back retention for ever"
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == acknowledged
