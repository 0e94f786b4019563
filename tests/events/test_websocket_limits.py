"""The limits of the HTTP port hold for WebSockets, and no client makes the server grow."""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import socket
import ssl
import time
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from penstock.errors import StoreUnreachable
from penstock.events.blocking import BlockingGenerator
from penstock.server import Config, Server, Users
from penstock.server._futoin import FutoinPort
from tests.events.wire import LONG_S, Wire, call, message_of, websocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PING = message_of("ping:1.0:ping", echo=7)
TALKATIVE = PING | {"f": f"futoin.{'x' * 900}:1.0:ping"}
"""A call whose answer is long, so that buffers are soon full."""
REGISTER = message_of("evt.poll:1.1:registerConsumer", component="billing")
READY = message_of("evt.push:1.1:readyToReceive", component="billing")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server, with users if some are named, which ends with the test."""
    with ExitStack() as stack:

        def start(*names: str, **settings: Any) -> Server:  # noqa: ANN401 - of several types
            users = Users.open(tmp_path / "data" / "users.json")
            for name in names:
                users.add(name, "secret")
                users.grant(name, "admin", "*")
            given: dict[str, Any] = {"port": 0, "http_port": 0, "anonymous": not names, "shutdown_timeout_s": 1.0}
            return stack.enter_context(Server(Config(store=str(tmp_path / "data"), **(given | settings))))

        yield start


def is_closed(wire: Wire) -> bool:
    """Whether the server closes a connection."""
    try:
        wire.socket.recv(LONG_S)
    except ConnectionClosed:
        return True
    return False


def is_healthy(server: Server) -> bool:
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=LONG_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def figures(server: Server, **headers: str) -> dict[str, float]:
    """Return the metrics of the server."""
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=LONG_S)
    try:
        connection.request("GET", "/metrics", headers=headers)
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_first_message_has_to_come_in_time(serve: Callable[..., Server]) -> None:
    """As the head of a request has to; a call that is refused gives no more time than that."""
    server = serve("anna", header_timeout_s=0.2)
    with websocket(server) as silent, websocket(server) as refused, websocket(server) as known:
        assert "r" in known.call(PING | {"sec": "anna:secret"})
        assert refused.call(PING)["e"] == "SecurityError"
        assert is_closed(silent)
        assert is_closed(refused)
        assert "r" in known.call(PING | {"sec": "anna:secret"}), "it has longer, because a call was permitted"


def test_silent_connection_is_closed_unless_events_are_pushed_to_it(serve: Callable[..., Server]) -> None:
    """A receiver has nothing to say while there are no events."""
    server = serve(header_timeout_s=0.5, idle_timeout_s=0.5)
    with websocket(server) as receiver, websocket(server) as silent:
        assert "r" in receiver.call(REGISTER)
        assert "r" in receiver.call(READY)
        assert "r" in silent.call(PING)
        assert is_closed(silent)
        with websocket(server) as other:
            assert "r" in other.call(PING)
            assert is_closed(other)
        assert "r" in call(server, message_of("evt.gen:1.1:addEvent", type="A", data=1))
        assert receiver.pushed()["p"]["seq"] == 0


def test_unauthenticated_websockets_go_first_when_there_are_too_many(serve: Callable[..., Server]) -> None:
    """Unauthenticated clients must not push receivers out."""
    server = serve("anna", max_connections=6)
    with ExitStack() as stack:
        known = [stack.enter_context(websocket(server)) for _ in range(2)]
        for wire in known:
            assert "r" in wire.call(PING | {"sec": "anna:secret"})
        unauthenticated = [stack.enter_context(websocket(server)) for _ in range(12)]
        assert is_healthy(server)
        assert is_closed(unauthenticated[0])
        for wire in known:
            assert "r" in wire.call(PING | {"sec": "anna:secret"})


def test_one_user_has_a_share_of_the_websockets(serve: Callable[..., Server]) -> None:
    """Others find a place; and a connection counts for the user whose credentials came last."""
    server = serve("anna", "bert", max_connections=8)
    with ExitStack() as stack:
        wires = [stack.enter_context(websocket(server)) for _ in range(5)]
        answers = [wire.call(PING | {"sec": "anna:secret"}) for wire in wires]
        assert ["r" in answer for answer in answers] == [True] * 4 + [False]
        assert (answers[4]["e"], "share" in answers[4]["edesc"]) == ("CommError", True)
        assert "r" in wires[4].call(PING | {"sec": "bert:secret"})
        assert "r" in wires[0].call(PING | {"sec": "bert:secret"})
        assert "r" in wires[4].call(PING | {"sec": "anna:secret"})
        wires[1].socket.close()
        with websocket(server) as wire:
            deadline = time.monotonic() + LONG_S
            while "e" in wire.call(PING | {"sec": "anna:secret"}):
                assert time.monotonic() < deadline


def test_one_user_has_a_share_of_the_consumers(serve: Callable[..., Server]) -> None:
    """Retention waits for each, and others find a place; a component that is registered stays so."""
    server = serve("anna", "bert", max_consumers=4)
    with websocket(server) as wire:
        assert "r" in wire.call(message_of("evt.gen:1.1:addEvent", type="A", data=1) | {"sec": "anna:secret"})
        answers = [
            wire.call(message_of("evt.poll:1.1:registerConsumer", component=component) | {"sec": sec})
            for component in ("a", "b", "c", "a")
            for sec in ("anna:secret", "bert:secret")
        ]
    assert ["r" in answer for answer in answers] == [True] * 4 + [False] * 2 + [True] * 2
    assert all("max_consumers" in answer["edesc"] for answer in answers[4:6])


def test_shutdown_ends_websockets_in_time(serve: Callable[..., Server]) -> None:
    """Also one whose peer reads nothing, and one that is pushed events."""
    server = serve(shutdown_timeout_s=1.0)
    with websocket(server) as receiver, raw(server) as deaf:
        assert "r" in receiver.call(REGISTER)
        assert "r" in receiver.call(READY)
        flood(deaf, TALKATIVE)
        server.__exit__(None, None, None)
        assert is_closed(receiver)


def test_events_come_over_tls(serve: Callable[..., Server], tmp_path: Path) -> None:
    """With the certificate of the server, as everything on its port."""
    server = serve(tls=True)
    context = ssl.create_default_context(cafile=str(tmp_path / "data" / "server.crt"))
    context.check_hostname = False
    with connect(f"wss://127.0.0.1:{server.http_port}/futoin", ssl=context, compression=None) as socket:
        wire = Wire(socket)
        assert "r" in wire.call(message_of("evt.gen:1.1:addEvent", type="A", data=1))
    url = f"wss://127.0.0.1:{server.http_port}/futoin"
    with BlockingGenerator(url, tls_ca=str(tmp_path / "data" / "server.crt")) as generator:
        assert generator.add_event("A", 2)
    for address, words in (
        (url, "make tls_ca a copy of its server.crt"),
        (url.replace("wss", "ws"), "wss:// with TLS"),
    ):
        with BlockingGenerator(address) as other, pytest.raises(StoreUnreachable, match=words):
            other.ping()


def test_metrics_count_connections_calls_and_events(serve: Callable[..., Server]) -> None:
    """An operator sees who is behind, and what the server has to do."""
    server = serve()
    with websocket(server) as wire:
        assert "r" in wire.call(REGISTER)
        event = wire.call(message_of("evt.gen:1.1:addEvent", type="A", data=1))["r"]
        found = figures(server)
        assert found['penstock_connections{protocol="websocket"}'] == 1
        assert found["penstock_futoin_calls_total"] == 2
        assert found['penstock_futoin_lag_bytes{consumer="anonymous.billing",stream="futoin/events"}'] >= int(event)
        assert found['penstock_used{kind="websockets"}'] == 1
        assert "r" in wire.call(READY)
        wire.send({"r": True, "rid": wire.pushed()["rid"]})
        deadline = time.monotonic() + LONG_S
        while found["penstock_futoin_pushed_events_total"] != 1:
            found = figures(server)
            assert time.monotonic() < deadline


def test_connection_with_very_many_messages_gives_others_their_turn() -> None:
    """A thousand of each connection were handled at once: ten with calls kept health waiting for seconds."""
    left = iter([b"x"] * 1000)

    class FullSocket:
        """A WebSocket on which everything has come already."""

        async def receive(self) -> dict[str, Any]:
            data = next(left, None)
            return {"type": "websocket.disconnect"} if data is None else {"type": "websocket.receive", "bytes": data}

    class QuickPeer:
        """It has nothing to wait for."""

        async def receive(self, data: bytes, *, is_text: bool) -> None:
            assert (data, is_text) == (b"x", False)

    async def run() -> int:
        receiving = asyncio.create_task(FutoinPort._receive(None, FullSocket(), QuickPeer()))  # type: ignore[arg-type]
        turns = 0
        while not receiving.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(run()) > 1000 // 50


# Clients that do not read, or do not write as they should


@contextmanager
def raw(server: Server) -> Iterator[socket.socket]:
    """Yield a WebSocket on which nothing is read."""
    with socket.socket() as client:
        client.settimeout(LONG_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # which is soon full
        client.connect(("127.0.0.1", server.http_port))
        key = base64.b64encode(bytes(16)).decode()
        head = "GET /futoin HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        client.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 101"
        yield client


def frame(data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    return bytes(Frame(opcode, data, fin).serialize(mask=True))


def flood(client: socket.socket, message: dict[str, Any] | bytes, *, copies: int = 1_000_000) -> int:
    """Send copies of a message, until the server reads no more; return how many it took."""
    one = frame(json.dumps(message).encode()) if isinstance(message, dict) else message
    many, sent = one * 100, 0
    client.settimeout(1.0)
    with suppress(TimeoutError, ConnectionError):
        while sent < copies:
            client.sendall(many)
            sent += 100
    return sent


def memory() -> int:
    """Return the bytes of memory that this process, and the server in it, use now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG, Opcode.TEXT, Opcode.CONT])
def test_frames_without_content_end_the_connection_of_a_user(serve: Callable[..., Server], opcode: Opcode) -> None:
    """Ten WebSockets of a user that sent nothing else kept health waiting for 13 seconds."""
    server = serve("anna")
    idle = frame(b"", opcode, fin=opcode is not Opcode.CONT)
    with websocket(server) as wire:
        assert "r" in wire.call(PING | {"sec": "anna:secret"})
        raw = wire.socket.socket
        raw.settimeout(LONG_S)
        with suppress(OSError):  # it is closed, by the thread that receives, too
            raw.sendall(frame(b"", fin=False) * (opcode is Opcode.CONT) + idle * 90)
            assert "r" in call(server, PING | {"sec": "anna:secret"}), "some are nothing to worry about"
            for _ in range(100):
                raw.sendall(idle * 1000)
        while not is_closed(wire):
            pass  # the answers to the first of them
    assert (
        figures(server, Authorization="Basic YW5uYTpzZWNyZXQ=")['penstock_refused_total{kind="websocket_idle_frames"}']
        == 1
    )


@pytest.mark.parametrize("what", ["calls", "polls", "nonsense", "pings", "fragments"])
def test_client_that_reads_nothing_does_not_make_the_server_grow(serve: Callable[..., Server], what: str) -> None:
    """It is not read from either, or its connection ends; others are served."""
    server = serve()
    assert "r" in call(server, message_of("evt.gen:1.1:addEvent", type="A", data="x" * 60_000))
    messages: dict[str, dict[str, Any] | bytes] = {
        "calls": TALKATIVE,
        "polls": message_of("evt.poll:1.1:pollEvents", component="LIVE"),
        "nonsense": frame(b"nonsense"),
        "pings": frame(b"x" * 125, Opcode.PING),
        "fragments": frame(b"", Opcode.CONT, fin=False),
    }
    with raw(server) as client, websocket(server) as other:
        if what == "fragments":
            client.sendall(frame(b"", fin=False))
        assert "r" in other.call(PING)  # from then on it may be silent for longer than the flood takes
        before = memory()
        sent = flood(client, messages[what])
        assert sent < 1_000_000, "the server reads no more, or has closed the connection"
        assert memory() - before < 100 << 20
        assert "r" in other.call(PING)
        assert is_healthy(server)


def test_calls_that_wait_to_be_answered_are_bounded_by_their_memory(serve: Callable[..., Server]) -> None:
    """A message of many empty lists takes thirty times its bytes once it is decoded."""
    server = serve()
    echoed = frame(json.dumps(message_of("x", "r" * 60_000)).encode())
    lists = frame(json.dumps(message_of("x", a=[[]] * 16_000)).encode())
    with raw(server) as client, websocket(server) as other:
        before = memory()
        client.settimeout(1.0)
        with suppress(TimeoutError, ConnectionError):
            for message in [echoed] * 100 + [lists] * 400:
                client.sendall(message)
        assert memory() - before < 100 << 20
        assert "r" in other.call(PING)


def test_receiver_that_reads_nothing_does_not_make_the_server_grow(serve: Callable[..., Server]) -> None:
    """Few groups are under way to it; others get theirs."""
    server = serve()
    with raw(server) as deaf, websocket(server) as wire:
        assert "r" in wire.call(REGISTER)
        deaf.sendall(frame(json.dumps(READY).encode()))
        used = []
        for _ in range(3):
            for _ in range(400):
                wire.send(message_of("evt.gen:1.1:addEvent", type="A", data="x" * 60_000))
            assert all("r" in wire.answer() for _ in range(400))
            used.append(memory())
        assert used[2] - used[1] < 16 << 20, "24 MB were added meanwhile"
        assert "r" in wire.call(message_of("evt.push:1.1:readyToReceive", component="LIVE"))
        assert "r" in wire.call(message_of("evt.gen:1.1:addEvent", type="A", data=7))
        assert wire.pushed()["p"]["events"][0]["data"] == 7


def test_half_open_connection_ends(serve: Callable[..., Server]) -> None:
    """A peer that is gone, without a word, keeps no place."""
    server = serve(header_timeout_s=0.2)
    with raw(server) as client:
        client.shutdown(socket.SHUT_WR)
        client.settimeout(LONG_S)
        with suppress(ConnectionError):
            while client.recv(1_000):
                pass
    assert is_healthy(server)


def test_messages_without_a_permitted_call_wait_for_their_turn(serve: Callable[..., Server]) -> None:
    """Twenty clients that sent empty messages kept health waiting for 16 seconds; one that sends on is closed."""
    server = serve("anna")
    message = frame(json.dumps(PING).encode())
    with websocket(server) as wire:
        assert wire.call(PING)["e"] == "SecurityError", "a few are answered"
        raw = wire.socket.socket
        raw.settimeout(LONG_S)
        with suppress(OSError):  # it is closed, by the thread that receives, too
            for _ in range(100):
                raw.sendall(message * 1000)
        while not is_closed(wire):
            pass  # the answers to the first of them
    assert is_healthy(server)
