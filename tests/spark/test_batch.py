"""A stream as a table: ``spark.read.format("penstock")``."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock import EventPointer, SegmentRange, StreamCut
from penstock.errors import BadArgument, DataTruncated
from penstock.spark import open_event, register
from penstock.spark._options import source_options
from penstock.spark._reader import Part, PenstockReader
from tests.spark.source_harness import STREAM, load_table, write_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from penstock import Store

LARGE = bytes(range(256)) * 12_000  # 3 MiB: more than a row may have, unless one says so


def events_of(table: DataFrame) -> list[bytes]:
    return sorted(bytes(row.event) for row in table.collect())


def write_a_life(store: Store) -> Counter[bytes]:
    """Write to a stream that is split and merged, in every way there is; return its events but the large one."""
    written = write_events(store, [b"", *(b"early %d" % number for number in range(50))])
    store.scale_stream(STREAM, seal=[0], ranges=[(0.0, 0.25), (0.25, 0.5)])
    written += write_events(store, (b"split %d" % number for number in range(50)))
    with store.writer(STREAM) as writer, writer.begin_write_event("large") as out:
        out.write(LARGE)
    store.scale_stream(STREAM, seal=[2, 3], ranges=[(0.0, 0.5)])
    with store.transactional_writer(STREAM) as transactional:
        kept, dropped = transactional.begin(), transactional.begin()
        for number in range(10):
            kept.write_event(b"kept %d" % number, key=str(number))
            dropped.write_event(b"dropped", key=str(number))
        kept.commit()
        dropped.abort()
    written += (b"kept %d" % number for number in range(10))
    return Counter(written)


def test_a_table_has_every_event_once_with_a_pointer_that_fetches_it(
    spark: SparkSession, store: Store, folder: Path
) -> None:
    """Across splits and merges, of transactions that were committed, and of the large event all but its bytes."""
    written = write_a_life(store)
    rows: list[Row] = load_table(spark, folder).collect()
    assert Counter(bytes(row.event) for row in rows if row.event is not None) == written
    for row in rows:
        assert (row.scope, row.stream, row.mark_time) == ("plant", "readings", None)
        pointer = EventPointer.parse(row.pointer)
        assert pointer == EventPointer(STREAM, row.segment_id, row.offset)
        event = store.fetch_event(pointer)
        assert (event, len(event)) == (LARGE if row.event is None else row.event, row.size)
    assert {row.segment_id for row in rows} == {0, 1, 2, 3, 4}


def test_a_table_is_as_wide_and_as_large_as_one_asks(spark: SparkSession, store: Store, folder: Path) -> None:
    """Only the columns of the schema, and large events, too, for those who have the memory."""
    written = write_a_life(store)
    table = load_table(spark, folder, schema="size bigint, event binary", max_event_size="4m")
    rows = table.collect()
    assert table.columns == ["size", "event"]
    assert Counter(bytes(row.event) for row in rows) == written + Counter([LARGE])
    assert all(row.size == len(row.event) for row in rows)


def test_a_large_event_is_a_file_in_a_task(spark: SparkSession, store: Store, folder: Path) -> None:
    """Of any size, without ever being in one row; found by the store that was told to register, or to the call."""
    write_a_life(store)
    large = load_table(spark, folder).where("event IS NULL").select("pointer", "size")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pointer in batch.column("pointer").to_pylist():
                with open_event(pointer) as file:
                    file.seek(256 * 100 + 7)
                    found = file.read(3)
                    rest = sum(len(piece) for piece in iter(lambda: file.read(1 << 20), b""))
                yield pa.record_batch([[found], [rest]], ["found", "rest"])

    register(spark, folder)
    [row] = large.mapInArrow(read, "found binary, rest bigint").collect()
    assert (bytes(row.found), row.rest) == (b"\x07\x08\x09", len(LARGE) - (256 * 100 + 10))
    with open_event(large.collect()[0].pointer, folder) as file:
        assert file.readall() == LARGE


def test_a_table_begins_and_ends_where_one_says(spark: SparkSession, store: Store, folder: Path) -> None:
    """At either end, or at cuts; the end is that of the moment the query runs."""
    first = sorted(write_events(store, [b"a", b"b", b"c"]))
    middle = store.tail(STREAM)
    second = sorted(write_events(store, [b"d", b"e", b"f"]))
    end = store.tail(STREAM)
    third = sorted(write_events(store, [b"g", b"h"]))
    assert events_of(load_table(spark, folder, start="earliest", end="latest")) == first + second + third
    assert events_of(load_table(spark, folder, start=middle, end=end)) == second
    assert events_of(load_table(spark, folder, end=middle)) == first
    latest = load_table(spark, folder, start="latest")
    assert events_of(latest) == []
    store.truncate_stream(STREAM, middle)
    assert events_of(load_table(spark, folder)) == second + third


def test_an_empty_stream_is_an_empty_table(spark: SparkSession, store: Store, folder: Path) -> None:
    """With its columns, so that a query over it is one."""
    table = load_table(spark, folder)
    assert (table.count(), table.columns[0], table.columns[-1]) == (0, "event", "mark_time")
    assert store.tail(STREAM) == store.head(STREAM)


def test_a_table_is_read_in_as_many_parts_as_one_asks(spark: SparkSession, store: Store, folder: Path) -> None:
    """By default in few, because a part costs more than a small read; never in the middle of an event."""
    written: list[bytes] = []
    for number in range(40):  # blocks are not cut
        written += write_events(store, [b"%d-%d" % (number, index) for index in range(5)])
    assert load_table(spark, folder).rdd.getNumPartitions() == 1
    table = load_table(spark, folder, min_partitions=12)
    assert 12 <= table.rdd.getNumPartitions() <= 24
    assert events_of(table) == sorted(written)


def test_segments_that_a_filter_leaves_out_are_not_read(spark: SparkSession, store: Store, folder: Path) -> None:
    """A query that knows where events are need not read the others; the result is that of SQL."""
    write_events(store, (b"%d" % number for number in range(30)))
    rows = load_table(spark, folder).collect()
    of_one = sorted((row.segment_id, row.offset) for row in rows if row.segment_id == 1)
    middle = of_one[len(of_one) // 2][1]
    for sql, wanted in [
        ("segment_id > 0 AND segment_id IN (1, 7, NULL)", of_one),
        (f"segment_id = 1 AND offset >= {middle}", [one for one in of_one if one[1] >= middle]),
        (f"segment_id = 1 AND offset < {middle} AND size > 0", [one for one in of_one if one[1] < middle]),
        (f"segment_id = 1 AND (offset = {middle} OR offset IS NULL)", [(1, middle)]),
    ]:
        table = load_table(spark, folder, min_partitions=1).where(sql)
        assert table.rdd.getNumPartitions() == 1, sql
        assert sorted((row.segment_id, row.offset) for row in table.collect()) == wanted, sql
    assert load_table(spark, folder).where("segment_id = 9 OR segment_id < 0").count() == 0
    assert load_table(spark, folder).where("segment_id = 9").rdd.getNumPartitions() <= 1


def test_json_events_are_typed_columns(spark: SparkSession, store: Store, folder: Path) -> None:
    """Named by the schema or by an option; those that are corrupt are in a column of their own."""
    good = [
        {"sensor": f"s{number}", "at": "2024-02-29T12:00:00Z", "at_day": "2024-02-29", "deep": {"x": [number]}}
        for number in range(5)
    ]
    write_events(store, [*(json.dumps(one, indent=1).encode() for one in good), b"", b'{"sensor": "\xff"}', b"{}{}"])
    fields = "sensor string, at timestamp, at_day date, deep struct<x: array<int>>"
    table = load_table(spark, folder, format="json", json_schema=fields, on_corrupt="column")
    assert table.columns[:6] == ["sensor", "at", "at_day", "deep", "_corrupt", "key"]
    rows = sorted(table.where("_corrupt IS NULL").collect(), key=lambda row: str(row.sensor))
    assert [(row.sensor, row.deep.x) for row in rows] == [(f"s{number}", [number]) for number in range(5)]
    assert rows[0].at_day.isoformat() == "2024-02-29"
    assert rows[0].at.astimezone().timestamp() == datetime.fromisoformat(good[0]["at"]).timestamp()  # type: ignore[arg-type]
    named = load_table(
        spark,
        folder,
        schema="_corrupt string, size bigint, n int",
        json_schema="n int",
        format="json",
        on_corrupt="column",
    )
    assert sorted((row._corrupt, row.size) for row in named.where("_corrupt IS NOT NULL").collect()) == [
        ("", 0),
        ('{"sensor": "\ufffd"}', 15),
        ("{}{}", 4),
    ]


def test_futoin_events_are_columns_and_their_type_a_filter(spark: SparkSession, store: Store, folder: Path) -> None:
    """A consumer that wants some types reads only those into Spark; the id is where it goes on."""
    store.create_stream("plant/events", segments=1)
    events = [
        json.dumps({"type": "AB"[number % 2], "ts": "2024-02-29T12:00:00Z", "data": {"n": number}}).encode()
        for number in range(10)
    ]
    write_events(store, [*events, b"nonsense"], "plant/events")
    table = load_table(spark, folder, "plant/events", format="futoin", on_corrupt="column")
    rows = table.where("type IN ('B', NULL)").orderBy("id").collect()
    assert [json.loads(row.data)["n"] for row in rows] == [1, 3, 5, 7, 9]
    assert {row.type for row in rows} == {"B"}
    rest = load_table(
        spark,
        folder,
        "plant/events",
        format="futoin",
        on_corrupt="column",
        start=StreamCut("plant/events", ((0, rows[-2].id),)),
    )
    assert [(row.type, row._corrupt) for row in rest.orderBy("id").collect()] == [
        ("A", None),
        ("B", None),
        (None, "nonsense"),
    ]
    assert table.where("type = 'Z'").count() == 0


def test_a_table_has_the_time_of_each_place(spark: SparkSession, store: Store, folder: Path) -> None:
    """Of the last watermark before an event in its segment, as any reader of the stream sees it."""
    writer = store.writer(STREAM, writer_id="w")
    writer.write_event(b"before", key="k").result()
    writer.note_time(5_000)
    writer.flush()
    while store.watermark(STREAM) is None:
        store.maintain()
    writer.write_event(b"behind", key="k").result()
    times = {bytes(row.event): row.mark_time for row in load_table(spark, folder).collect()}
    assert times[b"before"] is None
    assert times[b"behind"].astimezone().timestamp() == 5.0


@pytest.mark.parametrize("fail", ["true", "false"])
def test_what_was_truncated_is_an_error_or_is_left_out(
    spark: SparkSession, store: Store, folder: Path, fail: str
) -> None:
    """A table begins at a cut that was there once: losing data needs an option."""
    write_events(store, [b"a", b"b"])
    start = store.head(STREAM)
    store.truncate_stream(STREAM, store.tail(STREAM))
    write_events(store, [b"c"])
    table = load_table(spark, folder, start=start, fail_on_data_loss=fail)
    if fail == "true":
        with pytest.raises(Exception, match="has been truncated away"):
            table.collect()
    else:
        assert events_of(table) == [b"c"]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_what_is_truncated_before_a_task_reads_it_is_an_error_or_is_left_out(
    store: Store, folder: Path, fail: str
) -> None:
    """Between the plan and the task there may be hours; the rest of the part is still read."""
    store.create_stream("plant/one", segments=1)
    write_events(store, [b"a", b"b"], "plant/one")
    middle = store.tail("plant/one")
    write_events(store, [b"c"], "plant/one")
    part = Part(ranges=(SegmentRange("plant/one", 0, 0, store.tail("plant/one").offsets[0]),))
    store.truncate_stream("plant/one", middle)
    options = source_options({"store": str(folder), "stream": "plant/one", "fail_on_data_loss": fail})
    reader = PenstockReader(options, StructType([StructField("event", BinaryType())]))
    if fail == "true":
        with pytest.raises(DataTruncated):
            list(reader.read(part))
    else:
        assert [row for batch in reader.read(part) for row in batch.column("event").to_pylist()] == [b"c"]


def test_an_event_is_opened_only_if_the_store_is_known() -> None:
    """A pointer does not say which store it is of."""
    with pytest.raises(BadArgument, match="open_event needs a store"):
        open_event("plant/readings:0@0")
    with pytest.raises(BadArgument, match="invalid event pointer"):
        open_event("nonsense", "/data")
