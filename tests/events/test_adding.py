"""Many calls of addEvent under way on one connection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import penstock
from penstock.server import Config, Server, Users
from penstock.stream.write._flush import Flusher
from tests.events.wire import call, message_of, websocket

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

EVENTS = 400


def test_calls_of_a_connection_share_appends_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the password of the first one is checked; a sync for each call would be the limit of their rate."""
    users = Users.open(tmp_path / "users.json")
    users.add("anna", "secret")
    users.grant("anna", "admin", "*")
    flushes, flush = list[Flusher](), Flusher.flush

    def counted(flusher: Flusher) -> None:
        flushes.append(flusher)
        flush(flusher)

    monkeypatch.setattr(Flusher, "flush", counted)
    with Server(Config(store=str(tmp_path), port=0, http_port=0)) as server, websocket(server) as wire:
        for number in range(EVENTS):
            message = message_of("evt.gen:1.1:addEvent", f"C{number}", type="A", data=number)
            wire.send(message | {"sec": "anna:secret"})
        answers = [wire.answer() for _ in range(EVENTS)]
        assert [answer["rid"] for answer in answers] == [f"C{number}" for number in range(EVENTS)]
        ids = [int(answer["r"]) for answer in answers]
        assert ids == sorted(set(ids))
        poll = message_of("evt.poll:1.1:pollEvents", component="LIVE") | {"sec": "anna:secret"}
        assert [event["data"] for event in call(server, poll)["r"]] == list(range(EVENTS))
    assert len(flushes) < EVENTS / 4


def test_calls_under_way_are_answered_when_their_stream_is_sealed(tmp_path: Path) -> None:
    """Each gets its id or the reason: events without an id are not in the stream."""
    config = Config(store=str(tmp_path), anonymous=True, port=0, http_port=0)
    with Server(config) as server, websocket(server) as wire, penstock.connect(server.address) as store:
        assert "r" in wire.call(message_of("evt.gen:1.1:addEvent", type="A", data=-1))
        for number in range(EVENTS):
            wire.send(message_of("evt.gen:1.1:addEvent", f"C{number}", type="A", data=number))
            if number == EVENTS // 2:
                store.seal_stream("futoin/events")
        answers = [wire.answer() for _ in range(EVENTS)]
        assert {answer["e"] for answer in answers if "r" not in answer} == {"InvalidRequest"}
        stored = [
            json.loads(event)["data"] for batch in store.read("futoin/events") for event in batch["event"].to_pylist()
        ]
        assert stored[1:] == [int(answer["rid"][1:]) for answer in answers if "r" in answer]
