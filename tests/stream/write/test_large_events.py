"""Writing large events: as files, in chunks, atomic at close, in constant memory."""

from __future__ import annotations

import gc
import io
import shutil
import tarfile
import threading
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cpo import open_cpo
from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    DiskFull,
    EventAborted,
    EventClosed,
    NoSuchStream,
    PenstockError,
    StoreClosed,
    StreamSealed,
    WriterFenced,
)
from penstock.log import PlogSizes
from penstock.stream.format._block import BLOCK_HEADER_SIZE, Block, Chunk, Extent
from penstock.stream.serializers import JsonSerializer
from penstock.stream.write._large_write import CHUNK_SIZE, LargeWrite
from penstock.testing import Fault, FaultyDisk, MemoryDisk
from tests.log.harness import SECONDS_MAX, leftovers
from tests.sampling import examples
from tests.stream.harness import STREAM, embedded_only
from tests.stream.large_harness import (
    SIZES,
    SMALL_CHUNK,
    blocks_of,
    commit_chunks,
    events_of,
    make_limits_small,
    pattern,
    settle,
    store_and_manager,
    transaction_logs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.log import MetadataManager
    from penstock.model import EventPointer
    from penstock.stream import Engine, EventOutputStream
    from penstock.testing._faulty import Call

MIB: Final = 1 << 20
FRAME_SIZE: Final = BLOCK_HEADER_SIZE + 4
BORDERS: Final = [0, 1, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1, 2 * CHUNK_SIZE, 2 * CHUNK_SIZE + 1]


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as oracle:
        yield oracle


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


@pytest.fixture
def opened(disk: MemoryDisk, cpo: Cpo) -> Iterator[tuple[Engine, MetadataManager]]:
    """A store with a stream of one segment, and the manager of its logs."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        yield store, manager


# A file like any other


def fill_with_copyfileobj(out: EventOutputStream) -> Callable[[io.RawIOBase], None]:
    data = pattern(3 * MIB + 17)
    shutil.copyfileobj(io.BytesIO(data), out, 100_003)
    return lambda source: _assert_same(source.read(), data)


def fill_buffered(out: EventOutputStream) -> Callable[[io.RawIOBase], None]:
    data = pattern(2 * MIB + 5)
    buffered = io.BufferedWriter(out, 5000)
    for start in range(0, len(data), 777):
        buffered.write(data[start : start + 777])
    buffered.flush()
    buffered.detach()
    return lambda source: _assert_same(io.BufferedReader(source).read(), data)


def fill_with_tar(out: EventOutputStream) -> Callable[[io.RawIOBase], None]:
    files = {f"{number}.bin": pattern(700_000, number) for number in range(4)}
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))

    def check(source: io.RawIOBase) -> None:
        with tarfile.open(fileobj=source, mode="r:") as archive:
            found = {name: archive.extractfile(name) for name in reversed(archive.getnames())}
            assert {name: file.read() for name, file in found.items() if file is not None} == files

    return check


def fill_with_zip(out: EventOutputStream) -> Callable[[io.RawIOBase], None]:
    files = {f"{number}.bin": pattern(700_000, number) for number in range(3)}
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)

    def check(source: io.RawIOBase) -> None:
        with zipfile.ZipFile(source) as archive:
            assert archive.testzip() is None
            assert {name: archive.read(name) for name in archive.namelist()} == files

    return check


def fill_with_arrow(out: EventOutputStream) -> Callable[[io.RawIOBase], None]:
    table = pa.table({"x": range(300_000), "y": [f"row {number}" for number in range(300_000)]})
    sink = pa.PythonFile(out, mode="w")
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, 10_000)

    def check(source: io.RawIOBase) -> None:
        assert pa.ipc.open_file(pa.PythonFile(source, mode="r")).read_all().equals(table)

    return check


def _assert_same(found: bytes | None, expected: bytes) -> None:
    assert found == expected


@pytest.mark.parametrize("fill", [fill_with_copyfileobj, fill_buffered, fill_with_tar, fill_with_zip, fill_with_arrow])
def test_whatever_writes_and_reads_files_writes_and_reads_events(
    store: Engine, fill: Callable[[EventOutputStream], Callable[[io.RawIOBase], None]]
) -> None:
    """That is what a file object is for: users need not learn another interface."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer, writer.begin_write_event("cam-1") as out:
        check = fill(out)
        assert not events_of(store)
    with store.fetch_event_as_stream(out.pointer) as source:
        assert source.size > MIB, "it was to be a large one"
        check(source)


def test_an_event_being_written_is_a_raw_file(store: Engine) -> None:
    """It says of itself what it can do, in the words of the io module, and counts what was written."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer, writer.begin_write_event() as out:
        assert isinstance(out, io.RawIOBase)
        assert (out.writable(), out.readable(), out.seekable(), out.closed) == (True, False, False, False)
        assert out.write(b"") == 0
        assert out.write(bytearray(b"abc")) == 3
        assert out.write(memoryview(b"de")) == 2
        assert out.write(memoryview(pa.array([1, 2], pa.int32()).buffers()[1]).cast("i")) % 8 == 0
        out.writelines([b"x", b"y"])
        out.flush()
        assert out.tell() >= 15
        for refused in (out.fileno, lambda: out.seek(0), lambda: out.truncate(0)):
            with pytest.raises(io.UnsupportedOperation):
                refused()
    assert out.closed


def test_bytes_that_change_after_the_write_do_not_change_the_event(store: Engine) -> None:
    """A copy loop reuses a buffer, also one that is larger than a chunk."""
    store.create_stream(STREAM)
    buffer = bytearray(pattern(2 * MIB + 100))
    expected = bytes(buffer)
    with store.writer(STREAM) as writer, writer.begin_write_event() as out:
        out.write(buffer)
        buffer[:] = bytes(len(buffer))
        out.write(buffer)
        buffer[:] = b"\xff" * len(buffer)
    assert store.fetch_event(out.pointer) == expected + bytes(len(buffer))


@pytest.mark.parametrize("size", BORDERS)
@pytest.mark.parametrize("step", [99_991, CHUNK_SIZE, 5 * CHUNK_SIZE])
def test_events_around_the_size_of_a_chunk_come_back_as_they_were(store: Engine, size: int, step: int) -> None:
    """The borders of chunks are where a byte could be lost or doubled; how it was written must not matter."""
    store.create_stream(STREAM)
    data = pattern(size)
    with store.writer(STREAM) as writer:
        with writer.begin_write_event("k") as out:
            for start in range(0, size, step):
                out.write(b"")
                out.write(data[start : start + step])
        plain = writer.write_event(data, key="k").result()
    assert plain is not None
    for pointer in (out.pointer, plain):
        assert store.fetch_event(pointer) == data
        with store.fetch_event_as_stream(pointer) as source:
            assert (source.size, source.read(), source.read()) == (size, data, b"")
    assert events_of(store) == [data, data]


@pytest.mark.parametrize("size", BORDERS[1:])
def test_chunks_are_full_but_the_last_and_only_the_last_is_not_partial(store: Engine, size: int) -> None:
    """Where a byte is, is computed from that; and what fits into one block is one block, and nothing else."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_event(bytes(size)).result()
    blocks = blocks_of(store)
    if size <= CHUNK_SIZE:
        assert [(type(block), block.count) for block in blocks] == [(Block, 1)]
        return
    extent, *chunks = blocks
    assert isinstance(extent, Extent)
    found = [(len(chunk.data), chunk.partial, chunk.number) for chunk in chunks if isinstance(chunk, Chunk)]
    count = -(-size // CHUNK_SIZE)
    full = [(CHUNK_SIZE, True, number) for number in range(count - 1)]
    assert found == [*full, (size - (count - 1) * CHUNK_SIZE, False, count - 1)]
    assert (extent.size, extent.span) == (size, size + count * FRAME_SIZE)


@settings(max_examples=examples(40))
@given(st.lists(st.binary(max_size=300), max_size=12), st.integers(1, 70))
def test_any_writes_of_any_sizes_add_up(parts: list[bytes], chunk: int) -> None:
    """The event is the concatenation of what was written, whatever the chunks."""
    with pytest.MonkeyPatch.context() as patch, open_store("memory:", sizes=SIZES) as store:
        make_limits_small(patch)
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer, writer.begin_write_event("k") as out:
            for part in parts:
                for start in range(0, len(part), chunk):
                    out.write(part[start : start + chunk])
        assert store.fetch_event(out.pointer) == b"".join(parts)
        assert events_of(store) == [b"".join(parts)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("chunks", [[(b"ab", True), (b"", False)], [(b"ab", True), (b"cd", True), (b"", False)]])
def test_a_last_chunk_of_zero_length_is_legal(store: Engine, chunks: list[tuple[bytes, bool]]) -> None:
    """The seed allows it: a writer need not know that nothing more will come when it sends a chunk."""
    store.create_stream(STREAM)
    pointer = commit_chunks(store, chunks)
    data = b"".join(part for part, _ in chunks)
    with store.writer(STREAM) as writer:
        writer.write_event(b"next").result()
    assert events_of(store) == [data, b"next"]
    assert store.fetch_event(pointer) == data
    with store.fetch_event_as_stream(pointer) as source:
        assert (source.size, source.read(), source.seek(0, io.SEEK_END)) == (len(data), data, len(data))
    assert store.segment_ranges(STREAM, approx_bytes=1)[0].start == 0


# Nothing before close


def test_nothing_is_visible_before_close_and_all_of_it_at_once_after(
    opened: tuple[Engine, MetadataManager],
) -> None:
    """No reader may ever see half an event."""
    store, manager = opened
    with store.writer(STREAM) as writer:
        writer.write_event(b"before").result()
        tail, size = store.tail(STREAM), store.stream(STREAM).size_bytes
        out = writer.begin_write_event("k")
        out.write(bytes(3 * MIB))
        assert transaction_logs(manager), "its bytes are out already"
        assert (store.tail(STREAM), store.stream(STREAM).size_bytes) == (tail, size)
        assert events_of(store) == [b"before"]
        out.close()
        assert events_of(store) == [b"before", bytes(3 * MIB)]
        assert events_of(store, end=tail) == [b"before"]
        assert not transaction_logs(manager)


def write_and_fail(store: Engine, out: EventOutputStream) -> None:
    with pytest.raises(ZeroDivisionError), out:
        out.write(bytes(1 // int(out.write(bytes(2 * MIB)) < 0)))
    del store


def write_and_abort(store: Engine, out: EventOutputStream) -> None:
    out.write(bytes(2 * MIB))
    out.abort()
    out.abort()
    del store


def write_and_lose(store: Engine, out: EventOutputStream) -> None:
    out.write(bytes(2 * MIB))
    del out
    gc.collect()
    store.maintain()


def write_and_seal_the_stream(store: Engine, out: EventOutputStream) -> None:
    out.write(bytes(2 * MIB))
    store.seal_stream(STREAM)
    with pytest.raises(StreamSealed):
        out.close()


def write_and_delete_the_stream(store: Engine, out: EventOutputStream) -> None:
    out.write(bytes(2 * MIB))
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    store.create_stream(STREAM)
    with pytest.raises(NoSuchStream):
        out.close()


def write_and_have_the_writer_fenced(store: Engine, out: EventOutputStream) -> None:
    out.write(bytes(2 * MIB))
    store.writer(STREAM, "w")
    with pytest.raises(WriterFenced):
        out.close()


WAYS_OUT: Final = [
    write_and_fail,
    write_and_abort,
    write_and_lose,
    write_and_seal_the_stream,
    write_and_delete_the_stream,
    write_and_have_the_writer_fenced,
]


@pytest.mark.parametrize("give_up", WAYS_OUT)
def test_an_event_that_is_not_closed_well_was_never_there_and_its_room_is_freed(
    disk: MemoryDisk, cpo: Cpo, give_up: Callable[[Engine, EventOutputStream], None]
) -> None:
    """However it ends: no reader sees it, no log and no plog is left of it, and the store goes on."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        outputs = [store.writer(STREAM, "w").begin_write_event("k")]
        give_up(store, outputs.pop())
        assert not transaction_logs(manager)
        assert not events_of(store)
        if store.stream(STREAM).state == "active":
            with store.writer(STREAM) as writer:
                writer.write_event(b"next").result()
            assert events_of(store) == [b"next"]
    assert not leftovers(manager, disk)


def test_closing_the_writer_or_the_store_ends_its_open_events(disk: MemoryDisk, cpo: Cpo) -> None:
    """What is closed later says so, and is cleared away when the store is opened again at the latest."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        writer = store.writer(STREAM)
        late, later, lost = (writer.begin_write_event() for _ in range(3))
        for out in (late, later, lost):
            out.write(bytes(2 * MIB))
        writer.close()
        with pytest.raises(StoreClosed, match="writer of stream 'plant/readings' is closed"):
            late.close()
        with pytest.raises(StoreClosed, match="writer"):
            writer.begin_write_event()
    with pytest.raises(StoreClosed):
        later.write(b"x")
    with pytest.raises(EventAborted, match="is closed"):
        later.close()
    later.abort()
    del lost
    gc.collect()
    with store_and_manager(disk, cpo) as (store, manager):
        assert not transaction_logs(manager)
        assert not events_of(store)
    assert not leftovers(manager, disk)


def test_writing_to_a_closed_event_is_refused(store: Engine) -> None:
    """Its content is fixed at close; a forgotten writer must not believe that it still writes."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        for size in (3, 2 * MIB):
            out = writer.begin_write_event("k")
            out.write(bytes(size))
            out.close()
            for _ in range(2):
                with pytest.raises(EventClosed, match="it is closed"):
                    out.write(b"more")
                out.close()
                out.abort()
            assert store.fetch_event(out.pointer) == bytes(size)
        out = writer.begin_write_event("k")
        out.abort()
        with pytest.raises(EventClosed, match="it is aborted"):
            out.write(b"more")
        out.close()
    assert len(events_of(store)) == 2


def test_the_pointer_is_known_after_close_and_not_before(store: Engine) -> None:
    """Before that there is no place; an aborted event never has one."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        out = writer.begin_write_event("k")
        with pytest.raises(BadArgument, match="still being written"):
            _ = out.pointer
        out.close()
        assert store.fetch_event(out.pointer) == b""
        out = writer.begin_write_event("k")
        out.abort()
        with pytest.raises(BadArgument, match="aborted"):
            _ = out.pointer


def test_what_is_no_bytes_is_refused_and_the_event_goes_on(store: Engine) -> None:
    """As with any binary file; a slip of the caller's is no reason to lose a gigabyte."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer, writer.begin_write_event("k") as out:
        out.write(b"abc")
        for wrong in ("text", None, 7):
            with pytest.raises(TypeError):
                out.write(wrong)  # type: ignore[arg-type]
        out.write(b"def")
    assert store.fetch_event(out.pointer) == b"abcdef"


@pytest.mark.parametrize("key", [7, 1.5, ["k"]])
def test_a_key_that_is_none_is_refused_before_anything_is_written(store: Engine, key: object) -> None:
    """Not after the upload."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        with pytest.raises(BadArgument, match="invalid routing key"):
            writer.begin_write_event(key)  # type: ignore[arg-type]
        with pytest.raises(BadArgument, match="invalid routing key"):
            writer.write_event(bytes(2 * MIB), key=key)  # type: ignore[arg-type]
        writer.write_event(b"fine").result()
    assert events_of(store) == [b"fine"]


def test_a_buffer_around_an_event_closes_it(store: Engine) -> None:
    """That is how most code will write: in small pieces, through a buffer of its own."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        out = writer.begin_write_event("k")
        with io.BufferedWriter(out) as buffered:
            for number in range(200_000):
                buffered.write(b"%09d\n" % number)
    assert store.fetch_event(out.pointer).split() == [b"%09d" % number for number in range(200_000)]


# Order and threads


def test_the_order_of_events_is_that_of_closing(store: Engine) -> None:
    """Not that of beginning: what becomes an event first is first, and write_event takes part in that."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        first, second, third = (writer.begin_write_event("k") for _ in range(3))
        for number, out in enumerate((first, second, third)):
            out.write(bytes([number]) * (MIB + 1))
        writer.write_event(b"a", key="k")
        third.close()
        writer.write_event(b"b", key="k")
        first.close()
        writer.write_event(b"c" * (MIB + 1), key="k")
        writer.write_event(b"d", key="k")
        with writer.begin_write_event("k") as tiny:
            tiny.write(b"tiny")
        second.close()
    assert [(event[:4], len(event)) for event in events_of(store)] == [
        (b"a", 1),
        (b"\2\2\2\2", MIB + 1),
        (b"b", 1),
        (b"\0\0\0\0", MIB + 1),
        (b"cccc", MIB + 1),
        (b"d", 1),
        (b"tiny", 4),
        (b"\1\1\1\1", MIB + 1),
    ]


def test_many_events_are_open_at_once_from_many_threads(store: Engine) -> None:
    """Each thread's bytes stay together, and the small events that others write meanwhile are all there."""
    store.create_stream(STREAM, 3)
    count, step, begun = 8, 60_000, threading.Barrier(8)

    def write(number: int) -> tuple[EventPointer, bytes]:
        data = pattern(size_of(number), number)
        with writer.begin_write_event(f"key-{number}") as out:
            begun.wait(SECONDS_MAX)
            for start in range(0, len(data), step):
                out.write(data[start : start + step])
                writer.write_event(b"small %d %d" % (number, start), key=f"key-{number}")
        return out.pointer, data

    with store.writer(STREAM, "w") as writer, ThreadPoolExecutor(count) as pool:
        written = dict(pool.map(write, range(count)))
    for pointer, data in written.items():
        assert store.fetch_event(pointer) == data
    found = events_of(store)
    assert sorted(event for event in found if len(event) > MIB) == sorted(written.values())
    for number in range(count):
        mine = [event for event in found if event.startswith(b"small %d " % number)]
        assert mine == [b"small %d %d" % (number, start) for start in range(0, size_of(number), step)]


def size_of(number: int) -> int:
    return MIB + 1 + 70_000 * number


def test_events_with_one_key_stay_in_its_segment_whatever_their_size(store: Engine) -> None:
    """Otherwise their order would be lost."""
    store.create_stream(STREAM, 4)
    with store.writer(STREAM) as writer:
        for number in range(6):
            key = f"key-{number}"
            with writer.begin_write_event(key) as out:
                out.write(bytes(MIB + 1))
            acks = [writer.write_event(event, key=key).result() for event in (b"a", bytes(MIB + 1))]
            assert {out.pointer.segment_id} == {ack.segment_id for ack in acks if ack is not None}


def test_an_event_that_was_begun_before_a_scale_goes_where_its_key_belongs_at_close(store: Engine) -> None:
    """The log of a large event is no segment's before that, so nothing has to be moved."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        outputs = {f"key-{number}": writer.begin_write_event(f"key-{number}") for number in range(6)}
        for key, out in outputs.items():
            out.write(key.encode() * 200_000)
        store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
        for key, out in outputs.items():
            writer.write_event(b"before", key=key)
            out.close()
            after = writer.write_event(b"after", key=key).result()
            assert after is not None
            assert out.pointer.segment_id == after.segment_id > 0
            assert store.fetch_event(out.pointer) == key.encode() * 200_000


# write_event takes the same way


def test_write_event_above_the_limit_is_acknowledged_with_its_pointer(store: Engine) -> None:
    """No caller has to know the limit: an event is an event."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        ack = writer.write_event(bytes(CHUNK_SIZE + 1))
        called: list[object] = []
        ack.add_done_callback(called.append)
        assert ack.done()
        assert called == [ack]
        pointer = ack.result(timeout=0)
    assert pointer is not None
    assert store.fetch_event(pointer) == bytes(CHUNK_SIZE + 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize("large", [{0}, {3}, {9}, {0, 1, 4, 8, 9}, set(range(10))])
def test_a_batch_takes_large_events_among_the_others(store: Engine, large: set[int], has_keys: bool) -> None:
    """A caller with a table need not sort them out; the order of a key holds, and every pointer is right."""
    store.create_stream(STREAM, 3)
    events = [b"%d" % number * (300 if number in large else 20) for number in range(10)]
    keys = [f"key-{number % 3}" for number in range(10)] if has_keys else None
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"before", key="key-0")
        ack = writer.write_batch(events, keys)
        writer.write_event(b"after", key="key-0")
        pointers = ack.result()
        assert ack.done()
    assert [store.fetch_event(pointer) for pointer in pointers] == events
    found = events_of(store)
    assert sorted(found) == sorted([b"before", *events, b"after"])
    for key in range(3 if keys else 0):
        mine = [event for number, event in enumerate(events) if number % 3 == key]
        expected = mine if key else [b"before", *mine, b"after"]
        assert [event for event in found if event in expected] == expected


@pytest.mark.usefixtures("small")
def test_a_batch_with_a_large_event_is_refused_like_any_other(store: Engine) -> None:
    """Nothing of it is written when the call is wrong."""
    store.create_stream(STREAM)
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"a", number=1)
        with pytest.raises(BadArgument, match="numbered by the caller"):
            writer.write_batch([bytes(500), b"b"])
    with pytest.raises(StoreClosed):
        writer.write_batch([bytes(500)])
    assert events_of(store) == [b"a"]


def test_a_serializer_makes_large_events_too(store: Engine) -> None:
    """What counts is how many bytes come out of it; what is written as a file is bytes already."""
    store.create_stream(STREAM)
    with store.writer(STREAM, serializer=JsonSerializer()) as writer:
        writer.write_event(["x" * MIB, 1])
        with writer.begin_write_event() as out:
            out.write(b'["y"]')
    assert events_of(store) == [b'["' + b"x" * MIB + b'",1]', b'["y"]']


def numbered_source() -> list[tuple[int, str, bytes]]:
    """Return events of all sizes, with growing numbers and a few keys."""
    sizes = [10, SMALL_CHUNK + 1, 5, 300, 7, 7, SMALL_CHUNK, 129, 1000, 3]
    return [(3 * number, f"key-{number % 4}", b"%d:" % (3 * number) + bytes(size)) for number, size in enumerate(sizes)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ends_after", range(len(numbered_source()) + 1))
def test_numbered_events_of_any_size_are_written_exactly_once(disk: MemoryDisk, cpo: Cpo, ends_after: int) -> None:
    """A source that begins again with its first event changes nothing but what was missing, after a restart too."""
    source = numbered_source()
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, 2)
        with store.writer(STREAM, "w") as writer:
            for number, key, event in source[:ends_after]:
                writer.write_event(event, key=key, number=number)
            writer.flush()
            assert writer.last_number == (source[ends_after - 1][0] if ends_after else None)
    with store_and_manager(disk, cpo) as (store, _):
        with store.writer(STREAM, "w") as writer:
            assert writer.last_number == (source[ends_after - 1][0] if ends_after else None)
            for number, key, event in source:
                pointer = writer.write_event(event, key=key, number=number).result()
                assert pointer is None or store.fetch_event(pointer) == event
            assert writer.last_number == source[-1][0]
        assert sorted(events_of(store)) == sorted(event for _, _, event in source)


@pytest.mark.usefixtures("small")
def test_a_large_event_without_a_key_goes_to_the_same_place_when_it_is_written_again(store: Engine) -> None:
    """Its number decides; otherwise it could be there twice, in two segments."""
    store.create_stream(STREAM, 5)
    for _ in range(3):
        with store.writer(STREAM, "w") as writer:
            for number in range(8):
                writer.write_event(b"%d" % number * 100, number=number)
    assert sorted(events_of(store)) == [b"%d" % number * 100 for number in range(8)]


@pytest.mark.usefixtures("small")
def test_numbers_go_on_growing_behind_events_that_are_written_as_files(disk: MemoryDisk, cpo: Cpo) -> None:
    """They have numbers, too; a caller who numbers the others sees them counted."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        with store.writer(STREAM, "w") as writer:
            writer.write_event(b"a", number=10)
            for size in (5, 500):
                with writer.begin_write_event("k") as out:
                    out.write(bytes(size))
            assert writer.last_number == 12
            with pytest.raises(BadArgument, match="numbers only grow"):
                writer.write_event(bytes(500), number=12)
            writer.write_event(bytes(500), number=13)
            assert writer.last_number == 13
    with store_and_manager(disk, cpo) as (store, _), store.writer(STREAM, "w") as writer:
        assert writer.last_number == 13
        assert len(events_of(store)) == 4


@pytest.mark.usefixtures("small")
def test_what_has_a_later_number_waits_until_a_large_event_is_there(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its block says that all numbers before it are durable; a crash in between would lose the large one for good."""
    embedded_only(store)
    store.create_stream(STREAM)
    finish = LargeWrite.finish

    def write_another(write: LargeWrite) -> bytes | None:
        writer.write_event(b"later", key="k", number=3)  # as another thread would, in the middle of the upload
        return finish(write)

    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"earlier", key="k", number=1)
        monkeypatch.setattr(LargeWrite, "finish", write_another)
        writer.write_event(bytes(500), key="k", number=2)
    assert events_of(store) == [b"earlier", bytes(500), b"later"]


def test_a_number_needs_a_writer_id_for_large_events_too(store: Engine) -> None:
    """It is kept under that id; this is said before the upload, and nothing of it is kept."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer, pytest.raises(BadArgument, match="need a writer_id"):
        writer.write_event(bytes(2 * MIB), number=1)
    assert not events_of(store)


@pytest.mark.usefixtures("small")
def test_a_numbered_large_event_that_fails_stops_the_writer(cpo: Cpo) -> None:
    """A later number would say that this one is durable, and a source that begins again would leave it out."""
    disk = FaultyDisk(MemoryDisk())
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        writer = store.writer(STREAM, "w")
        writer.write_event(b"a", number=1).result()
        disk.fail(Fault.ENOSPC, on="create", call=None)
        with pytest.raises(DiskFull):
            writer.write_event(bytes(500), number=2)
        disk.heal()
        with pytest.raises(PenstockError, match="open a new writer"):
            writer.write_event(b"b", number=3)
        with store.writer(STREAM, "w") as writer:
            assert writer.last_number == 1
            writer.write_event(bytes(500), number=2)
        assert events_of(store) == [b"a", bytes(500)]
        assert not transaction_logs(manager)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("refused", range(1, 7))
def test_a_numbered_large_event_whose_commit_a_full_disk_interrupts_is_written_once(cpo: Cpo, refused: int) -> None:
    """Its commit may be on record by then; who writes it again, without opening the store anew, must not double it."""
    disk = FaultyDisk(MemoryDisk())
    with store_and_manager(disk, cpo, sizes=PlogSizes(first=128, largest=256)) as (store, manager):
        store.create_stream(STREAM)
        with suppress(DiskFull, CommitUnfinished), store.writer(STREAM, "w") as writer:
            writer.write_event(b"a", key="k", number=1).result()
            settle(manager)
            for call in range(refused, 40):
                disk.fail(Fault.ENOSPC, on="create", call=call)
            writer.write_event(bytes(100), key="k", number=2)
        disk.heal()
        with store.writer(STREAM, "w") as writer:
            assert writer.last_number in (1, 2)
            writer.write_event(bytes(100), key="k", number=2)
            writer.write_event(b"b", key="k", number=3)
        assert events_of(store) == [b"a", bytes(100), b"b"]
        assert not transaction_logs(manager)


@pytest.mark.usefixtures("small")
def test_an_event_that_fails_without_a_number_leaves_the_writer_as_it_was(cpo: Cpo) -> None:
    """Its caller was told; whatever else is written does not depend on it."""
    disk = FaultyDisk(MemoryDisk())
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"a").result()
            disk.fail(Fault.ENOSPC, on="create", call=None)
            with pytest.raises(DiskFull):
                writer.write_event(bytes(500))
            disk.heal()
            writer.write_event(bytes(501))
            writer.write_event(b"b")
        assert events_of(store) == [b"a", bytes(501), b"b"]


# Memory


def test_writing_and_reading_take_the_memory_of_a_chunk_or_two(folder: Path) -> None:
    """Whatever the size of the event: 64 MiB here, a film tomorrow."""
    piece, count = pattern(64 << 10), 1024
    pa.array([None])  # at its first use pyarrow imports pandas, which would be measured, too
    with open_store(folder) as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            tracemalloc.start()
            try:
                with writer.begin_write_event("k") as out:
                    for _ in range(count):
                        out.write(piece)
                written = tracemalloc.get_traced_memory()[1]
                tracemalloc.reset_peak()
                buffer, size = bytearray(64 << 10), 0
                with store.fetch_event_as_stream(out.pointer) as source:
                    while read := source.readinto(buffer):
                        assert buffer[:read] == piece[:read]
                        size += read
                found = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert size == count * len(piece)
    assert written < 5 * MIB
    assert found < 5 * MIB


# The table of writers


@pytest.mark.usefixtures("small")
def test_what_a_writer_wrote_is_found_behind_many_large_events_of_others(
    disk: MemoryDisk, cpo: Cpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of writers lies far back then; a restarted source must not write twice because of that."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        with store.writer(STREAM, "w") as writer:
            writer.write_event(b"small", number=1)
            writer.write_event(bytes(300), number=2)
    for _ in range(3):
        with store_and_manager(disk, cpo) as (store, _), store.writer(STREAM) as other:
            for _ in range(20):
                other.write_event(bytes(3000))
    monkeypatch.setattr("penstock.stream.segment._segment_writers._FIRST_READ_SIZE", 500)
    with store_and_manager(disk, cpo) as (store, _):
        with store.writer(STREAM, "w") as writer:
            assert writer.last_number == 2
            writer.write_event(bytes(300), number=2)
            writer.write_event(b"next", number=3)
        assert [event for event in events_of(store) if len(event) != 3000] == [b"small", bytes(300), b"next"]


def test_large_events_count_for_when_the_table_of_writers_is_written_again(disk: MemoryDisk, cpo: Cpo) -> None:
    """Otherwise it would lie ever farther back behind large events, and opening a writer take ever longer."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        with store.writer(STREAM, "w") as writer:
            for _ in range(6):
                writer.write_event(bytes(5 * MIB))
    for _ in range(3):
        with store_and_manager(disk, cpo) as (store, _), store.writer(STREAM, "w") as writer:
            assert writer.last_number is not None
            writer.write_event(bytes(5 * MIB))
    with store_and_manager(disk, cpo) as (store, _):
        blocks = [block for block in blocks_of(store) if isinstance(block, Block)]
        tables = [block.start for block in blocks if block.end - block.start > BLOCK_HEADER_SIZE]
        gaps = [later - earlier for earlier, later in pairwise([0, *tables, store.tail(STREAM).offsets[0]])]
        assert max(gaps) < 16 * MIB


# Disks that refuse


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("call", ["reserve", "pwritev", "create"])
def test_a_disk_that_refuses_in_the_middle_of_a_large_event_costs_that_event_alone(
    cpo: Cpo, call: Call, fault: Fault
) -> None:
    """A clear error at the write that failed; the stream is as it was, and so is the budget once it is there again."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"before").result()
            out = writer.begin_write_event("k")
            out.write(bytes(3 * MIB))
            settle(manager)
            disk.fail(fault, on=call, call=1 if call == "pwritev" else None)  # the journal has its budget already
            with pytest.raises(PenstockError, match=r"no space left|the disk failed"):
                out.writelines([bytes(MIB)] * 40)
            for use_it in (lambda: out.write(b"more"), out.close):
                with pytest.raises(EventAborted, match="because writing it failed"):
                    use_it()
            out.close()
            disk.heal()
            store.maintain()
            assert not transaction_logs(manager)
            assert events_of(store) == [b"before"]
            with writer.begin_write_event("k") as out:
                out.write(bytes(3 * MIB))
            writer.write_event(b"after").result()
        assert events_of(store) == [b"before", bytes(3 * MIB), b"after"]
    assert not leftovers(manager, memory)


def test_a_file_behind_old_numbers_that_are_sent_again_gets_a_number_above_all(store: Engine) -> None:
    """With a number that was used before it would count as an event that is there already, when it is sent again."""
    store.create_stream(STREAM)
    with store.writer(STREAM, "w") as writer:
        for number in range(1, 11):
            writer.write_event(b"%d" % number, key="k", number=number)
    with store.writer(STREAM, "w") as writer:
        writer.write_event(b"5", key="k", number=5)
        with writer.begin_write_event("k") as output:
            output.write(bytes(3 << 20))
        assert writer.last_number == 11
    assert store.stream(STREAM).events == 11
