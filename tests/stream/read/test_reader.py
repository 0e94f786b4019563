"""The reader: order, places, batches, ends, what is too large or truncated away, and waking up."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    DataTruncated,
    EventTooLarge,
    NoSuchStream,
    NotDecodable,
    PenstockError,
    StoreClosed,
)
from penstock.model import EventPointer, Position, StreamCut
from penstock.stream.format._block import BLOCK_HEADER_SIZE, LENGTH_SIZE, StreamBlockHeader, pack_lengths
from penstock.stream.read._held_segments import Cursor
from penstock.stream.serializers import StrSerializer
from tests.stream.harness import embedded_only, inside
from tests.stream.wire_harness import come_to_rest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine, LocalReaderGroup, Reader

STREAM: Final = "plant/readings"
OTHER: Final = "plant/alarms"
SECONDS_MAX: Final = 20.0
"""How long to wait for another thread before the test is taken to have failed."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def put(store: Engine, *events: bytes, segment: int = 0, stream: str = STREAM, writer: bytes = bytes(16)) -> None:
    """Append one block, durably."""
    store = inside(store)
    header = StreamBlockHeader(count=len(events), time_ms=int(store.clock.now() * 1000), writer=writer)
    lengths = pack_lengths(np.array([len(event) for event in events]))
    store.segments.get(stream, segment).submit(header, lengths, b"".join(events)).result()


def new_group(store: Engine, *blocks: list[bytes], **options: Any) -> LocalReaderGroup:  # noqa: ANN401 - as the store
    """A group on a new stream with one segment."""
    store.create_stream(STREAM)
    for events in blocks:
        put(store, *events)
    return store.create_reader_group("g", [STREAM], **options)


def rest(reader: Reader) -> list[Any]:
    """Return all events that are there now."""
    found = []
    while (read := reader.read_next_event(timeout=0)) is not None:
        found.append(read.event)
    return found


def rest_in_batches(reader: Reader, max_bytes: int = 8 << 20) -> list[bytes]:
    """Return all events that are there now, read as batches."""
    found = []
    while (batch := reader.read_batch(max_bytes, timeout=0)) is not None:
        found += batch["event"].to_pylist()
    return found


def next_or_error(reader: Reader) -> object:
    """Return the next event, or the error about it."""
    try:
        read = reader.read_next_event(timeout=0)
    except PenstockError as error:
        return error
    return read and read.event


# Events and places


def test_events_come_in_order_and_each_says_where_it_is(store: Engine) -> None:
    """A pointer that was kept finds the event again."""
    group = new_group(store, [b"a", b"", b"ccc"], [b"dd"])
    with group.reader("r") as reader:
        reads = [reader.read_next_event(timeout=0) for _ in range(4)]
    assert [read.event for read in reads if read] == [b"a", b"", b"ccc", b"dd"]
    for read in reads:
        assert read is not None
        assert read.pointer is not None
        assert store.fetch_event(read.pointer) == read.event
        assert read.checkpoint is None


def test_the_position_of_a_read_is_how_far_the_reader_has_come_in_all_segments(store: Engine) -> None:
    """A program that keeps it with the results of an event can go on exactly there, also when it is asked for later."""
    store.create_stream(STREAM, segments=2)
    put(store, b"a", b"b", segment=0)
    put(store, b"x", segment=1)
    put(store, b"c", segment=0)
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        reads = {read.event: read for read in iter(lambda: reader.read_next_event(timeout=0), None)}
    ends = {event: (read.pointer.offset if read.pointer else 0) + 4 + len(event) for event, read in reads.items()}
    assert list(reads) == [b"a", b"b", b"x", b"c"]
    assert [reads[event].position.offsets for event in reads] == [
        {(STREAM, 0): ends[b"a"], (STREAM, 1): 0},
        {(STREAM, 0): ends[b"b"], (STREAM, 1): 0},
        {(STREAM, 0): ends[b"b"], (STREAM, 1): ends[b"x"]},
        {(STREAM, 0): ends[b"c"], (STREAM, 1): ends[b"x"]},
    ]
    assert Position.parse(str(reads[b"x"].position)) == reads[b"x"].position


def test_positions_stay_right_over_very_many_blocks(store: Engine) -> None:
    """They are kept as moves since some block, begun anew from time to time."""
    group = new_group(store, *([b"%d" % number] for number in range(200)))
    with group.reader("r") as reader:
        reads = list(iter(lambda: reader.read_next_event(timeout=0), None))
    tail = store.tail(STREAM)
    following = [read.pointer.offset - 64 for read in reads[1:] if read.pointer]
    assert [read.position.offsets[STREAM, 0] for read in reads] == [*following, tail.offsets[0]]


def test_segments_take_turns_block_by_block(store: Engine) -> None:
    """A segment with much to read does not keep the others waiting."""
    store.create_stream(STREAM, segments=2)
    for number in range(3):
        put(store, b"a%d" % number, b"b%d" % number, segment=0)
    put(store, b"x", segment=1)
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        assert rest(reader) == [b"a0", b"b0", b"x", b"a1", b"b1", b"a2", b"b2"]


def test_a_block_without_events_is_passed_by_also_at_the_end(store: Engine) -> None:
    """A table of writers may be the last thing in a segment, and the reader must still come to its end."""
    group = new_group(store)
    put(store, b"a", writer=b"w" * 16)
    inside(store).segments.get(STREAM, 0).keep_table(before=1 << 40)
    store.seal_stream(STREAM)
    with group.reader("r") as reader:
        assert [read.event for read in reader] == [b"a"]
        assert reader.finished
    assert group.lag().bytes == 0


def test_a_read_is_shown_with_its_place(store: Engine) -> None:
    """Somebody prints one sooner or later."""
    with new_group(store, [b"a"]).reader("r") as reader:
        assert repr(reader.read_next_event(timeout=0)) == "EventRead(b'a', plant/readings:0@64)"


# Ends


def test_reading_ends_by_itself_at_the_end_of_the_group_also_within_a_block(store: Engine) -> None:
    """A bounded job is over when it has read its part, whatever is written meanwhile."""
    store.create_stream(STREAM)
    put(store, b"a", b"b", b"c")
    first = EventPointer(STREAM, 0, 64)
    end = StreamCut.of(STREAM, {0: first.offset + 2 * 5})
    group = store.create_reader_group("g", [STREAM], end=end)
    put(store, b"d")
    with group.reader("r") as reader:
        assert [read.event for read in reader] == [b"a", b"b"]
        assert reader.finished
        assert reader.read_next_event(timeout=None) is None
        assert reader.read_batch(timeout=None) is None
    assert group.position == (end,)


def test_reading_starts_at_the_start_of_the_group_also_within_a_block(store: Engine) -> None:
    """A cut may lie at any event."""
    store.create_stream(STREAM)
    put(store, b"a", b"b", b"c")
    group = store.create_reader_group("g", [STREAM], start=StreamCut.of(STREAM, {0: 64 + 5}))
    with group.reader("r") as reader:
        assert rest(reader) == [b"b", b"c"]


def test_reading_ends_by_itself_when_the_stream_is_sealed(store: Engine) -> None:
    """Nothing more can come."""
    group = new_group(store, [b"a"], [b"b"])
    store.seal_stream(STREAM)
    with group.reader("r") as reader:
        assert [read.event for read in reader] == [b"a", b"b"]


def test_successors_are_read_after_all_their_predecessors(store: Engine) -> None:
    """The order of a key holds across scaling."""
    store.create_stream(STREAM, segments=2)
    put(store, b"a", segment=0)
    put(store, b"b", segment=0)
    put(store, b"c", segment=1)
    store.scale_stream(STREAM, [0, 1], [(0.0, 1.0)])
    put(store, b"d", segment=2)
    store.scale_stream(STREAM, [2], [(0.0, 0.5), (0.5, 1.0)])
    put(store, b"e", segment=3)
    put(store, b"f", segment=4)
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        assert rest(reader) == [b"a", b"c", b"b", b"d", b"e", b"f"]
    with store.create_reader_group("h", [STREAM]).reader("r") as reader:
        assert rest_in_batches(reader) == [b"a", b"c", b"b", b"d", b"e", b"f"]


def test_a_segment_is_not_done_before_the_batch_with_its_end_is(store: Engine) -> None:
    """Another reader would begin with what follows while this one is still at work on what comes before."""
    store.create_stream(STREAM)
    put(store, b"a")
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    put(store, b"b", segment=1)
    group = store.create_reader_group("g", [STREAM])
    with group.reader("r1") as first, group.reader("r2") as second:
        assert first.read_batch(timeout=0)["event"].to_pylist() == [b"a"]  # type: ignore[index]
        assert second.read_batch(timeout=0) is None
        assert first.read_batch(timeout=0)["event"].to_pylist() == [b"b"]  # type: ignore[index]


# What is too large, damaged or gone


def test_an_event_that_is_too_large_is_told_and_the_next_call_goes_on(store: Engine) -> None:
    """One event must not stop a reader for good; its pointer says where it can be had."""
    events = [b"a" * 20, b"b", b"c", b"d" * 30, b"e" * 31, b"f"]
    with new_group(store, events).reader("r", max_event_size=10) as reader:
        found = [next_or_error(reader) for _ in events]
        assert reader.read_next_event(timeout=0) is None
    errors = [one for one in found if isinstance(one, EventTooLarge)]
    assert [one.size if isinstance(one, EventTooLarge) else one for one in found] == [20, b"b", b"c", 30, 31, b"f"]
    for error in errors:
        assert isinstance(error.pointer, EventPointer)
        assert len(store.fetch_event(error.pointer)) == error.size


def test_an_event_that_is_too_large_ends_a_batch_and_is_told_next(store: Engine) -> None:
    """Nothing before or behind it gets lost."""
    with new_group(store, [b"a", b"b" * 20, b"c"]).reader("r", max_event_size=10) as reader:
        assert reader.read_batch(timeout=0)["event"].to_pylist() == [b"a"]  # type: ignore[index]
        with pytest.raises(EventTooLarge):
            reader.read_batch(timeout=0)
        assert rest_in_batches(reader) == [b"c"]


def test_an_event_that_is_too_large_counts_as_read(store: Engine) -> None:
    """A reader that is opened again does not stumble over it again."""
    group = new_group(store, [b"b" * 20])
    with group.reader("r", max_event_size=10) as reader, pytest.raises(EventTooLarge):
        reader.read_next_event(timeout=0)
    with group.reader("r", max_event_size=10) as reader:
        assert reader.read_next_event(timeout=0) is None


def test_what_was_truncated_away_is_told_once_and_reading_goes_on_at_the_head(store: Engine) -> None:
    """The reader learns that it missed something, and is not stuck."""
    group = new_group(store, [b"a"], [b"b"], [b"c"])
    with group.reader("r") as reader:
        store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: 2 * (BLOCK_HEADER_SIZE + LENGTH_SIZE + 1)}))
        with pytest.raises(DataTruncated, match="plant/readings:0@0"):
            reader.read_next_event(timeout=0)
        assert rest(reader) == [b"c"]


def test_plogs_that_vanish_under_the_eyes_of_a_reader_are_what_was_truncated_away(store: Engine) -> None:
    """It had begun to read what is deleted meanwhile; that is no damage."""
    group = new_group(store, *([b"%02d" % number * 15_000] for number in range(12)))  # two a plog
    with group.reader("r") as reader:
        assert reader.read_next_event(timeout=0) is not None
        store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: 11 * (BLOCK_HEADER_SIZE + LENGTH_SIZE + 30_000)}))
        deleted = threading.Event()
        store._manager.spawn(deleted.set)  # behind the deleting
        assert deleted.wait(SECONDS_MAX)
        with pytest.raises(DataTruncated):
            rest(reader)
        assert rest(reader) == [b"11" * 15_000]


def test_when_its_segment_was_truncated_away_a_reader_goes_on_in_those_that_follow(store: Engine) -> None:
    """As above, over a change of segments; also for segments that no reader has taken yet."""
    group = new_group(store, [b"a"])
    with group.reader("r") as reader:
        assert reader.read_next_event(timeout=0) is not None
        put(store, b"b")
        store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
        put(store, b"c", segment=1)
        put(store, b"d", segment=2)
        store.truncate_stream(STREAM, StreamCut.of(STREAM, {1: 0, 2: 0}))
        with pytest.raises(DataTruncated, match="begins at plant/readings:1@0,2@0"):
            reader.read_next_event(timeout=0)
        assert rest(reader) == [b"c", b"d"]
    late = store.create_reader_group("h", [STREAM])
    store.scale_stream(STREAM, [1, 2], [(0.0, 1.0)])
    store.truncate_stream(STREAM, store.tail(STREAM))
    with late.reader("r") as reader:
        with pytest.raises(DataTruncated):
            reader.read_batch(timeout=0)
        assert reader.read_batch(timeout=0) is None


def test_who_had_read_everything_is_not_told_that_it_was_truncated_away(store: Engine) -> None:
    """Nothing was missed, also if the reader had not looked since the segment ended."""
    group = new_group(store, [b"a"])
    with group.reader("r") as reader:
        assert rest(reader) == [b"a"]
        store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
        put(store, b"b", segment=1)
        store.truncate_stream(STREAM, StreamCut.of(STREAM, {1: 0, 2: 0}))
        assert rest(reader) == [b"b"]


def test_what_a_batch_holds_already_is_returned_before_it_is_told_that_the_rest_is_gone(store: Engine) -> None:
    """It would be lost otherwise: the reader has moved on."""
    store.create_stream(STREAM, segments=2)
    put(store, b"a", segment=0)
    put(store, b"b", segment=1)
    put(store, b"c", segment=1)
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: 0, 1: BLOCK_HEADER_SIZE + LENGTH_SIZE + 1}))
        assert reader.read_batch(timeout=0)["event"].to_pylist() == [b"a"]  # type: ignore[index]
        with pytest.raises(DataTruncated):
            reader.read_batch(timeout=0)
        assert rest_in_batches(reader) == [b"c"]


def test_the_end_of_a_group_that_was_truncated_away_is_its_end_all_the_same(store: Engine) -> None:
    """It must not read what it was never to read."""
    store.create_stream(STREAM)
    put(store, b"a")
    group = store.create_reader_group("g", [STREAM], end=store.tail(STREAM))
    put(store, b"b")
    store.truncate_stream(STREAM, store.tail(STREAM))
    put(store, b"c")
    with group.reader("r") as reader:
        with pytest.raises(DataTruncated):
            reader.read_next_event()
        assert reader.read_next_event() is None


def test_a_deleted_stream_is_told(store: Engine) -> None:
    """A reader that would wait for it for ever is worse."""
    with new_group(store, [b"a"]).reader("r") as reader:
        assert rest(reader) == [b"a"]
        put(store, b"b")
        store.seal_stream(STREAM)
        store.delete_stream(STREAM)
        with pytest.raises(NoSuchStream):
            reader.read_next_event()


# Batches


def test_a_batch_has_events_and_places_as_columns(store: Engine) -> None:
    """What Spark and Flight hand on as it is."""
    store.create_stream(STREAM, segments=2)
    put(store, b"a", b"bb", segment=0)
    put(store, b"c", segment=1)
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        batch = reader.read_batch(timeout=0)
    assert batch is not None
    batch.validate(full=True)
    assert batch.schema == pa.schema(
        [
            pa.field("event", pa.binary(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("headers", pa.map_(pa.string(), pa.binary())),
            pa.field("segment_id", pa.int64(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("mark_time", pa.timestamp("ms", "UTC")),
        ]
    )
    found = batch.to_pydict()
    assert all(moment.tzinfo is not None for moment in found.pop("timestamp"))
    assert found == {
        "event": [b"a", b"bb", b"c"],
        "key": [None, None, None],
        "headers": [None, None, None],
        "segment_id": [0, 0, 1],
        "offset": [64, 69, 64],
        "mark_time": [None, None, None],
    }


def test_a_batch_of_a_group_with_several_streams_names_them(store: Engine) -> None:
    """Segment numbers alone would be ambiguous."""
    for name in (STREAM, OTHER):
        store.create_stream(name)
    put(store, b"a")
    put(store, b"b", stream=OTHER)
    with store.create_reader_group("g", [STREAM, OTHER]).reader("r") as reader:
        batch = reader.read_batch(timeout=0)
    assert batch is not None
    batch.validate(full=True)
    assert sorted(zip(batch["event"].to_pylist(), batch["stream"].to_pylist(), strict=True)) == [
        (b"a", STREAM),
        (b"b", OTHER),
    ]


def test_the_events_of_one_block_are_not_copied(store: Engine) -> None:
    """Two readers of the same block look at the same memory."""
    embedded_only(store)
    group = new_group(store, [bytes(300)] * 1000)
    other = store.create_reader_group("h", [STREAM])
    with group.reader("r") as reader, other.reader("r") as second:
        found = [one.read_batch(timeout=0) for one in (reader, second)]
    addresses = {batch["event"].buffers()[2].address for batch in found if batch is not None}
    assert len(addresses) == 1


def test_large_blocks_are_not_kept_waiting_by_small_ones(store: Engine) -> None:
    """A large block is a batch of its own; its turn must come although there are always small ones to gather."""
    store.create_stream(STREAM, segments=2)
    for _ in range(4):
        put(store, b"small", segment=0)
        put(store, bytes(300 << 10), segment=1)
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        sizes = [batch.num_rows for batch in iter(lambda: reader.read_batch(timeout=0), None) if batch is not None]
        assert sizes == [1] * 8


@given(
    blocks=st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=12), max_size=8),
    steps=st.lists(st.integers(0, 120), max_size=40),
)
def test_events_and_batches_of_any_size_in_any_order_give_every_event_once(
    blocks: list[list[bytes]], steps: list[int]
) -> None:
    """A program that mixes both ways of reading, or is short of memory, loses nothing and sees nothing twice."""
    with open_store("memory:") as store, new_group(store, *blocks).reader("r", max_event_size=30) as reader:
        found: list[bytes] = []
        for budget in steps:
            if budget == 0:
                read = reader.read_next_event(timeout=0)
                found += [] if read is None else [read.event]
            else:
                batch = reader.read_batch(budget, timeout=0)
                events = [] if batch is None else batch["event"].to_pylist()
                assert len(events) <= 1 or sum(map(len, events)) <= budget
                found += events
        assert found + rest(reader) == [event for events in blocks for event in events]


def test_an_interrupt_while_a_batch_is_gathered_loses_nothing(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a notebook, and then the cell is run again."""
    group = new_group(store, [b"a"], [b"b"], [b"c"])
    with group.reader("r") as reader:
        original = Cursor.cut
        calls = iter(range(10))

        def interrupted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the original
            if next(calls) == 2:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        monkeypatch.setattr(Cursor, "cut", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reader.read_batch(timeout=0)
        assert rest_in_batches(reader) == [b"a", b"b", b"c"]


# Serializers


def test_a_serializer_gives_values_and_its_error_concerns_one_event(store: Engine) -> None:
    """One event that cannot be understood must not stop a reader for good."""
    with new_group(store, ["ä".encode(), b"\xff", b"c"]).reader("r", StrSerializer()) as reader:
        first = reader.read_next_event(timeout=0)
        with pytest.raises(NotDecodable):
            reader.read_next_event(timeout=0)
        last = reader.read_next_event(timeout=0)
    assert first is not None
    assert last is not None
    assert (first.event, last.event) == ("ä", "c")
    assert last.pointer is not None
    assert store.fetch_event(last.pointer) == b"c"


def test_a_serializer_cannot_end_an_iteration(store: Engine) -> None:
    """StopIteration out of a bug in a serializer would look like the end of a block, and its rest would be lost."""

    class Broken:
        def serialize(self, value: object) -> bytes:
            raise NotImplementedError

        def deserialize(self, data: bytes) -> bytes:
            return next(iter(())) if data == b"b" else data

    with new_group(store, [b"a", b"b", b"c"]).reader("r", Broken()) as reader:
        assert reader.read_next_event(timeout=0) is not None
        with pytest.raises(RuntimeError, match="StopIteration"):
            reader.read_next_event(timeout=0)
        assert rest(reader) == [b"c"]


@pytest.mark.parametrize(
    "options", [{"serializer": "utf-8"}, {"max_event_size": 0}, {"max_event_size": "1 MB"}, {"reader_id": "a/b"}]
)
def test_bad_options_of_a_reader_are_refused(store: Engine, options: dict[str, Any]) -> None:
    """Before it joins the group."""
    group = new_group(store)
    with pytest.raises(BadArgument):
        group.reader(**({"reader_id": "r"} | options))
    assert group.readers() == []


@pytest.mark.parametrize("size", [0, -1, 1.5, None])
def test_a_batch_needs_room(store: Engine, size: Any) -> None:  # noqa: ANN401 - anything
    """Otherwise it would be empty for ever."""
    with new_group(store).reader("r") as reader, pytest.raises(BadArgument):
        reader.read_batch(size)


# Waiting


def test_without_events_a_reader_waits_no_longer_than_it_is_told(store: Engine) -> None:
    """A loop that does other things, too, relies on it."""
    with new_group(store).reader("r") as reader:
        assert reader.read_next_event(timeout=0) is None
        assert reader.read_next_event(timeout=0.01) is None
        assert reader.read_batch(timeout=0.01) is None


def test_a_waiting_reader_gets_an_event_when_it_is_there(store: Engine, pool: ThreadPoolExecutor) -> None:
    """The reader does not poll: the append itself wakes it."""
    with new_group(store).reader("r") as reader:
        for number in range(20):
            waiting = pool.submit(reader.read_next_event, SECONDS_MAX)
            put(store, b"%d" % number)
            read = waiting.result(SECONDS_MAX)
            assert read is not None
            assert read.event == b"%d" % number


def test_a_waiting_reader_goes_on_when_its_segment_is_split(store: Engine, pool: ThreadPoolExecutor) -> None:
    """Nothing is written to the old segment any more, so no append would wake it."""
    with new_group(store).reader("r") as reader:
        waiting = pool.submit(reader.read_next_event, SECONDS_MAX)
        store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
        put(store, b"a", segment=2)
        read = waiting.result(SECONDS_MAX)
        assert read is not None
        assert read.event == b"a"


def test_a_waiting_reader_ends_when_the_stream_is_sealed(store: Engine, pool: ThreadPoolExecutor) -> None:
    """It waits for nothing then."""
    with new_group(store, [b"a"]).reader("r") as reader:
        waiting = pool.submit(lambda: [read.event for read in reader])
        store.seal_stream(STREAM)
        assert waiting.result(SECONDS_MAX) == [b"a"]


def test_a_waiting_reader_is_told_when_the_store_is_closed(store: Engine, pool: ThreadPoolExecutor) -> None:
    """Otherwise its thread would never end."""
    reader = new_group(store).reader("r")
    waiting = pool.submit(reader.read_next_event)
    store.close()
    with pytest.raises(StoreClosed):
        waiting.result(SECONDS_MAX)
    reader.close()


def test_closing_a_reader_ends_its_waiting(store: Engine, pool: ThreadPoolExecutor) -> None:
    """How one thread ends the loop of another."""
    reader = new_group(store).reader("r")
    waiting = pool.submit(reader.read_next_event)
    reader.close()
    with pytest.raises(StoreClosed):
        waiting.result(SECONDS_MAX)


# Closing


def test_what_was_returned_counts_as_read_when_the_reader_is_closed(store: Engine) -> None:
    """The next one goes on exactly behind it."""
    group = new_group(store, [b"a", b"b", b"c"], [b"d"])
    with group.reader("r") as reader:
        assert reader.read_next_event(timeout=0) is not None
    with group.reader("r") as reader:
        assert reader.read_batch(5, timeout=0)["event"].to_pylist() == [b"b"]  # type: ignore[index]
    with group.reader("r") as reader:
        assert rest(reader) == [b"c", b"d"]


@pytest.mark.parametrize("way", ["event", "batch"])
def test_what_an_error_came_upon_does_not_count_as_read(store: Engine, way: str) -> None:
    """It was not processed, so the next reader gets it again."""
    group = new_group(store, [b"a", b"b", b"c"])

    def work() -> None:
        with group.reader("r") as reader:
            assert reader.read_next_event(timeout=0) is not None
            assert (reader.read_next_event(timeout=0) if way == "event" else reader.read_batch(timeout=0)) is not None
            raise LookupError

    with pytest.raises(LookupError):
        work()
    with group.reader("r") as reader:
        assert rest(reader) == [b"b", b"c"]


def test_a_closed_reader_reads_no_more(store: Engine) -> None:
    """And closing it again does nothing."""
    reader = new_group(store, [b"a", b"b"]).reader("r")
    assert reader.read_next_event(timeout=0) is not None
    reader.close()
    reader.close()
    for read in (reader.read_next_event, reader.read_batch):
        with pytest.raises(StoreClosed, match="reader 'r' is closed"):
            read()


def test_a_closed_reader_is_woken_no_more(store: Engine) -> None:
    """A segment that is written to for years does not collect the wake_ups of all who ever read it."""
    store.create_stream(STREAM, segments=3)
    group = store.create_reader_group("g", [STREAM])
    for _ in range(3):
        with group.reader("r") as reader:
            assert reader.read_next_event(timeout=0) is None
    come_to_rest(store)
    assert not any(inside(store).segments.get(STREAM, number)._watchers for number in range(3))
