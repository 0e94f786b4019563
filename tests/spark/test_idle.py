"""A query that waits for events: what it asks its store, how long it rests, and that it misses nothing."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.errors import BadArgument, NoSuchStream
from penstock.spark._columns import schema_of
from penstock.spark._options import source_options
from penstock.spark._pace import (
    REST_FACTOR,
    REST_MAX_S,
    WATERMARK_INTERVAL_MAX_S,
    WATERMARKS_AT_ONCE,
    Pace,
    WatermarkPace,
)
from penstock.spark._stream_reader import PenstockStreamReader
from penstock.testing import ManualClock
from tests.spark.source_harness import STREAM, write_events
from tests.spark.spark_harness import note_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock import Store

ALL = ReadAllAvailable()


class Counted:
    """A store that counts the calls of its methods, and passes them on."""

    def __init__(self, store: Store) -> None:
        self.store, self.calls = store, Counter[str]()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.store, name)

        def counted(*args: object, **options: object) -> object:
            self.calls[name] += 1
            return method(*args, **options)

        return counted


@pytest.fixture
def readers(folder: Path) -> Iterator[Callable[..., PenstockStreamReader]]:
    """Make readers of the stream with options; they are stopped at the end."""
    made: list[PenstockStreamReader] = []

    def make(**texts: str) -> PenstockStreamReader:
        options = source_options({"store": str(folder), "stream": STREAM} | texts)
        schema = schema_of(options)
        assert not isinstance(schema, str)
        made.append(PenstockStreamReader(options, schema))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def polled(reader: PenstockStreamReader) -> tuple[dict[str, Any], Counter[str]]:
    """Let a reader come to its end, then poll it as Spark does; return its offset, and what it asked of its store."""
    reader.__dict__["_store"] = counted = Counted(reader._store)
    limit = reader.getDefaultReadLimit()
    at = reader.initialOffset()
    while (end := reader.latestOffset(at, limit)) != at:
        at = end
    reader.reportLatestOffset()
    counted.calls.clear()
    for _ in range(3):
        assert reader.latestOffset(at, limit) is at
        reader.reportLatestOffset()
    return at, counted.calls


@pytest.mark.parametrize("texts", [{}, {"max_events_per_trigger": "1"}, {"align": "watermark"}, {"mark_rows": "true"}])
def test_an_idle_query_asks_its_store_one_thing_a_poll(
    store: Store, readers: Callable[..., PenstockStreamReader], texts: dict[str, str]
) -> None:
    """Spark polls up to a hundred times a second: five calls a poll took a third of a core."""
    write_events(store, [b"a", b"b"])
    _, calls = polled(readers(**texts))
    assert calls == {"next_cut": 3}


def test_the_first_poll_behind_a_write_finds_it(store: Store, readers: Callable[..., PenstockStreamReader]) -> None:
    """An answer that is a moment old would let processAllAvailable return before its events are there."""
    reader = readers(max_events_per_trigger="2")
    at, _ = polled(reader)
    for _ in range(5):
        write_events(store, [b"x"])
        end = reader.latestOffset(at, ReadMaxRows(2))
        assert end["cut"] == f"{store.tail(STREAM)}"
        assert reader.reportLatestOffset() == {"cut": end["cut"], "lag_bytes": 0}
        assert reader.latestOffset(end, ReadMaxRows(2)) is end
        at = end


def test_an_idle_query_learns_of_time_alone(store: Store, readers: Callable[..., PenstockStreamReader]) -> None:
    """Without events, time is what closes the windows."""
    reader = readers(mark_rows="true")
    with store.writer(STREAM, "clock") as writer:
        note_all(store, STREAM, 1, writer)
        at, _ = polled(reader)
        note_all(store, STREAM, 2, writer)
        assert (at["time"], reader.latestOffset(at, ALL)["time"]) == (1000, 2000)


def test_an_idle_query_is_told_what_became_of_its_stream(
    store: Store, readers: Callable[..., PenstockStreamReader]
) -> None:
    """The short question has short answers: an error comes from the checks that every batch has."""
    write_events(store, [b"a"])
    reader, other = readers(), readers()
    at, _ = polled(reader)
    polled(other)
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    with pytest.raises(NoSuchStream):
        reader.latestOffset(at, ALL)
    store.create_stream(STREAM)
    with pytest.raises(BadArgument, match="another stream"):
        other.latestOffset(at, ALL)


def test_an_idle_query_finds_a_new_stream_of_its_pattern(
    store: Store, folder: Path, readers: Callable[..., PenstockStreamReader]
) -> None:
    """It is read from its beginning, also if the other streams stand still."""
    del readers
    options = source_options({"store": str(folder), "subscribePattern": "plant/.*"})
    schema = schema_of(options)
    assert not isinstance(schema, str)
    reader = PenstockStreamReader(options, schema)
    at, calls = polled(reader)
    assert calls == {"next_cut": 3, "streams": 3}
    store.create_stream("plant/new")
    assert "plant/new" in reader.latestOffset(at, ALL)["uids"]
    reader.stop()


def test_a_query_rests_in_proportion_to_what_a_poll_takes() -> None:
    """So that asking takes a fortieth of the time at most, and a cheap question is asked often."""
    clock, rests = ManualClock(), list[float]()

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        clock.advance(seconds)

    pace = Pace(clock, sleep)
    for took_s, is_idle in ((0.001, True), (0.5, True), (0.5, False), (0.001, True)):
        pace.begin()
        clock.advance(took_s)
        pace.end(is_idle=is_idle)
    clock.advance(REST_MAX_S)
    pace.begin()
    assert rests == pytest.approx([REST_FACTOR * 0.001, REST_MAX_S]), "none behind a batch, or a trigger that is slow"


def held_back(reader: PenstockStreamReader, store: Store) -> tuple[ManualClock, dict[str, Any], int]:
    """Note time again and again, until a reader holds it back; return its clock, its offset and the last time noted."""
    clock = ManualClock()
    reader.__dict__["_watermark_pace"] = WatermarkPace(clock, 5.0)
    at, _ = polled(reader)
    with store.writer(STREAM, "clock") as writer:
        for second in range(1, WATERMARKS_AT_ONCE + 3):
            note_all(store, STREAM, second, writer)
            end = reader.latestOffset(at, ALL)
            if end is at:
                return clock, at, second
            assert (end["cut"], end["time"]) == (at["cut"], second * 1000)
            at = end
    raise AssertionError("it never held time back")


def test_time_that_is_noted_all_the_time_comes_once_an_interval(
    store: Store, readers: Callable[..., PenstockStreamReader]
) -> None:
    """Each watermark without an event costs two micro-batches: with one a second, they took most of a core."""
    write_events(store, [b"a"])
    reader = readers(mark_rows="true")
    clock, at, second = held_back(reader, store)
    assert second > WATERMARKS_AT_ONCE, "a few come at once, or a test that notes time would wait"
    reader.__dict__["_store"] = counted = Counted(reader._store)
    clock.advance(4.9)
    assert reader.latestOffset(at, ALL) is at
    assert counted.calls == {"next_cut": 1}, "it is idle, and asks no more than any idle query"
    clock.advance(0.2)
    end = reader.latestOffset(at, ALL)
    assert (end["cut"], end["time"]) == (at["cut"], second * 1000), "also if no more time is noted"
    note_again = note_later(store, second + 1)
    assert reader.latestOffset(end, ALL) is end
    clock.advance(5.0)
    assert reader.latestOffset(end, ALL)["time"] == note_again


def note_later(store: Store, second: int) -> int:
    with store.writer(STREAM, "clock") as writer:
        note_all(store, STREAM, second, writer)
    return second * 1000


def test_an_event_brings_the_time_along_that_was_held_back(
    store: Store, readers: Callable[..., PenstockStreamReader]
) -> None:
    """A batch with events runs in any case, and closes the windows that it may close."""
    write_events(store, [b"a"])
    reader = readers(mark_rows="true")
    _, at, second = held_back(reader, store)
    write_events(store, [b"b"])
    end = reader.latestOffset(at, ALL)
    assert end["cut"] != at["cut"]
    assert end["time"] == second * 1000


def test_a_query_that_ends_with_what_is_there_holds_no_time_back(
    store: Store, readers: Callable[..., PenstockStreamReader]
) -> None:
    """With the trigger availableNow nothing comes later that could close the windows."""
    write_events(store, [b"a"])
    reader, ending = readers(mark_rows="true"), readers(mark_rows="true")
    _, at, second = held_back(reader, store)
    ending.__dict__["_watermark_pace"] = reader._watermark_pace
    ending.prepareForTriggerAvailableNow()
    assert ending.latestOffset(at, ALL)["time"] == second * 1000


def test_time_that_is_noted_now_and_then_is_never_held_back() -> None:
    """Windows close at once in a query whose writers note time once an interval, or less often."""
    clock = ManualClock()
    often, seldom, every_time = (WatermarkPace(clock, interval_s) for interval_s in (5.0, 5.0, 0.0))
    for number in range(100):
        clock.advance(5.0)
        often.note_event()
        assert often.take(), "events come, too"
        assert number % 12 or seldom.take(), "however long no event has come"
    assert all(every_time.take() for _ in range(100)), "an interval of nothing holds nothing back"


def test_a_window_closes_late_by_a_tenth_of_the_silence_at_most() -> None:
    """A pair of micro-batches costs half a second of a core, and a query that sleeps all night runs many."""
    clock = ManualClock()
    pace = WatermarkPace(clock, 5.0)
    taken = []
    for second in range(1, 3601):
        clock.advance(1.0)
        if pace.take():
            taken.append(second)
    gaps = list(pairwise(second for second in taken if second > 30))
    assert all(5 <= later - earlier <= max(5, later / 10) + 1 for earlier, later in gaps)
    assert [later - earlier for earlier, later in gaps[-3:]] == [WATERMARK_INTERVAL_MAX_S] * 3
    assert len(taken) < 150, "in an hour, and not 720"
    pace.note_event()
    clock.advance(5.0)
    assert pace.take(), "an event begins anew, whatever was taken before"
    assert not pace.take()


def test_an_event_ends_the_silence_of_a_query(store: Store, readers: Callable[..., PenstockStreamReader]) -> None:
    """The windows of a stream that lives close as soon as before it slept."""
    write_events(store, [b"a"])
    reader = readers(mark_rows="true")
    clock, at, second = held_back(reader, store)
    clock.advance(100.0)
    write_events(store, [b"b"])
    at = reader.latestOffset(at, ALL)
    while reader._watermark_pace.take():
        pass
    note_again = note_later(store, second + 1)
    assert reader.latestOffset(at, ALL) is at
    clock.advance(5.0)
    assert reader.latestOffset(at, ALL)["time"] == note_again
