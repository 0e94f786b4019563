"""A source of several streams, and where it begins and ends: without Spark, which only calls what is called here."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.errors import BadArgument, NoSuchStream
from penstock.spark._columns import schema_of
from penstock.spark._options import source_options
from penstock.spark._reader import PenstockReader
from penstock.spark._stream_reader import PenstockStreamReader
from tests.spark.source_harness import STREAM, write_events
from tests.spark.spark_harness import note_all

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store, StreamCut

ALARMS = "plant/alarms"
OFFICE = "office/alarms"


def options_of(folder: Path, **texts: object) -> Any:  # noqa: ANN401 - options and schema
    options = source_options({"store": str(folder)} | {name: str(text) for name, text in texts.items()})
    return options, schema_of(options)


def table(folder: Path, **texts: object) -> list[tuple[str, bytes]]:
    """Return streams and events of a table, in order of the events."""
    reader = PenstockReader(*options_of(folder, **texts))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(((f"{row['scope']}/{row['stream']}", row["event"]) for row in rows), key=lambda row: row[1])


class Query:
    """What Spark does with a source from batch to batch; ``offset`` is its checkpoint."""

    def __init__(self, folder: Path, offset: dict[str, Any] | None = None, **texts: object) -> None:
        self.reader = PenstockStreamReader(*options_of(folder, **texts))
        self.offset = self.reader.initialOffset() if offset is None else offset

    def batch(self) -> list[bytes]:
        """Run a batch if there is anything new, and return its events."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if end == self.offset:
            return []
        parts = self.reader.partitions(self.offset, end)
        rows = [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]
        self.reader.commit(end)
        self.offset = end
        return sorted(row["event"] for row in rows if row["event"] is not None)


@pytest.fixture
def streams(store: Store) -> Store:
    """A store with three streams."""
    store.create_stream(ALARMS, segments=2)
    store.create_stream(OFFICE)
    write_events(store, [b"a1", b"a2"])
    write_events(store, [b"b1", b"b2"], ALARMS)
    write_events(store, [b"c1"], OFFICE)
    return store


def test_several_streams_are_one_table(streams: Store, folder: Path) -> None:
    """Named, or found by a pattern that is that of the whole name; each row says where it is from."""
    del streams
    both = [(STREAM, b"a1"), (STREAM, b"a2"), (ALARMS, b"b1"), (ALARMS, b"b2")]
    assert table(folder, subscribe=f"{STREAM}, {ALARMS}") == both
    assert table(folder, subscribePattern="plant/.*") == both
    assert table(folder, subscribePattern=".*/alarms") == [*both[2:], (OFFICE, b"c1")]
    assert table(folder, subscribePattern="alarms") == []


def test_a_table_begins_and_ends_at_cuts_that_need_not_name_every_segment(streams: Store, folder: Path) -> None:
    """A segment that is left out counts whole: to move one of them, the others need not be looked up."""
    first = streams.tail(STREAM)
    write_events(streams, [b"a3", b"a4", b"a5", b"a6"])
    for segment, offset in first.places:
        rest = [(STREAM, event) for event in events_of(streams, STREAM, {segment})]
        later = [(STREAM, event) for event in events_of(streams, STREAM, {segment}, first)]
        others = [row for row in table(folder, stream=STREAM) if row not in rest]
        cut = f"{STREAM}:{segment}@{offset}"
        assert table(folder, stream=STREAM, start=cut) == sorted(others + later, key=lambda row: row[1])
        before = [row for row in rest if row not in later]
        assert table(folder, stream=STREAM, end=cut) == sorted(others + before, key=lambda row: row[1])
    everything = table(folder, subscribe=f"{STREAM},{ALARMS}", start=str(first))
    assert everything == [*table(folder, stream=STREAM, start=str(first)), (ALARMS, b"b1"), (ALARMS, b"b2")]
    both = f"{first};{streams.tail(ALARMS)}"
    assert (
        table(folder, subscribe=f"{STREAM},{ALARMS}", end=first, start=both) == [(ALARMS, b"b1"), (ALARMS, b"b2")][:0]
    )
    with pytest.raises(BadArgument, match=r"'start' has a cut of stream 'plant/alarms', which is not read"):
        table(folder, stream=STREAM, start=both)


def events_of(store: Store, stream: str, segments: set[int], start: StreamCut | None = None) -> list[bytes]:
    """Return the events of some segments."""
    rows = [row for batch in store.read(stream, start) for row in batch.to_pylist()]
    return sorted(row["event"] for row in rows if row["segment_id"] in segments)


def test_a_cut_in_segments_that_came_by_a_split_need_not_name_their_siblings(streams: Store, folder: Path) -> None:
    """The segment before them is over for all of its keys; its siblings begin at their beginning."""
    streams.create_stream("plant/split", segments=1)
    write_events(streams, [b"1", b"2"], "plant/split")
    streams.scale_stream("plant/split", [0], [(0.0, 0.5), (0.5, 1.0)])
    later = write_events(streams, [b"3", b"4", b"5", b"6", b"7"], "plant/split")
    assert [event for _, event in table(folder, stream="plant/split", start="plant/split:1@0")] == later
    skipped = events_of(streams, "plant/split", {1})
    end = streams.tail("plant/split").offsets[1]
    found = [event for _, event in table(folder, stream="plant/split", start=f"plant/split:1@{end}")]
    assert found == [event for event in later if event not in skipped]


def test_a_start_behind_the_end_is_an_error(streams: Store, folder: Path) -> None:
    """No rows look like no events."""
    first, last = streams.head(STREAM), streams.tail(STREAM)
    assert table(folder, stream=STREAM, start=last, end=last) == []
    with pytest.raises(BadArgument, match=r"the start .* is behind the end .*: give a start before the end"):
        table(folder, stream=STREAM, start=last, end=first)
    streams.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
    write_events(streams, [b"a%d" % number for number in range(3, 30)])
    with pytest.raises(BadArgument, match="is behind the end"):
        table(folder, stream=STREAM, start=streams.tail(STREAM), end=last)
    with pytest.raises(BadArgument, match="is behind the end"):
        table(folder, stream=STREAM, start="latest", end="earliest")


def test_a_table_begins_and_ends_by_time(store: Store, folder: Path) -> None:
    """When events were appended, and so one table ends just where the next begins."""
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"1", key="1").result()
        time.sleep(0.002)  # times are those of milliseconds
        middle = datetime.now(UTC)
        for number in (2, 3):
            writer.write_event(b"%d" % number, key=str(number)).result()
    text, number = middle.isoformat(timespec="milliseconds"), int(middle.timestamp() * 1000)
    for texts in ({"endingTimestamp": number}, {"end": text}):
        assert table(folder, stream=STREAM, **texts) == [(STREAM, b"1")]
    for texts in ({"startingTimestamp": number}, {"start": text}):
        assert table(folder, stream=STREAM, **texts) == [(STREAM, b"2"), (STREAM, b"3")]


def test_a_query_reads_several_streams_and_those_that_come(streams: Store, folder: Path) -> None:
    """Each event once, over restarts; a new stream from its head, also if the batch that finds it is run again."""
    query = Query(folder, subscribePattern="plant/.*", consumer="report")
    assert query.batch() == [b"a1", b"a2", b"b1", b"b2"]
    assert query.batch() == []
    streams.create_stream("plant/new", segments=2)
    write_events(streams, [b"n1", b"n2"], "plant/new")
    write_events(streams, [b"a3"])
    before = query.offset
    again = Query(folder, before, subscribePattern="plant/.*", consumer="report")
    assert again.batch() == [b"a3", b"n1", b"n2"]
    write_events(streams, [b"n3"], "plant/new")
    parts = again.reader.partitions(before, again.offset)
    rows = [row for part in parts for batch in again.reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["event"] for row in rows) == [b"a3", b"n1", b"n2"], "the same batch has the same rows"
    assert again.batch() == [b"n3"]
    for name in (STREAM, ALARMS, "plant/new"):
        assert streams.consumers(name) == {"report": streams.tail(name)}
    assert streams.consumers(OFFICE) == {}


def test_streams_share_the_limits_of_a_batch(streams: Store, folder: Path) -> None:
    """However many there are, a batch is not larger than asked for; and who has nothing leaves it to the others."""
    write_events(streams, [b"a%d" % number for number in range(3, 9)])
    query = Query(folder, subscribe=f"{STREAM},{ALARMS}", maxEventsPerTrigger=2)
    sizes = []
    while events := query.batch():
        sizes.append(len(events))
    assert (max(sizes), sum(sizes)) == (2, 10)
    assert len(sizes) <= 6, "the longer one is not held up by the other"


def test_the_time_of_several_streams_is_the_earliest(streams: Store, folder: Path) -> None:
    """What one stream's writers promise says nothing of the others."""
    a, b = streams.writer(STREAM, "a"), streams.writer(ALARMS, "b")
    query = Query(folder, subscribe=f"{STREAM},{ALARMS}", mark_rows="true")
    note_all(streams, STREAM, 7, a)
    query.batch()
    assert "time" not in query.offset, "no writer has promised anything for the other"
    note_all(streams, ALARMS, 5, b)
    query.batch()
    assert query.offset["time"] == 5000
    note_all(streams, ALARMS, 9, b)
    query.batch()
    assert query.offset["time"] == 7000


def test_progress_tells_how_far_behind_a_query_is(streams: Store, folder: Path) -> None:
    """In bytes of all its streams, as Spark shows it with the progress of each batch."""
    query = Query(folder, subscribe=f"{STREAM},{ALARMS}", max_events_per_trigger=1)
    lags = []
    for _ in range(4):
        query.batch()
        lags.append(query.reader.reportLatestOffset()["lag_bytes"])
    assert lags == sorted(lags, reverse=True)
    assert (lags[0] > 0, lags[-1]) == (True, 0)
    write_events(streams, [b"a3"])
    assert query.reader.reportLatestOffset()["lag_bytes"] > 0


def test_a_stream_that_a_pattern_found_may_only_go_if_data_may_be_lost(streams: Store, folder: Path) -> None:
    """Else it is an error as with any stream; and a checkpoint is not taken for that of other streams."""
    query = Query(folder, subscribePattern="plant/.*")
    query.batch()
    with pytest.raises(BadArgument, match=r"the checkpoint is of stream 'plant/alarms', not of 'office/\.\*'"):
        Query(folder, query.offset, subscribePattern="office/.*").batch()
    with pytest.raises(BadArgument, match=r"the checkpoint is of stream 'plant/alarms', not of 'plant/readings'"):
        Query(folder, query.offset, stream=STREAM).batch()
    streams.seal_stream(ALARMS)
    streams.delete_stream(ALARMS)
    write_events(streams, [b"a3"])
    with pytest.raises(NoSuchStream):
        query.batch()
    lenient = Query(folder, query.offset, subscribePattern="plant/.*", failOnDataLoss="false")
    assert lenient.batch() == [b"a3"]


def test_a_query_without_a_name_is_a_consumer_with_a_lease(
    streams: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may never come back, and must not hold events back for ever; while it waits for events, it is there."""
    leases: list[tuple[str, float | None]] = []
    named, unnamed = Query(folder, stream=STREAM, consumer="report"), Query(folder, stream=STREAM)
    monkeypatch.setattr("penstock.spark._stream_reader._RENEW_S", 0.0)
    for query in (named, unnamed):
        store = query.reader._store
        register = store.register_consumer

        def note(name: str, consumer: str, *args: Any, lease_s: float | None, register: Any = register) -> None:  # noqa: ANN401
            leases.append((consumer[:5], lease_s))
            register(name, consumer, *args, lease_s=lease_s)

        monkeypatch.setattr(store, "register_consumer", note)
        query.batch()
        leases.clear()
        query.reader.latestOffset(query.offset, ReadAllAvailable())
        assert leases == ([] if query is named else [("spark", 7 * 24 * 3600.0)])
    assert len(streams.consumers(STREAM)) == 2


def test_a_checkpoint_is_not_taken_for_one_of_another_event_time(streams: Store, folder: Path) -> None:
    """Its watermark is of that time: by it all events may be late, be dropped, and the query report success."""
    del streams
    one, other = "timestamp_millis(at)", "timestamp_seconds(at)"
    query = Query(folder, stream=STREAM, event_time=one)
    query.batch()
    assert Query(folder, query.offset, stream=STREAM, event_time=one).batch() == []
    with pytest.raises(BadArgument, match=r"event time is timestamp_millis\(at\), and not timestamp_seconds\(at\)"):
        Query(folder, query.offset, stream=STREAM, event_time=other).batch()
    assert Query(folder, query.offset, stream=STREAM, event_time=other, fail_on_data_loss="false").batch() == []
