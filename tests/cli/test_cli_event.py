"""``penstock event``: on a store, and on a server of FutoIn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import penstock
from penstock.events.outbox import add_xfer_event
from penstock.server import Config, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Call

STREAM = "shop/orders"


@pytest.fixture(params=["store", "server"])
def stream(request: pytest.FixtureRequest, call: Call) -> Iterator[str]:
    """An event stream, by its name in a store, or by the address that a server has for it."""
    if request.param == "store":
        call("stream", "create", STREAM)
        yield STREAM
        return
    with Server(Config(store="data", anonymous=True, port=0, http_port=0)) as server:
        yield f"ws://127.0.0.1:{server.http_port}/futoin"


def added(call: Call, stream: str, *numbers: int) -> list[str]:
    return [call("event", "add", stream, "EVEN" if n % 2 == 0 else "ODD", str(n)).out.strip() for n in numbers]


def test_events_are_added_and_polled(call: Call, stream: str) -> None:
    """The same two commands do it, wherever the stream is."""
    ids = added(call, stream, 1, 2)
    found = [json.loads(line) for line in call("event", "poll", stream, "--json").lines]
    assert [event["id"] for event in found] == ids
    assert [event["data"] for event in found] == [1, 2]
    first = found[0]
    assert call("event", "poll", stream, "--want", "ODD").lines == [f"{ids[0]}\tODD\t{first['ts']}\t1"]
    assert [line.split("\t")[0] for line in call("event", "poll", stream, "--after", ids[0]).lines] == [ids[1]]
    assert json.loads(call("event", "add", stream, "A", "{}", "--json").out).keys() == {"stream", "id"}


def test_rare_events_are_found_behind_many_others(call: Call) -> None:
    """A page without any is not the end, and what was left out counts as delivered."""
    call("stream", "create", STREAM)
    with penstock.connect("penstock-data") as store, store.writer(STREAM) as writer:
        common = b'{"type":"COMMON","ts":"2026-01-01T00:00:00Z","data":0}'
        writer.write_batch([common] * 1_500)
    (rare,) = [call("event", "add", STREAM, "RARE", "1").out.strip()]
    (line,) = call("event", "poll", STREAM, "--want", "RARE").lines
    assert line.split("\t")[0] == rare
    assert call("event", "poll", STREAM, "--component", "c", "--want", "NEVER").lines == []
    assert call("event", "poll", STREAM, "--component", "c").lines == []


def test_component_is_polled_on_from_what_it_acknowledged(call: Call, stream: str) -> None:
    """An event that was printed, and not acknowledged, comes again."""
    ids = added(call, stream, 1, 2, 3)
    poll = ("event", "poll", stream, "--component", "billing")
    for _ in range(2):
        assert [line.split("\t")[0] for line in call(*poll).lines] == ids
    assert [line.split("\t")[0] for line in call(*poll, "--after", ids[1]).lines] == ids[2:]
    assert [line.split("\t")[0] for line in call(*poll).lines] == ids[2:]


def test_component_receives_every_event_once(call: Call, stream: str, here: Path) -> None:
    """Also in several runs, of which each ends after what it has printed."""
    receive = ("event", "receive", stream, "--component", "billing", "--position", "billing.id", "--limit", "1")
    assert added(call, stream, 1)
    assert call(*receive).out.endswith("\t1\n")
    ids = added(call, stream, 2)
    assert call(*receive).out.endswith("\t2\n")
    assert here.joinpath("billing.id").read_text() == f"{ids[0]}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", STREAM, "order", "1"), "invalid event"),
        (("add", STREAM, "ORDER", "{"), "invalid DATA"),
        (("add", STREAM, "ORDER", "NaN"), "invalid event"),
        (("poll", STREAM, "--component", "a.b"), "invalid --component"),
        (("poll", STREAM, "--component", "LIVE"), "leave out --component"),
        (("receive", STREAM), "name a --component"),
        (("receive", STREAM, "--live", "--component", "a"), "name a --component"),
        (("receive", STREAM, "--live", "--position", "x"), "contradict"),
        (("add", "http://host/x", "A", "1"), "invalid address"),
        (("add", "ws://host/x", "A", "1", "--no-tls"), "do not apply here"),
        (("add", STREAM, "A", "1", "--user", "anna"), "applies only to a server"),
        (("add", "plant/wide", "A", "1"), "several segments"),
        (("relay", "nonsense", STREAM), "invalid DATABASE_URL"),
        (("relay", "oracle+x://h/d", STREAM), "invalid DATABASE_URL"),
        (("relay", "sqlite:///empty.db", STREAM), "no table evt_outbox"),
        (("relay", "sqlite:///empty.db", STREAM, "--table", 'a"b'), "invalid table name"),
    ],
)
def test_wrong_use_is_named(call: Call, arguments: tuple[str, ...], message: str) -> None:
    """In one line, with the exit code of incorrect usage."""
    call("stream", "create", STREAM)
    call("stream", "create", "plant/wide", "--segments", "2")
    result = call("event", *arguments)
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("command", ["add", "poll", "receive"])
def test_server_that_is_not_there_is_an_error(call: Call, command: str) -> None:
    """A receiver would wait for it otherwise, and show nothing."""
    more = {"add": ("A", "1"), "poll": (), "receive": ("--live",)}[command]
    result = call("event", command, "ws://127.0.0.1:1/futoin", *more)
    assert result.code == 1
    assert "cannot reach" in result.err


def test_consumers_are_listed_with_their_age_and_dropped(call: Call) -> None:
    """A dead one keeps the events of a stream for ever."""
    call("stream", "create", STREAM)
    added(call, STREAM, 1, 2)
    call("event", "poll", STREAM, "--component", "billing")
    (found,) = json.loads(call("event", "consumers", STREAM, "--json").out)
    assert found["name"] == "futoin.anonymous.billing"
    assert found["bytes_behind"] > 0
    assert 0 <= found["age_s"] < 600
    (line,) = call("event", "consumers", STREAM).lines
    assert line.split("\t")[:3] == [found["name"], found["position"], str(found["bytes_behind"])]
    wrong = call("event", "consumers", STREAM, "--drop", "nobody")
    assert wrong.code == 1
    assert "no consumer 'nobody'" in wrong.err
    assert call("event", "consumers", STREAM, "--drop", "futoin.anonymous.billing").out == ""


def test_relay_moves_what_is_committed(call: Call, plant: Path) -> None:
    """Run again, it goes on where it was."""
    assert call("event", "relay", "sqlite:///shop.db", STREAM).out == "evt_outbox to shop/orders: 1 event moved\n"
    engine = sa.create_engine(f"sqlite:///{plant}/shop.db")
    with engine.begin() as connection:
        add_xfer_event(connection, "A", 2)
        add_xfer_event(connection, "A", 3)
    engine.dispose()
    result = call("event", "relay", "sqlite:///shop.db", STREAM, "--json")
    assert json.loads(result.out) == {"stream": STREAM, "events": 2}
    with penstock.connect(plant / "penstock-data") as store:
        assert store.stream(STREAM).events == 4
    failed = call("event", "relay", "sqlite:////nowhere/x.db", STREAM)
    assert failed.code == 1
    assert "the database failed" in failed.err
