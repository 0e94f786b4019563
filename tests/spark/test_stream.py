"""A stream without end: ``spark.readStream.format("penstock")``."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock import ByConsumption, StreamConfig, StreamCut
from penstock.errors import DataTruncated
from penstock.spark._source import PenstockSource
from penstock.spark._stream_reader import PenstockStreamReader
from tests.spark.source_harness import STREAM, write_events
from tests.spark.spark_harness import load_stream, note_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock import Store

END_S = 120  # after which a query that should have ended is taken not to end


class Seen:
    """The rows of a query, by micro-batch."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __call__(self, df: DataFrame, _: int) -> None:
        self.batches.append(df.collect())

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    @property
    def events(self) -> list[bytes]:
        return [bytes(row.event) for row in self.rows if row.event is not None]

    @property
    def counts(self) -> list[int]:
        return [len(batch) for batch in self.batches if batch]


@contextmanager
def following(df: DataFrame, checkpoint: Path, seen: Seen, **trigger: Any) -> Iterator[StreamingQuery]:  # noqa: ANN401
    """Run a query as long as the block lasts."""
    writer = df.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()


def read_now(df: DataFrame, checkpoint: Path, seen: Seen | None = None) -> tuple[Seen, list[dict[str, Any]]]:
    """Run a query over what there is now; return what it saw, and its progress in the batches that had rows."""
    seen = Seen() if seen is None else seen
    with following(df, checkpoint, seen, availableNow=True) as query:
        assert query.awaitTermination(END_S), "it goes on although it has read what there was"
        return seen, [one for one in query.recentProgress if one["numInputRows"]]


def cut_of(progress: dict[str, Any], which: str) -> StreamCut:
    found = progress["sources"][0][which]
    return StreamCut.parse((json.loads(found) if isinstance(found, str) else found)["cut"])


def keys_by_segment(store: Store) -> list[str]:
    """Return a key of each of the two segments; the events that find them out are truncated away."""
    found: dict[int, str] = {}
    with store.writer(STREAM) as writer:
        for number in range(20):
            pointer = writer.write_event(b"", key=f"k{number}").result()
            assert pointer is not None
            found[pointer.segment_id] = f"k{number}"
    store.truncate_stream(STREAM, store.tail(STREAM))
    return [found[0], found[1]]


def test_micro_batches_have_as_many_events_as_one_allows(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Exactly, over many of them and a restart; each event once; and the progress says how far the stream goes."""
    written = write_events(store, (b"event %d" % number for number in range(70)))
    df = load_stream(spark, folder, STREAM, max_events_per_trigger=20, max_bytes_per_trigger="1m")
    seen, progress = read_now(df, tmp_path / "c")
    assert seen.counts == [one["numInputRows"] for one in progress] == [20, 20, 20, 10]
    assert Counter(seen.events) == Counter(written)
    assert {str(cut_of(one, "latestOffset")) for one in progress} == {str(store.tail(STREAM))}
    assert cut_of(progress[-1], "endOffset") == store.tail(STREAM)
    written += write_events(store, (b"later %d" % number for number in range(25)))
    read_now(df, tmp_path / "c", seen)
    assert seen.counts == [20, 20, 20, 10, 20, 5]
    written += write_events(store, (b"last %d" % number for number in range(25)))
    with following(df, tmp_path / "c", seen, once=True) as query:
        query.awaitTermination(END_S)
    assert seen.counts == [20, 20, 20, 10, 20, 5, 25], "all in one, because that was asked for"
    assert Counter(seen.events) == Counter(written)


def test_micro_batches_have_as_many_bytes_as_one_allows(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Or one event, if that alone is more: a query must come past it."""
    written = write_events(store, [b"%03d" % number + b"x" * 97 for number in range(60)])
    large = b"y" * 5000
    with store.writer(STREAM) as writer:
        writer.write_event(large, key="y").result()
    seen, progress = read_now(load_stream(spark, folder, STREAM, max_bytes_per_trigger="2k"), tmp_path / "c")
    assert Counter(seen.events) == Counter([*written, large])
    cuts = [store.head(STREAM), *(cut_of(one, "endOffset") for one in progress)]
    for (start, end), count in zip(pairwise(cuts), seen.counts, strict=True):
        assert sum(offset - start.offsets[segment] for segment, offset in end.places) <= 2048 or count == 1
    assert 5 <= len(seen.counts) <= 9


def test_a_run_over_what_there_is_ends_although_writers_go_on(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """In events and in promises; and the next run goes on exactly where it ended."""
    early, more = write_events(store, (b"early %d" % number for number in range(30))), list[bytes]()
    stop = threading.Event()

    def go_on() -> None:
        with store.writer(STREAM, "busy", automatically_note_time=True) as writer:
            while not stop.is_set():
                more.append(b"more %d" % len(more))
                writer.write_event(more[-1], key=str(len(more))).result()

    thread = threading.Thread(target=go_on)
    thread.start()
    df = load_stream(spark, folder, STREAM)
    try:
        seen, _ = read_now(df, tmp_path / "c")
    finally:
        stop.set()
        thread.join()
    assert set(early) <= set(seen.events) <= {*early, *more}
    with store.writer(STREAM, "idle", automatically_note_time=True):
        while store.watermark(STREAM) is None:
            store.maintain()
        read_now(df, tmp_path / "c", seen)
    assert Counter(seen.events) == Counter(early + more)


def test_a_query_follows_a_stream_that_is_scaled(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Every key's events come in the order they were written, in a batch as well as over batches and restarts."""
    df, seen, written = load_stream(spark, folder, STREAM), Seen(), dict[str, list[bytes]]()

    def write(name: str) -> None:
        with store.writer(STREAM) as writer:
            for number in range(30):
                event, key = b"%s %d" % (name.encode(), number), f"k{number % 6}"
                writer.write_event(event, key=key)
                written.setdefault(key, []).append(event)

    with following(df, tmp_path / "c", seen, processingTime="20 milliseconds") as query:
        write("first")
        query.processAllAvailable()
        assert len(seen.events) == 30
        store.scale_stream(STREAM, seal=[0], ranges=[(0.0, 0.25), (0.25, 0.5)])
        write("split")
        query.processAllAvailable()
        assert len(seen.events) == 60
        store.scale_stream(STREAM, seal=[2, 3], ranges=[(0.0, 0.5)])
        write("merged")
    store.scale_stream(STREAM, seal=[4, 1], ranges=[(0.0, 0.3), (0.3, 1.0)])
    write("shifted")
    read_now(df, tmp_path / "c", seen)
    assert {key: [event for event in seen.events if event in events] for key, events in written.items()} == written
    assert len(seen.events) == 120
    assert {row.segment_id for row in seen.rows} == {0, 1, 2, 3, 4, 5, 6}


def test_a_query_begins_where_one_says(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """At a cut, or with what is written from now on; a restart goes by the checkpoint, whatever the option says."""
    write_events(store, [b"a", b"b"])
    middle = store.tail(STREAM)
    write_events(store, [b"c", b"d"])
    seen, _ = read_now(load_stream(spark, folder, STREAM, start=middle), tmp_path / "cut")
    assert sorted(seen.events) == [b"c", b"d"]
    latest, _ = read_now(load_stream(spark, folder, STREAM, start="latest"), tmp_path / "latest")
    assert latest.events == []
    write_events(store, [b"e"])
    read_now(load_stream(spark, folder, STREAM, start="earliest"), tmp_path / "latest", latest)
    assert latest.events == [b"e"]


def test_a_query_may_pass_over_what_was_truncated(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Even a batch that was planned before; what is still there comes, and nothing that came before comes again."""
    left, right = keys_by_segment(store)
    df = load_stream(spark, folder, STREAM, fail_on_data_loss="false")

    def write(name: bytes) -> None:
        with store.writer(STREAM) as writer:
            for key in (left, right):
                writer.write_event(name + b" of " + key.encode(), key=key).result()

    class Refusing(Seen):
        def __call__(self, df: DataFrame, _: int) -> None:
            raise RuntimeError

    write(b"read")
    seen, _ = read_now(df, tmp_path / "c")
    write(b"planned")
    with pytest.raises(PySparkException):
        read_now(df, tmp_path / "c", Refusing())
    write(b"lost")
    end = store.tail(STREAM)
    write(b"new")
    # The stream begins behind the planned batch in one segment, and before it in the other: even before what was read.
    store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: end.offsets[0], 1: store.head(STREAM).offsets[1]}))
    read_now(df, tmp_path / "c", seen)
    names = {b"read": (left, right), b"planned": (right,), b"lost": (right,), b"new": (left, right)}
    assert Counter(seen.events) == Counter(
        name + b" of " + key.encode() for name, keys in names.items() for key in keys
    )


def test_retention_by_consumption_keeps_what_a_query_still_needs(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """And truncates what it has passed: the query is a consumer of the stream, from its first micro-batch on."""
    store.update_stream(STREAM, StreamConfig(retention=ByConsumption()))
    df, first = load_stream(spark, folder, STREAM, consumer="report", max_events_per_trigger=10), store.head(STREAM)
    written, heads = list[bytes](), list[StreamCut]()
    for old in (0, 2, 4):  # retention goes by plogs, which are large, and by segments
        written += write_events(store, (b"event %d of %d" % (number, old) for number in range(12)))
        store.scale_stream(STREAM, seal=[old, old + 1], ranges=[(0.0, 0.5), (0.5, 1.0)])

    class Maintaining(Seen):
        def __call__(self, df: DataFrame, number: int) -> None:
            store.maintain()
            heads.append(store.head(STREAM))
            super().__call__(df, number)

    seen, progress = read_now(df, tmp_path / "c", Maintaining())
    assert Counter(seen.events) == Counter(written)
    starts = [first, *(cut_of(one, "endOffset") for one in progress)]
    for head, start in zip(heads, starts, strict=False):
        assert all(segment <= min(start.offsets) + 1 for segment, _ in head.places)
    assert [min(head.offsets) for head in heads] == sorted(min(head.offsets) for head in heads)
    assert min(heads[-1].offsets) >= 2, "what was passed is truncated while the query runs"
    written += write_events(store, (b"later %d" % number for number in range(5)))
    store.maintain()
    read_now(df, tmp_path / "c", seen)
    assert Counter(seen.events) == Counter(written), "nothing was cut that it had not read yet"


def test_aligned_micro_batches_end_at_watermarks(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """So that each is complete up to a time; what is behind the last watermark waits for the next."""
    df, seen = load_stream(spark, folder, STREAM, align="watermark"), Seen()
    ends = []
    with store.writer(STREAM, "w") as writer:
        for second in (1, 2, 3):
            for number in range(10):
                writer.write_event(b"%d before %d" % (number, second), key=str(number))
            note_all(store, STREAM, second, writer)
            writer.write_batch([b"%d behind %d" % (number, second) for number in range(5)])
            writer.flush()
            _, progress = read_now(df, tmp_path / "c", seen)
            ends += [cut_of(one, "endOffset") for one in progress]
            assert b"0 before %d" % second in seen.events
            assert b"0 behind %d" % second not in seen.events
        assert ends == [mark.cut for mark in store.watermarks(STREAM)]
        assert {row.mark_time.timestamp() for row in seen.rows} == {1.0, 2.0, 3.0}
    read_now(df, tmp_path / "c", seen)
    assert len(seen.events) == 45, "no writer is left to promise anything"


def test_a_row_tells_the_time_alone_exactly_when_it_goes_on_without_events(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """One row a step of time; none beside events, none if nothing is new, none for who does not ask for them."""
    df, seen, blind = load_stream(spark, folder, STREAM, mark_rows="true"), Seen(), Seen()
    plain = load_stream(spark, folder, STREAM)
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"event", key="k").result()
        note_all(store, STREAM, 1, writer)
        read_now(df, tmp_path / "c", seen)
        note_all(store, STREAM, 2, writer)
        read_now(df, tmp_path / "c", seen)
        read_now(df, tmp_path / "c", seen)
        read_now(plain, tmp_path / "plain", blind)
        note_all(store, STREAM, 3, writer)
        read_now(plain, tmp_path / "plain", blind)
    assert [(row.event, row.pointer is None, row.mark_time.timestamp()) for row in seen.rows] == [
        (b"event", False, 1.0),
        (None, True, 2.0),
    ]
    assert blind.events == [row.event for row in blind.rows] == [b"event"]


def test_the_time_of_rows_is_what_all_segments_have_passed(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """One segment may be read ahead of a watermark that others have still before them: they may have older events."""
    left, right = keys_by_segment(store)
    with store.writer(STREAM, "w") as writer:
        writer.write_batch([b"left"], keys=[left])
        writer.write_batch([b"right %d" % number for number in range(5)], keys=[right] * 5)
        note_all(store, STREAM, 1, writer)
        writer.write_batch([b"left, behind"], keys=[left])
        writer.flush()
        seen, _ = read_now(load_stream(spark, folder, STREAM, max_events_per_trigger=4), tmp_path / "c")
    times = {bytes(row.event): row.mark_time for row in seen.rows if row.event is not None}
    assert len(times) == 7
    first = {bytes(row.event) for row in seen.batches[0]}
    assert {b"left, behind", b"right 0"} <= first
    assert {times[event] for event in first} == {None}
    assert times[b"right 4"].timestamp() == 1.0


def test_a_query_without_a_name_is_one_consumer(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Spark asks twice where a new query begins; what it was told first must not hold events back for ever."""
    with store.writer(STREAM) as writer:
        writer.write_batch([b"a", b"b"])
    df = load_stream(spark, folder, STREAM, max_events_per_trigger=1)
    read_now(df, tmp_path / "c")
    assert len(store.consumers(STREAM)) == 1
    assert store.consumers(STREAM).popitem()[1] != store.head(STREAM)


def reader_of(folder: Path, **options: str) -> PenstockStreamReader:
    """Return what Spark asks, in a process of its own, where a batch begins and ends."""
    source = PenstockSource({"store": str(folder), "stream": STREAM} | options)
    reader = source.streamReader(StructType([StructField("event", BinaryType())]))
    assert isinstance(reader, PenstockStreamReader)
    return reader


def test_the_first_batch_is_the_same_when_it_is_run_again(store: Store, folder: Path) -> None:
    """Spark asks anew where the query begins: by then the latest event is another one."""
    reader = reader_of(folder, start="latest")
    begin = reader.initialOffset()
    write_events(store, [b"first"])
    end = reader.latestOffset(begin, ReadAllAvailable())
    write_events(store, [b"second", b"third"])
    again = reader_of(folder, start="latest")
    parts = again.partitions(again.initialOffset(), end)
    assert parts == reader.partitions(begin, end)
    assert [event for part in parts for batch in again.read(part) for event in batch["event"].to_pylist()] == [b"first"]
    assert "begin" not in again.latestOffset(end, ReadAllAvailable()), "only the first batch needs it"
    for one in (reader, again):
        one.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_gone_of_the_first_batch_is_told_when_it_is_run_again(store: Store, folder: Path, fails: bool) -> None:
    """The stream begins later by then, and so would the query, without a word."""
    write_events(store, [b"lost"])
    reader = reader_of(folder, fail_on_data_loss=str(fails).lower())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    store.truncate_stream(STREAM, store.tail(STREAM))
    begin = reader.initialOffset()
    if fails:
        with pytest.raises(DataTruncated):
            reader.partitions(begin, end)
    else:
        assert reader.partitions(begin, end) == []
    reader.stop()


def test_a_lenient_query_that_reads_what_there_is_may_find_nothing_of_it(store: Store, folder: Path) -> None:
    """It was told where to end, and that is gone by then, with all before it."""
    write_events(store, [b"lost", b"too"])
    reader = reader_of(folder, fail_on_data_loss="false", max_events_per_trigger="1")
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    write_events(store, [b"later"])
    store.truncate_stream(STREAM, store.tail(STREAM))
    again = reader.latestOffset(end, ReadMaxRows(1))
    assert reader.partitions(end, again) == []
    assert StreamCut.parse(again["cut"]) == store.tail(STREAM)
    reader.stop()
