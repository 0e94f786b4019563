"""Bad input: the named error, on a connection that goes on, from a server that serves others."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import cbor2
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.errors import CpoUnavailable, DiskFailed, DiskFull, PlogCorrupt, StoreLocked, WriterFailed
from penstock.events._codings import CODINGS, JSON, coding_of
from penstock.events._errors import error_of
from penstock.events._event import NESTING_MAX
from penstock.events._sizes import EVENT_SIZE_MAX, LARGE_MESSAGE, SMALL_MESSAGE
from tests.events.wire import LONG_S, call, message_of, post, websocket

if TYPE_CHECKING:
    from penstock.events._codings import Coding
    from penstock.server import Server

INVALID, UNKNOWN, VERSION = "InvalidRequest", "UnknownInterface", "NotSupportedVersion"
PING = message_of("ping:1.0:ping", echo=7)
REGISTER = message_of("evt.poll:1.1:registerConsumer", component="billing")
READY = message_of("evt.push:1.1:readyToReceive", component="billing")


def add(kind: object = "DEMO", data: object = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return message_of("evt.gen:1.1:addEvent", type=kind, data=data, **more)


def poll(version: str = "poll:1.1", **parameters: Any) -> dict[str, Any]:  # noqa: ANN401
    return message_of(f"evt.{version}:pollEvents", **({"component": "LIVE"} | parameters))


NO_TYPES: list[Any] = [None, 7, "", "demo", "DEMO1", "DEMO\n", "A" * 17, ["DEMO"], "\u00c4"]
NO_COMPONENTS: list[Any] = [None, 7, "", "a b", "C" * 17, "C\n", "a.b", "..", {}]
NO_IDS: list[Any] = ["0", "", "-1", "1.5", "1\n", "01", "x", "9" * 19, 7, [], "\u0661"]
NO_WANTS: list[Any] = ["DEMO", [7], ["demo"], [None], [[]], {}, {"DEMO": 1}]
WRONG: list[tuple[str, dict[str, Any]]] = [
    # functions, interfaces and versions
    (UNKNOWN, message_of("evt.nothing:1.0:ping", echo=1)),
    (UNKNOWN, PING | {"f": "acme.evt.gen:1.0:addEvent"}),
    (VERSION, message_of("evt.gen:1.2:addEvent", type="A", data=1)),
    (VERSION, message_of("evt.gen:2.0:addEvent", type="A", data=1)),
    (VERSION, message_of("evt.gen:0.1:addEvent", type="A", data=1)),
    (VERSION, message_of("ping:1.1:ping", echo=1)),
    (INVALID, message_of("evt.gen:1.0:removeEvent")),
    (INVALID, message_of("evt.gen:1.0:pollEvents", component="LIVE")),
    (INVALID, message_of("evt.poll:1.0:readyToReceive", component="LIVE")),
    (INVALID, message_of("evt.gen:1.0:__class__")),
    *((INVALID, PING | {"f": name}) for name in ("", ":", "::", "futoin.ping", "futoin.ping:1:ping", "x" * 60_000)),
    (INVALID, PING | {"f": "futoin.ping:1.0:ping\n"}),
    (INVALID, PING | {"f": 7}),
    (INVALID, PING | {"f": None}),
    # fields of the message
    (INVALID, PING | {"extra": 1}),
    (INVALID, PING | {"r": 1}),
    (INVALID, PING | {"p": []}),
    (INVALID, PING | {"p": "echo"}),
    (INVALID, PING | {"sec": 7}),
    (INVALID, PING | {"sec": ["anna", "secret"]}),
    (INVALID, PING | {"forcersp": "yes"}),
    (INVALID, PING | {"rid": 7}),
    (INVALID, PING | {"rid": ""}),
    (INVALID, PING | {"rid": "C" * 33}),
    (INVALID, PING | {"rid": "\u0000"}),
    # parameters
    (INVALID, message_of("ping:1.0:ping")),
    (INVALID, message_of("ping:1.0:ping", echo="7")),
    (INVALID, message_of("ping:1.0:ping", echo=1.5)),
    (INVALID, message_of("ping:1.0:ping", echo=2**63)),
    (INVALID, message_of("ping:1.0:ping", echo=1, more=2)),
    *((INVALID, add(kind)) for kind in NO_TYPES),
    (INVALID, message_of("evt.gen:1.1:addEvent", type="DEMO")),
    (INVALID, message_of("evt.gen:1.1:addEvent", data=1)),
    (INVALID, add(table="orders")),
    *((INVALID, message_of("evt.poll:1.1:registerConsumer", component=name)) for name in NO_COMPONENTS),
    ("LiveNotAllowed", message_of("evt.poll:1.1:registerConsumer", component="LIVE")),
    ("NotRegistered", poll(component="nobody")),
    ("NotRegistered", poll("push:1.0", component="live")),
    *((INVALID, poll(last_id=last)) for last in NO_IDS),
    *((INVALID, poll(want=want)) for want in NO_WANTS),
    (INVALID, poll(limit=10)),
]


@pytest.fixture
def registered(server: Server) -> Server:
    """A server whose stream exists."""
    assert call(server, REGISTER)["r"] is True
    return server


def test_wrong_messages_get_the_named_error_over_both_transports(registered: Server) -> None:
    """The stock clients refuse other names; the connection goes on, with the answers to their calls."""
    with websocket(registered) as wire:
        for name, message in WRONG:
            answer = wire.call(message)
            assert answer["e"] == name, (message, answer)
            assert answer.keys() <= {"e", "edesc", "rid"}
            assert answer.get("rid") in (message["rid"], None), message
            if message["rid"] == "C1":
                status, kind, body = post(registered, json.dumps(message).encode())
                assert (status, kind) == (200, "application/futoin+json")
                assert json.loads(body)["e"] == name, message
        assert wire.call(PING) == {"r": {"echo": 7}, "rid": "C1"}


def nested(levels: int) -> bytes:
    return b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":%s},"rid":"C1"}' % (
        b"[" * levels + b"]" * levels
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b'{"rid":"C1"}',
        b'{"p":{"echo":7},"rid":"C1"}',
        b"{",
        b"nonsense",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"\xff\xfe",
        b'{"f":"futoin.ping:1.0:ping","p":{"echo":NaN},"rid":"C1"}',
        b'{"f":"futoin.ping:1.0:ping","p":{"echo":1e400},"rid":"C1"}',
        b'{"f":"futoin.ping:1.0:ping","p":{"echo":' + b"9" * 5_000 + b'},"rid":"C1"}',
        b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":"\\ud800"},"rid":"C1"}',
        nested(10_000),
        nested(900),
        b'{"f":"futoin.evt.gen:1.1:addEvent","p":{"type":"A","data":Infinity},"rid":"C1"}',
        b"MPCK",
        b"MPCK\xc1",
        b"MPCK" + msgspec.msgpack.encode(add(data=math.nan)),
        b"MPCK" + msgspec.msgpack.encode(add(data=b"bytes")),
        b"MPCK" + msgspec.msgpack.encode(add(data=msgspec.msgpack.Ext(1, b"x"))),
        b"MPCK" + msgspec.msgpack.encode(add(data=[{1: 2, "1": 3}])),
        b"MPCK" + b"\x91" * 10_000 + b"\x90",
        b"MPCK\xdf\xff\xff\xff\xff",
        b"CBOR",
        b"CBOR" + cbor2.dumps(add(data=math.inf)),
        b"CBOR" + cbor2.dumps(add(data=cbor2.undefined)),
        b"CBOR" + cbor2.dumps({1: 2}),
        b"CBOR" + cbor2.dumps(add(data={None: {True: 2}})),
        b"CBOR" + b"\x81" * 10_000 + b"\x80",
        b"CBOR\xd8\x1c\x81\xd8\x1d\x00",
    ],
    ids=lambda message: message[:60].decode(errors="replace"),
)
def test_malformed_messages_are_invalid_requests(server: Server, message: bytes) -> None:
    """Whether binary or text; the peer and others are served all the same."""
    with websocket(server) as wire:
        wire.send(message)
        data = wire.socket.recv(LONG_S)
        assert isinstance(data, bytes)
        assert coding_of(data).decode(data)["e"] == INVALID
        assert wire.call(PING)["r"] == {"echo": 7}
    status, kind, body = post(server, message)
    assert status == 200
    assert kind is not None
    assert kind.startswith("application/futoin+")
    assert coding_of(body).decode(body)["e"] == INVALID


@pytest.mark.parametrize(
    "error",
    [
        DiskFull("/srv/secret/plogs"),
        WriterFailed("plant/readings", cause=DiskFull("/srv/secret/plogs")),
        DiskFailed("/srv/secret/plogs", reason="EIO", stopped=True),
        PlogCorrupt("/srv/secret/7.plog", offset=7, reason="its checksum is wrong"),
        CpoUnavailable("sqlite:/srv/secret/cpo.db", reason="it is locked"),
        StoreLocked("/srv/secret", owner="process 7"),
        FileNotFoundError(2, "No such file", "/srv/secret"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_path_of_the_server_is_sent(error: Exception) -> None:
    """It says where data are, and who runs the server; its operator finds it in the log."""
    sent = error_of(error)
    assert sent.name == "InternalError"
    assert "secret" not in sent.reason


def test_message_without_rid_is_answered_without(server: Server) -> None:
    """On a WebSocket it is an error, which has no id either; by HTTP it is the rule."""
    message = message_of("ping:1.0:ping", rid=None, echo=7)
    with websocket(server) as wire:
        assert wire.call(message).keys() == {"e", "edesc"}
        assert "r" in wire.call(PING)
    assert call(server, message) == {"r": {"echo": 7}}


@pytest.mark.parametrize(("coding", "is_text"), [(JSON, True), *((coding, False) for coding in CODINGS)])
def test_answer_has_the_coding_and_the_frame_of_its_message(server: Server, coding: Coding, is_text: bool) -> None:
    """JSON comes in binary and in text frames; the other codings are binary."""
    message = coding.encode(PING)
    with websocket(server) as wire:
        wire.send(message.decode() if is_text else message)
        data = wire.socket.recv(LONG_S)
        assert isinstance(data, str if is_text else bytes)
        raw = data.encode() if isinstance(data, str) else data
        assert coding_of(raw) is coding
        assert coding.decode(raw)["r"] == {"echo": 7}
    assert post(server, message)[1] == coding.content_type


def padded(size: int) -> bytes:
    """Return a correct message of so many bytes."""
    message = json.dumps(PING).encode()
    return message + b" " * (size - len(message))


def test_message_of_the_largest_size_is_served_and_one_byte_more_is_not(server: Server) -> None:
    """Over HTTP it is an error of FutoIn with status 200: a stock client looks at no other status."""
    with websocket(server) as wire:
        wire.send(padded(SMALL_MESSAGE))
        assert wire.answer()["r"] == {"echo": 7}
        wire.send(padded(SMALL_MESSAGE + 1))
        with pytest.raises(ConnectionClosed) as closed:
            wire.received()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    assert json.loads(post(server, padded(SMALL_MESSAGE))[2]) == {"r": {"echo": 7}, "rid": "C1"}
    for size in (SMALL_MESSAGE + 1, *[LARGE_MESSAGE + 1] * 8):  # an answer before the end of the body is often lost
        status, kind, body = post(server, padded(size))
        assert (status, kind, json.loads(body)["e"]) == (200, "application/futoin+json", INVALID)


def largest(server: Server, filling: str) -> Any:  # noqa: ANN401 - event data
    """Add the largest event that is accepted, filled with copies of something; return its data."""
    unit = len(json.dumps(filling, ensure_ascii=False).encode()) - 2
    low, high = 0, EVENT_SIZE_MAX // unit + 1
    while low + 1 < high:
        middle = (low + high) // 2
        message = json.dumps(add("A" * 16, filling * middle), ensure_ascii=False).encode()
        is_accepted = "r" in json.loads(post(server, message)[2])
        low, high = (middle, high) if is_accepted else (low, middle)
    return filling * low


@pytest.mark.parametrize("filling", ["x", "\u00e4", '"', "\U0001f600"])
def test_largest_event_comes_by_every_way(registered: Server, filling: str) -> None:
    """What addEvent accepts has to fit into every answer and every push, of either version and all codings."""
    data = largest(registered, filling)
    assert len(data.encode()) > EVENT_SIZE_MAX // 2 - 200
    stored = last_of(registered)
    for version in ("poll:1.0", "poll:1.1", "push:1.0", "push:1.1"):
        last = str(stored["id"])
        before = str(int(last) - 1)
        answer = post(registered, json.dumps(poll(version, last_id=before)).encode())[2]
        assert len(answer) <= (LARGE_MESSAGE if version == "poll:1.1" else SMALL_MESSAGE)
        assert [event["id"] for event in json.loads(answer)["r"]] == [last]
        assert json.loads(answer)["r"][0]["data"] == data
    for minor in (0, 1):
        for coding in CODINGS:
            assert call(registered, message_of("evt.poll:1.1:registerConsumer", component=f"{coding.name}{minor}"))["r"]
            with websocket(registered) as wire:
                ready = message_of(f"evt.push:1.{minor}:readyToReceive", component=f"{coding.name}{minor}")
                wire.send(coding.encode(ready))
                found = None
                while found != data:
                    pushed = wire.socket.recv(LONG_S)
                    assert isinstance(pushed, bytes)
                    assert len(pushed) <= (LARGE_MESSAGE if minor else SMALL_MESSAGE)
                    message = coding_of(pushed).decode(pushed)
                    if "f" in message:
                        found = message["p"]["events"][-1]["data"]
                        wire.send(coding.encode({"r": True, "rid": message["rid"]}))


def last_of(server: Server) -> dict[str, Any]:
    """Return the last event of the stream."""
    events: list[dict[str, Any]] = []
    while found := call(server, poll(last_id=events[-1]["id"] if events else None))["r"]:
        events = found
    return events[-1]


@pytest.mark.parametrize(
    "data", [2**70, -(2**70), 10**300, 1.5e308, 5e-324, "", "\u0000", {}, {"": {"\u0000": []}}, False, None]
)
def test_strange_values_come_back_as_they_were(registered: Server, data: object) -> None:
    """Also to a peer whose coding has no such number: it gets JSON."""
    assert "r" in call(registered, add(data=data))
    assert call(registered, poll())["r"][-1]["data"] == data
    for coding in CODINGS:
        body = post(registered, coding.encode(poll()))[2]
        assert coding_of(body).decode(body)["r"][-1]["data"] == data


def test_data_is_nested_as_deeply_as_every_reader_can_take(registered: Server) -> None:
    """How deep a thread can decode depends on its stack: an event must not be accepted here and skipped there."""
    nested: list[Any] = []
    for _ in range(NESTING_MAX - 1):
        nested = [nested]
    assert "r" in call(registered, add(data=nested))
    assert call(registered, add(data=[nested]))["e"] == INVALID
    assert "r" in call(registered, add(data=[{}] * 1_000)), "many are not deep"
    assert [event["data"] for event in call(registered, poll())["r"]] == [nested, [{}] * 1_000]


@pytest.mark.parametrize(
    "path", ["/futoin/plant", "/futoin/plant/a/b", "/futoin/../x", "/futoin/plant/a%20b", "/futoin//x"]
)
def test_path_that_names_no_stream_is_refused(server: Server, path: str) -> None:
    """The answer says what is wrong, without a word about which streams there are."""
    status, _, body = post(server, json.dumps(PING).encode(), path)
    with pytest.raises(InvalidStatus) as refusal, websocket(server, path):
        pass
    denied = refusal.value.response
    assert (status, denied.status_code, denied.body) == (404, 404, body)
    assert body.startswith(b"invalid ")


def test_stream_that_does_not_exist_is_an_invalid_request(server: Server) -> None:
    """Only the server's own event stream is made by itself."""
    for message in (add(), REGISTER, poll(), poll(component="billing")):
        assert call(server, message, "/futoin/plant/alarms")["e"] == INVALID
    with websocket(server, "/futoin/plant/alarms/") as wire:
        assert wire.call(READY)["e"] == INVALID
        assert wire.call(PING)["r"] == {"echo": 7}
