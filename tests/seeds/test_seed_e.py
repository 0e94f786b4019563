"""Seed E, promise by promise and in its own order: generating events, consuming them, keeping them, the interface.

Each promise has one small test here, over the wire of a real server; docs/seeds.md says which. How they hold under
kills, races and hostile clients is tested in depth in tests/events.
"""

from __future__ import annotations

import json
import re
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.events import _feed
from penstock.model import ByConsumption, Fixed, StreamConfig
from penstock.server import Config, Server, _futoin
from tests.events.wire import LONG_S, Wire, call, message_of, post, websocket

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS: Final = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without users."""
    folder = tmp_path_factory.mktemp("seed-e")
    config = Config(store=str(folder), anonymous=True, port=0, http_port=0)
    with Server(config) as server:
        yield server


class Stream:
    """An event stream, as a client sees it."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name, self.path = server, name, f"/futoin/{name}"

    def call(self, function: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 - of several types
        """Return the answer to a call."""
        return call(self.server, message_of(function, **parameters), self.path)

    def add(self, kind: str, data: object) -> int:
        """Add an event; return its id."""
        return int(self.call("evt.gen:1.1:addEvent", type=kind, data=data)["r"])

    def register(self, component: str) -> None:
        assert self.call("evt.poll:1.1:registerConsumer", component=component)["r"] is True

    def poll(self, component: str, last_id: int | None = None, want: list[str] | None = None) -> list[Any]:
        """Return the next events."""
        last = None if last_id is None else str(last_id)
        answer: list[Any] = self.call("evt.poll:1.1:pollEvents", component=component, last_id=last, want=want)["r"]
        return answer


@pytest.fixture
def stream(server: Server) -> Stream:
    """A new stream that keeps events until all consumers have them."""
    name = f"seed/e{next(NUMBERS)}"
    with penstock.connect(server.address) as store:
        store.create_stream(name, config=StreamConfig(scaling=Fixed(1), retention=ByConsumption()))
    return Stream(server, name)


def ready(wire: Wire, component: str, want: list[str] | None = None) -> None:
    assert wire.call(message_of("evt.push:1.1:readyToReceive", component=component, want=want))["r"] is True


def data_of(events: list[Any]) -> list[Any]:
    return [event["data"] for event in events]


# 2.1. Event generation


def test_events_of_others_come_in_through_the_interface(stream: Stream) -> None:
    """Added by HTTP or over a WebSocket, durable when the id is returned."""
    stream.add("DEMO", 1)
    with websocket(stream.server, stream.path) as wire:
        assert "r" in wire.call(message_of("evt.gen:1.1:addEvent", type="DEMO", data=2))
    assert data_of(stream.poll("LIVE")) == [1, 2]


def test_events_are_pushed_on_the_connection_of_the_consumer(stream: Stream) -> None:
    """The server makes no connection of its own."""
    with websocket(stream.server, stream.path) as wire:
        ready(wire, "LIVE")
        stream.add("DEMO", 1)
        assert data_of(wire.pushed()["p"]["events"]) == [1]


def test_ids_increase_and_are_positive(stream: Stream) -> None:
    """They have gaps: an id is the offset behind its event."""
    ids = [stream.add("DEMO", number) for number in range(20)]
    assert ids[0] > 0
    assert ids == sorted(set(ids))


def test_event_has_an_id_a_type_any_data_and_a_time(stream: Stream) -> None:
    """And nothing else: a stock client refuses more."""
    values: list[Any] = [None, True, -1, 1.5, "text", [], {"a": [{"b": None}]}]
    for value in values:
        stream.add("A" * 16, value)
    events = stream.poll("LIVE")
    assert data_of(events) == values
    for event in events:
        assert event.keys() == {"id", "type", "data", "ts"}
        assert re.fullmatch(r"[1-9][0-9]{0,17}", event["id"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", event["ts"])
    assert stream.call("evt.gen:1.1:addEvent", type="A" * 17, data=1)["e"] == "InvalidRequest"
    assert stream.call("evt.gen:1.1:addEvent", type="", data=1)["e"] == "InvalidRequest"


# 2.2. Event consumption


def test_consumer_is_registered_and_a_live_one_is_not(stream: Stream) -> None:
    """Only a registered component has a position."""
    assert stream.call("evt.poll:1.1:pollEvents", component="billing")["e"] == "NotRegistered"
    stream.register("billing")
    assert stream.poll("billing") == []
    assert stream.poll("LIVE") == []
    assert stream.call("evt.poll:1.1:registerConsumer", component="LIVE")["e"] == "LiveNotAllowed"


def test_consumer_uses_both_ways_in_turn(stream: Stream) -> None:
    """A poll with an id that was never processed skips what lies before it."""
    stream.register("billing")
    ids = [stream.add("DEMO", number) for number in range(3)]
    assert data_of(stream.poll("billing", ids[0])) == [1, 2]
    with websocket(stream.server, stream.path) as wire:
        ready(wire, "billing")
        message = wire.pushed()
        assert data_of(message["p"]["events"]) == [1, 2]
        wire.send({"r": True, "rid": message["rid"]})
        deadline = time.monotonic() + LONG_S
        while stream.poll("billing"):
            assert time.monotonic() < deadline


def test_poll_returns_what_lies_behind_an_id_in_order(stream: Stream) -> None:
    """At most 1,000 events; the rest comes with the next."""
    with websocket(stream.server, stream.path) as wire:
        for number in range(1_200):
            wire.send(message_of("evt.gen:1.1:addEvent", type="DEMO", data=number))
        ids = [int(wire.answer()["r"]) for _ in range(1_200)]
    first = stream.poll("LIVE")
    assert len(first) == 1_000
    assert data_of(first + stream.poll("LIVE", int(first[-1]["id"]))) == list(range(1_200))
    assert stream.poll("LIVE", ids[-1]) == []


def test_polled_id_frees_the_events_up_to_it(stream: Stream) -> None:
    """The id is the acknowledgement: events that were sent, and not acknowledged, may be lost on their way."""
    stream.register("billing")
    first = stream.add("DEMO", 1)
    with penstock.connect(stream.server.address) as store:
        with store.writer(stream.name) as writer:
            writer.write_batch([bytes(1 << 20)] * 17)  # more than a file of the log, which is freed as a whole
        last = stream.add("DEMO", 2)
        assert data_of(stream.poll("billing")) == [1, 2]
        store.maintain()
        assert store.head(stream.name).offsets == {0: 0}
        assert stream.poll("billing", last) == []
        deadline = time.monotonic() + LONG_S
        while store.head(stream.name).offsets == {0: 0}:
            assert time.monotonic() < deadline
            store.maintain()
        assert first <= store.head(stream.name).offsets[0] <= last


def test_nothing_is_pushed_before_the_consumer_is_ready(stream: Stream) -> None:
    """It opens the connection, and starts the pushing by a call; a registration alone does not."""
    stream.register("billing")
    stream.add("DEMO", 1)
    with websocket(stream.server, stream.path) as wire:
        assert wire.call(message_of("evt.push:1.1:registerConsumer", component="billing"))["r"] is True
        assert wire.call(message_of("evt.push:1.1:ping", echo=1))["r"] == {"echo": 1}
        assert not wire.has_pushed
        ready(wire, "billing")
        assert data_of(wire.pushed()["p"]["events"]) == [1]
        assert wire.call(message_of("evt.push:1.1:readyToReceive", component="other"))["e"] == "NotRegistered"


def test_events_are_grouped_and_a_group_waits_no_longer_for_more_of_them(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay counts from the first event: a flow that never pauses must not hold its own events back."""
    monkeypatch.setattr(_feed, "_DELAY_S", 0.1)
    is_over = threading.Event()

    def add_all_the_time() -> None:
        with websocket(stream.server, stream.path) as wire:
            while not is_over.is_set():
                wire.call(message_of("evt.gen:1.1:addEvent", type="DEMO", data=1))

    adding = threading.Thread(target=add_all_the_time)
    with websocket(stream.server, stream.path) as wire:
        ready(wire, "LIVE")
        adding.start()
        try:
            assert len(wire.pushed()["p"]["events"]) > 1
        finally:
            is_over.set()
            adding.join()


def test_groups_are_numbered_from_zero_and_several_are_under_way(stream: Stream) -> None:
    """A group counts once it is answered; the next is sent before."""
    stream.register("billing")
    for _ in range(6):
        stream.add("DEMO", "x" * 30_000)
    with websocket(stream.server, stream.path) as wire:
        message = message_of("evt.push:1.0:readyToReceive", component="billing")
        assert wire.call(message)["r"] is True
        groups = [wire.pushed() for _ in range(3)]
        assert [group["p"]["seq"] for group in groups] == [0, 1, 2]


def test_group_that_was_not_taken_is_sent_again(stream: Stream) -> None:
    """A consumer answers with success only after it has the events."""
    stream.register("billing")
    stream.add("DEMO", 1)
    with websocket(stream.server, stream.path) as wire:
        ready(wire, "billing")
        first = wire.pushed()
        wire.send({"e": "InternalError", "rid": first["rid"]})
        assert wire.pushed()["p"] == first["p"]


def test_consumer_selects_types_and_the_others_count_as_delivered(stream: Stream) -> None:
    """By polling and by pushing."""
    stream.register("billing")
    for kind in ("PAID", "SENT", "PAID"):
        stream.add(kind, kind)
    assert data_of(stream.poll("LIVE", want=["SENT"])) == ["SENT"]
    with websocket(stream.server, stream.path) as wire:
        ready(wire, "billing", ["PAID"])
        message = wire.pushed()
        assert data_of(message["p"]["events"]) == ["PAID", "PAID"]
        wire.send({"r": True, "rid": message["rid"]})
        deadline = time.monotonic() + LONG_S
        while stream.poll("billing"):
            assert time.monotonic() < deadline


def test_components_of_a_user_have_positions_of_their_own(stream: Stream) -> None:
    """A consumer is a user and a component."""
    for component in ("billing", "Billing"):
        stream.register(component)
    event = stream.add("DEMO", 1)
    assert stream.poll("billing", event) == []
    assert data_of(stream.poll("Billing")) == [1]


# 2.3. Extra large and long running systems


def test_events_are_kept_until_the_last_consumer_has_them(stream: Stream) -> None:
    """However far another consumer has come. How they are discarded then is tested with retention."""
    for component in ("quick", "slow"):
        stream.register(component)
    for number in range(5):
        stream.add("DEMO", number)
    last = int(stream.poll("quick")[-1]["id"])
    assert stream.poll("quick", last) == []
    assert data_of(stream.poll("slow")) == list(range(5))


def test_partitions_have_ids_and_consumers_of_their_own(server: Server) -> None:
    """A system is not one stream: the same component is at another position in each."""
    names = [f"seed/part{next(NUMBERS)}" for _ in range(2)]
    with penstock.connect(server.address) as store:
        for name in names:
            store.create_stream(name, segments=1)
    first, second = (Stream(server, name) for name in names)
    ids = [partition.add("DEMO", name) for partition, name in ((first, 1), (second, 2), (first, 3))]
    assert ids[0] == ids[1], "ids mean nothing in another stream"
    for partition in (first, second):
        partition.register("billing")
    assert data_of(first.poll("billing", ids[2])) == []
    assert data_of(second.poll("billing")) == [2]


def test_interface_needs_no_library_of_ours(stream: Stream) -> None:
    """HTTP and JSON as every language has them are enough: nothing of the store behind the interface shows."""

    def ask(function: str, parameters: str) -> str:
        body = f'{{"f":"futoin.evt.{function}","p":{parameters}}}'
        status, kind, answer = post(stream.server, body.encode(), stream.path)
        assert (status, kind) == (200, "application/futoin+json")
        return answer.decode()

    event = json.loads(ask("gen:1.1:addEvent", '{"type":"DEMO","data":[1]}'))["r"]
    assert ask("poll:1.1:registerConsumer", '{"component":"billing"}') == '{"r":true}'
    answer = ask("poll:1.1:pollEvents", '{"component":"billing"}')
    ts = json.loads(answer)["r"][0]["ts"]
    assert answer == f'{{"r":[{{"id":"{event}","type":"DEMO","data":[1],"ts":"{ts}"}}]}}'
    assert ask("poll:1.1:pollEvents", f'{{"component":"billing","last_id":"{event}"}}') == '{"r":[]}'


def test_stored_format_is_hidden_from_the_interface(stream: Stream) -> None:
    """In the stream an event is JSON of ours, which readers of Penstock see."""
    stream.add("DEMO", {"a": 1})
    with penstock.connect(stream.server.address) as store:
        (stored,) = [event for batch in store.read(stream.name) for event in batch["event"].to_pylist()]
    assert json.loads(stored).keys() == {"type", "ts", "data"}


# 3. Interface


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_every_function_is_served_in_both_versions(stream: Stream, version: str) -> None:
    """Ping is part of all interfaces; a server of 1.1 answers calls of 1.0."""
    for interface in ("gen", "poll", "push"):
        assert stream.call(f"evt.{interface}:{version}:ping", echo=7)["r"] == {"echo": 7}
    event = stream.call(f"evt.gen:{version}:addEvent", type="DEMO", data=1)["r"]
    for interface in ("poll", "push"):
        assert stream.call(f"evt.{interface}:{version}:registerConsumer", component="billing")["r"] is True
        assert stream.call(f"evt.{interface}:{version}:pollEvents", component="billing")["r"][0]["id"] == event
    with websocket(stream.server, stream.path) as wire:
        assert wire.call(message_of(f"evt.push:{version}:readyToReceive", component="billing"))["r"] is True
        assert wire.pushed()["f"] == f"futoin.evt.receiver:{version}:onEvents"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("last_id", ["1", "9" * 18, None], ["0", "01", "-1", "1" + "0" * 18, "1\n", "", 1, 1.5, True, ["1"]]),
        ("component", ["a", "Z" * 16, "_0"], ["", "a" * 17, "a-b", "a b", "\u00e4", "a\n", 1, None]),
        ("want", [None, [], ["A"], ["_" * 16] * 2], ["A", ["a"], ["A" * 17], [""], ["A1"], ["A\n"], [1], [None], {}]),
    ],
)
def test_common_types_are_those_of_the_specification(
    stream: Stream, name: str, good: list[Any], bad: list[Any]
) -> None:
    """A value at its limit is taken, one behind it is refused by name, in words that its user understands."""
    for value in good:
        stream.register(value if name == "component" else "billing")
        assert "r" in stream.call("evt.poll:1.1:pollEvents", **{"component": "billing", name: value})
    for value in bad:
        answer = stream.call("evt.poll:1.1:pollEvents", **{"component": "billing", name: value})
        assert answer["e"] == "InvalidRequest", value
        assert name in answer["edesc"]
        assert "regex" not in answer["edesc"]


@pytest.mark.parametrize("kind", ["", "A" * 17, "a", "A1", "\u00c4", "A\n", 1, None])
def test_event_type_is_that_of_the_specification(stream: Stream, kind: object) -> None:
    """Of what is stored, every client has to be able to read the type."""
    assert stream.call("evt.gen:1.1:addEvent", type=kind, data=1)["e"] == "InvalidRequest"
    assert stream.poll("LIVE") == []


def test_registration_is_repeated_and_interests_change(stream: Stream) -> None:
    """A consumer registers at every start: it keeps its position, and may want other types from then on."""
    stream.register("billing")
    ids = [stream.add(kind, kind) for kind in ("PAID", "SENT", "PAID", "SENT")]
    assert data_of(stream.poll("billing", want=["PAID"])) == ["PAID", "PAID"]
    assert data_of(stream.poll("billing", ids[0], want=["PAID"])) == ["PAID"]
    stream.register("billing")
    assert [int(event["id"]) for event in stream.poll("billing", want=["SENT"])] == [ids[1], ids[3]]
    assert [int(event["id"]) for event in stream.poll("billing")] == ids[1:]


def test_large_answers_are_for_the_version_that_has_them(stream: Stream) -> None:
    """8 MiB for pollEvents of poll:1.1, and 64 KiB for everything else."""
    for _ in range(4):
        stream.add("DEMO", "x" * 60_000)
    for interface, events in (("poll:1.1", 4), ("poll:1.0", 1), ("push:1.1", 1)):
        message = message_of(f"evt.{interface}:pollEvents", component="LIVE")
        body = post(stream.server, json.dumps(message).encode(), stream.path)[2]
        assert len(json.loads(body)["r"]) == events
        assert events > 1 or len(body) <= 65_536


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_callback_is_that_of_the_receiver_interface(stream: Stream, version: str) -> None:
    """A stock receiver is anonymous, and refuses a message with more, or with other, fields."""
    stream.register("billing")
    stream.add("DEMO", 1)
    with websocket(stream.server, stream.path) as wire:
        assert wire.call(message_of(f"evt.push:{version}:readyToReceive", component="billing"))["r"] is True
        message = wire.pushed()
    assert message.keys() == {"f", "p", "rid"}
    assert message["f"] == f"futoin.evt.receiver:{version}:onEvents"
    assert message["p"].keys() == {"seq", "events"}
    assert message["p"]["seq"] == 0
    assert [event.keys() for event in message["p"]["events"]] == [{"id", "type", "data", "ts"}]


def test_events_are_added_over_a_secure_channel_alone(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS, from another machine, anyone on the way could add events; reading is up to the permissions."""
    monkeypatch.setattr(_futoin, "_is_loopback", lambda _: False)
    assert stream.call("evt.gen:1.1:addEvent", type="DEMO", data=1)["e"] == "SecurityError"
    assert stream.poll("LIVE") == []


def test_pushing_needs_a_channel_of_two_directions(stream: Stream) -> None:
    """By HTTP, readyToReceive is refused."""
    stream.register("billing")
    assert stream.call("evt.push:1.1:readyToReceive", component="billing")["e"] == "InvalidRequest"
