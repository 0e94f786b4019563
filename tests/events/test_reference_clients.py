"""The reference clients from npm, unmodified, against ``penstock serve``."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from concurrent.futures import wait
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from penstock.server import Users
from tests.events.javascript import Reference, ReferenceFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLS: Final = 3
EACH: Final = 400  # events between two kills


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def serving(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``penstock serve`` in a process of its own."""
    command = [sys.executable, "-m", "penstock", "serve", str(folder), "--port", "0", "--http-port", str(port)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def mac_key() -> list[str]:
    """The key of the server's user."""
    return []


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, mac_key: list[str]) -> Iterator[int]:
    """The port of a server with a user."""
    folder, port = tmp_path_factory.mktemp("futoin"), free_port()
    users = Users.open(folder / "users.json")
    users.add("anna", "secret")
    users.grant("anna", "admin", "*")
    mac_key.append(users.new_mac_key("anna"))
    with serving(folder, port):
        yield port


@pytest.mark.parametrize("coder", ["JSON", "MPCK", "CBOR"])
@pytest.mark.parametrize("scheme", ["secure+ws", "secure+http"])
def test_faces_add_register_and_poll(node: Reference, port: int, scheme: str, coder: str) -> None:
    """Every function that a reference client has works, over both transports, in every coding."""
    at, component = f"{scheme}://127.0.0.1:{port}/futoin", f"C_{scheme[7:]}_{coder}"
    data = {"a": [1, None, "x", 1.5, True], "ключ": {"": "\U0001f300"}}
    with node.face("gen", at, "anna:secret", coder=coder) as gen, node.face("poll", at, "anna:secret") as poll:
        assert gen.call("ping", 7) == 7
        first = gen.call("addEvent", "NOT_WANTED", None)
        added = gen.call("addEvent", "TEST_A", data)
        assert int(added) > int(first)
        with pytest.raises(ReferenceFailed, match="NotRegistered"):
            poll.call("pollEvents", component, None, None)
        assert poll.call("registerConsumer", component) is True
        assert poll.call("registerConsumer", component) is True
        events = poll.call("pollEvents", component, first, ["TEST_A"])
        assert [(event["id"], event["data"]) for event in events] == [(added, data)]
        if scheme == "secure+ws":
            with node.face("push", at, "anna:secret", coder=coder) as push:
                assert push.call("ping", 8) == 8
                assert push.call("registerConsumer", component) is True
                assert push.call("pollEvents", component, first, ["TEST_A"]) == events
        assert poll.call("pollEvents", component, added, None) == []
        with pytest.raises(ReferenceFailed, match="LiveNotAllowed"):
            poll.call("registerConsumer", "LIVE")
        with pytest.raises(ReferenceFailed, match="InvalidRequest"):
            gen.call("addEvent", "TEST_A", "x" * 65_400)


@pytest.mark.parametrize("scheme", ["secure+ws", "secure+http"])
@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_clients_sign_their_messages(
    node: Reference, port: int, mac_key: list[str], scheme: str, algorithm: str
) -> None:
    """No password is sent; the client checks the signature of every answer, also of an error, and of many events."""
    at, key = f"{scheme}://127.0.0.1:{port}/futoin", {"macKey": mac_key[0], "macAlgo": algorithm}
    data = {"b": [1, None, "x", 1.5, 1e21, -0.0], "a": True, "ключ": {}}
    with node.face("gen", at, "-smac:anna", **key) as gen, node.face("poll", at, "-smac:anna", **key) as poll:
        ids = [gen.call("addEvent", "SIGNED", data) for _ in range(3)]
        events = poll.call("pollEvents", "LIVE", str(int(ids[0]) - 1), ["SIGNED"])
        assert [event["id"] for event in events][:3] == ids
        with pytest.raises(ReferenceFailed, match="NotRegistered"):
            poll.call("pollEvents", "NOT_THERE", None, None)
    if scheme == "secure+ws":
        with node.receiver("reliable", at, "-smac:anna", component=algorithm, want=["SIGNED"], **key) as received:
            received.wait(3)
    with (
        node.face("gen", at, "-smac:anna", macKey="AAAA") as gen,
        pytest.raises(ReferenceFailed, match="SecurityError"),
    ):
        gen.call("ping", 1)


def test_wrong_password_is_a_security_error(node: Reference, port: int) -> None:
    """The client knows that error by its name."""
    at = f"secure+ws://127.0.0.1:{port}/futoin"
    with node.face("gen", at, "anna:wrong") as gen, pytest.raises(ReferenceFailed, match="SecurityError"):
        gen.call("addEvent", "TEST", 1)


@pytest.mark.parametrize("coder", ["JSON", "MPCK", "CBOR"])
def test_receivers_get_the_past_and_what_comes_then(node: Reference, port: int, coder: str) -> None:
    """The reliable one in order from its position on, the live one what happens while it is connected."""
    at, kind = f"secure+ws://127.0.0.1:{port}/futoin", f"TEST_{coder}"
    options = {"component": f"R_{coder}", "want": [kind], "coder": coder}
    with node.face("gen", at, "anna:secret") as gen:
        gen.add(range(50), kind=kind).result(60)
        with (
            node.receiver("live", at, "anna:secret", want=[kind]) as live,
            node.receiver("reliable", at, "anna:secret", **options) as reliable,
        ):
            reliable.wait(50)
            gen.add(range(50, 250), kind=kind).result(60)
            reliable.wait(250)
            live.wait(1)
        with node.receiver("reliable", at, "anna:secret", **options) as again:
            gen.add(range(250, 260), kind=kind).result(60)
            again.wait(10)
    assert sorted(reliable.numbers) == list(range(250))
    ids = [int(event["id"]) for event in reliable.events]
    assert ids == sorted(set(ids))
    assert set(live.numbers) <= set(range(50, 250))
    assert set(range(250, 260)) <= set(again.numbers)


@pytest.mark.long
def test_kill_under_load_loses_no_event(node: Reference, tmp_path: Path) -> None:
    """An event that has its id was durable; a receiver that connects again goes on without a gap."""
    moments, port = random.Random(1), free_port()
    at, by_post = (f"secure+{scheme}://127.0.0.1:{port}/futoin" for scheme in ("ws", "http"))
    quick = {"callTimeoutMS": 1_000}  # else a client waits half a minute for a server that was away
    with (
        node.face("gen", at, "x:y", **quick) as gen,
        node.face("gen", by_post, "x:y", **quick) as posting,
        node.receiver("reliable", at, "x:y", component="C", **quick) as received,
    ):
        adding, cut = [], 0
        for life in range(KILLS):
            with serving(tmp_path, port, "--anonymous"):
                first, middle, end = (EACH * life + part for part in (0, EACH // 2, EACH))
                adding += [gen.add(range(first, middle)), posting.add(range(middle, end))]
                time.sleep(moments.uniform(0.02, 0.4))
                cut += not (adding[-2].done() and adding[-1].done())
        with serving(tmp_path, port, "--anonymous"):
            assert not wait(adding, 120).not_done, f"events are still being added: {gen.reports.errors[-5:]}"
            added = [int(event_id) for future in adding for _, event_id in future.result()]
            received.wait_for(max(added))
    assert cut, "no server was killed while events were added"
    assert set(received.numbers) == set(range(EACH * KILLS))
    assert set(added) <= {int(event["id"]) for event in received.events}
    for numbers in received.connections:
        assert numbers == list(range(len(numbers)))
    for ids in received.ids:
        assert ids == sorted(set(ids)), "a connection brought an event twice, or before an older one"
    for before, ids in pairwise(received.ids):
        assert ids[0] <= before[-1] or not set(added) & set(range(before[-1] + 1, ids[0])), "events were left out"
