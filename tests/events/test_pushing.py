"""Pushing to receivers that answer wrong, late or never, and from streams that change meanwhile."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed

import penstock
from penstock.events import _peer
from penstock.server import Config, Server, Users
from tests.events.wire import LONG_S, Wire, call, message_of, websocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATH = "/futoin/plant/alarms"
ANNA = {"sec": "anna:secret"}
REGISTER = message_of("evt.poll:1.1:registerConsumer", component="billing") | ANNA
READY = message_of("evt.push:1.1:readyToReceive", component="billing") | ANNA
LIVE = message_of("evt.push:1.1:readyToReceive", component="LIVE") | ANNA
POLL = message_of("evt.poll:1.1:pollEvents", component="billing") | ANNA


@pytest.fixture
def users(tmp_path: Path) -> Users:
    """A user who may add events, and get them."""
    users = Users.open(tmp_path / "data" / "users.json")
    users.add("root", "secret")
    users.grant("root", "admin", "*")
    users.add("anna", "secret")
    users.grant("anna", "consume", "plant/*")
    return users


@pytest.fixture
def server(tmp_path: Path, users: Users) -> Iterator[Server]:
    """A server with a stream of one segment."""
    del users
    with Server(Config(store=str(tmp_path / "data"), port=0, http_port=0)) as server:
        with penstock.connect(server.address, user="root", password="secret") as store:
            store.create_stream("plant/alarms", segments=1)
        yield server


def add(server: Server, *data: object) -> list[str]:
    """Add events; return their ids."""
    messages = [message_of("evt.gen:1.1:addEvent", type="A", data=one) | {"sec": "root:secret"} for one in data]
    return [call(server, message, PATH)["r"] for message in messages]


def take(wire: Wire) -> list[Any]:
    """Take the next group; return the data of its events."""
    message = wire.pushed()
    wire.send({"r": True, "rid": message["rid"]})
    return [event["data"] for event in message["p"]["events"]]


def is_closed(wire: Wire) -> bool:
    """Whether the server closes a connection; what it pushes before is left."""
    deadline = time.monotonic() + LONG_S
    try:
        while time.monotonic() < deadline:
            wire.socket.recv(LONG_S)
    except ConnectionClosed:
        return True
    return False


def refused_grant(users: Users) -> None:
    users.revoke("anna", "consume", "plant/*")


def new_password(users: Users) -> None:
    users.add("anna", "another", replace=True)


def removed(users: Users) -> None:
    users.remove("anna")


@pytest.mark.parametrize("end", [refused_grant, new_password])
def test_receiver_without_events_is_closed_once_it_may_not(
    server: Server, users: Users, end: Callable[[Users], None]
) -> None:
    """It would have a place, and what it had to be told would wait for the next event, for days."""
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(REGISTER)
        assert "r" in wire.call(READY)
        end(users)
        assert is_closed(wire)


@pytest.mark.parametrize("end", [refused_grant, new_password, removed])
@pytest.mark.parametrize("ready", [READY, LIVE], ids=["reliable", "live"])
def test_receiver_gets_nothing_once_it_may_not(
    server: Server, users: Users, ready: dict[str, Any], end: Callable[[Users], None]
) -> None:
    """The connection is closed before the next group: nothing else would tell a receiver, which calls nothing."""
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(REGISTER)
        assert "r" in wire.call(ready)
        add(server, 1)
        assert take(wire) == [1]
        end(users)
        assert wire.call(POLL)["e"] == "SecurityError"
        add(server, 2)
        with pytest.raises(ConnectionClosed):
            wire.pushed()
    assert len(add(server, 3)) == 1


def test_credentials_may_change_on_a_connection(server: Server, users: Users) -> None:
    """Each message is judged by its own; a push goes on with those it was started with."""
    users.add("bert", "secret")
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(REGISTER)
        assert "r" in wire.call(READY)
        assert wire.call(POLL | {"sec": "bert:secret"})["e"] == "SecurityError"
        assert wire.call(POLL | {"sec": "root:secret"})["e"] == "NotRegistered", "a component belongs to its user"
        add(server, 1)
        assert take(wire) == [1]


def test_receiver_that_never_answers_is_closed_and_its_events_come_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong rids are no answers; and the next connection begins with seq 0."""
    monkeypatch.setattr(_peer, "ANSWER_S", 0.3)
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(REGISTER)
        assert "r" in wire.call(READY)
        add(server, 1)
        message = wire.pushed()
        for rid in ("S99", "C1", "", None, 7, message["rid"].lower()):
            wire.send({"r": True, "rid": rid})
        wire.send({"r": True})
        assert is_closed(wire)
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(READY)
        message = wire.pushed()
        assert (message["p"]["seq"], message["p"]["events"][0]["data"]) == (0, 1)
        wire.send({"r": True, "rid": message["rid"]})
        add(server, 2)
        assert take(wire) == [2]


@pytest.mark.parametrize(
    "answer",
    [{"r": False}, {"r": "true"}, {"r": 1}, {"r": None}, {"e": "InternalError", "edesc": "no"}, {"e": 7}, {"r": {}}],
)
def test_group_that_was_not_taken_comes_again_under_its_number(server: Server, answer: dict[str, Any]) -> None:
    """Whatever the answer is: only ``true`` counts."""
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(REGISTER)
        assert "r" in wire.call(READY)
        add(server, 1)
        first = wire.pushed()
        wire.send(answer | {"rid": first["rid"]})
        second = wire.pushed()
        assert second["p"] == first["p"]
        assert second["rid"] != first["rid"]


def test_live_receiver_stays_whatever_it_answers(server: Server) -> None:
    """The stock one answers with an error although it took the events."""
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(LIVE)
        for number in range(3):
            add(server, number)
            message = wire.pushed()
            assert message["p"]["seq"] == number
            assert [event["data"] for event in message["p"]["events"]] == [number]
            wire.send({"e": "InternalError", "edesc": "Result type mismatch", "rid": message["rid"]})


@pytest.mark.parametrize("ready", [READY, LIVE], ids=["reliable", "live"])
def test_deleted_stream_ends_the_push(server: Server, ready: dict[str, Any]) -> None:
    """Also when another stream of its name comes: its ids are others, and its consumers."""
    with websocket(server, PATH) as wire, penstock.connect(server.address, user="root", password="secret") as store:
        assert "r" in wire.call(REGISTER)
        assert "r" in wire.call(ready)
        add(server, 1)
        assert take(wire) == [1]
        store.seal_stream("plant/alarms")
        store.delete_stream("plant/alarms")
        assert is_closed(wire)
        assert call(server, POLL, PATH)["e"] == "InvalidRequest"
        store.create_stream("plant/alarms", segments=1)
        add(server, 2)
        assert call(server, POLL, PATH)["e"] == "NotRegistered"
        with websocket(server, PATH) as again:
            assert "r" in again.call(REGISTER)
            assert "r" in again.call(READY)
            assert take(again) == [2]


def test_sealed_stream_takes_no_events_and_gives_all_it_has(server: Server) -> None:
    """The refusal names the reason, and receivers stay."""
    with websocket(server, PATH) as wire, penstock.connect(server.address, user="root", password="secret") as store:
        assert "r" in wire.call(REGISTER)
        add(server, 1)
        store.seal_stream("plant/alarms")
        message = message_of("evt.gen:1.1:addEvent", type="A", data=2) | {"sec": "root:secret"}
        assert call(server, message, PATH)["e"] == "InvalidRequest"
        assert [event["data"] for event in call(server, POLL, PATH)["r"]] == [1]
        assert "r" in wire.call(READY)
        assert take(wire) == [1]
        assert "r" in wire.call(POLL)


def test_truncated_events_are_passed_over(server: Server) -> None:
    """A receiver and a poll that are behind go on with the oldest event that is kept."""
    with websocket(server, PATH) as wire, penstock.connect(server.address, user="root", password="secret") as store:
        assert "r" in wire.call(REGISTER)
        add(server, *range(5))
        cut = store.tail("plant/alarms")
        add(server, 5, 6)
        store.truncate_stream("plant/alarms", cut)
        assert [event["data"] for event in call(server, POLL | {"p": {"component": "LIVE"}}, PATH)["r"]] == [5, 6]
        assert [event["data"] for event in call(server, POLL, PATH)["r"]] == [5, 6]
        assert "r" in wire.call(READY)
        assert take(wire) == [5, 6]


def test_small_version_gets_small_messages(server: Server) -> None:
    """One byte above 64 KiB ends a stock client of 1.0; the numbers have no gaps all the same."""
    size = 30_000
    add(server, *("x" * size for _ in range(7)))
    with websocket(server, PATH) as wire:
        assert "r" in wire.call(REGISTER)
        assert "r" in wire.call(READY | {"f": "futoin.evt.push:1.0:readyToReceive"})
        numbers, count = [], 0
        while count < 7:
            message = wire.pushed()
            assert message["f"] == "futoin.evt.receiver:1.0:onEvents"
            assert len(json.dumps(message, separators=(",", ":"))) <= 65_536
            numbers.append(message["p"]["seq"])
            count += len(message["p"]["events"])
            wire.send({"r": True, "rid": message["rid"]})
        assert numbers == list(range(len(numbers)))
