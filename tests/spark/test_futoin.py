"""FutoIn events as columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import EventMalformed
from penstock.spark._futoin import futoin_columns

if TYPE_CHECKING:
    from penstock.client import Store

CORRUPT = "_corrupt"
STREAM = "plant/events"


def read(events: list[bytes | None], *, keep: bool = True) -> dict[str, list[Any]]:
    """Return the columns of events whose offsets are 0, 100, 200 and so on."""
    found = futoin_columns(
        pa.array(events, pa.binary()),
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
    with pytest.raises(EventMalformed, match=f"the event at {STREAM}@100 is no event of FutoIn"):
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
    """Who has an id asks for what comes after it: that is where the next read begins, without any index."""
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
        assert ids[:2] + ids[-1:] == ends
        for number, one in enumerate(ids):
            rest = penstock.StreamCut.of(STREAM, {0: one})
            assert [event for event, _ in rows_of(store, rest)] == events[number + 1 :]


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
