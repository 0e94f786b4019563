"""Reading large events: as files, from any place; cutting streams around them; and what to make of damage."""

from __future__ import annotations

import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    DataTruncated,
    EventTooLarge,
    NoSuchEvent,
    NoSuchStream,
    StreamCorrupt,
    WrongCut,
)
from penstock.model import ByConsumption, BySize, ByTime, EventPointer, SegmentRange, StreamConfig, StreamCut
from penstock.stream.format._block import BLOCK_HEADER_SIZE, Chunk, Extent
from tests.log.harness import SECONDS_MAX
from tests.sampling import examples
from tests.stream.harness import STREAM, embedded_only, inside
from tests.stream.large_harness import (
    NO_LIMIT,
    SIZES,
    SMALL_CHUNK,
    blocks_of,
    commit_chunks,
    events_of,
    make_limits_small,
    pattern,
    pointers_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.stream import Engine
    from penstock.stream.format._block import AnyBlock
    from penstock.stream.read._reader import Reader
    from penstock.testing import ManualClock

MIB: Final = 1 << 20


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


# Reading as a file


def test_an_event_is_read_from_any_place(store: Engine) -> None:
    """As a file on disk would be; a film need not be read up to the minute that one wants to see."""
    store.create_stream(STREAM)
    data = pattern(3 * MIB + 100)
    with store.writer(STREAM) as writer:
        pointer = writer.write_event(data).result()
    assert pointer is not None
    with store.fetch_event_as_stream(pointer) as source:
        assert (source.readable(), source.seekable(), source.writable()) == (True, True, False)
        assert (source.pointer, source.stream, source.size) == (pointer, STREAM, len(data))
        assert source.read(10) == data[:10]
        assert source.seek(2 * MIB - 5) == source.tell() == 2 * MIB - 5
        assert source.read(5) + source.read(5) == data[2 * MIB - 5 : 2 * MIB + 5]
        assert source.seek(-7, io.SEEK_END) == len(data) - 7
        assert source.read(100) == data[-7:]
        assert source.read(1) == source.read() == b""
        assert source.seek(-len(data), io.SEEK_CUR) == 0
        assert source.skip(MIB) == MIB
        assert source.readline(1) == data[MIB : MIB + 1]
        assert source.skip(NO_LIMIT) == len(data) - MIB - 1
        assert source.skip(1) == 0
        assert source.seek(len(data) + 50) == len(data) + 50
        assert source.read(1) == source.readall() == b""
        assert source.skip(3) == 0
        assert source.seek(3) == 3
        assert source.readall() == data[3:]
        buffer = bytearray(MIB + 9)
        assert source.seek(MIB - 3) == MIB - 3
        assert source.readinto(buffer) == len(buffer), "over the ends of chunks"
        assert buffer == data[MIB - 3 : 2 * MIB + 6]
        assert source.readinto(bytearray()) == 0
        wrong: list[Callable[[], int]] = [lambda: source.seek(-1), lambda: source.seek(0, 9), lambda: source.skip(-1)]
        for call in wrong:
            with pytest.raises(BadArgument, match="cannot s"):
                call()
    for refused in (lambda: source.read(1), lambda: source.seek(0), source.readall):
        with pytest.raises(ValueError, match="closed"):
            refused()


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(40))
@given(st.data())
def test_seeks_and_reads_find_what_a_file_in_memory_would(data: st.DataObject) -> None:
    """A file in memory is the model."""
    event = pattern(data.draw(st.integers(0, 5 * SMALL_CHUNK)), 3)
    with open_store("memory:", sizes=SIZES) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            pointer = writer.write_event(event).result()
        assert pointer is not None
        source, model = io.BufferedReader(store.fetch_event_as_stream(pointer), 16), io.BytesIO(event)
        for _ in range(data.draw(st.integers(1, 10))):
            if data.draw(st.booleans()):
                place = data.draw(st.integers(0, len(event) + 10))
                assert source.seek(place) == model.seek(place)
            size = data.draw(st.integers(-1, 100))
            assert source.read(size) == model.read(size)
            assert source.tell() == model.tell()


def test_several_events_are_read_at_once_from_several_threads(store: Engine) -> None:
    """The seed promises it; each stream has its own place, also two of the same event."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        events = [pattern(2 * MIB + 1000 * number, number) for number in range(3)]
        pointers = [writer.write_event(event).result() for event in events]
    begun = threading.Barrier(6)

    def read(number: int) -> bool:
        pointer = pointers[number % 3]
        assert pointer is not None
        with store.fetch_event_as_stream(pointer) as source:
            begun.wait(SECONDS_MAX)
            return b"".join(iter(lambda: source.read(70_001), b"")) == events[number % 3]

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(6)))


def test_small_events_are_read_as_files_too(store: Engine) -> None:
    """A stream written by either way is readable by the other."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = list(writer.write_batch([b"abc", b"", b"defgh"]).result())
    for pointer, event in zip(pointers, [b"abc", b"", b"defgh"], strict=True):
        with store.fetch_event_as_stream(pointer) as source:
            assert (source.size, source.read(2), source.skip(1)) == (len(event), event[:2], len(event[2:3]))
            source.seek(0)
            assert (source.readall(), source.pointer) == (event, pointer)


@pytest.mark.parametrize("size", [2**62, 2**70])
def test_a_read_of_more_than_there_is_returns_the_rest(store: Engine, size: int) -> None:
    """Whoever wants all of it may pass any number: it must not be the memory that is set aside."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = list(writer.write_batch([b"abc", b""]).result())
    for pointer, event in zip(pointers, [b"abc", b""], strict=True):
        with store.fetch_event_as_stream(pointer) as source:
            assert (source.read(1), source.read(size), source.read(size)) == (event[:1], event[1:], b"")
            source.seek(size)
            assert source.read(size) == source.read() == b""
            for wrong in ("x", 1.5):
                with pytest.raises(TypeError):
                    source.read(wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
def test_no_event_begins_inside_a_large_one(store: Engine) -> None:
    """A pointer is a promise; the extent, and where the chunks begin, are no events."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_event(b"before").result()
        pointer = writer.write_event(bytes(200)).result()
        writer.write_event(b"after").result()
    assert pointer is not None
    places = {offset for _, offset in pointers_of(store)}
    assert len(places) == 3
    assert pointer.offset in places
    for offset in set(range(store.tail(STREAM).offsets[0] + 1)) - places:
        for fetch in (store.fetch_event, store.fetch_event_as_stream):
            with pytest.raises(NoSuchEvent):
                fetch(EventPointer(STREAM, 0, offset))


def test_the_end_of_an_event_is_found_from_its_pointer_with_few_reads(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has only a pointer has not seen the extent; 1,000 chunks must not cost 1,000 reads."""
    make_limits_small(monkeypatch)
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointer = writer.write_event(bytes(1000 * SMALL_CHUNK + 1)).result()
        writer.write_event(bytes(100 * SMALL_CHUNK)).result()
    assert pointer is not None
    segment, reads = store.segments.get(STREAM, 0), count()
    blocks = segment.blocks

    def counted(offset: int, *, end: int | None = None, size: int) -> Iterator[AnyBlock]:
        next(reads)
        return blocks(offset, end=end, size=size)

    monkeypatch.setattr(segment, "blocks", counted)
    assert store.fetch_event_as_stream(pointer).size == 1000 * SMALL_CHUNK + 1
    assert next(reads) < 30


@pytest.mark.usefixtures("small")
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5))
@settings(max_examples=examples(30))
def test_the_size_found_from_a_pointer_is_that_of_the_extent(counts: list[int]) -> None:
    """However many chunks, and whatever comes behind them: other large events have chunks of the same numbers."""
    with open_store("memory:", sizes=SIZES) as store:
        store.create_stream(STREAM)
        sizes = [count * SMALL_CHUNK + count % 3 for count in counts]
        with store.writer(STREAM) as writer:
            pointers = [writer.write_event(bytes(size)).result() for size in sizes]
        for pointer, size in zip(pointers, sizes, strict=True):
            assert pointer is not None
            assert store.fetch_event_as_stream(pointer).size == size


# Truncated away


def truncated_to_its_end(store: Engine) -> None:
    store.truncate_stream(STREAM, store.tail(STREAM))


def scaled_and_truncated(store: Engine) -> None:
    store.scale_stream(STREAM, [0], [(0.0, 1.0)])
    store.truncate_stream(STREAM, store.tail(STREAM))


def sealed_and_deleted(store: Engine) -> None:
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)


@pytest.mark.parametrize("go_away", [truncated_to_its_end, scaled_and_truncated, sealed_and_deleted])
@pytest.mark.parametrize("read_before", [0, 10])
def test_an_event_that_is_truncated_away_while_it_is_read_says_so(
    store: Engine, go_away: Callable[[Engine], None], read_before: int
) -> None:
    """Not the end of the file: who copies it would take the half for the whole."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointer = writer.write_event(bytes(40 * MIB)).result()
        writer.write_event(b"next").result()
    assert pointer is not None
    source = store.fetch_event_as_stream(pointer)
    assert len(source.read(read_before)) == read_before
    go_away(store)
    with pytest.raises(DataTruncated, match=r"plant/readings:0@144"):
        list(iter(lambda: source.read(MIB), b""))
    with pytest.raises((DataTruncated, NoSuchStream)):
        store.fetch_event(pointer)


@pytest.mark.usefixtures("small")
def test_a_stream_is_cut_before_and_behind_a_large_event_and_not_inside(store: Engine) -> None:
    """What is left of a stream is whole events, and each cut has a large event on one side of it, on one only."""
    store.create_stream(STREAM)
    data = pattern(5 * SMALL_CHUNK)
    with store.writer(STREAM) as writer:
        writer.write_event(b"before").result()
        pointer = writer.write_event(data).result()
        writer.write_event(b"after").result()
    assert pointer is not None
    for offset in range(store.tail(STREAM).offsets[0] + 1):
        cut = StreamCut.of(STREAM, {0: offset})
        try:
            inside(store).cuts.check(cut)
        except WrongCut:
            continue
        early, late = events_of(store, end=cut), events_of(store, start=cut)
        assert early + late == [b"before", data, b"after"], offset
        assert (data in late) == (offset <= pointer.offset), offset


@pytest.mark.usefixtures("small")
def test_a_stream_can_be_truncated_at_any_border_of_a_large_event() -> None:
    """Also between the extent and the first chunk, and where the pointer points; what is left reads as before."""
    kept = set()
    for number in range(6):
        with open_store("memory:", sizes=SIZES) as store:
            store.create_stream(STREAM)
            with store.writer(STREAM) as writer:
                writer.write_event(b"before").result()
                pointer = writer.write_event(bytes(200)).result()
                writer.write_event(b"after").result()
            assert pointer is not None
            extent = next(block for block in blocks_of(store) if isinstance(block, Extent))
            end = extent.end + extent.span
            offset = [0, extent.start, extent.end, pointer.offset, end, end + BLOCK_HEADER_SIZE][number]
            store.truncate_stream(STREAM, StreamCut.of(STREAM, {0: offset}))
            left = tuple(events_of(store))
            kept.add(left)
            assert left == ((b"before",) * (number == 0) + (bytes(200),) * (number < 4) + (b"after",))
            if number < 4:
                assert store.fetch_event(pointer) == bytes(200)
            else:
                with pytest.raises(DataTruncated):
                    store.fetch_event(pointer)
    assert len(kept) == 3


# Parts for parallel readers


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("approx_bytes", [1, 50, 64, 130, 300, 1000, 5000])
def test_parts_for_parallel_readers_never_cut_an_event(store: Engine, approx_bytes: int) -> None:
    """Each event is in exactly one part, whole; parts can be sent to other processes."""
    store.create_stream(STREAM, 2)
    with store.writer(STREAM) as writer:
        for number in range(30):
            writer.write_event(b"%d:" % number + bytes(37 * number % 400), key=f"key-{number % 5}").result()
    expected = events_of(store)
    parts = store.segment_ranges(STREAM, approx_bytes=approx_bytes)
    found = [
        event
        for part in pickle.loads(pickle.dumps(parts))
        for batch in store.read_range(part, max_event_size=NO_LIMIT)
        for event in batch["event"].to_pylist()
    ]
    assert found == expected
    for segment in (0, 1):
        mine = [part for part in parts if part.segment_id == segment]
        assert [part.end for part in mine[:-1]] == [part.start for part in mine[1:]]
        assert approx_bytes > 300 or len(mine) > 5


@pytest.mark.usefixtures("small")
def test_a_part_that_begins_inside_a_large_event_is_refused(store: Engine) -> None:
    """No call returns such a part; a made-up one is refused."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_event(bytes(300)).result()
    chunk = blocks_of(store)[2]
    assert isinstance(chunk, Chunk)
    with pytest.raises(NoSuchEvent):
        list(store.read_range(SegmentRange(STREAM, 0, chunk.start, store.tail(STREAM).offsets[0])))


def test_events_above_the_limit_are_null_and_have_their_place(store: Engine) -> None:
    """A job that reads a stream must not die of one event; it can fetch that as a file."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        for event in (b"a", bytes(3 * MIB), b"b", bytes(MIB)):
            writer.write_event(event)
    batches = list(store.read(STREAM))
    rows = [(event, offset) for batch in batches for event, offset in zip(*columns(batch), strict=True)]
    assert [event for event, _ in rows] == [b"a", None, b"b", bytes(MIB)]
    assert store.fetch_event(EventPointer(STREAM, 0, rows[1][1])) == bytes(3 * MIB)
    assert [len(event) for event in events_of(store)] == [1, 3 * MIB, 1, MIB]


def columns(batch: pa.RecordBatch) -> tuple[list[bytes | None], list[int]]:
    return batch["event"].to_pylist(), batch["offset"].to_pylist()


# Retention


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("retention", [ByTime(100.0), BySize(5000), ByConsumption()])
def test_retention_cuts_before_a_large_event_and_not_inside(
    store: Engine, clock: ManualClock, retention: ByTime | BySize | ByConsumption
) -> None:
    """A plog border inside of a large event is no border: the cut moves back to the event's beginning."""
    inside(store).maintenance.close()  # its thread would merge plogs, where writing takes long enough
    store.create_stream(STREAM, config=StreamConfig(retention=retention))
    with store.writer(STREAM) as writer:
        for number in range(4):
            clock.advance(60.0)
            writer.write_event(b"%d" % number * 1000).result()
    assert len(inside(store).segments.get(STREAM, 0).plog_starts()) > 16, "each of them lies in several plogs"
    if isinstance(retention, ByConsumption):
        behind_two = StreamCut.of(STREAM, {0: extents(store)[2].start})
        store.register_consumer(STREAM, "c", behind_two)
    store.maintain()
    left = events_of(store)
    assert left == [b"%d" % number * 1000 for number in range(4 - len(left), 4)]
    assert 0 < len(left) < 4
    head = store.head(STREAM)
    inside(store).cuts.check(head)
    store.maintain()
    assert store.head(STREAM) == head


def extents(store: Engine) -> list[Extent]:
    return [block for block in blocks_of(store) if isinstance(block, Extent)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("limit", range(10, 9000, 600))
def test_retention_by_size_leaves_whole_events_whatever_the_limit(
    store: Engine, clock: ManualClock, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    """Above the limit is only what hangs together with an event that is not to go; maintenance does not complain."""
    store.create_stream(STREAM, config=StreamConfig(retention=BySize(limit)))
    written = [b"small", bytes(2000), b"another", bytes(1999), bytes(500), b"last"]
    with store.writer(STREAM) as writer:
        for event in written:
            with writer.begin_write_event("k") as out:
                for start in range(0, len(event), SMALL_CHUNK):
                    clock.advance(1.0)
                    out.write(event[start : start + SMALL_CHUNK])
    store.maintain()
    left = events_of(store)
    assert left
    assert left == written[-len(left) :]
    assert store.stream(STREAM).size_bytes < limit + 2 * 2000
    assert "put off" not in caplog.text


@pytest.mark.usefixtures("small")
def test_retention_by_time_moves_on_only_when_the_whole_large_event_is_old(store: Engine, clock: ManualClock) -> None:
    """Its first chunks may be hours older than its last."""
    store.create_stream(STREAM, config=StreamConfig(retention=ByTime(100.0)))
    with store.writer(STREAM) as writer:
        writer.write_event(b"old").result()
        with writer.begin_write_event("k") as out:
            for _ in range(40):
                clock.advance(10.0)
                out.write(bytes(SMALL_CHUNK))
        store.maintain()
        assert events_of(store) == [bytes(40 * SMALL_CHUNK)]
        clock.advance(99.0)
        writer.write_event(b"new").result()
        store.maintain()
        assert events_of(store) == [bytes(40 * SMALL_CHUNK), b"new"]
        clock.advance(2.0)
        store.maintain()
        assert events_of(store) == [b"new"]


@pytest.mark.usefixtures("small")
def test_retention_by_time_counts_from_when_an_event_became_part_of_the_stream(
    store: Engine, clock: ManualClock
) -> None:
    """A transaction that takes longer than events are kept would be gone as soon as it is committed."""
    store.create_stream(STREAM, config=StreamConfig(retention=ByTime(100.0)))
    transaction = store.transactional_writer(STREAM).begin(lease=2000.0)
    transaction.write_event(bytes(500), key="k")
    clock.advance(1000.0)
    transaction.commit()
    for age, left in ((99.0, 1), (2.0, 0)):
        clock.advance(age)
        store.maintain()
        assert len(events_of(store)) == left


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_retention_by_size_keeps_the_newest_event(
    store: Engine, clock: ManualClock, count: int, is_scaled: bool
) -> None:
    """One that is larger than the limit could never be read: it would be gone as soon as it is there."""
    embedded_only(store)
    store.create_stream(STREAM, config=StreamConfig(retention=BySize(100)))
    with store.writer(STREAM) as writer:
        for number in range(count):
            writer.write_event(b"%d" % number * 1000, key="k")
            clock.advance(1.0)
    if is_scaled:
        store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    for _ in range(2):
        store.maintain()
        assert events_of(store) == [b"%d" % (count - 1) * 1000]


# Damage


@pytest.mark.usefixtures("small")
def test_a_reader_goes_on_behind_a_large_event_that_was_truncated_away(store: Engine) -> None:
    """It had the event before its eyes already; that it is gone is told once, not for ever."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        for event in (b"small", bytes(64 << 10), b"small, too"):
            writer.write_event(event, key="k").result()
        group = store.create_reader_group("g", [STREAM])
        with group.reader("r", max_event_size=2 * MIB) as reader:
            batch = reader.read_batch(timeout=1.0)
            assert batch is not None
            assert batch["event"].to_pylist() == [b"small"]
            store.truncate_stream(STREAM, store.tail(STREAM))
            writer.write_event(b"next", key="k").result()
            with pytest.raises(DataTruncated):
                reader.read_next_event(timeout=1.0)
            read = reader.read_next_event(timeout=1.0)
            assert read is not None
            assert read.event == b"next"
            assert reader.read_next_event(timeout=0.0) is None


READS: Final[dict[str, Callable[[Reader], object]]] = {
    "events": lambda reader: (read := reader.read_next_event(0.0)) and read.event,
    "files": lambda reader: (event := reader.read_next_event_as_stream(0.0)) and event.read(),
    "batches": lambda reader: (batch := reader.read_batch(1, timeout=0.0)) and batch["event"].to_pylist()[0],
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("partial", "extent"),
    [
        ((True, True, False), (6 + 60, 6 + 180)),  # one chunk less
        ((True, True, False), (6, 6 + 240)),  # one chunk more
        ((True, True, False), (6, 6 + 120)),
        ((True, True, False), (4, 4 + 120)),  # without the last chunk
        ((True, True, False), (5, 6 + 180)),
        ((True, True, False), (0, 0)),
        ((True, True, False), (0, 120)),
        ((True, True, False), (2, 62)),
        ((True, True, False), (1 << 60, (1 << 60) + 180)),
        ((True, True, True), (None, None)),
        ((True, False, False), (None, None)),
        ((False, True, False), (None, None)),
        ((True, True, True), (0, 0)),  # both lie
    ],
)
def test_a_reader_goes_on_behind_a_large_event_that_lies(
    store: Engine, partial: tuple[bool, ...], extent: tuple[int | None, int | None]
) -> None:
    """What is wrong is told, a time or two, and what comes behind it is read; no event appears that never was."""
    size, span = extent
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_event(b"a", key="k").result()
        commit_chunks(store, list(zip((b"bb", b"cc", b"dd"), partial, strict=True)), size=size, span=span)
        for event in (b"e", b"f"):
            writer.write_event(event, key="k").result()
    for way, max_event_size in product(READS, (3, 100)):
        group = store.create_reader_group(f"{way}-{max_event_size}", [STREAM])
        with group.reader("r", max_event_size=max_event_size) as reader:
            found, errors = read_past_errors(reader, way)
        case = (way, max_event_size)
        assert [read for read in found if read not in (b"bbccdd", b"bb", b"bbcc")] == [b"a", b"e", b"f"], case
        assert errors <= 3, case


def read_past_errors(reader: Reader, way: str) -> tuple[list[object], int]:
    """Return what a reader reads, and how often it found something wrong."""
    found: list[object] = []
    errors = 0
    while len(found) + errors < 20:
        try:
            read = READS[way](reader)
        except (StreamCorrupt, EventTooLarge):
            errors += 1
        else:
            if read is None:
                break
            found.append(read)
    return found, errors


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("chunks", "size", "span"),
    [
        ([(b"ab", True), (b"cd", True)], None, None),  # the last one says that more follows
        ([(b"ab", False), (b"cd", False)], None, None),  # the first one says that nothing follows
        ([(b"abc", True), (b"d", True), (b"efg", False)], None, None),  # one in the middle is too short
        ([(b"ab", True), (b"cd", False)], 5, None),
        ([(b"ab", True), (b"cd", False)], 3, None),
        ([(b"ab", True), (b"cd", False)], 1 << 39, None),
        ([(b"ab", True), (b"cd", False)], None, 60),
        ([(b"ab", True), (b"cd", False)], None, 1 << 60),
        ([(b"ab", True), (b"cd", False)], None, 0),
    ],
)
def test_a_chunk_or_an_extent_that_lies_is_a_clear_error(
    store: Engine, chunks: list[tuple[bytes, bool]], size: int | None, span: int | None
) -> None:
    """No other bytes than those written, no endless search, and no memory for a size that was not checked."""
    store.create_stream(STREAM)
    pointer = commit_chunks(store, chunks, size=size, span=span)
    with store.writer(STREAM) as writer:
        writer.write_event(b"next").result()
    with pytest.raises((StreamCorrupt, NoSuchEvent)):
        assert events_of(store) == []
    honest = b"".join(data for data, _ in chunks)
    try:
        assert store.fetch_event(pointer) == (honest if chunks[0][1] else chunks[0][0])
    except StreamCorrupt:
        assert size is span is None, "the pointer leads to the chunks, not to the extent"
