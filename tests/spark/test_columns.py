"""Events as rows of Spark, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

import penstock
from penstock import EventPointer
from penstock.errors import BadArgument, EventMalformed
from penstock.spark._columns import Rows, _prefixed, check_schema, names_in, schema_of
from penstock.spark._options import source_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import Store
    from penstock.spark._options import SourceOptions

STREAM = "plant/readings"
OURS = ["event", "key", "timestamp", "scope", "stream", "segment_id", "offset", "size", "pointer", "mark_time"]


def options_of(**texts: str) -> SourceOptions:
    return source_options({"store": "/data", "stream": STREAM} | texts)


def raw_schema() -> StructType:
    found = schema_of(options_of())
    assert isinstance(found, StructType)
    return found


RAW = raw_schema()


def schema_with(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.fixture
def store() -> Iterator[Store]:
    with penstock.connect("memory:") as store:
        store.create_stream(STREAM, segments=1)
        yield store


def write(store: Store, *events: bytes) -> None:
    with store.writer(STREAM) as writer:
        writer.write_batch(list(events), keys=["k"] * len(events))


def rows_of(store: Store, options: SourceOptions, schema: StructType = RAW) -> list[dict[str, Any]]:
    """Return the rows of all events of the stream."""
    rows = Rows(store, options, schema, STREAM)
    batches = [rows.of(one) for one in store.read(STREAM, max_event_size=options.max_event_size)]
    for one in batches:
        one.validate(full=True)
        assert one.schema.names == schema.fieldNames()
    return [row for one in batches for row in one.to_pylist()]


def test_a_source_has_the_columns_of_its_format() -> None:
    """What is in the events takes the place of the events."""
    assert RAW.fieldNames() == OURS
    futoin = schema_of(options_of(format="futoin"))
    assert isinstance(futoin, StructType)
    assert futoin.fieldNames() == ["id", "type", "data", "ts", *OURS[1:]]
    found = schema_of(options_of(format="json", json_schema="a int, b array<date>", on_corrupt="column"))
    assert str(found).startswith(
        "a int, b array<date>, `_corrupt` string, `key` binary, `timestamp` timestamp, `scope` string, "
    )
    assert schema_of(options_of(includeHeaders="true")).fieldNames()[3] == "headers"  # type: ignore[union-attr]
    taken = str(schema_of(options_of(format="json", json_schema="size int, key string", include_headers="true")))
    assert taken.startswith("size int, key string, `timestamp` timestamp, `headers` map<string,binary>, `scope` string")
    assert "`size`" not in taken, "what the JSON has takes the place of what the stream has"
    with pytest.raises(BadArgument, match="needs to know the columns"):
        schema_of(options_of(format="json"))


@pytest.mark.parametrize(
    ("texts", "schema", "message"),
    [
        ({}, schema_with(evnet=BinaryType()), "no column 'evnet': there are event, key, timestamp, headers, scope, "),
        ({}, schema_with(event=StringType()), "'event' is of type binary, not string"),
        ({}, schema_with(type=StringType()), "no column 'type'"),
        ({}, schema_with(_corrupt=StringType()), "on_corrupt=column"),
        ({"format": "futoin"}, schema_with(ts=StringType()), "'ts' is of type timestamp, not string"),
        ({"format": "futoin"}, schema_with(a=StringType()), "no column 'a'"),
        ({"format": "json"}, schema_with(a=MapType(StringType(), LongType())), "'a' cannot be read from JSON"),
        ({"format": "json"}, schema_with(a=ArrayType(BinaryType())), "'a' cannot be read from JSON"),
        ({"format": "json"}, schema_with(a=schema_with(b=VariantType())), "'a' cannot be read from JSON"),
        ({"format": "json"}, schema_with(size=LongType()), "'size' .* may be the stream's, or a field of the JSON"),
        ({"format": "json", "json_schema": "a int"}, schema_with(size=StringType()), "'size' is of type bigint"),
        ({"format": "json", "json_schema": "a int"}, schema_with(b=LongType()), "no column 'b': there are .*, a$"),
        ({}, StructType([StructField("event", BinaryType(), nullable=False)]), "'event' cannot be NOT NULL"),
        ({"format": "json"}, schema_with(a=ArrayType(LongType(), containsNull=False)), "'a' cannot be NOT NULL"),
        (
            {"format": "json"},
            schema_with(a=StructType([StructField("b", LongType(), nullable=False)])),
            "'a' cannot be NOT NULL",
        ),
        ({"format": "json"}, StructType([StructField("a", LongType())] * 2), "more than one column 'a'"),
    ],
)
def test_columns_that_there_are_not_are_refused(texts: dict[str, str], schema: StructType, message: str) -> None:
    """When the query is made, not when its first task runs."""
    with pytest.raises(BadArgument, match=message):
        check_schema(options_of(**texts), schema)


def test_rows_carry_what_events_carry(store: Store) -> None:
    """The key that they were written with, when they were appended, and their headers."""
    begin = datetime.now(UTC).replace(microsecond=0)
    with store.writer(STREAM) as writer:
        writer.write_event(b"one", key="k", headers={"trace": b"7"})
        writer.write_event(b"two")
    schema = schema_of(options_of(include_headers="true"))
    assert isinstance(schema, StructType)
    first, second = rows_of(store, options_of(include_headers="true"), schema)
    assert (first["key"], dict(first["headers"])) == (b"k", {"trace": b"7"})
    assert (second["key"], second["headers"]) == (None, None)
    assert begin <= first["timestamp"] <= second["timestamp"] <= datetime.now(UTC)


def test_every_column_of_a_row_tells_what_its_name_says(store: Store) -> None:
    """The pointer, above all, fetches the event."""
    write(store, b"one", b"", b"three")
    rows = rows_of(store, options_of())
    assert [row["event"] for row in rows] == [b"one", b"", b"three"]
    for row in rows:
        assert (row["scope"], row["stream"], row["segment_id"]) == ("plant", "readings", 0)
        assert row["size"] == len(row["event"])
        assert store.fetch_event(EventPointer.parse(row["pointer"])) == row["event"]
        assert EventPointer.parse(row["pointer"]) == EventPointer(STREAM, 0, row["offset"])
        assert row["mark_time"] is None


@pytest.mark.parametrize("names", [["event"], ["pointer", "size"], ["mark_time", "event"], []])
def test_only_the_columns_that_are_asked_for_are_made(store: Store, names: list[str]) -> None:
    """In the order they are asked for."""
    write(store, b"one")
    schema = StructType([RAW[name] for name in names])
    check_schema(options_of(), schema)
    [row] = rows_of(store, options_of(), schema) if names else [{}]
    assert list(row) == names


@pytest.mark.parametrize("in_chunks", [False, True])
def test_of_an_event_above_the_limit_there_are_place_and_size(store: Store, in_chunks: bool) -> None:
    """Whether the store keeps it in chunks or in one piece; as JSON it is an error, or kept with what is corrupt."""
    write(store, b'{"a": 1}')
    large = b'{"a": "%s"}' % (b"x" * 1000)
    with store.writer(STREAM) as writer:
        if in_chunks:
            with writer.begin_write_event("k") as out:
                out.write(large)
        else:
            writer.write_event(large, key="k")
    write(store, b'{"a": 2}')
    first, second, third = rows_of(store, options_of(max_event_size="100"))
    assert (first["event"], second["event"], third["event"]) == (b'{"a": 1}', None, b'{"a": 2}')
    assert [first["size"], second["size"], third["size"]] == [8, len(large), 8]
    assert store.fetch_event(EventPointer.parse(second["pointer"])) == large
    note = f"larger than max_event_size: {second['pointer']}"
    options = options_of(max_event_size="100", format="json", json_schema="a int", on_corrupt="column")
    typed = rows_of(store, options, schema_with(a=LongType(), size=LongType(), _corrupt=StringType()))
    assert [(row["a"], row["size"], row["_corrupt"]) for row in typed] == [
        (1, 8, None), (None, len(large), note), (2, 8, None),
    ]  # fmt: skip
    options = options_of(max_event_size="100", format="futoin", on_corrupt="column")
    kept = rows_of(store, options, schema_with(_corrupt=StringType(), id=LongType()))
    assert [row["_corrupt"] for row in kept] == ['{"a": 1}', note, '{"a": 2}']
    for name in ("json", "futoin"):
        with pytest.raises(EventMalformed, match=rf"{second['pointer']} .*{len(large)} bytes, above max_event_size"):
            rows_of(store, options_of(max_event_size="100", format=name), schema_with(_corrupt=StringType()))


def test_a_field_of_the_json_may_be_called_as_a_column_of_ours(store: Store) -> None:
    """Many events have a size, an offset or a stream of their own; json_schema says whose is meant."""
    write(store, b'{"size": 7, "stream": "north", "offset": 3}')
    options = options_of(format="json", json_schema="size bigint, stream string")
    schema = schema_with(size=LongType(), stream=StringType(), offset=LongType())
    check_schema(options, schema)
    [row] = rows_of(store, options, schema)
    assert (row["size"], row["stream"]) == (7, "north")
    assert row["offset"] == EventPointer.parse(rows_of(store, options_of())[0]["pointer"]).offset


def test_the_names_of_columns_are_found_in_any_declaration() -> None:
    """However Spark lets them be written."""
    ddl = (
        "a int, `b ``c` struct<d: int, e: array<date>>, size: decimal(10,2) COMMENT 'x, y', f timestamp, `event` binary"
    )
    assert list(names_in(ddl)) == ["a", "b `c", "size", "f", "event"]


def test_rows_of_a_micro_batch_have_its_time_and_no_other(store: Store) -> None:
    """Even if it is none: a segment may be ahead of the others, and what it has passed is no promise of all."""
    write(store, b"one")
    [batch] = store.read(STREAM)
    place = batch.schema.get_field_index("mark_time")
    field = batch.schema.field(place)
    ahead = batch.set_column(place, field, pa.array([5_000], field.type))
    times = [
        Rows(store, options_of(), RAW, STREAM, time=time, in_batch=in_batch).of(ahead).column("mark_time").to_pylist()
        for time, in_batch in [(None, False), (None, True), (7_000, True)]
    ]
    assert times == [[datetime.fromtimestamp(5, UTC)], [None], [datetime.fromtimestamp(7, UTC)]]


def test_a_row_may_tell_nothing_but_the_time(store: Store) -> None:
    """So that Spark's watermark goes on where there are no events."""
    [row] = Rows(store, options_of(), RAW, STREAM, time=7_000, in_batch=True).mark().to_pylist()
    assert row.pop("mark_time") == datetime.fromtimestamp(7, UTC)
    assert row == dict.fromkeys(OURS[:-1])


@pytest.mark.parametrize("numbers", [[], [7], [3, 8, 5], [8, 9, 10, 11], [10**17, 5], list(range(95, 2000))])
def test_texts_get_what_stands_before_them(numbers: list[int]) -> None:
    """Whether they are equally long, which is quick, or not."""
    texts = pa.array([str(number) for number in numbers], pa.string())
    found = _prefixed(b"plant/a:0@", texts)
    found.validate(full=True)
    assert found.to_pylist() == [f"plant/a:0@{number}" for number in numbers]
