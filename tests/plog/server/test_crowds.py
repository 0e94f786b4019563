"""Plog servers with more connections than they take: those that matter stay, and the server goes on."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from penstock.plog.replicated import PROTOCOL, Hello, ServerAccess, open_group_plogs
from penstock.plog.replicated._link import open_session
from penstock.plog.server import PlogServer, PlogServerLimits, ServerFolder
from penstock.ports import SystemClock
from penstock.server._addresses import listen
from penstock.server._tls import own_certificate
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONNECTIONS_MAX = 8


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[PlogServer]]:
    """Three servers that take few connections, and wait long for the first message."""
    limits = PlogServerLimits(connections_max=CONNECTIONS_MAX, hello_s_max=60.0)
    with ExitStack() as parts:
        yield [
            parts.enter_context(
                PlogServer(
                    ServerFolder(tmp_path / str(place), cluster="local", group="main"),
                    listen("127.0.0.1", 0),
                    limits=limits,
                )
            )
            for place in range(3)
        ]


def addresses(servers: list[PlogServer]) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in servers)


def bare(server: PlogServer, parts: ExitStack) -> None:
    """Open a connection that says nothing."""
    parts.enter_context(socket.create_connection(("127.0.0.1", server.port)))


def reader(server: PlogServer, parts: ExitStack) -> None:
    """Open a session that may not change anything, if there is a place."""
    hello = Hello(PROTOCOL, "local", "main", "main", None, b"r" * 16, 1)
    with suppress(OSError):
        parts.callback(open_session(f"127.0.0.1:{server.port}", hello, ServerAccess())[0].close)


@pytest.mark.parametrize("opened", [bare, reader])
def test_an_owner_that_is_idle_keeps_its_session_however_many_connections_come(
    servers: list[PlogServer], opened: Callable[[PlogServer, ExitStack], None]
) -> None:
    """Whoever can reach the port could end its session otherwise, and with it the plogs that it appends to."""
    with ExitStack() as parts:
        plogs = parts.enter_context(open_group_plogs(addresses(servers)))
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, b"first")
        sessions = [link._connection for link in plogs._links.of("main")]
        time.sleep(0.01)  # all others are less silent from now on
        for _ in range(4 * CONNECTIONS_MAX):
            opened(servers[0], parts)
        eventually(lambda: servers[0].connections() >= CONNECTIONS_MAX - 1)
        assert plogs.append(plog_id, 5, b"second") == 11
        assert [link._connection for link in plogs._links.of("main")] == sessions


def test_connections_without_a_session_go_before_readers(servers: list[PlogServer]) -> None:
    """A reader has shown who it is; of two without a session, the one that is silent for longer goes."""
    with ExitStack() as parts:
        hello = Hello(PROTOCOL, "local", "main", "made-up", None, b"r" * 16, 1)
        connection, _ = open_session(f"127.0.0.1:{servers[0].port}", hello, ServerAccess())
        parts.callback(connection.close)
        silent = [parts.enter_context(socket.create_connection(("127.0.0.1", servers[0].port))) for _ in range(7)]
        eventually(lambda: servers[0].connections() == CONNECTIONS_MAX)
        bare(servers[0], parts)
        silent[0].settimeout(20)
        assert silent[0].recv(1) == b""
        assert not connection.wait(0)


def test_a_connection_within_its_handshake_makes_a_place_too(tmp_path: Path) -> None:
    """With TLS, whoever says nothing has not even an encrypted connection, and would keep its place for seconds."""
    certificate = own_certificate(tmp_path, ["127.0.0.1"], clock=SystemClock())
    folder = ServerFolder(tmp_path / "server", cluster="local", group="main")
    limits = PlogServerLimits(connections_max=2, hello_s_max=60.0)
    with (
        PlogServer(folder, listen("127.0.0.1", 0), tls=certificate.context(), limits=limits) as server,
        ExitStack() as parts,
    ):
        first = parts.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
        bare(server, parts)
        eventually(lambda: server.connections() == 2)
        bare(server, parts)
        assert first.recv(1) == b""


def test_a_server_without_threads_refuses_a_connection_and_takes_the_next_one(
    servers: list[PlogServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The system may have no more threads for a moment: the server must not be deaf from then on."""
    start, failed = threading.Thread.start, list[str]()

    def fails_once(thread: threading.Thread) -> None:
        if thread.name == "penstock-plog-client" and not failed:
            failed.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails_once)
    with socket.create_connection(("127.0.0.1", servers[0].port), timeout=20) as refused:
        assert refused.recv(1) == b""
    assert "can't start new thread" in caplog.text
    assert servers[0].connections() == 0
    with open_group_plogs(addresses(servers)) as plogs:
        assert plogs.append(plogs.create(size=10), 0, b"x") == 1
