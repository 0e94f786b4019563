"""Places that a reader sends: the catalog records them, so they are checked as if nothing of them were true."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

import penstock
from penstock.client import RemoteStore
from penstock.client._knock import ConnectionLost
from penstock.embedded import open_store
from penstock.errors import BadArgument, LogFenced, StorageUnavailable
from penstock.server import Config, Server
from penstock.stream import Engine
from penstock.stream.group import _coordinator
from penstock.stream.segment import Segments
from penstock.wire.operations import groups, readers, streams, transactions, writers
from tests.stream.wire_harness import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.wire.operations import Operation

STREAM: Final = "plant/readings"
EVENTS: Final = [b"%d" % number * 50 for number in range(10)]
KEY: Final = (STREAM, 0)
BAD_PLACES: Final[list[Any]] = ["text", 1.5, math.nan, math.inf, -5, True, None, [], 1 << 63, 1 << 70, 70, 1 << 40]


class Hostile(NamedTuple):
    """A reader whose calls are made by hand: it holds the only segment of a stream, and is at its beginning."""

    server: Server
    store: RemoteStore
    number: int

    def call(self, call: Operation) -> object:
        return self.store.connection.call(call)

    def end(self) -> None:
        """End the client, and the server."""
        self.store.close()
        self.server.__exit__(None, None, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def hostile(folder: Path) -> Iterator[Hostile]:
    with Server(Config(store=str(folder), port=0, http_port=0, anonymous=True)) as server:
        store = penstock.connect(server.address)
        assert isinstance(store, RemoteStore)
        with store:
            store.create_stream(STREAM)
            with store.writer(STREAM) as writer:
                writer.write_batch(EVENTS)
            store.create_reader_group("g", [STREAM])
            number = store.connection.call(readers.OpenReader("g", "r"))[0]
            store.connection.call(readers.Sync(number, [], None, False))
            yield Hostile(server, store, number)


CALLS: Final[dict[str, Callable[[int, Any], Operation]]] = {
    "record": lambda reader, place: readers.RecordPlaces(reader, [(*KEY, place)], True),
    "finish_segment": lambda reader, place: readers.FinishSegment(reader, *KEY, place),
    "leave": lambda reader, place: readers.Leave(reader, [(*KEY, place)]),
    "places": lambda reader, place: readers.Report(reader, [(*KEY, place)], [(*KEY, 0)]),
    "returned": lambda reader, place: readers.Report(reader, [(*KEY, 0)], [(*KEY, place)]),
    "sync": lambda reader, place: readers.Sync(reader, [(*KEY, place)], None, True),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_place_where_no_reader_can_be_is_recorded(hostile: Hostile, folder: Path, name: str) -> None:
    """A store whose catalog holds one does not open again, and no reader starts in the middle of an event."""
    for place in BAD_PLACES:
        with pytest.raises(BadArgument):
            hostile.call(CALLS[name](hostile.number, place))
    hostile.call(readers.RecordPlaces(hostile.number, [], True))
    assert hostile.store.connection.call(groups.GetPosition("g"))[0].offsets == {0: 0}
    hostile.end()
    with penstock.connect(folder) as store, store.reader_group("g").reader("other") as reader:
        events = [reader.read_next_event(timeout=30) for _ in EVENTS]
        assert [read.event for read in events if read is not None] == EVENTS


@pytest.mark.parametrize("name", CALLS)
def test_a_place_that_cannot_be_looked_up_now_is_not_called_invalid(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A bucket that does not answer, or a store with a new owner, is no mistake of the reader, which tries again."""
    place = next(hostile.store.read(STREAM))["offset"][1].as_py()

    def fail(*given: object) -> bool:
        raise StorageUnavailable("bucket", reason=f"no answer about {given[1:]}")

    monkeypatch.setattr(_coordinator, "is_reader_place", fail)
    with pytest.raises(StorageUnavailable):
        hostile.call(CALLS[name](hostile.number, place))


def test_a_segment_that_cannot_be_opened_now_is_not_called_gone(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader would take its events for truncated, and go on behind them."""

    def fail(*given: object) -> bool:
        raise StorageUnavailable("bucket", reason=f"no answer about {given[1:]}")

    monkeypatch.setattr(Segments, "get", fail)
    with pytest.raises(StorageUnavailable):
        hostile.call(streams.Watch(*KEY))


def test_a_reader_that_a_replaced_owner_cannot_end_is_not_called_in_use(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that comes back to such an owner, which has not noticed it yet, goes on to the new one."""

    def refuse(*_: object) -> None:
        raise LogFenced("partition 'main'")

    opening = readers.OpenReader("g", "again", token="t")
    hostile.call(opening)
    monkeypatch.setattr(_coordinator.Coordinator, "leave", refuse)
    monkeypatch.setattr(Engine, "check_owned", refuse)
    with penstock.connect(hostile.server.address) as store:
        assert isinstance(store, RemoteStore)
        with pytest.raises(ConnectionLost):
            store.connection.channel.call(opening)


def test_a_segment_is_finished_at_its_end_only(hostile: Hostile) -> None:
    """Its successors would be read before it, and its other events would never be read."""
    tail = hostile.store.tail(STREAM).offsets[0]
    for place in (0, tail):
        with pytest.raises(BadArgument, match="segment 0 of plant/readings is not read to its end"):
            hostile.call(readers.FinishSegment(hostile.number, *KEY, place))
    hostile.store.seal_stream(STREAM)
    with pytest.raises(BadArgument, match="not read to its end"):
        hostile.call(readers.FinishSegment(hostile.number, *KEY, 0))
    hostile.call(readers.FinishSegment(hostile.number, *KEY, tail))
    assert hostile.store.reader_group("g").finished


def test_a_place_in_a_segment_of_another_reader_is_not_kept_for_later(hostile: Hostile, folder: Path) -> None:
    """A reader that gets the segment afterwards would be where no event begins."""
    hostile.call(readers.Leave(hostile.number, []))
    number = hostile.store.connection.call(readers.OpenReader("g", "r"))[0]
    with pytest.raises(BadArgument):
        hostile.call(readers.Report(number, [(*KEY, 70)], [(*KEY, 70)]))
    hostile.call(readers.Sync(number, [], None, False))
    hostile.end()
    with penstock.connect(folder) as store:
        assert store.reader_group("g").position[0].offsets == {0: 0}


def test_what_is_not_there_any_more_is_not_looked_at(hostile: Hostile) -> None:
    """A reader that does not know yet of a truncation is where it was."""
    middle = next(iter(hostile.store.read(STREAM)))["offset"][5].as_py()
    hostile.store.truncate_stream(STREAM, penstock.StreamCut.of(STREAM, {0: middle}))
    hostile.call(readers.RecordPlaces(hostile.number, [(*KEY, 7), (STREAM, 3, 7), ("no/such", 0, 7)], True))


@pytest.mark.parametrize("time", ["1", 1.5, math.nan, -1, True, None, 253_402_300_800_000, 1 << 63, 1 << 70])
def test_no_time_above_the_limit_is_marked(hostile: Hostile, folder: Path, time: Any) -> None:  # noqa: ANN401
    """Watermarks never go back, so a time far in the future stays for ever."""
    number = hostile.store.connection.call(writers.OpenWriter(STREAM, "w", "token", False, None))[0]
    with pytest.raises(BadArgument, match=r"writer\.mark"):
        hostile.call(writers.Mark(number, time))
    hostile.end()
    with penstock.connect(folder) as store:
        store.maintain()
        assert store.watermark(STREAM) is None


def test_a_place_of_a_stream_that_is_deleted_meanwhile_is_no_error_of_the_server(hostile: Hostile) -> None:
    """Its reader is told in another way."""
    hostile.store.seal_stream(STREAM)
    hostile.store.delete_stream(STREAM)
    hostile.call(readers.RecordPlaces(hostile.number, [(*KEY, 70)], True))


UNKNOWN: Final = [(STREAM, 1_000 + number, number) for number in range(2_000)] + [("no/such", 0, 7)]
OF_UNKNOWN: Final[dict[str, Callable[[int], Operation]]] = {
    "places": lambda reader: readers.Report(reader, [(*KEY, 0), *UNKNOWN], [(*KEY, 0), *UNKNOWN]),
    "record": lambda reader: readers.RecordPlaces(reader, [(*KEY, 0), *UNKNOWN], True),
    "sync": lambda reader: readers.Sync(reader, [(*KEY, 0), *UNKNOWN], None, False),
}


@pytest.mark.parametrize("name", OF_UNKNOWN)
def test_places_in_segments_that_the_group_has_not_are_not_kept(name: str) -> None:
    """A reader sent 700,000 of them, and each such reader took 230 MiB of the server for as long as it was open."""
    with open_store("memory:") as inside, served(inside) as (_, finder), RemoteStore(finder) as store:
        store.create_stream(STREAM)
        store.create_reader_group("g", [STREAM])
        number = store.connection.call(readers.OpenReader("g", "r"))[0]
        store.connection.call(readers.Sync(number, [], None, False))
        store.connection.call(OF_UNKNOWN[name](number))
        with pytest.raises(BadArgument, match="invalid position 7"):  # others of the same call are checked as always
            store.connection.call(readers.Report(number, [*UNKNOWN, (*KEY, 7)], []))
        store.connection.call(readers.NoteTold(number, STREAM, [segment for _, segment, _ in UNKNOWN]))
        reader = inside.groups.at_work["g"].readers["r"]
        assert reader.places(returned=False) == reader.places(returned=True) == {KEY: 0}


def test_a_claim_to_segments_that_the_group_has_not_is_one_to_nothing() -> None:
    """A reader that returns may claim anything, and others wait while it is compared with what there is."""
    with open_store("memory:") as inside, served(inside) as (_, finder), RemoteStore(finder) as store:
        store.create_stream(STREAM)
        store.create_reader_group("g", [STREAM])
        epoch = store.connection.call(readers.OpenReader("g", "first"))[2]
        store.connection.call(readers.OpenReader("g", "r", epoch, [(*KEY, 0), *UNKNOWN], "token"))
        assert inside.catalog.group("g").readers["r"] == {KEY: 0}


MANY: Final = 100_001
TOO_LONG: Final[dict[str, Callable[[int], Operation]]] = {
    "places of reader.open": lambda _: readers.OpenReader("g", "r", 0, [(*KEY, 0)] * MANY, "token"),
    "places of reader.sync": lambda reader: readers.Sync(reader, [(*KEY, 0)] * MANY, None, False),
    "places of reader.places": lambda reader: readers.Report(reader, [(*KEY, 0)] * MANY, []),
    "returned of reader.places": lambda reader: readers.Report(reader, [], [(*KEY, 0)] * MANY),
    "places of reader.record": lambda reader: readers.RecordPlaces(reader, [(*KEY, 0)] * MANY, True),
    "segments of reader.note_told": lambda reader: readers.NoteTold(reader, STREAM, [0] * MANY),
    "places of reader.leave": lambda reader: readers.Leave(reader, [(*KEY, 0)] * MANY),
    "blocks of writer.find": lambda _: writers.Find(0, [(0, 1, 1, bytes(16))] * MANY),
    "events of transaction.commit": lambda _: transactions.Commit("t", None, [0] * MANY),
    "events of transaction.abort": lambda _: transactions.Abort("t", [0] * MANY),
    "ids of transactions.commit_all": lambda _: transactions.CommitAll(STREAM, 0, "w", ["t"] * MANY, 0, None),
}


def test_a_list_that_is_longer_than_any_client_needs_is_refused_before_it_is_read(hostile: Hostile) -> None:
    """Lists of a million, which were allowed, kept all other clients waiting for seconds."""
    for name, operation in TOO_LONG.items():
        with pytest.raises(BadArgument, match=rf"invalid {name}: use a list of at most 10*,000 "):
            hostile.call(operation(hostile.number))
    hostile.call(readers.RecordPlaces(hostile.number, [(*KEY, 0)], True))
