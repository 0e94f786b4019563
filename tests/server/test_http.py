"""The HTTP port: what it answers, and whom it puts up with."""

from __future__ import annotations

import base64
import gc
import json
import socket
import ssl
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING

import pytest

from penstock.errors import AddressUnusable, NotAuthenticated
from penstock.local import raise_file_limit
from penstock.ports import SystemClock
from penstock.server._addresses import listen
from penstock.server._config import Config
from penstock.server._health import Health
from penstock.server._http import HttpServer, new_app
from penstock.server._http_connections import _Connection
from penstock.server._log_counts import LogCounter
from penstock.server._login import Logins
from penstock.server._login_queue import FAILURES_FREE
from penstock.server._metrics import new_registry
from penstock.server._tls import own_certificate
from penstock.server._users import USERS_FILE, Users
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.server._tls import Certificate
    from penstock.stream import Engine

LONG_S = 30


@pytest.fixture
def health(store: Engine, tmp_path: Path) -> Health:
    return Health(store, tmp_path)


@pytest.fixture
def serve(store: Engine, health: Health) -> Iterator[Callable[..., HttpServer]]:
    """Start a server, which ends with the test."""
    with ExitStack() as stack:

        def start(users: Users | None = None, certificate: Certificate | None = None, **settings: float) -> HttpServer:
            config = Config(**{"http_port": 0, "shutdown_timeout_s": 1.0, **settings})  # type: ignore[arg-type]
            server = HttpServer(config, certificate)
            stack.callback(server.shutdown)
            logins = None if users is None else Logins(users)
            server.start(
                new_app(
                    health,
                    new_registry(
                        store,
                        {"http": server.connections},
                        list,
                        health,
                        logins,
                        sent_bytes=lambda: 0,
                        logged=LogCounter(),
                    ),
                    logins,
                )
            )
            return server

        yield start


def get(server: HttpServer, path: str, **headers: str) -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=LONG_S)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=LONG_S)


# What it answers


def test_healthy_server_says_so(serve: Callable[..., HttpServer]) -> None:
    """In JSON, with its version."""
    status, body = get(serve(), "/healthz")
    assert status == 200
    assert json.loads(body)["status"] == "ok"


def test_trouble_is_503_and_says_why(serve: Callable[..., HttpServer], health: Health) -> None:
    """A program that watches the server acts on the figure, people on the reason."""
    health.end()
    status, body = get(serve(), "/healthz")
    assert (status, json.loads(body)) == (
        503,
        {"status": "failing", "reason": "the server is shutting down", "streams": {}},
    )


def test_metrics_are_served(serve: Callable[..., HttpServer], store: Engine) -> None:
    """As Prometheus wants them."""
    store.create_stream("plant/readings")
    status, body = get(serve(), "/metrics")
    assert status == 200
    assert 'penstock_stream_bytes{stream="plant/readings"} 0.0\n' in body
    assert 'penstock_connections{protocol="http"} 1.0\n' in body


def test_metrics_are_for_who_may_read_all(serve: Callable[..., HttpServer], tmp_path: Path) -> None:
    """They name every stream; health is for everybody."""
    users = Users.open(tmp_path / "users.json")
    users.add("anna", "secret")
    server = serve(users)
    basic = "Basic " + base64.b64encode(b"anna:secret").decode()
    assert get(server, "/healthz")[0] == 200
    assert get(server, "/metrics")[0] == 401
    assert get(server, "/metrics", authorization="Bearer nonsense")[0] == 401
    users.grant("anna", "admin", "plant/*")
    assert get(server, "/metrics", authorization=basic)[0] == 403
    users.grant("anna", "read", "*")
    assert get(server, "/metrics", authorization=basic)[0] == 200
    assert get(server, "/metrics", authorization=f"Bearer {users.token('anna', 60)}")[0] == 200


def test_a_damaged_file_of_users_is_503_and_shows_no_path(serve: Callable[..., HttpServer], tmp_path: Path) -> None:
    """It was a server error, with a traceback in the log for every request."""
    path = tmp_path / USERS_FILE
    users = Users.open(path)
    users.add("anna", "secret")
    server = serve(users)
    path.write_bytes(b"{nonsense")
    status, text = get(server, "/metrics", Authorization="Basic YW5uYTpzZWNyZXQ=")
    assert (status, str(tmp_path) in text) == (503, False)
    assert "credentials cannot be checked now" in text


def test_an_address_that_guesses_is_refused_for_a_while(
    serve: Callable[..., HttpServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread waits with the answer: there are few, and health needs one. Failed logins are counted."""
    users = Users.open(tmp_path / "users.json")
    for name in ("anna", "bert"):
        users.add(name, "secret")
        users.grant(name, "read", "*")
    monkeypatch.setattr("penstock.server._login_queue.DELAY_MIN_S", 3600.0)
    monkeypatch.setattr("penstock.server._login_queue.DELAY_MAX_S", 3600.0)
    server = serve(users)
    right, other, wrong = (
        "Basic " + base64.b64encode(said).decode() for said in (b"anna:secret", b"bert:secret", b"anna:wrong")
    )
    assert get(server, "/metrics", authorization=right)[0] == 200
    assert [get(server, "/metrics", authorization=wrong)[0] for _ in range(FAILURES_FREE + 1)] == [401] * (
        FAILURES_FREE + 1
    )
    assert get(server, "/metrics", authorization=other)[0] == 503
    status, body = get(server, "/metrics", authorization=right)[:2]
    assert status == 200, "it has logged in from here before"
    assert f"penstock_failed_logins_total {FAILURES_FREE + 1}.0\n" in body
    assert "penstock_refused_logins_total 1.0\n" in body


def test_guessing_passwords_does_not_hide_health(
    serve: Callable[..., HttpServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of a password takes long; who asks for health must not have to wait for a hundred of them."""
    under_way, goes_on = threading.Semaphore(0), threading.Event()

    def slow(_: Logins, __: str, ___: str) -> None:
        under_way.release()
        assert goes_on.wait(LONG_S)
        raise NotAuthenticated

    monkeypatch.setattr(Logins, "check", slow)
    server = serve(Users.open(tmp_path / "users.json"))
    basic = "Basic " + base64.b64encode(b"anna:wrong").decode()
    with ThreadPoolExecutor() as pool:
        guesses = [pool.submit(get, server, "/metrics", authorization=basic) for _ in range(4)]
        for _ in guesses:
            assert under_way.acquire(timeout=LONG_S)
        assert get(server, "/metrics", authorization=basic)[0] == 503
        assert get(server, "/healthz")[0] == 200
        goes_on.set()
        assert [guess.result()[0] for guess in guesses] == [401] * 4


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/healthz", 405)])
def test_other_requests_are_refused(serve: Callable[..., HttpServer], method: str, path: str, status: int) -> None:
    """Without a word about what runs here."""
    with closing(HTTPConnection("127.0.0.1", serve().port, timeout=LONG_S)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        assert response.status == status
        assert response.getheader("server") is None


def test_tls_is_spoken_with_a_certificate(serve: Callable[..., HttpServer], tmp_path: Path) -> None:
    """And nothing else is, then."""
    own = own_certificate(tmp_path, ["localhost"], clock=SystemClock())
    server = serve(certificate=own)
    context = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    with closing(HTTPSConnection("localhost", server.port, timeout=LONG_S, context=context)) as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
    with pytest.raises((ConnectionError, OSError)):
        get(server, "/healthz")


def test_handshake_of_tls_has_to_come_in_time(serve: Callable[..., HttpServer], tmp_path: Path) -> None:
    """As heads have to; and who was let in stays for longer than that."""
    own = own_certificate(tmp_path, ["localhost"], clock=SystemClock())
    server = serve(certificate=own, header_timeout_s=0.2)
    context = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    with closing(HTTPSConnection("localhost", server.port, timeout=LONG_S, context=context)) as connection:
        for _ in range(3):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            assert connection.sock is not None
            with connect(server) as client:
                assert not received(client), "which takes as long as a handshake may take"


def test_unfinished_tls_handshakes_do_not_keep_clients_out(serve: Callable[..., HttpServer], tmp_path: Path) -> None:
    """Those that were begun first go when there are too many."""
    own = own_certificate(tmp_path, ["localhost"], clock=SystemClock())
    server = serve(certificate=own, max_connections=8)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(20)]
        assert not received(clients[0])


def test_port_in_use_is_told(serve: Callable[..., HttpServer]) -> None:
    """With the address, and what to do."""
    port = serve().port
    with pytest.raises(AddressUnusable, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
        serve(http_port=port)


def test_host_of_another_server_is_told() -> None:
    """A name may not be known, an address not be ours."""
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(AddressUnusable, match=host):
            listen(host, 0)


# Whom it puts up with


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(1000),
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000,
    ],
)
def test_garbage_does_not_disturb_other_clients(serve: Callable[..., HttpServer], garbage: bytes) -> None:
    """It is answered with an error, or not at all."""
    server = serve(header_timeout_s=0.2)
    with connect(server) as client:
        try:
            client.sendall(garbage)
            answer = client.recv(100)
        except ConnectionError:
            answer = b""
        assert not answer or answer.split()[1][:1] == b"4"
        assert get(server, "/healthz")[0] == 200


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
def test_head_that_does_not_come_in_time_ends_the_connection(serve: Callable[..., HttpServer], begun: bytes) -> None:
    """Whether it was begun or not."""
    with connect(serve(header_timeout_s=0.05)) as client:
        client.sendall(begun)
        assert not received(client)


def received(client: socket.socket) -> bytes:
    """What comes before the connection ends."""
    try:
        return b"".join(iter(lambda: client.recv(1000), b""))
    except ConnectionResetError:
        return b""


def test_head_that_comes_bit_by_bit_gets_no_more_time(serve: Callable[..., HttpServer]) -> None:
    """The time runs from the first byte, not from the last."""
    with connect(serve(header_timeout_s=0.2)) as client, suppress(ConnectionError):
        client.settimeout(0.01)
        while True:
            client.sendall(b"G")
            with suppress(TimeoutError):
                assert not client.recv(100)
                break


def test_second_request_has_to_come_in_time_as_well(serve: Callable[..., HttpServer]) -> None:
    """A connection that was good once is not good for ever."""
    with connect(serve(header_timeout_s=0.2)) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        response = HTTPResponse(client)
        response.begin()
        assert response.status == 200
        response.read()
        client.sendall(b"GET /he")
        assert not received(client)


def test_connection_stays_for_the_next_request(serve: Callable[..., HttpServer]) -> None:
    """Longer than a head may take."""
    server = serve(header_timeout_s=0.05)
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=LONG_S)) as connection:
        for _ in range(3):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            assert connection.sock is not None
            with connect(server) as other:
                assert not received(other), "which takes as long as a head may take"


def test_silent_connections_do_not_keep_clients_out(serve: Callable[..., HttpServer]) -> None:
    """The one that was silent for longest goes when there are too many."""
    server = serve(max_connections=8)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(40)]
        assert get(server, "/healthz")[0] == 200
        assert server.connections() <= 8
        assert not received(clients[0])


def test_connections_that_were_good_once_do_not_keep_clients_out_either(serve: Callable[..., HttpServer]) -> None:
    """They are silent, too."""
    server = serve(max_connections=4)
    with ExitStack() as stack:
        for _ in range(10):
            connection = HTTPConnection("127.0.0.1", server.port, timeout=LONG_S)
            stack.callback(connection.close)
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
        assert server.connections() <= 4


ENDLESS = b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
"""A request whose body does not come; what it asks for is answered at once."""


def not_read(server: HttpServer) -> socket.socket:
    """Return a connection on which very much was asked for, and nothing is read."""
    client = connect(server)
    client.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
    return client


def endless(server: HttpServer) -> socket.socket:
    """Return a connection with a request that has no end."""
    client = connect(server)
    client.sendall(ENDLESS)
    assert client.recv(12) == b"HTTP/1.1 405"
    return client


@pytest.mark.parametrize("kind", [endless, not_read])
def test_requests_without_end_do_not_keep_clients_out(
    serve: Callable[..., HttpServer], kind: Callable[[HttpServer], socket.socket]
) -> None:
    """Neither without their bodies, nor when no answer is read: or any client could hide the state of the server."""
    server = serve(max_connections=4)
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(kind(server))
            assert get(server, "/healthz")[0] == 200
        assert server.connections() <= 4


@pytest.mark.parametrize("kind", [endless, not_read])
def test_request_has_to_come_to_its_end_in_time(
    serve: Callable[..., HttpServer], kind: Callable[[HttpServer], socket.socket]
) -> None:
    """However much is sent meanwhile."""
    with kind(serve(idle_timeout_s=0.2)) as client, pytest.raises(ConnectionError):
        send_without_end(client)


def send_without_end(client: socket.socket) -> None:
    client.settimeout(0.01)
    while True:
        with suppress(TimeoutError):
            client.sendall(b"x")


def test_two_thousand_idle_sockets_are_nothing(serve: Callable[..., HttpServer]) -> None:
    """The server answers others meanwhile."""
    raise_file_limit()
    server = serve(max_connections=100)
    with ExitStack() as stack:
        for _ in range(2000):
            stack.enter_context(connect(server))
        assert get(server, "/healthz")[0] == 200


def test_shutdown_ends_who_only_sits_there(serve: Callable[..., HttpServer]) -> None:
    """No client can keep the server from ending."""
    server = serve()
    with connect(server) as client:
        assert get(server, "/healthz")[0] == 200
        server.shutdown()
        assert not received(client)


def test_nothing_is_held_of_a_connection_that_is_over(serve: Callable[..., HttpServer]) -> None:
    """A timer held it for as long as a client may be idle: a gigabyte, if clients come and go fast enough."""
    server = serve()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
            assert client.recv(100)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it is reset
    eventually(lambda: not gc.collect() and not any(isinstance(thing, _Connection) for thing in gc.get_objects()))
