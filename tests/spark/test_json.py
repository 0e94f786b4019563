"""JSON events as columns."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument, EventMalformed
from penstock.spark._json import JsonColumns
from penstock.spark._reader import known_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

CORRUPT = "_corrupt"
POINT = pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string()))])


def read(events: Sequence[bytes | None], *, keep: bool = True, **kinds: pa.DataType) -> dict[str, list[Any]]:
    """Return the columns of events whose offsets are 0, 10, 20 and so on."""
    reader = JsonColumns([pa.field(*one) for one in kinds.items()], keep_corrupt=keep)
    offsets = pa.array(range(0, 10 * len(events), 10), pa.int64())
    found = reader.of(pa.array(events, pa.binary()), offsets, where="plant/readings:3", corrupt=CORRUPT)
    for name, column in found.items():
        column.validate(full=True)
        assert column.type == kinds.get(name, pa.string()), name
    return {name: column.to_pylist() for name, column in found.items()}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), '"a \\u00e9\\n\\" ⌘"', 'a é\n" ⌘'),
        (pa.string(), '""', ""),
        (pa.bool_(), "true", True),
        (pa.int8(), "-128", -128),
        (pa.int16(), "300", 300),
        (pa.int32(), "70000", 70_000),
        (pa.int64(), "-9223372036854775808", -(1 << 63)),
        (pa.float32(), "0.5", 0.5),
        (pa.float64(), "1", 1.0),
        (pa.float64(), "-1.5e300", -1.5e300),
        (pa.decimal128(10, 2), "12.25", Decimal("12.25")),
        (pa.decimal128(10, 2), '"12.25"', Decimal("12.25")),
        (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
        (pa.timestamp("us", "UTC"), '"2024-02-29T12:30:01Z"', datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), '"2024-02-29T12:30:01.5+02:00"', datetime(2024, 2, 29, 10, 30, 1, 500_000, UTC)),
        (pa.timestamp("us"), '"2024-02-29 12:30:01"', datetime(2024, 2, 29, 12, 30, 1)),  # noqa: DTZ001
        (POINT, '{"x": 1, "tags": ["a", null]}', {"x": 1, "tags": ["a", None]}),
        (POINT, '{"y": 1}', {"x": None, "tags": None}),
        (pa.list_(POINT), '[{"x": 1}, null]', [{"x": 1, "tags": None}, None]),
        (pa.list_(pa.date32()), '["2024-02-29", null]', [date(2024, 2, 29), None]),
        (pa.struct([("on", pa.date32())]), '{"on": "2024-02-29"}', {"on": date(2024, 2, 29)}),
    ],
)
def test_a_value_is_read_as_the_type_of_its_column(kind: pa.DataType, text: str, value: object) -> None:
    """Dates too, which Arrow's reader does not know, wherever they are."""
    found = read([f'{{"a": {text}}}'.encode(), b"{}", b'{"a": null}'], keep=False, a=kind)
    assert found == {"a": [value, None, None], CORRUPT: [None] * 3}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.string(), "1"),
        (pa.string(), '{"b": 1}'),
        (pa.string(), '"\\ud800"'),
        (pa.bool_(), "1"),
        (pa.int8(), "128"),
        (pa.int64(), "1.5"),
        (pa.int64(), '"1"'),
        (pa.int64(), "true"),
        (pa.int64(), "9223372036854775808"),
        (pa.float64(), '"1.5"'),
        (pa.decimal128(4, 2), "123.25"),
        (pa.date32(), '"2023-02-29"'),
        (pa.date32(), "17"),
        (pa.timestamp("us", "UTC"), '"yesterday"'),
        (pa.timestamp("us", "UTC"), "1700000000"),
        (POINT, '{"x": "1"}'),
        (POINT, "[]"),
        (pa.list_(pa.int64()), "[1, [2]]"),
        (pa.list_(pa.date32()), '["never"]'),
    ],
)
def test_a_value_of_another_type_is_corrupt(kind: pa.DataType, text: str) -> None:
    """None is turned into a value that was never written, and the events around it stay as they are."""
    event = f'{{"a": {text}, "n": 2}}'.encode()
    found = read([b'{"n": 1}', event, b'{"n": 3}'], a=kind, n=pa.int64())
    assert found == {"a": [None] * 3, "n": [1, None, 3], CORRUPT: [None, event.decode(), None]}


def test_a_time_without_a_zone_is_of_the_sessions() -> None:
    """As Spark reads JSON by itself; one with a zone is what it says, and so it is inside of lists and structs."""
    kind = pa.timestamp("us", "UTC")
    both = pa.struct([("at", kind), ("n", pa.int64())])
    reader = JsonColumns(
        [pa.field("a", kind), pa.field("b", pa.list_(kind)), pa.field("c", both)],
        keep_corrupt=False,
        zone="America/New_York",
    )
    times = b'["2026-07-01 08:00:00Z", null, "2026-01-01"]'
    event = b'{"a": "2026-07-01T08:00:00", "b": %s, "c": {"at": "2026-07-01 08:00"}}' % times
    found = reader.of(pa.array([event, b"{}"]), pa.array([0, 10]), where="plant/a:0", corrupt=CORRUPT)
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert found["a"].to_pylist() == [noon, None]
    assert found["b"].to_pylist() == [[noon.replace(hour=8), None, datetime(2026, 1, 1, 5, tzinfo=UTC)], None]
    assert found["c"].to_pylist() == [{"at": noon, "n": None}, None]


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-03-08T01:59:59", datetime(2026, 3, 8, 6, 59, 59, tzinfo=UTC)),
        ("2026-03-08T02:30:00", datetime(2026, 3, 8, 7, 30, tzinfo=UTC)),
        ("2026-03-08T03:00:00", datetime(2026, 3, 8, 7, 0, tzinfo=UTC)),
        ("2026-11-01T01:30:00", datetime(2026, 11, 1, 5, 30, tzinfo=UTC)),
        ("2026-11-01T02:00:00", datetime(2026, 11, 1, 7, 0, tzinfo=UTC)),
    ],
)
def test_a_time_around_a_change_of_the_clock_is_what_spark_makes_of_it(text: str, utc: datetime) -> None:
    """A time that was skipped in spring is neither lost nor moved to the change."""
    kind = pa.timestamp("us", "UTC")
    reader = JsonColumns([pa.field("a", kind)], keep_corrupt=False, zone="America/New_York")
    event = b'{"a": "%s"}' % text.encode()
    found = reader.of(pa.array([event]), pa.array([0]), where="plant/a:0", corrupt=CORRUPT)
    assert found["a"].to_pylist() == [utc]


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("UTC", "UTC"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("+05:30", "+05:30"),
        ("GMT-8", "-08:00"),
        ("UTC+01:00", "+01:00"),
    ],
)
def test_zones_are_known_by_the_names_of_java(name: str, zone: str) -> None:
    """They come from Spark's settings."""
    assert known_zone(name) == zone
    with pytest.raises(BadArgument, match=r"spark\.sql\.session\.timeZone is 'Mars/Olympus'"):
        known_zone("Mars/Olympus")


def test_rows_are_not_shifted_by_events_that_are_two_objects_or_none() -> None:
    """Together they have as many objects as there are events; the count alone does not tell."""
    events = [b'{"n": 1}', b'{"n": 2}{"n": 3}', b"", b'{"n": 4}', b'{"n": 5}\n{"n": 6}', b"  \n", b'{"n": 7}', None]
    found = read(events, n=pa.int64())
    assert found["n"] == [1, None, None, 4, None, None, 7, None]
    assert found[CORRUPT] == [None, '{"n": 2}{"n": 3}', "", None, '{"n": 5}\n{"n": 6}', "  \n", None, None]


def test_an_event_cannot_go_on_in_the_next() -> None:
    """Events are put one behind the other to be read; what they do not close stays theirs."""
    events = [
        b'{"n": 1, "a": "}',
        b'{"n": 2, "a": "}',
        b'{"n": [{}',
        b'{"n": 3}',
        b'{"n": 4},',
        b'{"n": 5}',
        b'{"n": {}',
    ]
    found = read(events, n=pa.int64())
    assert found["n"] == [None, None, None, 3, None, 5, None]
    assert [one is None for one in found[CORRUPT]] == [False, False, False, True, False, True, False]


def test_an_object_may_be_written_over_many_lines() -> None:
    """Many programs write JSON to be looked at."""
    events = [json.dumps({"n": number, "b": {"c": [1, 2]}}, indent=2).encode() + b"\r\n" for number in range(3)]
    assert read(events, keep=False, n=pa.int64())["n"] == [0, 1, 2]


@pytest.mark.parametrize(
    "event", [b'{"a": "\xff"}', b'{"\xc3": 1}', b"\xff", b'{"z": "\xed\xa0\x80"}', b'\xef\xbb\xbf{"a": "x"}', b"\0"]
)
def test_what_is_no_text_is_corrupt(event: bytes) -> None:
    """Spark fails, or shows nonsense, where it is told that bytes are UTF-8 and they are not."""
    found = read([b'{"a": "\xc3\xa9"}', event, b'{"a": "y"}'], a=pa.string())
    assert found["a"] == ["é", None, "y"]
    assert found[CORRUPT] == [None, event.decode(errors="replace"), None]


def test_the_first_event_that_is_wrong_is_told_with_its_place() -> None:
    """Of a million events, that is the one to look at."""
    events = [b'{"n": %d}' % number for number in range(100)]
    events[37], events[80] = b'{"n": "x"}', b"nonsense"
    with pytest.raises(
        EventMalformed, match=r"the event at plant/readings:3@370 is not a valid JSON object of the schema"
    ):
        read(events, keep=False, n=pa.int64())


def test_events_that_are_not_there_have_no_columns() -> None:
    """Those too large for a row are null, and not corrupt."""
    assert read([None, b'{"n": 1}', None], keep=False, n=pa.int64()) == {"n": [None, 1, None], CORRUPT: [None] * 3}
    assert read([None], keep=False, n=pa.int64()) == {"n": [None], CORRUPT: [None]}
    assert read([], keep=False, n=pa.int64()) == {"n": [], CORRUPT: []}


def test_without_columns_events_are_looked_at_all_the_same() -> None:
    """A query that asks only for corrupt records gets an error."""
    assert read([b'{"a": 1}', b"{}", b"x", b"[]"]) == {CORRUPT: [None, None, "x", "[]"]}


def test_what_python_cannot_read_is_not_taken_for_corrupt() -> None:
    """Python's reader, which helps to find what is corrupt, has limits that Arrow's has not."""
    deep = b'{"n": 1, "z": %s%s}' % (b"[" * 20_000, b"]" * 20_000)
    long = b'{"n": 2, "z": %s}' % (b"7" * 10_000)
    assert read([deep, long, b"x"], n=pa.int64())["n"] == [1, 2, None]


def test_many_corrupt_events_are_found_one_by_one_and_quickly() -> None:
    """A stream whose events are all of another type is read as quickly as others, within reason."""
    events = [b'{"n": "%d"}' % number if number % 3 else b'{"n": %d}' % number for number in range(30_000)]
    found = read(events, n=pa.int64())
    assert found["n"] == [None if number % 3 else number for number in range(30_000)]


def as_python_reads(event: bytes) -> dict[str, Any] | None:
    """Return the row of an event of ``n bigint, s string, l array<bigint>``, the plain way."""
    try:
        row = json.loads(event.decode())
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    n, s, values = row.get("n"), row.get("s"), row.get("l")
    is_good = (
        _is_long(n)
        and (s is None or isinstance(s, str))
        and (values is None or (isinstance(values, list) and all(map(_is_long, values))))
    )
    return {"n": n, "s": s, "l": values} if is_good else None


def _is_long(value: object) -> bool:
    return value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63)


SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner))
GOOD = st.fixed_dictionaries(
    {}, optional={"n": st.integers(-9, 9), "s": st.text(max_size=4), "l": st.lists(st.integers(-9, 9)), "z": VALUES}
)
ROWS = GOOD | st.dictionaries(st.sampled_from(["n", "s", "l", "z", ""]), VALUES)
OBJECTS = st.builds(
    lambda row, indent, ascii_only: json.dumps(row, indent=indent, ensure_ascii=ascii_only).encode(),
    ROWS,
    st.sampled_from([None, 1]),
    st.booleans(),
)
BROKEN = st.builds(lambda event, size: event[:size], OBJECTS, st.integers(0, 20))
DOUBLE = st.builds(lambda one, between, other: one + between + other, OBJECTS, st.sampled_from([b"", b"\n"]), OBJECTS)
EVENTS = OBJECTS | BROKEN | DOUBLE | st.binary(max_size=8) | st.builds(lambda value: json.dumps(value).encode(), VALUES)


@given(st.lists(st.none() | EVENTS, max_size=12))
def test_every_event_is_read_as_if_it_were_alone(events: list[bytes | None]) -> None:
    """However many are read at once, and whatever is wrong with some, each is what Python's reader says it is."""
    found = read(events, n=pa.int64(), s=pa.string(), l=pa.list_(pa.int64()))
    rows = [None if event is None else as_python_reads(event) for event in events]
    for name in ("n", "s", "l"):
        assert found[name] == [None if row is None else row[name] for row in rows]
    corrupt = [event is not None and row is None for event, row in zip(events, rows, strict=True)]
    assert [one is not None for one in found[CORRUPT]] == corrupt


@pytest.mark.parametrize("event", [b"", b"{", b"}", b"[]", b"}{", b"x{}", b"{}x"])
def test_what_only_looks_like_objects_at_a_glance_is_refused_in_any_slice(event: bytes) -> None:
    """The quick look at the first and last byte of each event knows where a slice begins, and has no other answer."""
    columns = JsonColumns([pa.field("n", pa.int64())], keep_corrupt=True)
    events = pa.array([b"[", b'{"n": 1}', event, b'\n{"n": 2} ', b"]"], pa.binary())[1:4]
    found = columns.of(events, pa.array([0, 1, 2], pa.int64()), where="s:0", corrupt="_corrupt")
    assert found["n"].to_pylist() == [1, None, 2]
    assert found["_corrupt"].to_pylist() == [None, event.decode(), None]


@pytest.mark.parametrize(("first", "second"), [(b'{"m": [', b"{}]}"), (b'{"m": {}', b', "k": {}}')])
def test_events_that_are_objects_only_together_are_each_corrupt(first: bytes, second: bytes) -> None:
    """With a third event of two objects, there would be as many rows as events, and each would be another's."""
    columns = JsonColumns([pa.field("n", pa.int64())], keep_corrupt=True)
    events = pa.array([first, second, b'{"n": 1}{"n": 2}'], pa.binary())
    found = columns.of(events, pa.array([0, 1, 2], pa.int64()), where="s:0", corrupt="_corrupt")
    assert found["n"].to_pylist() == [None] * 3
    assert found["_corrupt"].to_pylist() == [event.as_py().decode() for event in events]
