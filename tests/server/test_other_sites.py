"""A server without users trusts who reaches it: pages of other sites must not be among them."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Final

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from penstock.server import Config, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALL: Final = json.dumps({"f": "futoin.evt.gen:1.0:addEvent", "p": {"type": "EVIL", "data": "x"}, "rid": "C1"})


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The HTTP port of a server for this machine alone."""
    folder: Path = tmp_path_factory.mktemp("sites")
    with Server(Config(store=str(folder / "store"), port=0, http_port=0, anonymous=True)) as server:
        yield int(server.http_address.rpartition(":")[2])


def status(port: int, method: str, path: str, **headers: str) -> int:
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, CALL if method == "POST" else None, named)
        return connection.getresponse().status


@pytest.mark.parametrize("origin", ["http://evil.test", "null", "https://127.0.0.1.evil.test", "http://127.0.0.1:1"])
def test_a_page_of_another_site_can_neither_write_nor_listen(port: int, origin: str) -> None:
    """Every page that a user opens can send requests to this machine, also without asking first (text/plain)."""
    assert status(port, "POST", "/futoin", Origin=origin, Content_Type="text/plain") == 403
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{port}/futoin", origin=Origin(origin))


@pytest.mark.parametrize("path", ["/metrics", "/console/", "/console/api/session", "/"])
def test_a_name_that_leads_to_this_machine_is_refused(port: int, path: str) -> None:
    """A site can give its own name the address of this machine, and is of the same origin then."""
    assert status(port, "GET", path, Host=f"evil.test:{port}") == 403
    assert status(port, "GET", path, Host=f"localhost:{port}") < 400
    assert status(port, "GET", path, Host=f"127.0.0.1:{port}") < 400


def test_programs_and_load_balancers_are_served(port: int) -> None:
    """They send no origin; health is asked for by any name."""
    assert status(port, "POST", "/futoin") == 200
    assert status(port, "GET", "/healthz", Host="penstock.example") == 200
    with connect(f"ws://127.0.0.1:{port}/futoin") as websocket:
        websocket.send(CALL)
        assert json.loads(websocket.recv(timeout=30))["rid"] == "C1"
    with connect(f"ws://127.0.0.1:{port}/futoin", origin=Origin(f"http://127.0.0.1:{port}")) as websocket:
        websocket.send(CALL)
        assert json.loads(websocket.recv(timeout=30))["rid"] == "C1"
