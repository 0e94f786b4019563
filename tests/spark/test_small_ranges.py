"""Small ranges of several segments share a task: what a task reads, in which order, and what keeps one of its own."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from penstock.errors import DataTruncated
from penstock.model import EventPointer, SegmentRange
from penstock.spark import _reader
from penstock.spark._options import source_options
from penstock.spark._reader import Part, PenstockReader, rows_of_each, shared_out
from penstock.spark._stream_reader import PenstockStreamReader

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store

MANY = "plant/many"
SCHEMA = StructType(
    [
        StructField("event", BinaryType()),
        StructField("stream", StringType()),
        StructField("segment_id", LongType()),
        StructField("pointer", StringType()),
    ]
)


def fill(store: Store, segments: int = 40, events: int = 400, name: str = MANY) -> None:
    store.create_stream(name, segments=segments)
    with store.writer(name) as writer:
        numbers = [str(number) for number in range(events)]
        writer.write_batch([number.encode() for number in numbers], numbers)


def reader_of(folder: Path, **texts: object) -> PenstockReader:
    options = {"store": str(folder), "stream": MANY} | {name: str(text) for name, text in texts.items()}
    return PenstockReader(source_options(options), SCHEMA)


def rows_of(reader: Any, parts: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - readers of both kinds
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_many_small_segments_are_one_task_in_the_order_of_each(store: Store, folder: Path) -> None:
    """A task costs 25 ms, and a small range a tenth of it: a batch over 100 segments took three seconds."""
    fill(store)
    reader = reader_of(folder)
    [part] = reader.partitions()
    assert isinstance(part, Part)
    assert len(part.ranges) == 40
    rows = rows_of(reader, [part])
    events = [int(row["event"]) for row in rows]
    assert sorted(events) == [*range(400)]
    for segment in range(40):
        of_it = [int(row["event"]) for row in rows if row["segment_id"] == segment]
        assert of_it == sorted(of_it)
    assert all(store.fetch_event(EventPointer.parse(row["pointer"])) == row["event"] for row in rows[::40]), (
        "pointers are their own"
    )


def test_the_rows_of_many_ranges_are_few_batches(store: Store, folder: Path) -> None:
    """Each batch has its price on the way to Java, whatever is in it."""
    fill(store)
    reader = reader_of(folder)
    assert [len(batch) for part in reader.partitions() for batch in reader.read(part)] == [400]


def test_a_micro_batch_over_many_segments_of_several_streams_is_one_task(store: Store, folder: Path) -> None:
    """Rows still say which stream they are of, and the batch is the same when it is planned again."""
    fill(store, 20, 100)
    fill(store, 20, 100, "plant/more")
    options = source_options({"store": str(folder), "subscribe": f"{MANY},plant/more"})
    reader = PenstockStreamReader(options, SCHEMA)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    parts = reader.partitions(begin, end)
    assert len(parts) == 1
    assert parts == reader.partitions(begin, end)
    rows = rows_of(reader, parts)
    assert sorted((row["stream"], int(row["event"])) for row in rows) == [
        (name, number) for name in ("many", "more") for number in range(100)
    ]
    reader.stop()


def test_who_asks_for_partitions_gets_a_task_for_each_range(store: Store, folder: Path) -> None:
    """Work behind the source may be worth a task even if reading is not."""
    fill(store)
    assert len(reader_of(folder, min_partitions=4).partitions()) == 40


def test_a_range_that_was_truncated_is_an_error_of_the_task_that_shares_it(store: Store, folder: Path) -> None:
    """Threads read the ranges: none of their errors may be lost, and the others' events come without it if allowed."""
    fill(store)
    strict, lenient = reader_of(folder), reader_of(folder, fail_on_data_loss="false")
    parts = strict.partitions()
    with store.writer(MANY) as writer:
        writer.write_event(b"new", "7").result()
    store.truncate_stream(MANY, store.tail(MANY))
    with pytest.raises(DataTruncated):
        rows_of(strict, parts)
    assert rows_of(lenient, parts) == []


@given(sizes=st.lists(st.integers(0, 30)), limit=st.integers(0, 40))
def test_ranges_share_a_task_up_to_the_limit_and_keep_their_order(sizes: list[int], limit: int) -> None:
    """A large range has a task of its own, as before; no range is lost, or read twice."""
    ranges = [SegmentRange(MANY, number, 0, size) for number, size in enumerate(sizes)]
    groups = list(shared_out(ranges, limit))
    assert [part for group in groups for part in group] == ranges
    assert all(len(group) == 1 or sum(part.size for part in group) <= limit for group in groups)
    for group, following in pairwise(groups):
        assert sum(part.size for part in group) + following[0].size > limit, "it would have had room"


def test_an_abandoned_task_leaves_no_thread(store: Store, folder: Path) -> None:
    """Spark closes what it reads when a LIMIT is reached; workers live on."""
    fill(store)
    reader = reader_of(folder)
    [part] = reader.partitions()
    found = reader.read(part)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock-ranges")]


def test_rows_are_joined_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task has in memory does not grow with what it reads."""
    monkeypatch.setattr(_reader, "_JOINED_MAX", 5)
    ranges = [SegmentRange(MANY, number, 0, 1) for number in range(7)]
    batches = rows_of_each(lambda part: [pa.record_batch({"n": [part.segment_id] * 2})], ranges)
    assert [batch["n"].to_pylist() for batch in batches] == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5], [6, 6]]
