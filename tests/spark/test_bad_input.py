"""What can be wrong with a source, and what its user is told: one sentence, not a wall of Java."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from penstock.errors import (
    BadArgument,
    DataTruncated,
    EventMalformed,
    FolderUnusable,
    NoSuchStream,
    PenstockError,
    StoreUnreachable,
    WrongCut,
)
from penstock.spark._errors import told_by
from tests.spark.source_harness import STREAM, load_table, refused, write_events
from tests.spark.spark_harness import load_stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock import Store


def run(df: DataFrame, checkpoint: Path) -> None:
    """Run a query over what there is now."""
    query = start(df, checkpoint, available_now=True)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def start(df: DataFrame, checkpoint: Path, *, available_now: bool = False) -> StreamingQuery:
    writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def test_a_stream_that_is_not_there(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """Told when the table is loaded, or with a schema of one's own when it is read; none is made."""
    with refused(NoSuchStream, "plant/none"):
        load_table(spark, folder, "plant/none")
    with refused(NoSuchStream, "plant/none"):
        load_table(spark, folder, "plant/none", schema="event binary").collect()
    with refused(NoSuchStream, "plant/none"):
        load_stream(spark, folder, "plant/none")
    with refused(NoSuchStream, "plant/none"):
        df = spark.readStream.format("penstock").schema("event binary").option("store", str(folder))
        run(df.option("stream", "plant/none").load(), tmp_path / "c")
    assert [one.name for one in store.streams()] == [STREAM]


def test_a_store_that_cannot_be_reached(spark: SparkSession, tmp_path: Path) -> None:
    """A server that is not there, and a folder that is none; a folder that is misspelled is not made into a store."""
    with socket.socket() as nobody:  # bound, but it does not listen
        nobody.bind(("127.0.0.1", 0))
        with refused(StoreUnreachable, f":{nobody.getsockname()[1]}"):
            reader = spark.read.format("penstock").option("stream", STREAM)
            reader.option("store", f"penstock://127.0.0.1:{nobody.getsockname()[1]}").load()
    with refused(StoreUnreachable, "misspelled", "no such folder"):
        load_table(spark, tmp_path / "misspelled")
    assert not (tmp_path / "misspelled").exists()
    (tmp_path / "file").write_text("")
    with refused(StoreUnreachable, "no such folder"):
        load_table(spark, tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "plogs").write_text("somebody else's")
    with refused(FolderUnusable, "other"):
        load_table(spark, tmp_path / "other")


@pytest.mark.usefixtures("store")
def test_options_that_cannot_be(spark: SparkSession, folder: Path) -> None:
    """Told when the table is loaded, each with its name."""
    with refused(BadArgument, "'strat' is not an option", "'start'"):
        load_table(spark, folder, strat="earliest")
    with refused(BadArgument, "invalid value 'few' of the option 'min_partitions'"):
        load_table(spark, folder, min_partitions="few")
    with refused(BadArgument, "'store' is missing"):
        spark.read.format("penstock").option("stream", STREAM).load()
    with refused(BadArgument, "needs to know the columns"):
        load_table(spark, folder, format="json")


@pytest.mark.usefixtures("store")
def test_columns_that_cannot_be(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Told with those that there are; in a streaming query without an error of Spark's on top."""
    with refused(BadArgument, "no column 'evnet': there are event, key, timestamp, headers, scope"):
        load_table(spark, folder, schema="evnet binary").collect()
    with refused(BadArgument, "'event' is of type binary, not string"):
        df = spark.readStream.format("penstock").schema("event string").option("store", str(folder))
        run(df.option("stream", STREAM).load(), tmp_path / "c")
    with pytest.raises(PySparkException, match="nonsense"):
        load_table(spark, folder, format="json", json_schema="a nonsense")


def test_what_is_for_streams_only_is_not_for_tables_and_the_other_way_round(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """An option that does nothing is a promise that is not kept."""
    for name, value in [
        ("max_bytes_per_trigger", "1k"),
        ("max_events_per_trigger", "1"),
        ("watermark_interval", "0 seconds"),
        ("align", "watermark"),
        ("consumer", "me"),
    ]:
        with refused(BadArgument, f"'{name}' is for spark.readStream only"):
            load_table(spark, folder, **{name: value}).collect()
    with refused(BadArgument, "'end' is for spark.read only"):
        run(load_stream(spark, folder, STREAM, end=store.tail(STREAM)), tmp_path / "c")
    assert store.stream(STREAM).tail == store.head(STREAM)


def test_a_cut_of_another_stream(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """Or one that is none: offsets are not to be guessed."""
    write_events(store, [b"event"] * 3)
    with refused(BadArgument, "a cut of stream 'plant/other', which is not read"):
        load_table(spark, folder, start="plant/other:0@0,1@0").collect()
    with refused(WrongCut, "invalid cut", "segment"):
        run(load_stream(spark, folder, STREAM, start=f"{STREAM}:0@3,1@3"), tmp_path / "c")


def test_a_corrupt_event_is_told_with_its_place(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """As a pointer that fetches it, in a table and in a stream; once it is passed over, the query goes on."""
    write_events(store, [b'{"n": %d}' % number for number in range(20)])
    with store.writer(STREAM) as writer:
        pointer = writer.write_event(b'{"n": "x"}', key="k").result()
    with refused(EventMalformed, f"the event at {pointer} is not a valid JSON object", "on_corrupt=column"):
        load_table(spark, folder, format="json", json_schema="n int").collect()
    with refused(EventMalformed, f"the event at {pointer} is not a valid JSON object"):
        run(load_stream(spark, folder, STREAM, format="json", json_schema="n int"), tmp_path / "c")
    run(load_stream(spark, folder, STREAM, format="json", json_schema="n int", on_corrupt="column"), tmp_path / "c")
    assert sum(len(batch) for batch in store.read(STREAM)) == 21


def test_a_checkpoint_of_another_stream(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """Its offsets mean nothing here."""
    write_events(store, [b"event"])
    store.create_stream("plant/other", segments=2)
    run(load_stream(spark, folder, STREAM), tmp_path / "c")
    with refused(BadArgument, f"the checkpoint is of stream '{STREAM}', not of 'plant/other'"):
        run(load_stream(spark, folder, "plant/other"), tmp_path / "c")


def test_a_stream_that_is_deleted_and_made_again_under_a_query(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """The query ends with an error; its checkpoint is of no use to the new stream, although that has the same name."""
    written = write_events(store, [b"event %d" % number for number in range(10)])
    query = start(load_stream(spark, folder, STREAM), tmp_path / "c")
    try:
        query.processAllAvailable()
        store.seal_stream(STREAM)
        store.delete_stream(STREAM)
        with refused(NoSuchStream, STREAM):
            query.awaitTermination()
    finally:
        query.stop()
    store.create_stream(STREAM, segments=2)
    write_events(store, written)
    with refused(BadArgument, "the checkpoint is of another stream", "which was deleted"):
        run(load_stream(spark, folder, STREAM), tmp_path / "c")
    assert sum(len(batch) for batch in store.read(STREAM)) == len(written)


def test_what_was_truncated_under_a_query(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """By default the query fails before it loses a single event in silence, and fails again until somebody decides."""
    write_events(store, [b"event %d" % number for number in range(10)])
    run(load_stream(spark, folder, STREAM), tmp_path / "c")
    write_events(store, [b"lost %d" % number for number in range(10)])
    store.truncate_stream(STREAM, store.tail(STREAM))
    write_events(store, [b"new"])
    for _ in range(2):
        with refused(DataTruncated, "has been truncated away", str(store.head(STREAM))):
            run(load_stream(spark, folder, STREAM), tmp_path / "c")


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("penstock.errors.NoSuchStream: no stream 'a/b': create it", NoSuchStream, "no stream 'a/b': create it"),
        (
            "x\npenstock.errors.BadArgument: two\nlines\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== S",
            BadArgument,
            "two\nlines",
        ),
        ("x\npenstock.errors.OfTomorrow: what\n\tat org.apache.spark", PenstockError, "what"),
    ],
)
def test_errors_are_found_in_what_spark_says(text: str, kind: type[PenstockError], told: str) -> None:
    """A program that starts queries wants the class, not to search texts by itself."""
    found = told_by(PySparkException(text))
    assert type(found) is kind
    assert str(found) == told


def test_errors_of_others_are_not_ours() -> None:
    """Most of what goes wrong in Spark is not about streams."""
    assert told_by(PySparkException("java.lang.OutOfMemoryError: Java heap space")) is None
    assert told_by(ValueError("penstock.errors are in the middle: of a line")) is None
