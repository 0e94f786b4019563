"""FutoIn events as columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock
from penstock.errors import EventMalformed
from penstock.spark import _futoin
from penstock.spark._futoin import futoin_columns
from penstock.stream.write import CHUNK_SIZE
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock import Store

CORRUPT = "_corrupt"
STREAM = "plant/events"


def read(events: Sequence[bytes | None], *, keep: bool = True) -> dict[str, list[Any]]:
    """Return the columns of events whose offsets are 0, 100, 200 and so on."""
    return read_array(pa.array(events, pa.binary()), keep=keep)


def read_array(events: pa.Array, *, keep: bool = True) -> dict[str, list[Any]]:
    found = futoin_columns(
        events,
        pa.array(range(0, 100 * len(events), 100), pa.int64()),
        where=STREAM,
        corrupt=CORRUPT,
        keep_corrupt=keep,
    )
    for column in found.values():
        column.validate(full=True)
    return {name: column.to_pylist() for name, column in found.items()}


def event_of(kind: str, data: object, ts: str = "2024-02-29T12:30:01Z") -> bytes:
    return json.dumps({"type": kind, "ts": ts, "data": data}).encode()


def test_the_fields_of_an_event_are_columns() -> None:
    """The data stays JSON, because each type has its own."""
    event = event_of("ORDER_NEW", {"id": 7, "lines": ["}", '"']})
    found = read([event], keep=False)
    assert found["type"] == ["ORDER_NEW"]
    assert found["ts"] == [datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC)]
    assert json.loads(found["data"][0]) == {"id": 7, "lines": ["}", '"']}
    assert found["id"] == [4 + len(event)]
    assert found[CORRUPT] == [None]


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"nonsense",
        b"{}",
        b'{"type": "A", "ts": "2024-02-29T12:30:01Z"}',
        b'{"type": "A", "data": 1}',
        b'{"type": "", "ts": "2024-02-29T12:30:01Z", "data": 1}',
        b'{"type": 1, "ts": "2024-02-29T12:30:01Z", "data": 1}',
        b'{"type": "A\\n", "ts": "2024-02-29T12:30:01Z", "data": 1}',
        b'{"type": "A", "ts": "2023-02-29T12:30:01Z", "data": 1}',
        b'{"type": "A", "ts": "2024-02-29T12:30:01", "data": 1}',
        b'{"type": "A", "ts": 17, "data": 1}',
        b'{"type": "A", "ts": "2024-02-29T12:30:01Z", "data": {}',
        b'{"type": "A", "ts": "2024-02-29T12:30:01Z", "data": {}}}',
        b'{"type": "A", "ts": "2024-02-29T12:30:01Z", "data": "\xff"}',
        b'{"type": "\xff", "ts": "2024-02-29T12:30:01Z", "data": 1}',
        pytest.param(b'{"type": "A", "ts": "2024-02-29T12:30:01Z", "data": %s}' % (b"[" * 50_000), id="deep"),
    ],
)
def test_what_lacks_a_field_is_corrupt(event: bytes) -> None:
    """It is kept, readable, beside events that are good; or it is an error that tells where it is."""
    good = event_of("B", 2)
    found = read([good, event, good])
    assert (found["type"], found["data"]) == (["B", None, "B"], ["2", None, "2"])
    assert found["ts"][1] is None
    assert found[CORRUPT] == [None, event.decode(errors="replace"), None]
    with pytest.raises(EventMalformed, match=f"the event at {STREAM}@100 is not a valid event of FutoIn"):
        read([good, event, event], keep=False)


def test_fields_may_stand_in_any_order_among_others() -> None:
    """JSON has none, and programs that are not ours write such events, too."""
    event = b'{"x": [1], "data" : [1, 2] , "ts": "2024-02-29T12:30:01Z", "type": "A"}'
    found = read([event], keep=False)
    assert (found["type"], found["data"]) == (["A"], ["[1, 2]"])


def test_events_that_are_not_there_have_no_fields() -> None:
    """Those too large for a row are null, and not corrupt."""
    found = read([None, event_of("A", 1)], keep=False)
    assert found["type"] == [None, "A"]
    assert found["id"][0] is None
    assert read([], keep=False)["type"] == []


def test_the_id_is_the_place_just_behind_the_event() -> None:
    """A client that has an id asks for what comes after it: that is where the next read begins, without any index."""
    events = [event_of("A", number) for number in range(5)]
    with penstock.connect("memory:") as store:
        store.create_stream(STREAM, segments=1)
        ends = []
        with store.writer(STREAM) as writer:
            for event in events[:2]:
                writer.write_event(event, key="k").result()
                ends.append(store.tail(STREAM).offsets[0])
            writer.write_batch(events[2:], keys=["k"] * 3)
        ends.append(store.tail(STREAM).offsets[0])
        ids = [one for _, one in rows_of(store)]
        assert ids == sorted(set(ids))
        assert [end - one for one, end in zip(ids[:2] + ids[-1:], ends, strict=True)] == [5, 5, 15], "keys stand behind"
        for number, one in enumerate(ids):
            rest = penstock.StreamCut.of(STREAM, {0: one})
            assert [event for event, _ in rows_of(store, rest)] == events[number + 1 :]


@pytest.mark.parametrize("size", [CHUNK_SIZE, CHUNK_SIZE + 1, 2 * CHUNK_SIZE, 3 * CHUNK_SIZE - 1])
def test_the_id_of_an_event_in_chunks_is_the_place_just_behind_it(size: int) -> None:
    """Each chunk has a header of its own, so a computed id inside the event would begin the next read nowhere."""
    event = event_of("A", "x" * (size - len(event_of("A", ""))))
    assert len(event) == size
    with penstock.connect("memory:") as store:
        store.create_stream(STREAM, segments=1)
        with store.writer(STREAM) as writer:
            pointer = writer.write_event(event).result()
            assert pointer is not None
            end = store.tail(STREAM)
            writer.write_event(event_of("A", "next"))
        found = futoin_columns(
            pa.array([store.fetch_event(pointer)]),
            pa.array([pointer.offset]),
            where=STREAM,
            corrupt=CORRUPT,
            keep_corrupt=False,
        )
        assert found["id"].to_pylist() == [end.offsets[0]]
        rest = penstock.StreamCut.of(STREAM, {0: found["id"][0].as_py()})
        assert [event for event, _ in rows_of(store, rest)] == [event_of("A", "next")]


def rows_of(store: Store, start: penstock.StreamCut | None = None) -> list[tuple[bytes, int]]:
    """Return events with their ids."""
    rows = []
    for batch in store.read(STREAM, start):
        event, offset = batch.column("event"), batch.column("offset")
        found = futoin_columns(event, offset, where=STREAM, corrupt=CORRUPT, keep_corrupt=False)
        rows += list(zip(event.to_pylist(), found["id"].to_pylist(), strict=True))
    return rows


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)).map(lambda one: one.replace(microsecond=0))  # noqa: DTZ001
FIELDS = st.fixed_dictionaries(
    {
        "type": st.from_regex("[A-Z_]{1,16}", fullmatch=True),
        "ts": TIMES.map(lambda one: f"{one.isoformat()}Z"),
        "data": VALUES,
    }
)
GOOD = FIELDS.map(lambda fields: json.dumps(fields).encode())
BAD = st.binary(max_size=9) | st.builds(lambda event, size: event[: -size - 1], GOOD, st.integers(0, 9))


@given(st.lists(st.none() | GOOD | BAD, max_size=8))
def test_every_event_is_read_as_if_it_were_alone(events: list[bytes | None]) -> None:
    """Each is what Python's reader says it is, whatever is wrong with others."""
    found = read(events)
    for place, event in enumerate(events):
        try:
            row = None if event is None else json.loads(event.decode())
        except ValueError:
            row = None
        if not isinstance(row, dict):
            assert found["type"][place] is found["data"][place] is found["ts"][place] is None
            assert found[CORRUPT][place] == (None if event is None else event.decode(errors="replace"))
        else:
            assert found["type"][place] == row["type"]
            assert found["ts"][place] == datetime.fromisoformat(row["ts"])
            assert json.loads(found["data"][place]) == row["data"]


def test_plain_events_are_not_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip in the quick way would change nothing but the speed, so it would not be noticed."""
    monkeypatch.setattr(_futoin, "_decoder", None)
    rows = [
        {"type": kind, "ts": f"2024-02-29T12:30:01{part}Z", "data": {"n": [1, "é"]}}
        for kind in ("A", "ORDER_NEW")
        for part in ("", ".123", ".123456")
    ]
    events = [json.dumps(row, separators=blanks).encode() for row in rows for blanks in ((",", ":"), (", ", ": "))]
    found = read(events, keep=False)
    assert found["type"] == [row["type"] for row in rows for _ in range(2)]
    assert found["ts"] == [datetime.fromisoformat(str(row["ts"])) for row in rows for _ in range(2)]
    assert [json.loads(one) for one in found["data"]] == [row["data"] for row in rows for _ in range(2)]


class Event(msgspec.Struct):
    """An event as it is decoded alone."""

    type: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_]+\Z")]
    ts: Annotated[datetime, msgspec.Meta(tz=True)]
    data: msgspec.Raw


def alone(event: bytes | None) -> tuple[str | None, datetime | None, str | None, str | None]:
    """Return type, time and data of an event, or what is kept of a corrupt one."""
    if event is None:
        return None, None, None, None
    try:
        found = msgspec.json.decode(event, type=Event)
        return found.type, found.ts, bytes(found.data).decode(), None
    except ValueError:
        return None, None, None, event.decode(errors="replace")


def mostly(usual: st.SearchStrategy[bytes], *others: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy which seldom takes one of the others, so that most events have one flaw or none."""
    return st.integers(0, 9).flatmap(lambda number: usual if number else st.sampled_from(others))


TIME_TEXTS = [b"2024-02-29T12:30:01Z", b"1969-12-31T23:59:59.999Z", b"9999-12-31T23:59:59.999999Z"]
ODD_TIMES = [
    *(b"2024-02-29 12:30:01Z", b"2024-02-29t12:30:01z", b"2024-02-29T12:30:01.5Z", b"2024-02-29T12:30:01.1234567Z"),
    *(b"2024-02-29T12:30:01+00:00", b"2024-02-29T12:30:01.1+00", b"2024-02-29T12:30:01", b"2024-02-29T12:30Z"),
    *(b"2023-02-29T12:30:01Z", b"2024-02-29T24:00:00Z", b"2024-06-30T23:59:60Z", b"0000-01-01T00:00:00Z"),
    *(b"2024-02-29T12:30:0\\u0031Z", b"2024-02-29T12:30:0\xffZ", b""),
]
ODD_VALUES = [
    *(b"", b" ", b" 1", b"1 ", b"\n1", b"1,2", b'1,"x":2', b"1]", b"1],[2", b"1 2", b"1\n2", b"1}", b'1},{"":2'),
    *(b"[1", b"2]", b"   [1", b'2],"a"', b"[", b"]", b'{"a":1', b'"b":2}', b'"a', b'b"', b'"a\nb"', b'"\\'),
    *(b"NaN", b"01", b"-", b"1.", b"1e999", b"tru", b"[1,]", b'"\\ud800"', b'"\\x"', b'"\xff"', b'{"a":1,"a":2}'),
]
JSON_TEXTS = VALUES.map(lambda one: json.dumps(one, ensure_ascii=False).encode("utf-8", "replace"))


def written(blank: bytes) -> st.SearchStrategy[bytes]:
    """Return events with these blanks, and now and then something else in one of their places."""
    head, time, data = (one.replace(b" ", blank) for one in (b'{"type": "', b'", "ts": "', b'", "data": '))
    return st.tuples(
        mostly(st.just(head), b'{"type":"', b' {"type":"', b'{"typo":"', b'[{"type":"', b""),
        mostly(st.sampled_from([b"A", b"ORDER_NEW"]), b"", b"A B", b"A\\n", b"\\u0041", b"\xff", b'A","ts":"'),
        mostly(st.just(time), b'", "ts":"', b'","ts" :"', b'","type":"B","ts":"', b'","ts":"","ts":"', b'","ts":'),
        mostly(st.sampled_from(TIME_TEXTS), *ODD_TIMES),
        mostly(st.just(data), b'","data": ', b'","data":1,"data":', b'","x":', b'"}'),
        mostly(JSON_TEXTS, *ODD_VALUES),
        mostly(st.just(b"}"), b"", b" }", b"}\n", b"}}", b',"ts":"2024-02-29T12:30:01Z"}', b'},{"type":"A"}'),
    ).map(b"".join)


@given(
    st.lists(st.none() | written(b"") | written(b" ") | GOOD | BAD, max_size=12),
    st.sampled_from([1, 2, 5, 8192]),
    st.integers(0, 3),
)
@settings(max_examples=examples(500))
def test_plain_and_other_events_are_decoded_alike(events: list[bytes | None], part: int, skipped: int) -> None:
    """The quick way takes only what it is sure of, whatever the neighbours look like when they are joined."""
    array = pa.array(events, pa.binary())[skipped:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_futoin, "_PART", part)
        found = read_array(array)
    wanted = [alone(event) for event in events[skipped:]]
    assert list(zip(found["type"], found["ts"], found["data"], found[CORRUPT], strict=True)) == wanted


@pytest.mark.parametrize("blanks", [(",", ":"), (", ", ": ")])
def test_a_plain_event_with_any_byte_changed_is_decoded_alike(
    blanks: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that is looked at too briefly would let some of them through."""
    monkeypatch.setattr(_futoin, "_PART", 2)
    row = {"type": "A", "ts": "2024-02-29T12:30:01Z", "data": [1]}
    good = json.dumps(row, separators=blanks).encode()
    changed = [good[:at] + new + good[at + 1 :] for at in range(len(good)) for new in (b"", b"x", b'"', b" ", b"1")]
    events = [one for event in changed for one in (good, event)]
    found = read(events)
    wanted = [alone(event) for event in events]
    assert list(zip(found["type"], found["ts"], found["data"], found[CORRUPT], strict=True)) == wanted


@pytest.mark.parametrize(
    "values",
    [
        [b"[1", b"2]"],
        [b"1,2", b""],
        [b"   [1", b'2],"a"'],
        [b'"a', b'b"'],
        [b'{"a":1', b'"b":2}'],
        [b"1],[2"],
        [b"1,2", b"[3", b"4]"],
    ],
)
def test_values_that_are_right_only_when_joined_are_corrupt(values: list[bytes]) -> None:
    """All data is decoded as one list, and such events make one, too."""
    events = [b'{"type":"A","ts":"2024-02-29T12:30:01Z","data":%s}' % value for value in (b"0", *values, b"9")]
    found = read(events)
    assert found["data"] == ["0", *[None] * len(values), "9"]
    assert found[CORRUPT] == [None, *[event.decode() for event in events[1:-1]], None]


@given(st.sampled_from(TIME_TEXTS), st.dictionaries(st.integers(0, 26), st.sampled_from("01239:-.TZ +"), max_size=4))
@example(TIME_TEXTS[1], dict(enumerate(".1+00", 19)))
@example(TIME_TEXTS[0], dict.fromkeys(range(4), "0"))
def test_arrow_reads_no_time_that_is_none(text: bytes, changes: dict[int, str]) -> None:
    """Times are read by Arrow, which must not be more lenient than the decoder, nor find another time."""
    event = event_of("A", 1, "".join(changes.get(place, old) for place, old in enumerate(text.decode())))
    assert read([event])["ts"] == [alone(event)[1]]
