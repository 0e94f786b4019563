"""A function of the operator's decides which user gets which event, by polling and by pushing."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import BadArgument, BadConfig
from penstock.server import Config, Server, Users
from tests.events.wire import call, message_of, websocket

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOOK = """
def mine(user, event):
    assert (event.type, event.ts[-1]) == ("A", "Z")
    return {"fail": 1 / 0 if event.data == "fail" else 0, "one": 1, "none": None}.get(event.data, event.data == user)

constant = 7
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The settings of a server with two users, and a module for its filter."""
    (tmp_path / "acme_hook.py").write_text(HOOK)
    monkeypatch.syspath_prepend(str(tmp_path))
    users = Users.open(tmp_path / "data" / "users.json")
    for name in ("anna", "bert"):
        users.add(name, "secret")
        users.grant(name, "admin", "*")
    yield {"store": str(tmp_path / "data"), "port": 0, "http_port": 0}
    sys.modules.pop("acme_hook", None)


def test_user_gets_what_the_filter_accepts(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """An event on which it fails, or does not answer with True, is hidden from all; the others count as delivered."""
    with Server(Config(**settings, futoin_filter="acme_hook:mine")) as server:
        for user in ("anna", "bert"):
            register = message_of("evt.poll:1.1:registerConsumer", component="billing")
            assert "r" in call(server, register | {"sec": f"{user}:secret"})
        for data in ("anna", "bert", "fail", "one", "none", "anna"):
            message = message_of("evt.gen:1.1:addEvent", type="A", data=data)
            assert "r" in call(server, message | {"sec": "anna:secret"})
        for user, count in (("anna", 2), ("bert", 1)):
            sec = {"sec": f"{user}:secret"}
            poll = message_of("evt.poll:1.1:pollEvents", component="LIVE")
            assert [event["data"] for event in call(server, poll | sec)["r"]] == [user] * count
            with websocket(server) as wire:
                ready = message_of("evt.push:1.1:readyToReceive", component="billing")
                assert "r" in wire.call(ready | sec)
                message = wire.pushed()["p"]
                assert (message["seq"], [event["data"] for event in message["events"]]) == (0, [user] * count)
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert failures
    assert all("the filter of events failed" in record.message for record in failures)


@pytest.mark.parametrize("name", ["acme_hook:missing", "acme_missing:mine", "acme_hook:constant"])
def test_filter_that_does_not_exist_stops_the_server(settings: dict[str, Any], name: str) -> None:
    """Serving everything to everybody instead would be the wrong mistake."""
    with pytest.raises(BadArgument, match="invalid filter"), Server(Config(**settings, futoin_filter=name)):
        pass


@pytest.mark.parametrize("name", ["", "acme_hook", ":mine", "acme_hook:", "acme hook:mine", "acme_hook:mine()"])
def test_name_that_names_no_function_is_refused(settings: dict[str, Any], name: str) -> None:
    """With the setting that is wrong."""
    with pytest.raises(BadConfig, match="futoin_filter"):
        Config(**settings, futoin_filter=name)
