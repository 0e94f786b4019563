"""Jobs: archive, aggregate, windows; each stopped and started again."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException

from penstock.errors import BadArgument, JobRunning, NoSuchStream, PenstockError
from penstock.model import ByTime, EventPointer, StreamConfig
from penstock.spark import Progress, aggregate, archive, windows
from penstock.spark._job import Job
from penstock.spark._jobs import _each
from penstock.spark._options import Address
from penstock.spark._tables import clear_attempts, delta_writer, parquet_writer
from tests.spark.conftest import STREAM
from tests.spark.spark_harness import note_all, write_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Store

OUT = "plant/out"
TIME = "timestamp_millis(cast(get_json_object(cast(event AS string), '$.at') AS bigint))"


def write(store: Store, *events: bytes, stream: str = STREAM) -> None:
    with store.writer(stream) as writer:
        writer.write_batch(list(events), keys=[event[:10].decode() for event in events])


@pytest.mark.parametrize("delta", [False, True])
def test_an_archive_has_every_event_once(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path, *, delta: bool
) -> None:
    """Over several runs, one of which Spark believes was not finished; every reader of the table finds the same."""
    table = tmp_path / "table"
    seen: list[Progress] = []

    def run() -> Progress:
        options = {"max_events_per_trigger": "40"}
        return archive(
            spark, folder, STREAM, table, date="date'2026-11-15'", delta=delta, discard=True, watch=seen.append,
            options=options,
        )  # fmt: skip

    first = [b"%03d" % number for number in range(100)]
    write(store, *first)
    note_all(store, STREAM, 5, store.writer(STREAM, "w"))
    done = run()
    assert (done.batches, done.rows, done.lag_bytes) == (3, 100, 0)
    notes = sorted((table / "_checkpoint" / "commits").glob("[0-9]"))
    notes[-1].unlink()
    (notes[-1].parent / f".{notes[-1].name}.crc").unlink()
    second = [b"%03d" % number for number in range(100, 130)]
    write(store, *second)
    run()
    assert run().rows == 0
    assert archived(table, delta=delta) == Counter([*first, *second])
    assert all(one.rows <= 100 for one in seen), "each run counts its own"


def archived(table: Path, *, delta: bool) -> Counter[bytes]:
    """Return the events of a table, as somebody without Spark reads them."""
    if delta:
        from deltalake import DeltaTable  # noqa: PLC0415 - only here

        found = DeltaTable(str(table)).to_pyarrow_table()
    else:
        found = ds.dataset(table, partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    assert {str(date) for date in found.column("date").to_pylist()} == {"2026-11-15"}
    assert pc.max(found.column("mark_time")).as_py().timestamp() == 5
    return Counter(found.column("event").to_pylist())


def test_what_the_archive_has_is_let_go(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """Once all other consumers have it, too; a stream that is kept in another way is left alone."""
    events = [b"%06d" % number + bytes(5000) for number in range(5000)]
    write(store, *events)
    archive(spark, folder, STREAM, tmp_path / "table", discard=True)
    store.maintain()
    assert all(offset > 0 for offset in store.head(STREAM).offsets.values())
    store.create_stream(OUT, config=StreamConfig(retention=ByTime(60)))
    with pytest.raises(BadArgument, match="ByTime"):
        archive(spark, folder, OUT, tmp_path / "other", discard=True)


def test_streams_and_runs_that_share_a_table_do_not_meet(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Another stream, or a checkpoint that was removed, is another job: nothing of it replaces what is there."""
    store.create_stream(OUT)
    write(store, b"one", b"two")
    write(store, b"three", stream=OUT)
    table = tmp_path / "table"
    archive(spark, folder, STREAM, table)
    archive(spark, folder, OUT, table, checkpoint=tmp_path / "other")
    assert in_parquet(table) == Counter([b"one", b"two", b"three"])
    shutil.rmtree(table / "_checkpoint")
    archive(spark, folder, STREAM, table)
    assert in_parquet(table) == Counter({b"one": 2, b"two": 2, b"three": 1}), "it begins anew, and takes nothing away"
    assert len(store.consumers(STREAM)) == 2


def in_parquet(table: Path, column: str = "event") -> Counter[bytes]:
    found = ds.dataset(table, partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    return Counter(found.column(column).to_pylist())


def test_nothing_is_let_go_before_the_archive_is_known(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """Another consumer may have passed everything: what the archive has not read stays, from the first moment on."""
    write(store, *(b"%06d" % number + bytes(5000) for number in range(5000)))
    store.register_consumer(STREAM, "fast", store.tail(STREAM))
    done = archive(spark, folder, STREAM, tmp_path / "table", discard=True)
    assert done.rows == 5000


def test_large_events_become_files_of_the_archive(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """The table names them; nothing of them goes through a row."""
    large = bytes(range(256)) * (3 << 12)
    with store.writer(STREAM) as writer:
        writer.write_event(b"small")
        with writer.begin_write_event("camera") as out:
            out.write(large)
    table = tmp_path / "table"
    archive(spark, folder, STREAM, table, options={"max_event_size": "1m"})
    rows = ds.dataset(table, partitioning="hive", ignore_prefixes=["_", "."]).to_table().to_pylist()
    by_size = {row["size"]: row for row in rows}
    assert by_size[5]["event"] == b"small"
    assert by_size[5]["file"] is None
    assert by_size[len(large)]["event"] is None
    assert (table / by_size[len(large)]["file"]).read_bytes() == large


def test_streams_become_one_with_ids_of_its_own(spark: SparkSession, store: Store, folder: Path) -> None:
    """Each event once, over several runs; those of one stream in their order."""
    store.create_stream("plant/other", segments=1)
    store.create_stream(OUT, segments=2)
    here, there = [b"h%d" % number for number in range(50)], [b"t%d" % number for number in range(50)]
    for part in (slice(0, 30), slice(30, 50)):
        write(store, *here[part])
        with store.writer("plant/other") as writer:
            writer.write_batch(there[part])
        done = aggregate(spark, folder, [STREAM, "plant/other"], OUT)
        assert done.rows == 2 * len(here[part])
    found = [event for batch in store.read(OUT) for event in batch.column("event").to_pylist()]
    assert Counter(found) == Counter(here + there)
    assert [event for event in found if event[:1] == b"t"] == there


def test_merged_events_keep_their_keys_and_headers(spark: SparkSession, store: Store, folder: Path) -> None:
    """Small and large, also a header that is repeated; an event without a key gets the name of its stream."""
    store.create_stream(OUT, segments=2)
    pairs = [("d", b"1"), ("e", b"\xff"), ("d", b"2")]
    with store.writer(STREAM) as writer:
        writer.write_event(b"keyed", b"\xff key", headers=pairs)
        writer.write_event(b"plain")
        writer.write_event(bytes(3 << 20), "camera", headers=pairs)
    assert aggregate(spark, folder, [STREAM], OUT).rows == 3
    rows = [row for batch in store.read(OUT, max_event_size=10) for row in batch.to_pylist()]
    assert {row["event"]: (row["key"], row["headers"]) for row in rows} == {
        b"keyed": (b"\xff key", pairs),
        b"plain": (STREAM.encode(), None),
        None: (b"camera", pairs),
    }


def test_large_events_are_merged_like_all_others(spark: SparkSession, store: Store, folder: Path) -> None:
    """In their place among the small ones, byte for byte; nothing of them goes through a row."""
    store.create_stream(OUT, segments=2)
    large = bytes(range(256)) * (3 << 12)
    with store.writer(STREAM) as writer:
        writer.write_event(b"before", "camera")
        for _ in range(2):
            with writer.begin_write_event("camera") as out:
                out.write(large)
        writer.write_event(b"behind", "camera")
    assert aggregate(spark, folder, [STREAM], OUT).rows == 4
    rows = pa.Table.from_batches(store.read(OUT, max_event_size=1 << 20))
    assert rows["event"].to_pylist() == [b"before", None, None, b"behind"]
    for row in rows.to_pylist()[1:3]:
        assert store.fetch_event_as_stream(EventPointer(OUT, row["segment_id"], row["offset"])).read() == large


def test_windows_are_written_when_the_writers_say_they_are_over(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """To a table, and into a stream that tells its readers the time."""
    store.create_stream(OUT)
    writer = store.writer(STREAM, "w")
    note_all(store, STREAM, 0.001, writer)
    table = tmp_path / "table"

    def run() -> None:
        length, group = "10 seconds", ["substr(get_json_object(cast(event AS string), '$.id'), 1, 1) AS kind"]
        windows(spark, folder, STREAM, time=TIME, length=length, group_by=group, table=table)
        windows(spark, folder, STREAM, time=TIME, length=length, group_by=group, into=OUT)

    write_at(writer, 1, 2, 11)
    write_at(writer, 3, name="x")
    note_all(store, STREAM, 10, writer)
    run()
    write_at(writer, 12)
    note_all(store, STREAM, 27, writer)
    run()
    rows = ds.dataset(table, partitioning="hive", ignore_prefixes=["_", "."]).to_table().to_pylist()
    found = sorted((row["start"].second, row["kind"], row["events"]) for row in rows)
    assert found == [(0, "e", 2), (0, "x", 1), (10, "e", 2)]
    events = [json.loads(event) for batch in store.read(OUT) for event in batch.column("event").to_pylist()]
    assert sorted((one["start"][17:19], one["kind"], one["events"]) for one in events) == [
        ("00", "e", 2), ("00", "x", 1), ("10", "e", 2),
    ]  # fmt: skip
    while (mark := store.watermark(OUT)) is None or mark.lower < 27_000:
        store.maintain()
    assert mark.lower == 27_000, "beyond the end of the last window"


def test_windows_may_promise_their_starts(spark: SparkSession, store: Store, folder: Path) -> None:
    """A query that takes them for the time of the output would find every window late by a promise about their ends."""
    store.create_stream(OUT)
    writer = store.writer(STREAM, "w")
    write_at(writer, 1, 11, 21)
    note_all(store, STREAM, 27, writer)
    windows(spark, folder, STREAM, time=TIME, length="10 seconds", into=OUT, promise="start")
    while (mark := store.watermark(OUT)) is None or mark.lower < 17_000:
        store.maintain()
    assert mark.lower == 17_000, "the window that is open begins at 20"
    assert sum(map(len, store.read(OUT))) == 2


def test_jobs_refuse_what_makes_no_sense(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """With our own errors, and before anything is begun."""
    del store
    with pytest.raises(NoSuchStream, match="plant/none"):
        archive(spark, folder, "plant/none", tmp_path / "table")
    with pytest.raises(BadArgument, match="another"):
        aggregate(spark, folder, [STREAM], STREAM)
    with pytest.raises(NoSuchStream):
        aggregate(spark, folder, [STREAM], "plant/none")
    with pytest.raises(BadArgument, match="one of them"):
        windows(spark, folder, STREAM, time="mark_time", length="1 second")
    with pytest.raises(BadArgument, match="max_evnt"):
        archive(spark, folder, STREAM, tmp_path / "table", options={"max_evnt": "3"})
    with pytest.raises(BadArgument, match="'consumer'"):
        archive(spark, folder, STREAM, tmp_path / "table", options={"consumer": "me"})
    with pytest.raises(BadArgument, match="folders"):
        archive(spark, folder, STREAM, "s3a://bucket/table")
    with pytest.raises(BadArgument, match="'end' or 'start'"):
        windows(spark, folder, STREAM, time="mark_time", length="1 second", into=OUT, promise="middle")  # type: ignore[arg-type]
    json_date = {"format": "json", "json_schema": "Date string"}
    with pytest.raises(BadArgument, match="'date'"):
        archive(spark, folder, STREAM, tmp_path / "table", options=json_date)
    for column in ("date", "batch", "start", "end"):
        with pytest.raises(BadArgument, match=f"'{column}'"):
            windows(
                spark, folder, STREAM, time="mark_time", length="1 second", group_by=[f"stream AS {column}"],
                table=tmp_path / "table",
            )  # fmt: skip
    with pytest.raises(BadArgument, match="cannot be a bigint"):
        windows(spark, folder, STREAM, time="offset", length="1 second", table=tmp_path / "table")
    with pytest.raises(NoSuchStream):
        windows(spark, folder, STREAM, time="mark_time", length="1 second", into="plant/none", follow=True)
    assert not spark.streams.active
    assert not (tmp_path / "table").exists()


def test_a_job_that_is_refused_leaves_nothing(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """No consumer that would hold events back, and the stream is kept as it was."""
    (tmp_path / "file").touch()
    with pytest.raises(BadArgument, match=r"cannot create a checkpoint in .*file"):
        archive(spark, folder, STREAM, tmp_path / "file", discard=True)
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    with pytest.raises(BadArgument, match="a Delta table"):
        archive(spark, folder, STREAM, tmp_path / "delta", discard=True)
    (tmp_path / "parquet" / "_last").mkdir(parents=True)
    with pytest.raises(BadArgument, match="a Parquet table"):
        archive(spark, folder, STREAM, tmp_path / "parquet", delta=True, discard=True)
    assert store.stream(STREAM).config.retention is None
    assert not store.consumers(STREAM)


def test_a_checkpoint_is_of_one_job_that_runs_once_at_a_time(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path
) -> None:
    """A timer may start it again while it runs; two of them would do the same batch."""
    write(store, b"one")
    store.create_stream(OUT)
    table, place = tmp_path / "table", tmp_path / "table" / "_checkpoint"
    with (
        Job.at(str(place), "archive", Address(str(folder)), STREAM).held(),
        pytest.raises(JobRunning, match="is already running: wait until it ends"),
    ):
        archive(spark, folder, STREAM, table)
    assert archive(spark, folder, STREAM, table).rows == 1
    with pytest.raises(BadArgument, match="another job, archive with plant/readings"):
        archive(spark, folder, OUT, table)
    with pytest.raises(BadArgument, match="another job, archive with plant/readings"):
        windows(spark, folder, STREAM, time="mark_time", length="1 second", table=table)
    assert not store.consumers(OUT)
    aggregate(spark, folder, [STREAM], OUT, checkpoint=tmp_path / "merging")
    store.create_stream("plant/third")
    with pytest.raises(BadArgument, match="another job, aggregate with plant/readings, plant/out"):
        aggregate(spark, folder, [STREAM], "plant/third", checkpoint=tmp_path / "merging")
    with pytest.raises(BadArgument, match="its name cannot change"):
        archive(spark, folder, STREAM, table, consumer="nightly")
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    store.create_stream(STREAM)
    with pytest.raises(BadArgument, match="a stream that was deleted"):
        archive(spark, folder, STREAM, table)
    (place / "_penstock").write_text("{")
    with pytest.raises(BadArgument, match="is damaged"):
        archive(spark, folder, STREAM, table)


def test_an_interrupt_is_no_end_of_a_job_that_was_to_do_all(
    spark: SparkSession, store: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller must not take the half for the whole; where it follows a stream, it is the end."""
    write(store, b"one")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.spark._jobs._watch_to_the_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        archive(spark, folder, STREAM, tmp_path / "table")
    assert not spark.streams.active
    archive(spark, folder, STREAM, tmp_path / "table", follow=True)
    assert not spark.streams.active


def test_a_table_of_delta_keeps_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Its log would take any file, and the table could not be read any more."""
    table = str(tmp_path / "table")
    rows = spark.range(3).selectExpr("id", "date'2026-11-14' AS date")
    assert delta_writer(table, "job")(rows, 0) == 3
    for other in (rows.selectExpr("*", "1 AS more"), rows.selectExpr("string(id) AS id", "date")):
        with pytest.raises(BadArgument, match="has other columns"):
            delta_writer(table, "job")(other, 1)
    assert delta_writer(table, "other")(rows, 0) == 3
    assert delta_writer(table, "job")(rows, 0) is None


def test_a_batch_is_durable_before_it_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, their folders, and then the note that they are there: the stream may be let go behind it."""
    synced: list[Path] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    table = tmp_path / "table"
    assert parquet_writer(str(table), "job")(spark.range(9).selectExpr("id", "date'2026-11-14' AS date"), 0) == 9
    last = synced.index(table / "_last" / "job.part")
    folder = table / "date=2026-11-14" / "batch=job-0"
    assert {*folder.glob("*.parquet"), folder, folder.parent, table, tmp_path} <= {*synced[:last]}
    assert {table / "_last", table} <= {*synced[last:]}


def test_sparks_own_note_of_a_batch_is_durable_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or Spark might make another batch of its number after a power failure, and that would be taken for this one."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").touch()
    done: list[object] = []
    monkeypatch.setattr(os, "fsync", lambda file: done.append(Path(f"/proc/self/fd/{file}").readlink()))
    _each(lambda _, batch: done.append(batch), str(tmp_path))(None, 3)  # type: ignore[arg-type]
    assert done == [tmp_path / "offsets" / "3", tmp_path / "offsets", 3]


def test_rows_that_are_not_in_the_folder_are_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where executors have written to a folder of their own machine: nothing of the batch is shown."""
    rows = spark.range(9).selectExpr("id", "date'2026-11-14' AS date")
    monkeypatch.setattr("penstock.spark._tables.pq.read_metadata", lambda _: SimpleNamespace(num_rows=1))
    with pytest.raises(PenstockError, match=r"of 9 rows are in .*: driver and executors must share that folder"):
        parquet_writer(str(tmp_path), "job")(rows, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["_new"]


def test_a_batch_that_is_there_stays_and_one_that_is_not_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """What comes again may be less, if the stream was truncated meanwhile; what was left of an attempt is none."""
    table = tmp_path / "ta ble"
    add = parquet_writer(str(table), "job")
    rows = spark.range(100).selectExpr("id", "IF(id < 50, date'2026-11-14', NULL) AS date")
    assert add(rows, 0) == 100
    assert add(rows.limit(3), 0) is None
    assert in_parquet(table, "id") == Counter(range(100))
    left = [table / "date=2026-11-14" / "batch=job-1", table / "_new" / "job-1-0" / "date=2026-11-14"]
    for folder in left:
        shutil.copytree(table / "date=2026-11-14" / "batch=job-0", folder)
    (table / "_large").mkdir()
    for name in ("job-1-5.x.part", "other-1-5.x.part"):
        (table / "_large" / name).touch()
    clear_attempts(str(table), "job")
    assert [path.name for path in (table / "_large").iterdir()] == ["other-1-5.x.part"]
    assert add(rows.where("id >= 50"), 1) == 50
    assert in_parquet(table, "id") == Counter(range(100)) + Counter(range(50, 100))
    assert not any((table / "_new").iterdir())
    with pytest.raises(PySparkException):
        add(rows.selectExpr("assert_true(false)", "date"), 2)
    assert in_parquet(table, "id") == Counter(range(100)) + Counter(range(50, 100))
