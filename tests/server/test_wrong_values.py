"""Every operation is called with every wrong value for each of its arguments, over the network, by a user who may.

The calls are generated from the descriptions of the operations, so a new one is tested as soon as it is described.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import astuple
from pyarrow import flight

import penstock
from penstock.client import RemoteStore
from penstock.errors import BadArgument, PenstockError, ServerError, StreamCorrupt
from penstock.model import Checkpoint, EventPointer, Position, StreamConfig, StreamCut
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users
from penstock.wire import APPENDS, PROTOCOL, pack, unpack_call, unpack_error
from penstock.wire.operations import OPERATIONS, groups, readers, repositories, sessions, streams, transactions, writers
from tests.server.samples import legal_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.wire.operations import Operation

STREAM: Final = "plant/readings"
PASSWORD: Final = "correct horse"
HUGE: Final = "x" * (256 << 10)


def forged(code: int, *fields: object, **named: object) -> msgspec.Raw:
    """Return a value of the model that no client would make: its fields are whatever is given."""
    inside = msgspec.msgpack.encode(named or fields)
    return msgspec.Raw(msgspec.msgpack.encode(msgspec.msgpack.Ext(code, inside)))


PLAIN: Final[list[Any]] = [
    None,
    True,
    -5,
    7,
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    1 << 40,
    1 << 63,
    1 << 70,
    "",
    "text",
    "\ud800",
    HUGE,
    b"bytes",
    [],
    [-5],
    ["text", -5, math.nan],
    [[STREAM, 0, math.nan]],
    [[STREAM, True, 0]],
    [["x" * 600, 0, 0]],
    {},
    {"a": {"b": [1, {}]}},
]
FOREIGN: Final[dict[str, msgspec.Raw]] = {
    "nested 100 deep": msgspec.Raw(b"\x91" * 100 + b"\x90"),
    "no such class": forged(99, STREAM),
    "a date": msgspec.Raw(b"\xd6\xff\x00\x00\x00\x01"),
}
FORGED: Final[dict[str, msgspec.Raw]] = {
    "pointer of texts": forged(1, stream=STREAM, segment_id="0", offset="0"),
    "pointer that is negative": forged(1, stream=STREAM, segment_id=-1, offset=-5),
    "pointer that is huge": forged(1, stream=STREAM, segment_id=0, offset=1 << 63),
    "pointer with a huge name": forged(1, stream=HUGE, segment_id=0, offset=0),
    "pointer of a bool": forged(1, stream=STREAM, segment_id=False, offset=0),
    "cut that is negative": forged(2, stream=STREAM, places=[[0, -5]]),
    "cut of floats": forged(2, stream=STREAM, places=[[0, 1.5]]),
    "cut of NaN": forged(2, stream=STREAM, places=[[0, math.nan]]),
    "cut of bools": forged(2, stream=STREAM, places=[[False, True]]),
    "cut of huge figures": forged(2, stream=STREAM, places=[[0, 1 << 63]]),
    "cut with a huge name": forged(2, stream=HUGE, places=[[0, 0]]),
    "cut without a name": forged(2, stream=None, places=[[0, 0]]),
    "position of no cuts": forged(3, cuts=[1, 2]),
    "position with a huge name": forged(3, cuts=[{"stream": HUGE, "places": [[0, 0]]}]),
    "config of NaN": forged(5, timestamp_aggregation_timeout=math.nan),
    "config of infinity": forged(5, scaling={"type": "event-rate", "target": math.inf}),
    "config of negative figures": forged(5, retention={"type": "size", "size_bytes": -5}),
    "config of a bool": forged(5, scaling={"type": "fixed", "segments": True}),
    "config of huge tags": forged(5, tags=[HUGE]),
    "config of another type": forged(5, scaling={"type": "unheard-of"}),
    "checkpoint with a huge name": forged(8, name=HUGE, group="g", cuts=[]),
    "checkpoint of no cuts": forged(8, name="c", group="g", cuts=5),
}
MODEL: Final[list[Any]] = [
    EventPointer(STREAM, 7, 7),
    StreamCut.of("no/such", {0: 0}),
    StreamCut.of(STREAM, {0: 70, 5: 1 << 40}),
    StreamCut(STREAM, ()),
    Position(()),
    Position((StreamCut.of(STREAM, {0: 70}),)),
    Checkpoint("c", "g", (StreamCut.of(STREAM, {0: 70}),)),
    StreamConfig(),
]
VALUES: Final[dict[str, msgspec.Raw]] = {repr(value)[:40]: msgspec.Raw(pack(value)) for value in PLAIN} | FOREIGN
VALUES_OF_THE_MODEL: Final = FORGED | {repr(value): msgspec.Raw(pack(value)) for value in MODEL}


class Wire:
    """A permitted user, with something open of everything that an operation can be about."""

    def __init__(self, store: RemoteStore, server: Server) -> None:
        self.store, self._server, call = store, server, store.connection.call
        store.create_stream(STREAM, segments=2)
        with store.writer(STREAM) as events:
            events.write_batch([b"event %d" % number for number in range(20)], [str(number) for number in range(20)])
        store.create_reader_group("g", [STREAM])
        store.register_consumer(STREAM, "consumer")
        writer = call(writers.OpenWriter(STREAM, "w", "token", False, None))[0]
        reader = call(readers.OpenReader("g", "r"))[0]
        call(readers.Sync(reader, [], None, False))
        uid = call(transactions.OpenTransactions(STREAM, "w"))
        transaction = call(transactions.BeginTransaction(STREAM, uid, "w", 3600.0))
        self._known: dict[str, object] = {
            "name": STREAM,
            "stream": STREAM,
            "streams": [STREAM],
            "group": "g",
            "pointer": EventPointer(STREAM, 0, 64),
            "writer": writer,
            "upload": call(writers.OpenUpload(writer)),
            "reader": reader,
            "uid": uid,
            "writer_id": "w",
            "transaction": transaction,
            "event": call(transactions.BeginEvent(transaction, 0.5, None, None)),
            "version": PROTOCOL,
            "timeout": 0.001,
            "lease": 1.0,
            "start": StreamCut.of(STREAM, {0: 0, 1: 0}),
        }

    @property
    def numbers(self) -> dict[str, msgspec.Raw]:
        """What is open, each of which is legal in place of another."""
        names = ("writer", "upload", "reader", "event", "transaction")
        return {f"number of {name}": msgspec.Raw(pack(self._known[name])) for name in names}

    def legal(self, kind: type[Operation]) -> list[msgspec.Raw]:
        """Return the arguments of a call that could be carried out."""
        known = self._known | ({"name": "other"} if kind in (groups.CreateGroup, groups.TakeCheckpoint) else {})
        return [msgspec.Raw(pack(value)) for value in astuple(legal_call(kind, **known))]

    def send(self, kind: type[Operation], args: list[msgspec.Raw]) -> PenstockError | None:
        """Make a call on the way that is the operation's; return what it was refused with."""
        channel, name = self.store.connection.channel, kind.operation
        encode, client = msgspec.msgpack.encode, channel.client
        try:
            if kind in (streams.GetBlocks, repositories.GetRepositoryStream):
                client.do_get(flight.Ticket(encode([name, channel.id, args]))).read_all()
            elif kind in (writers.AppendBlocks, writers.AppendShared):
                at = flight.FlightDescriptor.for_command(encode([name, channel.id, *args, *[None] * (not args)]))
                put(client, at)
            elif kind is sessions.BeginSession:
                at = flight.FlightDescriptor.for_command(encode([name, *args]))
                exchange(client, at)
            else:
                list(client.do_action(flight.Action(name, encode([channel.id, args]))))
        except pa.ArrowException as error:
            return unpack_error(error.extra_info)
        return None

    def end(self) -> None:
        """End the client, and the server."""
        self.store.close()
        self._server.__exit__(None, None, None)

    def state(self) -> tuple[object, ...]:
        """Return all that a call could have changed."""
        store, group = self.store, self.store.reader_group("g")
        return (
            store.streams(),
            [(name, store.reader_group(name).position) for name in store.reader_groups()],
            (group.readers(), group.checkpoints, group.lag().events, group.finished),
            store.consumers(STREAM),
            store.watermarks(STREAM),
            store.connection.call(transactions.Status(self._known["transaction"])),  # type: ignore[arg-type]
        )


class Case(NamedTuple):
    """A call in which one argument was replaced, and whether its description allows that."""

    name: str
    kind: type[Operation]
    argument: str
    args: list[msgspec.Raw]
    is_legal: bool


def cases(wire: Wire) -> Iterator[Case]:
    """Return every operation with every value for each of its arguments; those of the model where there may be one."""
    for name, kind in OPERATIONS.items():
        args = wire.legal(kind)
        for index, argument in enumerate(kind.__struct_fields__):
            values = VALUES | wire.numbers | (VALUES_OF_THE_MODEL if may_be_of_the_model(kind, args, index) else {})
            for told, value in values.items():
                changed = replaced(args, index, value)
                yield Case(f"{name} {argument} {told}", kind, argument, changed, is_legal(kind, changed))


def replaced(args: list[msgspec.Raw], index: int, value: msgspec.Raw) -> list[msgspec.Raw]:
    return [*args[:index], value, *args[index + 1 :]]


def may_be_of_the_model(kind: type[Operation], args: list[msgspec.Raw], index: int) -> bool:
    return any(is_legal(kind, replaced(args, index, msgspec.Raw(pack(value)))) for value in MODEL)


def is_legal(kind: type[Operation], args: list[msgspec.Raw]) -> bool:
    try:
        kind.of(unpack_call(msgspec.msgpack.encode(args)))
    except BadArgument:
        return False
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    users = Users.open(folder / USERS_FILE)
    users.add("anna", PASSWORD)
    users.grant("anna", "admin", "*")
    return folder


@pytest.fixture
def wire(folder: Path) -> Iterator[Wire]:
    with Server(Config(store=str(folder), port=0, http_port=0)) as server:
        store = penstock.connect(server.address, user="anna", password=PASSWORD)
        assert isinstance(store, RemoteStore)
        with store:
            yield Wire(store, server)


def is_named(refusal: str, parts: tuple[str, str]) -> bool:
    """Whether a refusal names the argument, or a ticket or a descriptor that is too long to be read."""
    return all(part in refusal for part in parts) or refusal.startswith("a ticket or a descriptor of 262")


def test_every_wrong_value_is_refused_by_name_and_changes_nothing(
    wire: Wire, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not refused is believed: it would be written, and the store might not open again."""
    before = wire.state()
    wrong = [case for case in cases(wire) if not case.is_legal and not is_another_version(case)]
    refusals = {case.name: wire.send(case.kind, case.args) for case in wrong}
    expected = {case.name: (case.argument, f" of {case.kind.operation}: use ") for case in wrong}
    believed = {
        name: refusal
        for name, refusal in refusals.items()
        if type(refusal) is not BadArgument or not is_named(str(refusal), expected[name])
    }
    assert not believed
    assert max(len(str(refusal)) for refusal in refusals.values()) < 1_000
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert wire.state() == before
    wire.end()
    assert opens_again(folder)


def test_every_odd_value_that_is_legal_means_something(
    wire: Wire, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is carried out, or refused for a reason; the server is neither confused nor is anything damaged."""
    odd = [case for case in cases(wire) if case.is_legal and not waits_for_ever(case) and not is_another_version(case)]
    answers = {case.name: wire.send(case.kind, case.args) for case in odd}
    assert not {name: error for name, error in answers.items() if isinstance(error, ServerError | StreamCorrupt)}
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert STREAM in [info.name for info in wire.store.streams()]
    wire.end()
    assert opens_again(folder)


def exchange(client: flight.FlightClient, descriptor: flight.FlightDescriptor) -> None:
    writer, reader = client.do_exchange(descriptor)
    try:
        reader.read_chunk()
    finally:
        reader.cancel()
        with suppress(pa.ArrowException):
            writer.close()


def put(client: flight.FlightClient, descriptor: flight.FlightDescriptor) -> None:
    writer, answers = client.do_put(descriptor, APPENDS)
    writer.done_writing()
    answers.read()
    writer.close()


@pytest.mark.parametrize(
    ("call", "descriptor"),
    [
        pytest.param(exchange, flight.FlightDescriptor.for_path(STREAM), id="exchange at a path"),
        pytest.param(exchange, flight.FlightDescriptor.for_path(), id="exchange at an empty path"),
        pytest.param(exchange, flight.FlightDescriptor.for_command(b""), id="exchange of an empty command"),
        pytest.param(put, flight.FlightDescriptor.for_path(), id="put at an empty path"),
        pytest.param(put, flight.FlightDescriptor.for_path("plant/*"), id="put at a pattern"),
        pytest.param(put, flight.FlightDescriptor.for_command(b""), id="put of an empty command"),
        pytest.param(
            flight.FlightClient.get_flight_info, flight.FlightDescriptor.for_command(b"x"), id="info of a command"
        ),
    ],
)
def test_every_other_kind_of_descriptor_is_refused(
    wire: Wire,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[flight.FlightClient, flight.FlightDescriptor], object],
    descriptor: flight.FlightDescriptor,
) -> None:
    """Some were a failure of the server, with a traceback in its log, which any user could fill."""
    with pytest.raises(pa.ArrowException) as refused:
        call(wire.store.connection.channel.client, descriptor)
    error = unpack_error(refused.value.extra_info)
    assert isinstance(error, PenstockError)
    assert "see its log" not in str(error)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    wire.end()


def is_another_version(case: Case) -> bool:
    """Whether a client says that it speaks another version of the protocol: tests/server/test_abuse.py does, too."""
    return case.kind is sessions.BeginSession and case.argument == "version"


def waits_for_ever(case: Case) -> bool:
    return case.kind is groups.TakeCheckpoint and case.argument == "timeout"


def opens_again(folder: Path) -> bool:
    """Whether the store opens, and a new reader of its group gets to the tail."""
    with penstock.connect(folder, exclusive=True) as store:
        group = store.reader_group("g")
        with group.reader("another") as reader:
            while reader.read_next_event(timeout=0) is not None:
                pass
        store.maintain()
        return group.lag().events == 0
