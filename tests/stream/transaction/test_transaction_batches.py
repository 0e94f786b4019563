"""Batches in transactions: the events of a list or an Arrow array, as if they were written one by one, but not so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.embedded import open_store
from penstock.errors import BadArgument, TransactionEnded
from penstock.stream.format._columns import Attributes
from penstock.stream.format._keys import key_positions, pack_positions, unpack_positions
from penstock.stream.serializers import StrSerializer
from penstock.stream.transaction import _transaction_logs
from penstock.stream.transaction._buffer import SPILL_SIZE_MAX, TransactionBuffer
from penstock.stream.write._batch import EventRows, array_of
from penstock.stream.write._large_write import EventOutputStream
from tests.sampling import examples
from tests.stream.harness import STREAM, inside
from tests.stream.large_harness import SMALL_CHUNK, blocks_of, events_of, make_limits_small, pointers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.stream import Engine
    from penstock.stream.transaction import BegunTransaction

MIB: Final = 1 << 20
EVENTS: Final = [b"event %d" % number for number in range(40)]
KEYS: Final = [f"key-{number % 7}" for number in range(40)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


def begin(store: Engine) -> BegunTransaction:
    return store.transactional_writer(STREAM).begin()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", [5, 40])
@pytest.mark.parametrize(
    ("events", "keys"),
    [
        (list, list),
        (pa.array, pa.array),
        (lambda some: pa.array(some, pa.large_binary()), lambda some: pa.array(some, pa.large_string())),
        (lambda some: pa.chunked_array([some[:3], some[3:]]), lambda some: pa.chunked_array([some[:1], some[1:]])),
        (lambda some: pa.array([b"-", *some, b"-"])[1:-1], lambda some: pa.array(["-", *some])[1:]),
        (list, lambda some: [key.encode() for key in some]),
        (list, lambda some: pa.array(some).dictionary_encode()),
    ],
)
def test_a_batch_is_its_events_one_by_one(
    store: Engine, events: Callable[[Any], Any], keys: Callable[[Any], Any], count: int
) -> None:
    """In the same segments, in the same order, in whatever form they come; copied or in logs."""
    store.create_stream(STREAM, 4)
    with begin(store) as transaction:
        transaction.write_batch(events(EVENTS[:count]), keys(KEYS[:count]))
    batched = ([segment for segment, _ in pointers_of(store)], events_of(store))
    store.truncate_stream(STREAM, store.tail(STREAM))
    with begin(store) as transaction:
        for event, key in zip(EVENTS[:count], KEYS[:count], strict=True):
            transaction.write_event(event, key=key)
    assert ([segment for segment, _ in pointers_of(store)], events_of(store)) == batched
    assert len(batched[1]) == count


@pytest.mark.parametrize("key", [None, "key", b"key"])
def test_a_batch_may_have_one_key_or_none(store: Engine, key: str | bytes | None) -> None:
    """Then its events stay together, with those that are written without a key, or under this one, by themselves."""
    store.create_stream(STREAM, 8)
    with begin(store) as transaction:
        transaction.write_event(b"first", key)
        transaction.write_batch(EVENTS, key)
        transaction.write_event(b"last", key)
    assert events_of(store) == [b"first", *EVENTS, b"last"]
    assert len({segment for segment, _ in pointers_of(store)}) == 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("prepared", [False, True])
def test_batches_events_and_large_ones_keep_their_order(store: Engine, prepared: bool) -> None:
    """However they are written, under every key what came first comes first; files know their places."""
    store.create_stream(STREAM, 2)
    transaction, expected, outputs = begin(store), [], []
    sizes = [0, 10, SMALL_CHUNK, SMALL_CHUNK + 1, 5 * SMALL_CHUNK]
    for turn in range(12):
        batch = [b"%d %d:" % (turn, place) + bytes(sizes[(turn + place) % 5]) for place in range(turn % 4)]
        transaction.write_batch(batch, "key")
        single = b"%d single:" % turn + bytes(sizes[turn % 5])
        transaction.write_event(single, "key")
        with transaction.begin_write_event("key") as output:
            output.write(b"%d file:" % turn + bytes(sizes[turn % 5]))
        outputs.append(output)
        expected += [*batch, single, b"%d file:" % turn + bytes(sizes[turn % 5])]
    if prepared:
        transaction.prepare()
    transaction.commit()
    assert events_of(store) == expected
    for turn, output in enumerate(outputs):
        assert store.fetch_event(output.pointer).startswith(b"%d file:" % turn)


def test_blocks_of_a_batch_have_a_size_that_a_reader_can_hold(store: Engine) -> None:
    """With real sizes: a reader has each block in memory, and large events among them are large events."""
    store.create_stream(STREAM)
    events = [bytes([number % 251]) * 100_000 for number in range(25)]
    events[7:7] = [bytes(MIB), bytes(MIB + 1), bytes(3 * MIB)]
    with begin(store) as transaction:
        transaction.write_batch(pa.array(events), "key")
    assert events_of(store) == events
    sizes = [block.end - block.start for block in blocks_of(store)]
    assert MIB < max(sizes) <= SPILL_SIZE_MAX + 64, "with the header"
    assert len(sizes) < 15, "and not one block for each event"


@pytest.mark.parametrize(
    ("events", "keys", "message"),
    [
        ([b"a", None], None, "1 of 2 events are null"),
        (pa.array([None, None], pa.binary()), None, "2 of 2 events are null"),
        ([b"a", 5], None, "invalid events"),
        (pa.array([1, 2]), None, "invalid events"),
        (b"abc", None, "invalid events b'abc': use a list of bytes"),
        (5, None, "invalid events 5"),
        ([b"a", b"b"], ["k"], "1 keys for 2 events"),
        ([b"a", b"b"], ["k", "l", "m"], "3 keys for 2 events"),
        ([b"a", b"b"], [1, 2], "invalid routing key"),
        ([b"a", b"b"], 5, "invalid keys 5"),
        ([b"a", b"b"], "\ud800", "invalid routing key"),
        ([], ["k"], "1 keys for 0 events"),
    ],
)
def test_a_batch_that_is_wrong_is_refused_and_nothing_of_it_is_added(
    store: Engine, events: Sequence[object], keys: Sequence[object], message: str
) -> None:
    """A caller that gets the error may write a correct event in the same transaction."""
    store.create_stream(STREAM, 2)
    transaction = begin(store)
    transaction.write_event(b"before", "key")
    with pytest.raises(BadArgument, match=message):
        transaction.write_batch(events, keys)  # type: ignore[arg-type]
    transaction.write_batch([], None)
    transaction.write_batch([b"after"], "key")
    transaction.commit()
    assert events_of(store) == [b"before", b"after"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("logs", [1, 2, 3])
def test_a_batch_that_fails_on_the_way_leaves_nothing_that_could_be_committed(
    store: Engine, monkeypatch: pytest.MonkeyPatch, logs: int
) -> None:
    """Half of it is in the transaction by then; who goes on all the same must not lose the other half."""
    monkeypatch.setattr(_transaction_logs, "LOGS_MAX", logs)
    store.create_stream(STREAM)
    transaction = begin(store)
    with pytest.raises(BadArgument, match="and may have no more"):
        transaction.write_batch([b"a", bytes(500), b"b", bytes(500), b"c"], "key")
    for late in (transaction.commit, transaction.prepare):
        with pytest.raises(TransactionEnded):
            late()
    assert (transaction.status, events_of(store)) == ("aborted", [])


def test_a_batch_goes_through_the_serializer(store: Engine) -> None:
    """As single events do."""
    store.create_stream(STREAM)
    with store.transactional_writer(STREAM, serializer=StrSerializer()).begin() as transaction:
        transaction.write_batch(["ä", "b"], "key")
    assert events_of(store) == ["ä".encode(), b"b"]


def calls_of(task: Callable[[], object]) -> int:
    """Return how many functions are called in this thread, of Python or of C."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        task()
    finally:
        sys.setprofile(None)
    return calls


def test_no_event_of_a_batch_is_touched_by_itself(store: Engine) -> None:
    """The interpreter makes far fewer calls than there are events, here and in the owner: some for each block."""
    store.create_stream(STREAM, 4)
    kinds = [f"key-{number}" for number in range(50)]

    def write(count: int) -> int:
        events, keys = pa.array([b"0123456789"] * count), pa.array(kinds * (count // 50))
        transaction = begin(store)
        found = calls_of(lambda: transaction.write_batch(events, keys))
        transaction.commit()
        return found

    def add(count: int) -> int:
        transaction = begin(inside(store))
        lengths, places = np.full(count, 10, ">u4"), key_positions(kinds * (count // 50))
        found = calls_of(lambda: transaction._begun.add_rows(EventRows(array_of(lengths, bytes(10 * count))), places))
        transaction.commit()
        return found

    assert write(50_000) < 10_000
    assert add(50_000) < 10_000
    assert len(events_of(store)) == 100_000


@given(st.lists(st.binary(max_size=8) | st.text(max_size=8)))
def test_positions_of_keys_survive_the_wire(keys: list[str | bytes]) -> None:
    """Exactly: an event that is a hair off is in another segment than its key."""
    positions = key_positions(keys)
    assert (unpack_positions(pack_positions(positions)) == positions).all()


@settings(max_examples=examples(100))
@given(
    st.lists(st.lists(st.tuples(st.binary(max_size=20), st.floats(0, 1, exclude_max=True)), max_size=6), max_size=6),
    st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), max_size=4, unique=True),
    st.integers(1, 60),
)
def test_what_waits_is_cut_into_blocks_that_say_where_each_event_is(
    batches: list[list[tuple[bytes, float]]], lows: list[float], size: int
) -> None:
    """Against the plain way: each event behind those of its place that came before, at the offset it will have."""
    waiting, borders = TransactionBuffer(), [0.0, *sorted(lows)]
    everything = [one for batch in batches for one in batch]
    outputs: dict[int, EventOutputStream] = {}
    number = 0
    for turn, batch in enumerate(batches):
        if turn % 2 and batch:
            waiting.add_rows(
                EventRows(pa.array([event for event, _ in batch])), np.array([place for _, place in batch])
            )
            number += len(batch)
            continue
        for event, place in batch:
            outputs[number] = EventOutputStream.__new__(EventOutputStream)
            outputs[number]._ended = ""
            waiting.add(event, Attributes(), place, outputs[number])
            number += 1
    assert len(waiting) == number
    assert waiting.size >= sum(12 + len(event) for event, _ in everything)
    found = waiting.by_place(borders, keeps_keys=True)
    told = {}
    for place, events in found.items():
        mine = [at for at, (_, one) in enumerate(everything) if sum(low <= one for low in borders) - 1 == place]
        contents = list(events.blocks(size))
        assert b"".join(bytes(block.body[1]) for block in contents) == b"".join(everything[at][0] for at in mine)
        for block in contents:
            assert block.count == 1 or 4 * block.count + len(block.body[1]) <= size
            offset = 64
            for at in mine[: block.count]:
                told[at] = offset
                offset += 4 + len(everything[at][0])
            mine = mine[block.count :]
            for output, where in block.outputs:
                [at] = [at for at, one in outputs.items() if one is output]
                assert told[at] == where
                told.pop(at)
    assert not told.keys() & outputs.keys(), "every output was told"


def test_a_batch_of_any_size_takes_little_more_memory_than_it_is(tmp_path: Path) -> None:
    """It goes into blocks as it is, and what waited before it is not copied to be with it."""
    with open_store(tmp_path / "data") as store:
        store.create_stream(STREAM, 2)
        transaction = begin(store)
        transaction.write_event(b"before", "key")
        array = pa.array([bytes(1000)] * 64_000)
        measured, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
        pa.set_memory_pool(measured)
        try:
            transaction.write_batch(array, "key")
        finally:
            pa.set_memory_pool(usual)
        assert measured.max_memory() < 1 * MIB
        transaction.commit()
        assert sum(map(len, store.read(STREAM))) == 64_001
