"""Places that a reader sends: the catalog records them, so they are checked as if nothing of them were true."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

import penstock
from penstock.client import RemoteStore
from penstock.errors import BadArgument
from penstock.server import Config, Server
from penstock.wire.operations import groups, readers, writers

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
    """A store whose catalog holds one does not open again, and nobody reads from the middle of an event."""
    for place in BAD_PLACES:
        with pytest.raises(BadArgument):
            hostile.call(CALLS[name](hostile.number, place))
    hostile.call(readers.RecordPlaces(hostile.number, [], True))
    assert hostile.store.connection.call(groups.GetPosition("g"))[0].offsets == {0: 0}
    hostile.end()
    with penstock.connect(folder) as store, store.reader_group("g").reader("other") as reader:
        events = [reader.read_next_event(timeout=30) for _ in EVENTS]
        assert [read.event for read in events if read is not None] == EVENTS


def test_a_segment_is_finished_at_its_end_only(hostile: Hostile) -> None:
    """Its successors would be read before it, and its other events by nobody."""
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
