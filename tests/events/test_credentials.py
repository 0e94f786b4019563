"""Credentials in messages: passwords and signatures, wrong ones, and those that end while a client is connected."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import FutoinError, NotAuthenticated, NotPermitted
from penstock.events.blocking import BlockingGenerator, BlockingPollClient
from penstock.model import StreamConfig
from penstock.server import Config, Server, Users
from penstock.server._login_queue import FAILURES_FREE
from tests.events.wire import call, message_of, signed, websocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PING: dict[str, Any] = message_of("ping:1.0:ping", echo=7)


@pytest.fixture
def users(tmp_path: Path) -> Users:
    """Two users, of whom one may do everything."""
    users = Users.open(tmp_path / "data" / "users.json")
    for name in ("anna", "bert"):
        users.add(name, "secret")
    users.grant("anna", "admin", "*")
    return users


@pytest.fixture
def server(tmp_path: Path, users: Users) -> Iterator[Server]:
    """A server with users."""
    del users
    with Server(Config(store=str(tmp_path / "data"), port=0, http_port=0)) as server:
        yield server


def error_of(answer: dict[str, Any]) -> object:
    return answer.get("e")


@pytest.mark.parametrize(
    ("scheme", "algorithm"),
    [
        *(("-hmac", algorithm) for algorithm in ("MD5", "SHA224", "SHA256", "SHA384", "SHA512")),
        *(("-smac", algorithm) for algorithm in ("HMD5", "HS256", "HS384", "HS512")),
    ],
)
def test_signature_of_every_algorithm_is_a_login(server: Server, users: Users, scheme: str, algorithm: str) -> None:
    """Reference clients use all of them, over both transports, and refuse an answer that is not signed likewise."""
    key = users.new_mac_key("anna")
    message = signed(PING, "anna", key, scheme=scheme, algorithm=algorithm)
    with websocket(server) as wire:
        for answer in (call(server, message), wire.call(message)):
            code = answer.pop("sec")
            assert answer == {"r": {"echo": 7}, "rid": "C1"}
            assert signed(answer, "anna", key, scheme=scheme, algorithm=algorithm)["sec"].endswith(f":{code}")


def test_clients_with_a_key_take_what_the_server_signs(server: Server, users: Users) -> None:
    """They check the signatures of answers, whatever data these carry, and another's key is no key."""
    data = {"b": [1, None, "x", 1.5, 1e21, -0.0, 2**60], "a": True, "ä": "\U0001f600"}
    url = f"ws://127.0.0.1:{server.http_port}/futoin"
    with (
        BlockingGenerator(url, user="anna", mac_key=users.new_mac_key("anna")) as generator,
        BlockingPollClient(url, "LIVE", user="anna", mac_key=users.new_mac_key("anna")) as client,
    ):
        with pytest.raises(FutoinError, match="SecurityError"):
            generator.add_event("A", data)  # its key was replaced
        with BlockingGenerator(url, user="anna", password="secret") as other:
            other.add_event("A", data)
        assert [event.data for event in client.poll()] == [data]


def test_signature_is_of_its_message_alone(server: Server, users: Users) -> None:
    """One that was right a moment ago must not open the door for another message."""
    key = users.new_mac_key("anna")
    message = signed(PING, "anna", key)
    with websocket(server) as wire:
        assert "r" in wire.call(message)
        assert error_of(wire.call(message | {"p": {"echo": 8}})) == "SecurityError"
        assert error_of(wire.call(message | {"rid": "C2"})) == "SecurityError"
        assert "r" in wire.call(signed(PING | {"rid": "C3"}, "anna", key))


@pytest.mark.parametrize(
    "sec",
    [
        "",
        "anna",
        ":",
        "anna:wrong",
        "nobody:secret",
        "-smac",
        "-smac:",
        "-smac:anna",
        "-smac:anna:HS256",
        "-smac:anna:HS256:",
        "-smac:anna:HS256:AAAA",
        "-smac:anna:HS256:AAAA:more",
        "-smac:anna:ROT13:AAAA",
        "-smac:anna:SHA256:AAAA",
        "-hmac:anna:HS256:AAAA",
        "-hmac:nobody:SHA256:AAAA",
        "-hmac:bert:SHA256:AAAA",
        "-hmac:anna:SHA256:no base64!",
    ],
)
def test_wrong_credentials_are_named_and_the_connection_goes_on(server: Server, users: Users, sec: str) -> None:
    """A message on a connection may have other credentials than the one before."""
    users.new_mac_key("anna")
    with websocket(server) as wire:
        assert error_of(wire.call(PING | {"sec": sec})) == "SecurityError"
        assert error_of(wire.call(PING)) == "SecurityError"
        assert "r" in wire.call(PING | {"sec": "anna:secret"})
    assert error_of(call(server, PING | {"sec": sec})) == "SecurityError"


def test_unknown_user_has_a_signature_checked_as_well(users: Users) -> None:
    """Or the time that a refusal takes would tell which users there are, and which have a key."""
    users.new_mac_key("anna")
    for name in ("anna", "bert", "nobody"):
        keys: list[bytes] = []
        with pytest.raises(NotAuthenticated):
            users.log_in_by_mac(name, lambda key, keys=keys: bool(keys.append(key)))  # type: ignore[misc]
        assert [len(key) for key in keys] == [32]


@pytest.mark.parametrize("sec", ["bert:wrong", "-smac:bert:HS256:AAAA"])
def test_guesses_are_slowed_down(server: Server, users: Users, sec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has logged in from there before is not concerned; others are not checked for a while."""
    monkeypatch.setattr("penstock.server._login_queue.DELAY_MIN_S", 3600.0)
    monkeypatch.setattr("penstock.server._login_queue.DELAY_MAX_S", 3600.0)
    keys = {name: users.new_mac_key(name) for name in ("anna", "bert")}
    with websocket(server) as wire:
        assert "r" in wire.call(PING | {"sec": "anna:secret"})
        for _ in range(FAILURES_FREE + 1):
            assert error_of(wire.call(PING | {"sec": sec})) == "SecurityError"
        assert error_of(wire.call(signed(PING, "bert", keys["bert"]))) == "CommError"
        assert error_of(wire.call(PING | {"sec": "bert:secret"})) == "CommError"
        assert "r" in wire.call(PING | {"sec": "anna:secret"})
        assert "r" in wire.call(signed(PING, "anna", keys["anna"]))


def new_password(users: Users) -> None:
    users.add("anna", "another", replace=True)


def removed(users: Users) -> None:
    users.remove("anna")


def revoked(users: Users) -> None:
    users.revoke_mac_key("anna")


def replaced(users: Users) -> None:
    users.new_mac_key("anna")


@pytest.mark.parametrize("end", [new_password, removed, revoked, replaced])
def test_key_ends_with_the_next_message(server: Server, users: Users, end: Callable[[Users], None]) -> None:
    """Also on a connection that is open, like tokens."""
    message = signed(PING, "anna", users.new_mac_key("anna"))
    with websocket(server) as wire:
        assert "r" in wire.call(message)
        end(users)
        assert error_of(wire.call(message)) == "SecurityError"


def test_grants_leave_a_key_as_it_is(server: Server, users: Users) -> None:
    """They say what a user may do, not who it is."""
    message = signed(PING, "bert", users.new_mac_key("bert"))
    users.grant("bert", "read", "*")
    users.revoke("bert", "read", "*")
    assert "r" in call(server, message)


def test_consumer_belongs_to_the_user_in_its_name(server: Server, users: Users) -> None:
    """Another user who registers, moves or removes it over Flight would delete events, or hold them for ever."""
    users.add("carl.smith", "secret")
    for user in ("bert", "carl.smith"):
        users.grant(user, "consume", "futoin/events")
    register = message_of("evt.poll:1.1:registerConsumer", component="billing")
    name, dotted = "futoin.anna.billing", "futoin.carl.smith.billing"
    with (
        penstock.connect(server.address, user="anna", password="secret") as anna,
        penstock.connect(server.address, user="bert", password="secret") as bert,
    ):
        assert "r" in call(server, message_of("evt.gen:1.1:addEvent", type="A", data=1) | {"sec": "anna:secret"})
        for consumer in (name, dotted):
            with pytest.raises(NotPermitted, match="which belongs to another user"):
                bert.register_consumer("futoin/events", consumer, "tail")
        anna.register_consumer("futoin/events", dotted, "tail")  # an administrator, for the user in the name
        assert "r" in call(server, register | {"sec": "anna:secret"})
        for change in (
            partial(bert.register_consumer, "futoin/events", name, "tail"),
            partial(bert.unregister_consumer, "futoin/events", name),
            partial(bert.unregister_consumer, "futoin/events", dotted),
        ):
            with pytest.raises(NotPermitted, match="which belongs to another user"):
                change()
        poll = message_of("evt.poll:1.1:pollEvents", component="billing")
        assert [event["data"] for event in call(server, poll | {"sec": "anna:secret"})["r"]] == [1]
        with penstock.connect(server.address, user="carl.smith", password="secret") as carl:
            carl.unregister_consumer("futoin/events", dotted)
        bert.register_consumer("futoin/events", "futoin.bert.billing")
        bert.unregister_consumer("futoin/events", "futoin.nobody.billing")  # not there: no error, as for all consumers
        assert set(bert.consumers("futoin/events")) == {name, "futoin.bert.billing"}


def test_time_of_events_is_noted_by_the_server_alone(server: Server, users: Users) -> None:
    """A user who notes a time under its writer id would close windows that events are still to come to."""
    users.grant("bert", "write", "shop/*")
    with (
        penstock.connect(server.address, user="anna", password="secret") as anna,
        penstock.connect(server.address, user="bert", password="secret") as bert,
    ):
        anna.create_stream("shop/timed", config=StreamConfig(tags=("futoin-time",)))
        anna.create_stream("shop/plain")
        with pytest.raises(NotPermitted, match="which belongs to no user: choose another name"):
            bert.writer("shop/timed", "futoin")
        bert.writer("shop/timed", "bert").close()
        bert.writer("shop/plain", "futoin").close()
