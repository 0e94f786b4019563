"""The writers' own watermark in Spark: nothing is late that they did not promise to be over."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import penstock
from penstock import StreamConfig
from penstock.errors import BadArgument
from penstock.spark import with_writer_watermark
from penstock.spark._options import milliseconds_of
from tests.spark.conftest import MAINTENANCE_INTERVAL_S, STREAM
from tests.spark.source_harness import refused
from tests.spark.spark_harness import event_time, load_stream, note_all, running, write_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock import Store

OTHER = "plant/alarms"


def timed(spark: SparkSession, folder: Path, stream: str = STREAM, name: str = "time", **options: object) -> DataFrame:
    """Return a stream with its writers' watermark."""
    return with_writer_watermark(load_stream(spark, folder, stream, **options), name, event_time())


def counts(df: DataFrame) -> DataFrame:
    """Return how many events there are in every ten seconds."""
    return df.groupBy(F.window("time", "10 seconds")).count()


def closed(spark: SparkSession, table: str) -> dict[int, int]:
    """Return the windows that were closed: where they begin, and how many events they have."""
    rows = spark.table(table).select(F.col("window.start").cast("long").alias("start"), "count").collect()
    assert len({row["start"] for row in rows}) == len(rows), "a window is closed once"
    return {row["start"]: row["count"] for row in rows}


def promised(query: StreamingQuery) -> str:
    """Return the query's watermark, once it has seen all there is."""
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None
    return str(progress.eventTime["watermark"])


def test_windows_lose_nothing_where_spark_alone_loses_events(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """One writer is half a minute behind the other: Spark takes its events for late, its promise says otherwise."""
    a, b = store.writer(STREAM, "a"), store.writer(STREAM, "b")
    note_all(store, STREAM, 0.001, a, b)
    guess = load_stream(spark, folder, STREAM).select(event_time().alias("time"))
    with (
        running(counts(timed(spark, folder)), "exact", tmp_path / "exact") as exact,
        running(counts(guess.withWatermark("time", "0 seconds")), "guessed", tmp_path / "guessed") as guessed,
    ):
        for ahead, behind in [((1, 2, 31, 32), ()), ((33,), (3, 4, 5)), ((), (12, 13)), ((41, 42), (14, 36))]:
            write_at(a, *ahead, name="a")
            write_at(b, *behind, name="b")
            exact.processAllAvailable()
            guessed.processAllAvailable()
        assert closed(spark, "exact") == {}, "no writer has promised anything yet"
        note_all(store, STREAM, 50, a, b)
        write_at(a, 90)  # so that Spark's guess closes them, too
        assert promised(exact) == "1970-01-01T00:00:50.000Z"
        guessed.processAllAvailable()
        written = {0: 5, 10: 3, 30: 4, 40: 2}
        assert closed(spark, "exact") == written
        lost = {start: count - closed(spark, "guessed").get(start, 0) for start, count in written.items()}
        assert lost == {0: 3, 10: 3, 30: 0, 40: 0}, "what it did not wait for"
        assert dropped(guessed) > 0
        assert dropped(exact) == 0


def dropped(query: StreamingQuery) -> int:
    """Return how many rows came too late, as Spark counts them: after it has added up those of one task."""
    states = [state for progress in query.recentProgress for state in progress.stateOperators]
    return sum(state.numRowsDroppedByWatermark for state in states)


def test_a_window_closes_just_when_the_promise_passes(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Not a millisecond before; and no event has to come for it to close."""
    a, b = store.writer(STREAM, "a"), store.writer(STREAM, "b")
    note_all(store, STREAM, 0.001, a, b)
    with running(counts(timed(spark, folder)), "just", tmp_path / "checkpoint") as query:
        write_at(a, 1, 2, 19)
        a.note_time(60_000)
        note_all(store, STREAM, 9.999, b)
        assert promised(query) == "1970-01-01T00:00:09.999Z"
        assert closed(spark, "just") == {}
        note_all(store, STREAM, 10, b)
        assert promised(query) == "1970-01-01T00:00:10.000Z"
        assert closed(spark, "just") == {0: 2}
        note_all(store, STREAM, 25, b)
        query.processAllAvailable()
        assert closed(spark, "just") == {0: 2, 10: 1}
        told = [row for one in query.recentProgress for row in one.observedMetrics.values()]
        assert sum(row["events"] for row in told) == 3, "the query's progress has our figures"


def test_an_idle_writer_holds_time_up_no_longer_than_the_timeout(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """After that the others' promise is good enough."""
    with penstock.connect(folder, maintenance_interval_s=MAINTENANCE_INTERVAL_S) as store:
        store.create_stream(STREAM, segments=2, config=StreamConfig(timestamp_aggregation_timeout=0.2))
        a, idle = store.writer(STREAM, "a"), store.writer(STREAM, "idle")
        note_all(store, STREAM, 0.001, a, idle)
        with running(counts(timed(spark, folder)), "idle", tmp_path / "checkpoint") as query:
            write_at(a, 1, 2, 15)
            note_all(store, STREAM, 12, a)  # which waits until the idle one is forgotten
            query.processAllAvailable()
            assert closed(spark, "idle") == {0: 2}


def test_joins_give_up_just_when_the_promise_passes(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """A row without a partner comes out once none can come any more, on either side."""
    store.create_stream(OTHER, segments=2)
    left, right = store.writer(STREAM, "left"), store.writer(OTHER, "right")
    note_all(store, STREAM, 0.001, left)
    note_all(store, OTHER, 0.001, right)
    identity = F.get_json_object(F.col("event").cast("string"), "$.id")
    one = timed(spark, folder).select("time", identity.alias("id"))
    other = timed(spark, folder, OTHER, "other_time").select("other_time", identity.alias("other_id"))
    near = F.expr("id = other_id AND other_time BETWEEN time AND time + INTERVAL 10 SECONDS")
    with running(one.join(other, near, "leftOuter"), "joined", tmp_path / "checkpoint") as query:
        write_at(left, 1, 2, 30)
        write_at(right, 1)  # in time
        query.processAllAvailable()
        note_all(store, STREAM, 40, left)  # far ahead of the other side
        write_at(right, 2)  # behind by half a minute, and not late
        query.processAllAvailable()
        assert pairs(spark) == {("e1", "e1"), ("e2", "e2")}
        note_all(store, OTHER, 39, right)
        query.processAllAvailable()
        assert pairs(spark) == {("e1", "e1"), ("e2", "e2")}, "a partner for the third may still come"
        note_all(store, OTHER, 41, right)
        note_all(store, STREAM, 41, left)
        query.processAllAvailable()
        assert pairs(spark) == {("e1", "e1"), ("e2", "e2"), ("e30", None)}


def pairs(spark: SparkSession) -> set[tuple[str, str | None]]:
    return {(row["id"], row["other_id"]) for row in spark.table("joined").collect()}


def test_duplicates_are_dropped_and_nothing_else_is(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """However far apart the writers are; and what is over is forgotten."""
    a, b = store.writer(STREAM, "a"), store.writer(STREAM, "b")
    note_all(store, STREAM, 0.001, a, b)
    identity = F.get_json_object(F.col("event").cast("string"), "$.id").alias("id")
    once = timed(spark, folder).select("time", identity).dropDuplicates(["id", "time"])
    with running(once, "once", tmp_path / "checkpoint") as query:
        write_at(a, 1, 2, 40)
        query.processAllAvailable()
        write_at(b, 1, 2, 3)  # two of them again, much later, one new
        query.processAllAvailable()
        found = sorted(row["id"] for row in spark.table("once").collect())
        assert found == ["e1", "e2", "e3", "e40"]
        note_all(store, STREAM, 30, a, b)
        query.processAllAvailable()
        [state] = query.lastProgress.stateOperators  # type: ignore[union-attr]
        assert state.numRowsTotal == 1, "only what may come again is remembered"


def test_time_goes_on_from_the_checkpoint(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """A query that is started again neither forgets a promise nor counts an event twice."""
    a = store.writer(STREAM, "a")
    note_all(store, STREAM, 0.001, a)
    table = tmp_path / "table"

    def run() -> None:
        writer = counts(timed(spark, folder)).select("window.start", "count").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("append")
        query = writer.trigger(availableNow=True).start(str(table))
        query.awaitTermination()

    write_at(a, 1, 2, 11)
    note_all(store, STREAM, 10, a)
    run()
    write_at(a, 12, 13)
    note_all(store, STREAM, 20, a)
    run()
    rows = spark.read.parquet(str(table)).orderBy("start").collect()
    assert [(row["start"].second, row["count"]) for row in rows] == [(0, 2), (10, 3)]


def test_it_wants_the_source_as_it_was_loaded(spark: SparkSession, store: Store, folder: Path) -> None:
    """After a filter or a choice of columns the marks may be gone, without a word."""
    del store
    df = load_stream(spark, folder, STREAM)
    with pytest.raises(BadArgument, match="mark_time"):
        with_writer_watermark(df.drop("mark_time"), "time", event_time())
    for changed in (
        df.where("offset > 5"),
        df.select("*", F.lit(1).alias("one")),
        spark.readStream.format("rate").load(),
    ):
        with pytest.raises(BadArgument, match="as it was loaded"):
            with_writer_watermark(changed, "time", event_time())
    with pytest.raises(BadArgument, match="already"):
        with_writer_watermark(df, "offset", event_time())


def test_a_delay_keeps_state_for_longer_than_the_promise(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """So what comes twice within a horizon is found, though the writers have long promised that it is over."""
    a = store.writer(STREAM, "a")
    note_all(store, STREAM, 0.001, a)
    identity = F.get_json_object(F.col("event").cast("string"), "$.id").alias("id")
    delayed = with_writer_watermark(load_stream(spark, folder, STREAM), "time", event_time(), delay="20 seconds")
    once = delayed.select("time", identity).dropDuplicatesWithinWatermark(["id"])
    with running(once, "horizon", tmp_path / "checkpoint") as query:
        write_at(a, 1, 30)
        note_all(store, STREAM, 15, a)
        assert promised(query) == "1970-01-01T00:00:00.000Z"
        write_at(a, 1, name="e")  # again: late by the promise, and not by the watermark
        note_all(store, STREAM, 35, a)
        assert promised(query) == "1970-01-01T00:00:15.000Z"
        write_at(a, 30, 31)
        query.processAllAvailable()
        assert sorted(row["id"] for row in spark.table("horizon").collect()) == ["e1", "e30", "e31"]


def test_a_checkpoint_knows_the_expression_of_its_watermark(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """With another one all rows may be late by it: they would be read, dropped, and the query report success."""
    a = store.writer(STREAM, "a")
    write_at(a, 1, 2)
    note_all(store, STREAM, 5, a)
    json_at = F.get_json_object(F.col("event").cast("string"), "$.at").cast("long")
    for column, is_fine in ((event_time(), True), (F.timestamp_seconds(json_at), False), (event_time(), True)):
        df = with_writer_watermark(load_stream(spark, folder, STREAM), "time", column).select("time")
        sink = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        with nullcontext() if is_fine else refused(BadArgument, "whose event time is timestamp_millis", "seconds"):
            sink.trigger(availableNow=True).start().awaitTermination()
        write_at(a, 6)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10 seconds", 10_000),
        ("1 hour 30 minutes", 5_400_000),
        ("INTERVAL 2 DAYS", 172_800_000),
        (timedelta(0, 1), 1000),
    ],
)
def test_delays_are_written_as_everywhere_in_spark(text: str | timedelta, milliseconds: int) -> None:
    """Or as Python has them."""
    assert milliseconds_of("delay", text) == milliseconds
    for wrong in ("soon", "10", "", "10 fortnights", "-1 second", timedelta(seconds=-1)):
        with pytest.raises(BadArgument, match="invalid delay"):
            milliseconds_of("delay", wrong)
