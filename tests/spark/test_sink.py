"""The sink: rows become events, each of them once, whatever is run again or killed."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

import penstock
from penstock.errors import BadArgument, NoSuchStream, StoreLocked, StreamSealed
from penstock.spark import _sent, _sink, forward_watermark, to_stream, with_writer_watermark
from penstock.spark._errors import told_by
from penstock.spark._progress import _Passing
from penstock.spark._source import PenstockSource
from penstock.stream.engine._engine import Engine
from tests.spark.conftest import STREAM
from tests.spark.lost_store import BEFORE, Service
from tests.spark.spark_harness import event_time, load_stream, note_all, write_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Store

OUT = "plant/out"


def save(df: DataFrame, folder: Path, stream: str = STREAM, mode: str = "append", **options: str) -> None:
    """Write a table to a stream."""
    writer = df.write.format("penstock").mode(mode).option("store", str(folder)).option("stream", stream)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def events_of(store: Store, stream: str = STREAM) -> Counter[bytes]:
    """Return all events of a stream."""
    return Counter(event for batch in store.read(stream) for event in batch.column("event").to_pylist())


def test_a_table_becomes_events(spark: SparkSession, store: Store, folder: Path) -> None:
    """Few rows or many, of texts or bytes, from several tasks: every row once, all of them at once."""
    df = spark.range(100_000, numPartitions=3).selectExpr("concat('event ', id, repeat('.', 50)) AS event")
    save(df, folder)
    save(spark.createDataFrame([(bytearray(b"\xff\x00"),)], "data binary"), folder, event="data")
    save(df.limit(0), folder)
    expected = Counter(b"event %d" % number + b"." * 50 for number in range(100_000))
    assert events_of(store) == expected + Counter([b"\xff\x00"])
    assert isinstance(store, Engine)
    assert not store.catalog.stream(STREAM).last_batches, "numbers are for queries, which come back"


def test_tasks_do_not_own_the_folder_they_write_to(spark: SparkSession, folder: Path) -> None:
    """Spark ends their processes when they are idle, and with an owner end the transactions of all others."""
    with penstock.connect(folder) as store:
        store.create_stream(STREAM, segments=2)
    save(spark.range(100_000, numPartitions=3).selectExpr("concat('event ', id) AS event"), folder)
    with pytest.raises(StoreLocked) as locked:
        penstock.connect(folder, exclusive=True)
    number = int(locked.value.owner.split()[1])
    command = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    assert b"penstock.local._owner_process" in command
    assert os.getsid(number) == number, "it does not end with Spark's processes"
    os.kill(number, signal.SIGTERM)  # or it would be there for some seconds
    with penstock.connect(folder) as store:
        assert sum(map(len, store.read(STREAM))) == 100_000


def test_keys_go_where_a_writer_would_put_them(spark: SparkSession, store: Store, folder: Path) -> None:
    """So the order of a key's events holds between those of Spark and all others."""
    store.create_stream(OUT, segments=2)
    keys = [f"sensor-{number}" for number in range(500)]
    with store.writer(OUT) as writer:
        writer.write_batch([key.encode() for key in keys], keys=keys)
    rows = spark.createDataFrame([(key,) for key in keys], "key string").selectExpr("key", "key AS event")
    save(rows, folder, key="key")

    def places(stream: str) -> set[tuple[int, bytes]]:
        return {
            (segment, event)
            for batch in store.read(stream)
            for segment, event in zip(
                batch.column("segment_id").to_pylist(), batch.column("event").to_pylist(), strict=True
            )
        }

    assert places(STREAM) == places(OUT)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id", {}, "no column 'event'"),
        ("id AS event", {}, "type bigint"),
        ("'a' AS event", {"key": "name"}, "no column 'name'"),
        ("'a' AS event, id AS key", {"key": "key"}, "type bigint"),
        ("'a' AS event", {"keys": "event"}, "do you mean 'key'"),
        ("'a' AS event, now() AS time", {"time": "time"}, "for writeStream only"),
    ],
)
def test_what_is_no_event_is_refused_at_once(  # noqa: PLR0917
    spark: SparkSession, store: Store, folder: Path, columns: str, options: dict[str, str], words: str
) -> None:
    """With the columns there are, or the type that is wanted; nothing is written."""
    with pytest.raises(PySparkException) as failed:
        save(spark.range(3).selectExpr(*columns.split(", ")), folder, **options)
    told = told_by(failed.value)
    assert isinstance(told, BadArgument)
    assert words in str(told)
    assert not events_of(store)


def test_a_null_event_is_refused_and_nothing_is_written(spark: SparkSession, store: Store, folder: Path) -> None:
    """Neither by the task that finds one nor by the others."""
    rows = spark.range(200_000, numPartitions=4)
    bad = rows.selectExpr("IF(id = 150000, NULL, concat(id, repeat('.', 20))) AS event", "'k' AS key")
    with pytest.raises(PySparkException) as failed:
        save(bad, folder, key="key")
    told = told_by(failed.value)
    assert isinstance(told, BadArgument)
    assert "the column 'event' has 1 nulls" in str(told)
    assert not events_of(store)


def test_a_null_key_is_an_event_without_one(spark: SparkSession, store: Store, folder: Path) -> None:
    """A copy of a stream is to have the keys that the stream has, and no others."""
    save(spark.range(4).selectExpr("string(id) AS event", "IF(id % 2 = 0, NULL, 'k') AS key"), folder, key="key")
    keys = {row["event"]: row["key"] for batch in store.read(STREAM) for row in batch.to_pylist()}
    assert keys == {b"0": None, b"1": b"k", b"2": None, b"3": b"k"}


def test_streams_that_cannot_be_written_are_told(spark: SparkSession, store: Store, folder: Path) -> None:
    """One that is not there, one that is sealed, one that is to be overwritten."""
    rows = spark.range(3).selectExpr("'a' AS event")
    store.create_stream(OUT)
    store.seal_stream(OUT)
    for stream, mode, kind in (
        ("plant/none", "append", NoSuchStream),
        (OUT, "append", StreamSealed),
        (STREAM, "overwrite", BadArgument),
    ):
        with pytest.raises(PySparkException) as failed:
            save(rows, folder, stream, mode)
        assert isinstance(told_by(failed.value), kind)
    assert not events_of(store)


def copy_all(spark: SparkSession, folder: Path, checkpoint: Path, **options: object) -> None:
    """Copy a stream to another, as far as it is there."""
    df = load_stream(spark, folder, STREAM, **options).select("event")
    writer = df.writeStream.format("penstock").option("store", str(folder)).option("stream", OUT)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("size", [10, 300])
def test_a_batch_that_is_run_again_finds_itself_there(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path, size: int
) -> None:
    """As after a crash between the sink's commit and Spark's own note of it, for small and for large batches."""
    store.create_stream(OUT, segments=2)
    written = [b"%d:" % number + bytes(size) for number in range(2500)]
    with store.writer(STREAM) as writer:
        writer.write_batch(written, keys=[str(number) for number in range(2500)])
    copy_all(spark, folder, tmp_path / "checkpoint", max_events_per_trigger=1000)
    notes = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in notes.iterdir() if path.name.isdigit())
    assert last == 2
    for path in (notes / str(last), notes / f".{last}.crc"):
        path.unlink()
    copy_all(spark, folder, tmp_path / "checkpoint", max_events_per_trigger=1000)
    assert events_of(store, OUT) == Counter(written)


def test_few_rows_survive_that_the_owner_of_the_store_ends_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may be another query, which is done; the driver has the rows, and begins again."""
    owner = penstock.connect(folder)
    owner.create_stream(OUT)
    options = {"store": str(folder), "stream": OUT}
    writer = PenstockSource(options).writer(StructType([StructField("event", BinaryType())]), overwrite=False)
    message = writer.write(iter([pa.record_batch([pa.array([b"a", b"b"])], ["event"])]))
    prepare = _sink._Part.prepare

    def prepare_late(part: _sink._Part) -> str:
        owner.close()
        return prepare(part)

    monkeypatch.setattr(_sink._Part, "prepare", prepare_late)
    writer.commit([message])
    with penstock.connect(folder) as store:
        assert events_of(store, OUT) == Counter([b"a", b"b"])


def test_queries_with_checkpoints_of_their_own_do_not_meet(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Two of them write all events twice: batches are counted by query."""
    store.create_stream(OUT)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"a", b"b"])
    for name in ("one", "two"):
        copy_all(spark, folder, tmp_path / name)
    assert events_of(store, OUT) == Counter({b"a": 2, b"b": 2})


def test_the_output_gets_the_time_that_is_passed_through(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """A reader of the output knows how far its time has come."""
    store.create_stream(OUT)
    writer = store.writer(STREAM, "w")
    write_at(writer, 1, 2)
    note_all(store, STREAM, 5, writer)
    df = load_stream(spark, folder, STREAM).select("event", "mark_time")
    sink = df.writeStream.format("penstock").option("store", str(folder)).option("stream", OUT)
    sink = sink.option("time", "mark_time").option("checkpointLocation", str(tmp_path / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()
    while (mark := store.watermark(OUT)) is None:
        store.maintain()
    assert mark.lower == 5000
    assert mark.cut == store.tail(OUT)


def test_an_exact_query_passes_its_time_on(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """Also when no window is closed: who reads the output need not wait for one to know what is over."""
    store.create_stream(OUT)
    writer = store.writer(STREAM, "w")
    note_all(store, STREAM, 0.001, writer)
    timed = with_writer_watermark(load_stream(spark, folder, STREAM), "time", event_time())
    counts = timed.groupBy(F.window("time", "10 seconds")).count()
    sink = counts.select(F.to_json("window").alias("event")).writeStream.format("penstock")
    sink = sink.option("store", str(folder)).option("stream", OUT).option("checkpointLocation", str(tmp_path / "c"))
    query = sink.start()
    forward_watermark(query, folder, OUT)
    try:
        for event, promise, closed in ((5, 9.999, 0), (11, 10, 1), (12, 18, 1), (25, 20, 2)):
            write_at(writer, event)
            note_all(store, STREAM, promise, writer)
            while (mark := store.watermark(OUT)) is None or mark.lower < promise * 1000:
                query.processAllAvailable()
                store.maintain()
            assert mark.lower == promise * 1000
            assert sum(map(len, store.read(OUT, end=mark.cut))) == closed, "the promise comes behind what it is about"
    finally:
        query.stop()
    forward_watermark(query, folder, OUT)  # of a query that has ended: there is nothing to do
    with pytest.raises(NoSuchStream):
        forward_watermark(query, folder, "plant/none")


def test_a_time_that_is_none_is_refused(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """With the types that it may have, before anything is written."""
    store.create_stream(OUT)
    df = load_stream(spark, folder, STREAM).select("event", "pointer")
    sink = df.writeStream.format("penstock").option("store", str(folder)).option("stream", OUT)
    sink = sink.option("time", "pointer").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException) as failed:
        sink.start().awaitTermination()
    assert "type string, and the time of each row is timestamp or bigint" in str(told_by(failed.value))


def test_complete_results_are_written_anew_with_every_batch(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """As keyed events, of which the last counts; a time that is noted would not be true of what comes again."""
    store.create_stream(OUT, segments=2)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"a", b"a", b"b"])
    counted = load_stream(spark, folder, STREAM).groupBy(F.col("event").cast("string").alias("name")).count()
    df = counted.selectExpr("name", "concat(name, count) AS event", "count AS time")
    sink = df.writeStream.format("penstock").option("store", str(folder)).option("stream", OUT).option("key", "name")
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("complete")
    query = sink.start()
    query.processAllAvailable()
    with store.writer(STREAM) as writer:
        writer.write_batch([b"b"])
    query.processAllAvailable()
    query.stop()
    assert events_of(store, OUT) == Counter({b"a2": 2, b"b1": 1, b"b2": 1})
    with pytest.raises(PySparkException) as failed:
        sink.option("time", "time").option("checkpointLocation", str(tmp_path / "other")).start().awaitTermination()
    assert "does not go with outputMode('complete')" in str(told_by(failed.value))


def test_updated_results_are_written_once_under_the_id_of_the_query(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Spark gives no Python sink that mode, so foreachBatch writes each batch; one that is run again is known."""
    store.create_stream(OUT, segments=2)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"a", b"a", b"b"])
    write = to_stream(folder, OUT, key="name")
    batches = []

    def write_twice(df: DataFrame, batch: int) -> None:
        batches.append(batch)
        write(df, batch)
        write(df, batch)

    counted = load_stream(spark, folder, STREAM).groupBy(F.col("event").cast("string").alias("name")).count()
    sink = counted.selectExpr("name", "concat(name, count) AS event").writeStream.foreachBatch(write_twice)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("update").start()
    query.processAllAvailable()
    with store.writer(STREAM) as writer:
        writer.write_batch([b"b"])
    query.processAllAvailable()
    query.stop()
    assert events_of(store, OUT) == Counter([b"a2", b"b1", b"b2"])
    assert len(batches) == 2


ROWS = StructType([StructField("event", BinaryType()), StructField("stream", StringType())])
SCOPED = StructType([*ROWS.fields, StructField("scope", StringType())])


def rows_for(stream: str | None, *events: bytes, size: int = 0) -> pa.RecordBatch:
    """Return rows as Spark gives them to a task."""
    events = tuple(event + bytes(size) for event in events)
    return pa.record_batch([pa.array(events), pa.array([stream] * len(events), pa.string())], ["event", "stream"])


@pytest.mark.parametrize("size", [0, 50_000])
def test_rows_go_to_the_stream_that_they_name(store: Store, folder: Path, size: int) -> None:
    """Few that travel with a message, or many in transactions; a name alone is in the scope beside it."""
    store.create_stream(OUT)
    writer = PenstockSource({"store": str(folder)}).writer(ROWS, overwrite=False)
    batches = [
        rows_for(STREAM, b"a", b"b", size=size),
        rows_for(OUT, b"c", size=size),
        rows_for(STREAM, b"d", size=size),
    ]
    message = writer.write(iter(batches))
    writer.commit([message, None, writer.write(iter([rows_for(OUT, b"e")]))])
    assert {event[:1] for event in events_of(store)} == {b"a", b"b", b"d"}
    assert {event[:1] for event in events_of(store, OUT)} == {b"c", b"e"}
    with pytest.raises(BadArgument, match="'stream' has 1 nulls among 1 rows"):
        writer.write(iter([rows_for(None, b"x")]))
    with pytest.raises(NoSuchStream):
        writer.commit([writer.write(iter([rows_for("plant/none", b"x")]))])
    scoped = PenstockSource({"store": str(folder)}).writer(SCOPED, overwrite=False)
    row = rows_for("out", b"f").append_column("scope", pa.array(["plant"]))
    scoped.commit([scoped.write(iter([row]))])
    assert b"f" in events_of(store, OUT)
    with pytest.raises(BadArgument, match=r"the option 'stream' is missing: .* or give the rows a column 'stream'"):
        PenstockSource({"store": str(folder)}).writer(StructType(ROWS.fields[:1]), overwrite=False)


@pytest.mark.parametrize("size", [0, 50_000])
def test_headers_are_written_if_there_is_a_column_of_them(store: Store, folder: Path, size: int) -> None:
    """As the source gives them, so that a copy is one; also of an event that is too large for a row."""
    with store.writer(STREAM) as writer:
        large = writer.write_event(b"large", key="k").result()
    store.create_stream(OUT)
    kind = MapType(StringType(), BinaryType())
    schema = StructType([*ROWS.fields, StructField("headers", kind), StructField("pointer", StringType())])
    columns = [
        pa.array([b"a" + bytes(size), b"b" + bytes(size), None], pa.binary()),
        pa.array([OUT] * 3),
        pa.array([[("d", b"7"), ("d", b"8")], None, [("d", b"1"), ("d", b"2")]], pa.map_(pa.string(), pa.binary())),
        pa.array([None, None, str(large)]),
    ]
    texts = {"store": str(folder), "stream": OUT, "pointer": "pointer"}
    sink = PenstockSource(texts).writer(schema, overwrite=False)
    sink.commit([sink.write(iter([pa.record_batch(columns, schema.fieldNames())]))])
    rows = [row for batch in store.read(OUT) for row in batch.to_pylist()]
    found = {row["event"][:5].rstrip(b"\0"): row["headers"] for row in rows}
    assert found == {b"a": [("d", b"7"), ("d", b"8")], b"b": None, b"large": [("d", b"1"), ("d", b"2")]}
    texts.pop("pointer")
    with pytest.raises(BadArgument, match="'headers' is of type string, and the headers of each row is map<string,bin"):
        PenstockSource(texts).writer(StructType([*ROWS.fields, StructField("headers", StringType())]), overwrite=False)


def test_a_version_of_an_application_is_written_once(store: Store, folder: Path) -> None:
    """A user who writes with foreachBatch can say which batch it is, and Spark may run it again."""
    texts = {"store": str(folder), "stream": STREAM, "txnAppId": "nightly"}
    for version, event in ((0, b"a"), (0, b"again"), (1, b"b"), (0, b"late")):
        writer = PenstockSource(texts | {"txnVersion": str(version)}).writer(ROWS, overwrite=False)
        writer.commit([writer.write(iter([rows_for(None, event)]))])
    assert events_of(store) == Counter([b"a", b"b"])
    with pytest.raises(BadArgument, match=r"'txn_app_id' is for df\.write"):
        PenstockSource(texts | {"txnVersion": "2"}).streamWriter(ROWS, overwrite=False)


def test_a_task_sends_its_rows_again_to_a_server_that_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that is not prepared ends with the server; and who commits may find it away."""
    service = Service(tmp_path / "data")
    options = {"store": service.address, "stream": STREAM}
    writer = PenstockSource(options).writer(ROWS, overwrite=False)
    monkeypatch.setattr(_sent, "_KEPT_MAX", 100_000)
    outages: list[threading.Timer] = []

    def go_away() -> None:
        service.stop()
        outages.append(threading.Timer(0.5, service.start))
        outages[-1].start()

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            if number == 2:
                go_away()
            yield rows_for(None, b"%d" % number, b"%d'" % number, size=60_000)

    large = writer.write(rows())
    outages[0].join()
    small = writer.write(iter([rows_for(None, b"5")]))
    go_away()
    writer.commit([large, small])
    outages[1].join()
    with penstock.connect(service.address) as store:
        found = Counter(event.rstrip(b"\0") for event in events_of(store).elements())
    service.stop()
    expected = [b"%d%s" % (number, more) for number in range(4) for more in (b"", b"'")]
    assert found == Counter([*BEFORE, *expected, b"5"])


def test_a_query_that_begins_while_its_server_restarts_waits_for_it(tmp_path: Path) -> None:
    """Spark asks for the first offset, and a table for its parts, in another process, a moment after the columns."""
    service = Service(tmp_path / "data")
    source = PenstockSource({"store": service.address, "stream": STREAM})
    schema = StructType([StructField("event", BinaryType())])
    reader, table = source.streamReader(schema), source.reader(schema)
    for ask in (reader.initialOffset, table.partitions):
        service.stop()
        back = threading.Timer(0.5, service.start)
        back.start()
        assert ask()
        back.join()
    service.stop()


def test_time_is_passed_on_until_the_query_ends_and_no_listener_waits_for_itself(store: Store) -> None:
    """A listener of Spark Connect is called by the thread that ends with the last one: removing it there would hang."""
    removed = threading.Event()
    callers: list[threading.Thread] = []

    class Streams:
        def addListener(self, listener: _Passing) -> None: ...  # noqa: N802 - Spark's name

        def removeListener(self, listener: _Passing) -> None:  # noqa: N802
            callers.append(threading.current_thread())
            removed.set()

    session: Any = SimpleNamespace(streams=Streams())
    query: Any = SimpleNamespace(id="q", runId="run", isActive=True, lastProgress=None)
    passing = _Passing(session, query, store, STREAM, 2000)
    passing.begin()
    progress = SimpleNamespace(runId="run", eventTime={"watermark": "1970-01-01T00:00:07.000Z"})
    passing.onQueryProgress(cast("Any", SimpleNamespace(progress=progress)))
    while (mark := store.watermark(STREAM)) is None:
        store.maintain()
    assert mark.lower == 5000, "less the delay"
    passing.onQueryTerminated(cast("Any", SimpleNamespace(runId="run")))
    assert removed.wait(30)
    assert callers != [threading.current_thread()]
