"""What the pages draw: many streams, rates, segments over time, watermarks and their writers, readers, health."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from penstock.console import _mark_history
from penstock.console._health import quantile_s
from penstock.console._mark_history import MarkHistory
from penstock.console._rates import Rate, Rates
from penstock.console._readers import readers_of
from penstock.console._segments import segment_picture
from penstock.console._streams import PAGE_SIZE, in_words, stream_page
from penstock.console._times import time_of_stream
from penstock.embedded import open_store
from penstock.model import ByConsumption, BySize, ByTime, StreamConfig
from penstock.server._console import ConsoleAccess
from penstock.server._limits import Limits
from penstock.server._permissions import ANONYMOUS
from penstock.stream.format import StreamCreated
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model import Retention
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
MANY: Final = 10_000
ACCESS: Final = ConsoleAccess(None, Limits())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Engine]:
    with open_store("memory:", clock=clock) as store:
        store.create_stream(STREAM, segments=2)
        yield store


def rates_of(store: Engine) -> Rates:
    return Rates(store.segments.at_work, store.clock.elapsed)


def write(store: Engine, count: int, stream: str = STREAM) -> None:
    with store.writer(stream) as writer:
        writer.write_batch([b"event"] * count, [f"key-{number}" for number in range(count)]).result()


def test_a_page_of_ten_thousand_streams_costs_what_a_page_costs(store: Engine) -> None:
    """Only the streams of a page are described: describing all of them would keep everybody waiting."""
    with store.catalog.lock:
        first = store.catalog.next_uid
        for start in range(0, MANY, 1000):
            names = [(f"many/stream-{number:05d}", first + number) for number in range(start, start + 1000)]
            store.catalog.commit(*(StreamCreated(name, uid, 1, StreamConfig()) for name, uid in names))
    rates = rates_of(store)
    begun = time.thread_time()
    page = stream_page(store, rates, ANONYMOUS, page=100)
    took_s = time.thread_time() - begun
    assert (page.total, page.pages, page.page, len(page.streams)) == (MANY + 1, 201, 100, PAGE_SIZE)
    assert len(store.segments.at_work()) < 200, "segments of other pages were not opened"
    found = stream_page(store, rates, ANONYMOUS, contains="STREAM-0999")
    assert [stream["name"] for stream in found.streams] == [f"many/stream-0999{digit}" for digit in range(10)]
    assert stream_page(store, rates, ANONYMOUS, page=900).page == 201
    assert took_s < 0.5


def test_the_busiest_streams_come_first(store: Engine, clock: ManualClock) -> None:
    """In a store with thousands of streams, an operator looks for the one that is written to most."""
    for name in ("plant/quiet", "plant/busy"):
        store.create_stream(name)
    rates = rates_of(store)
    stream_page(store, rates, ANONYMOUS)
    clock.advance(1)
    write(store, 5)
    write(store, 50, "plant/busy")
    page = stream_page(store, rates, ANONYMOUS, order="rate")
    assert [(row["name"], row["rate"]["events"]) for row in page.streams] == [
        ("plant/busy", 50.0),
        (STREAM, 5.0),
        ("plant/quiet", 0.0),
    ]


def test_a_rate_is_the_mean_of_the_last_seconds(store: Engine, clock: ManualClock) -> None:
    """A figure that jumps with every poll cannot be read, and one that is an hour old is wrong."""
    rates = rates_of(store)
    assert rates.of_streams() is None, "there is nothing to compare with yet"
    found: dict[int, Rate] | None = None
    for count in (10, 20, 30, 40, 50, 60):
        clock.advance(1)
        write(store, count)
        found = rates.of_streams()
    assert found is not None
    assert found[store.stream(STREAM).uid].events == (30 + 40 + 50 + 60) / 4
    clock.advance(3600)
    assert rates.of_streams() is None, "the last sample is an hour old"


def test_rates_of_segments_that_are_new_or_gone(store: Engine, clock: ManualClock) -> None:
    """A stream that is scaled or truncated between two polls must not show rates below zero."""
    write(store, 10)
    rates = rates_of(store)
    rates.of_streams()
    first, second = store.stream(STREAM).segments
    store.scale_stream(STREAM, [first.segment_id, second.segment_id], [(0.0, 1.0)])
    store.truncate_stream(STREAM, "tail")
    write(store, 8)
    clock.advance(2)
    found = rates.of_segments()
    assert found is not None
    assert min(found.values()) >= Rate(0.0, 0.0)
    assert sum(rate.events for rate in found.values()) == 4.0


def test_segments_are_described_with_what_they_follow(store: Engine, clock: ManualClock) -> None:
    """The picture of splits and merges is drawn from nothing else."""
    begun = int(clock.now() * 1000)
    write(store, 100)
    clock.advance(10)
    store.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
    clock.advance(5)
    write(store, 100)
    store.scale_stream(STREAM, [3, 1], [(0.25, 1.0)])
    picture = segment_picture(store, rates_of(store), STREAM)
    found = {segment["id"]: segment for segment in picture["segments"]}
    assert {number: (segment["before"], segment["after"]) for number, segment in found.items()} == {
        0: ([], [2, 3]),
        1: ([], [4]),
        2: ([0], []),
        3: ([0], [4]),
        4: ([3, 1], []) if found[4]["before"] == [3, 1] else ([1, 3], []),
    }
    assert {number for number, segment in found.items() if segment["active"]} == {2, 4}
    assert (found[0]["first_ms"], found[0]["last_ms"]) == (begun, begun)
    assert (found[2]["first_ms"], found[4]["first_ms"]) == (begun + 15_000, None)
    assert picture["scaled_ms"] == begun + 15_000
    assert picture["omitted"] == 0


def test_a_stream_with_very_many_segments_is_drawn_by_the_newest(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream may have 10,000 segments; a page with as many shapes does not move any more."""
    monkeypatch.setattr("penstock.console._segments.SEGMENTS_DRAWN_MAX", 3)
    store.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
    store.scale_stream(STREAM, [2], [(0.0, 0.1), (0.1, 0.25)])
    picture = segment_picture(store, rates_of(store), STREAM)
    assert ([segment["id"] for segment in picture["segments"]], picture["omitted"]) == ([3, 4, 5], 3)


def test_the_writer_that_holds_time_back_is_named(store: Engine, clock: ManualClock) -> None:
    """That is the question of whoever looks at a watermark that stands still."""
    fast, slow = (store.writer(STREAM, writer_id=name) for name in ("fast", "slow"))
    for second in range(1, 6):
        for writer in (fast, slow):
            writer.write_event(b"event", key="key").result()
            writer.note_time(second * 1000)
            writer.flush()
        clock.advance(1.5)
        store.maintain()
    found = time_of_stream(store, STREAM, history=MarkHistory())
    assert found["last"] == {"lower": 5000, "upper": 5000}
    assert [point["lower"] for point in found["past"]] == sorted(point["lower"] for point in found["past"])
    assert found["past"][-1]["lower"] == 5000
    assert not any(writer["holds_back"] for writer in found["writers"])
    for second in range(6, 10):
        fast.write_event(b"event", key="key").result()
        fast.note_time(second * 1000)
        fast.flush()
        clock.advance(1)
        store.maintain()
    slowest, other = time_of_stream(store, STREAM)["writers"]
    assert (slowest["writer"], slowest["holds_back"], slowest["slowest"]) == ("slow", True, True)
    assert slowest["silent_s"] >= 4
    assert (other["writer"], other["holds_back"]) == ("fast", False)
    slow.close()
    assert [writer["open"] for writer in time_of_stream(store, STREAM)["writers"]] == [True, False]


def note(store: Engine, stream: str, writer: str, time: int) -> None:
    opened = store.writer(stream, writer_id=writer)
    opened.note_time(time)
    opened.flush()


def test_the_history_of_writers_is_that_of_the_last_minutes(store: Engine, clock: ManualClock) -> None:
    """The store keeps the latest mark alone; a chart that begins when it is opened does not say what led to it."""
    history, writer, begun = MarkHistory(), store.writer(STREAM, writer_id="plant-1"), int(clock.now() * 1000)
    for second in range(1000):
        writer.note_time(second)
        writer.flush()
        history.sample(store)
        clock.advance(5)
    [row] = time_of_stream(store, STREAM, history=history)["writers"]
    assert row["past"] == [(begun + 5000 * second, second) for second in range(880, 1000)]
    assert "past" not in time_of_stream(store, STREAM)["writers"][0], "a page asks for it once"


def test_the_history_of_writers_is_bounded(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the memory of the server, and taken again and again: neither may grow with what users create."""
    monkeypatch.setattr(_mark_history, "_STREAMS_MAX", 2)
    monkeypatch.setattr(_mark_history, "_MARKS_MAX", 12)
    history = MarkHistory()
    for stream, writers in (("plant/a", 9), ("plant/b", 2), ("plant/c", 1)):
        store.create_stream(stream)
        for number in range(writers):
            note(store, stream, f"w{number}", number)

    def kept() -> dict[str, list[str]]:
        history.sample(store)
        rows = {name: time_of_stream(store, name, history=history)["writers"] for name in store.stream_changes.names()}
        return {name: [row["writer"] for row in found if row["past"]] for name, found in rows.items()}

    slowest = [f"w{number}" for number in range(8)]
    assert kept() == {"plant/a": slowest, "plant/b": ["w0", "w1"], "plant/c": [], STREAM: []}
    note(store, "plant/b", "w2", 7)
    note(store, "plant/b", "w3", 7)
    assert kept() == {"plant/a": slowest, "plant/b": [], "plant/c": [], STREAM: []}, "12 marks, and no more"
    store.seal_stream("plant/a")
    store.delete_stream("plant/a")
    assert kept() == {"plant/b": ["w0", "w1", "w2", "w3"], "plant/c": ["w0"], STREAM: []}


def test_a_stream_without_time_has_none(store: Engine) -> None:
    """Most streams note no time."""
    found = time_of_stream(store, STREAM, history=MarkHistory())
    assert (found["last"], found["writers"], found["past"]) == (None, [], [])


def test_readers_are_shown_with_what_each_has_not_read(store: Engine) -> None:
    """A group may be behind because of one reader, which is the one to look at."""
    write(store, 200)
    group = store.create_reader_group("dashboard", [STREAM])
    with group.reader("r1") as first, group.reader("r2") as second:
        for _ in range(3):
            first.read_next_event(timeout=0)
            second.read_next_event(timeout=0)
        while second.read_next_event(timeout=0) is not None:
            pass
        [found] = readers_of(store, ACCESS, ANONYMOUS, STREAM)["groups"]
        lags = {reader["name"]: reader["behind_bytes"] for reader in found["readers"]}
        assert sorted(segment for reader in found["readers"] for segment in reader["segments"]) == [0, 1]
        assert lags["r2"] == 0 < lags["r1"] <= found["lag"]["bytes"]
    assert readers_of(store, ACCESS, ANONYMOUS, STREAM)["groups"][0]["readers"] == []


def test_consumers_transactions_and_large_events_are_shown(store: Engine, clock: ManualClock) -> None:
    """They keep events from being deleted, or take space that no stream shows."""
    write(store, 10)
    store.register_consumer(STREAM, "archiver")
    clock.advance(5)
    writer = store.transactional_writer(STREAM, "etl")
    open_one, prepared = writer.begin(lease=30), writer.begin(lease=60)
    prepared.write_event(b"event")
    prepared.prepare()
    clock.advance(10)
    with store.writer(STREAM) as events, events.begin_write_event("cam") as output:
        output.write(bytes(4 << 20))
        found = readers_of(store, ACCESS, ANONYMOUS, STREAM)
        assert [size >> 20 for size in found["large_events"]] == [3], "whole chunks are on their way"
    [consumer] = found["consumers"]
    assert (consumer["name"], found["now_ms"] - consumer["moved_ms"]) == ("archiver", 15_000)
    assert consumer["behind_bytes"] > 50
    rows = [(row["id"], row["status"], row["writer"], row["lease_left_s"]) for row in found["transactions"]]
    assert rows == [(open_one.id, "open", "etl", 20.0), (prepared.id, "prepared", "etl", 50.0)]
    open_one.commit()
    prepared.abort()
    after = readers_of(store, ACCESS, ANONYMOUS, STREAM)
    assert (after["transactions"], after["large_events"]) == ([], [])


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (None, "unlimited"),
        (ByTime(604_800), "7 d"),
        (ByTime(5400), "90 min"),
        (ByTime(1.5), "1.5 s"),
        (BySize(5 << 30), "5 GiB"),
        (BySize(100), "100 B"),
        (ByConsumption(), "until consumed"),
    ],
)
def test_retention_in_words(retention: Retention | None, words: str) -> None:
    """A table has no space for a sentence."""
    assert in_words(StreamConfig(retention=retention)) == words


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    """The histogram knows no more; the page says "at most"."""
    bounds = (0.001, 0.01, 0.1)
    assert quantile_s([98, 0, 1, 1], bounds, 0.5) == 0.001
    assert quantile_s([98, 0, 1, 1], bounds, 0.99) == 0.1
    assert quantile_s([0, 0, 0, 5], bounds, 0.5) is None
    assert quantile_s([0, 0, 0, 0], bounds, 0.5) is None
