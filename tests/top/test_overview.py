"""The figures behind ``penstock top``: what a row says, what rows are sorted by, what users see, and what it costs."""

from __future__ import annotations

import gc
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.console import _overview, overviews_of
from penstock.embedded import open_store
from penstock.errors import BadArgument, NoSuchStream, ServerError
from penstock.model import StreamConfig
from penstock.stream.format import StreamCreated
from penstock.testing import ManualClock
from penstock.top import Query, source_of
from penstock.top._figures import Overview, as_figures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine, LocalReaderGroup

STREAM: Final = "plant/readings"
MANY: Final = 10_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Engine]:
    with open_store("memory:", clock=clock) as store:
        for name in ("plant/alarms", STREAM, "shop/orders"):
            store.create_stream(name)
        yield store


def write(store: Engine, stream: str, count: int) -> None:
    with store.writer(stream) as writer:
        writer.write_batch([b"event"] * count).result()


def names(store: Engine, **wanted: Any) -> list[str]:  # noqa: ANN401 - fields of a query
    return [row.name for row in source_of(store, "memory:").overview(Query(**wanted)).streams]


def test_a_row_says_what_is_behind_and_what_holds_it_back(store: Engine, clock: ManualClock) -> None:
    """The operator is to see at a glance which writer or group to look after."""
    source = source_of(store, "memory:")
    assert source.overview(Query()).rate is None, "there is nothing to compare with yet"
    now_ms = int(clock.now() * 1000)
    slow, quick = (store.writer(STREAM, writer_id=name) for name in ("slow", "quick"))
    for writer in (slow, quick):
        writer.write_event(b"reading", key="k").result()
        writer.note_time(now_ms)
        writer.flush()
    store.maintain()
    store.create_reader_group("dashboard", [STREAM])
    transactions = store.transactional_writer(STREAM, "etl")
    transactions.begin(lease=60.0)
    clock.advance(9)
    quick.note_time(now_ms + 9_000)
    quick.flush()
    store.maintain()
    overview = source.overview(Query())
    row = overview.streams[1]
    assert (row.name, row.state, row.segments, row.events) == (STREAM, "active", 1, 2)
    assert row.rate is not None
    assert row.rate.events == pytest.approx(2 / 9)
    assert row.time_behind_s == pytest.approx(9.0)
    assert row.held_back_by is not None
    assert row.held_back_by.writer == "slow"
    assert row.held_back_by.silent_s == pytest.approx(9.0)
    assert row.group == "dashboard"
    assert row.lag is not None
    assert row.lag.events == 2
    assert row.lag.seconds == pytest.approx(9.0)
    assert (row.transactions, overview.transactions) == (1, 1)
    other = overview.streams[0]
    assert (other.time_behind_s, other.held_back_by, other.group, other.lag, other.transactions) == (
        None,
        None,
        None,
        None,
        0,
    )


def test_what_an_operator_looks_for_comes_first(store: Engine, clock: ManualClock) -> None:
    """With thousands of streams, only the first ones are on the screen."""
    source = source_of(store, "memory:")
    source.overview(Query())
    write(store, "shop/orders", 5)
    write(store, STREAM, 50)
    for stream, group in (("plant/alarms", "late"), ("shop/orders", "later")):
        write(store, stream, 1)
        store.create_reader_group(group, [stream])
    store.transactional_writer("shop/orders", "etl").begin(lease=60.0)
    for stream, behind_ms in ((STREAM, 1_000), ("shop/orders", 5_000)):
        writer = store.writer(stream, writer_id="w")
        writer.write_event(b"timed").result()
        writer.note_time(int(clock.now() * 1000) - behind_ms)
        writer.flush()
    store.maintain()
    clock.advance(2)
    store.maintain()
    assert names(store, order="events") == [STREAM, "shop/orders", "plant/alarms"]
    assert names(store, order="bytes") == [STREAM, "shop/orders", "plant/alarms"]
    assert names(store, order="time") == ["shop/orders", STREAM, "plant/alarms"]
    assert names(store, order="lag")[-1] == STREAM, "no group reads it"
    assert names(store, order="transactions") == ["shop/orders", "plant/alarms", STREAM]
    assert names(store, contains="PLANT/") == ["plant/alarms", STREAM]
    assert names(store, first=1, limit=1) == [STREAM]
    assert names(store, first=99) == ["shop/orders"], "streams were deleted meanwhile"


def test_ten_thousand_streams_cost_what_is_shown_of_them(store: Engine) -> None:
    """It is asked for every second, by everybody who has it open."""
    with store.catalog.lock:
        first = store.catalog.next_uid
        for start in range(0, MANY, 1000):
            made = [(f"many/stream-{number:05d}", first + number) for number in range(start, start + 1000)]
            store.catalog.commit(*(StreamCreated(name, uid, 1, StreamConfig()) for name, uid in made))
    begun = time.thread_time()
    overview = source_of(store, "memory:").overview(Query(order="events", limit=40))
    took_s = time.thread_time() - begun
    assert (overview.total, overview.found, len(overview.streams)) == (MANY + 3, MANY + 3, 40)
    assert len(store.segments.at_work()) < 100, "streams that are not shown were not opened"
    assert took_s < 0.5


def test_lags_are_computed_a_few_at_a_time(store: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with thousands of groups, or a slow bucket, must not do nothing else; all of them have their turn."""
    write(store, STREAM, 1)
    groups = {f"group-{number}" for number in range(5)}
    for group in groups:
        store.create_reader_group(group, [STREAM])
    computed: list[str] = []
    find = store.reader_group

    def slow(name: str) -> LocalReaderGroup:
        computed.append(name)
        clock.advance(0.06)
        return find(name)

    monkeypatch.setattr(store, "reader_group", slow)
    overviews = overviews_of(store)
    for count in (2, 4, 6):
        source_of(store, "memory:").overview(Query())
        source_of(store, "memory:").overview(Query())  # within the same second: nothing is computed
        assert len(computed) == count
        clock.advance(_overview._EVERY_S)
    assert set(computed[:5]) == groups, "the oldest figures are renewed first"
    store.reader_group("group-0").delete()
    clock.advance(_overview._EVERY_S)
    source_of(store, "memory:").overview(Query())
    assert "group-0" not in overviews._lags._known


def test_a_store_is_forgotten_when_nobody_has_it(clock: ManualClock) -> None:
    """A process that opens one store after another must not keep all of them."""
    store = open_store("memory:", clock=clock)
    overviews_of(store)
    gone = weakref.ref(store)
    store.close()
    del store
    gc.collect()
    assert gone() is None


def test_bad_questions_are_refused_in_words(store: Engine) -> None:
    """They come over the wire, from any client."""
    source = source_of(store, "memory:")
    with pytest.raises(BadArgument, match="invalid order 'size': use name, events, bytes, time, lag, transactions"):
        source.overview(Query(order="size"))  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="invalid filter of 300 characters: use at most 256"):
        source.overview(Query(contains="x" * 300))
    with pytest.raises(NoSuchStream):
        source.stream("plant/none")
    with pytest.raises(BadArgument, match=r"use one that penstock\.connect returned"):
        source_of(object(), "memory:")  # type: ignore[arg-type]
    with pytest.raises(ServerError, match="is it another version"):
        as_figures({"now_ms": "noon"}, Overview)
