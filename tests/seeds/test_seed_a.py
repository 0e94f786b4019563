"""Seed A, the File API, in its own order: every promise once, as a user would try it."""

from __future__ import annotations

import io
import os
import shutil
import threading
import tracemalloc
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import penstock
from penstock.errors import EventClosed, EventTooLarge, StreamCorrupt
from penstock.stream import Engine
from penstock.stream.format._block import (
    BLOCK_HEADER_SIZE,
    Block,
    Chunk,
    Extent,
    StreamBlockHeader,
    pack_chunk,
    pack_extent,
    read_block,
)
from penstock.stream.write._large_write import CHUNK_SIZE, LargeWrite
from tests.stream.harness import embedded_only, inside
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import Reader

STREAM = "plant/cameras"
MIB = 1 << 20


@pytest.fixture(params=["embedded", "remote"])
def store(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with penstock.connect("memory:") as store:
        assert isinstance(store, Engine)
        store.create_stream(STREAM)
        if request.param == "embedded":
            yield store
        else:
            with over_the_wire(store) as outside:
                yield outside


@pytest.fixture
def reader(store: Engine) -> Iterator[Reader]:
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        yield reader


def write_large(store: Engine, data: bytes, key: str = "key") -> penstock.EventPointer:
    with store.writer(STREAM) as writer, writer.begin_write_event(key) as out:
        out.write(data)
    return out.pointer


def rows(store: Engine) -> int:
    return sum(map(len, store.read(STREAM)))


# The File API


def test_it_has_all_that_events_have_and_no_framing_to_do(store: Engine, reader: Reader) -> None:
    """Routing keys, segments, reader groups and unlimited size in one API; an event comes out as it went in."""
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    events = {f"key {number}": os.urandom(number * 700_000) for number in range(6)}
    with store.writer(STREAM) as writer:
        for key, data in events.items():
            with writer.begin_write_event(key) as out:
                out.write(data)
    found = [reader.read_next_event_as_stream(1.0) for _ in events]
    assert sorted(one.read() for one in found if one) == sorted(events.values())
    assert {one.pointer.segment_id for one in found if one} == {1, 2}


def test_small_buffers_do_for_events_of_any_size(tmp_path: Path) -> None:
    """What is in memory does not depend on the event, on either side."""
    piece, pieces = os.urandom(64 << 10), 320
    pa.array([None])  # at its first use pyarrow imports pandas, which would be measured, too
    with penstock.connect(tmp_path) as store:
        store.create_stream(STREAM)
        group = store.create_reader_group("group", [STREAM])
        with store.writer(STREAM) as writer, group.reader("reader") as reader:
            tracemalloc.start()
            with writer.begin_write_event("key") as out:
                for _ in range(pieces):
                    out.write(piece)
            stream = reader.read_next_event_as_stream(1.0)
            assert stream is not None
            buffer = bytearray(len(piece))
            count = 0
            while stream.readinto(buffer) == len(piece):
                assert buffer == piece
                count += 1
            _, highest = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert count == pieces
    assert highest < 6 * CHUNK_SIZE < pieces * len(piece) / 3


def test_nothing_is_committed_before_the_stream_is_closed(store: Engine, reader: Reader) -> None:
    """Readers find no part of an event."""
    with store.writer(STREAM) as writer:
        out = writer.begin_write_event("key")
        out.write(bytes(3 * MIB))
        assert rows(store) == 0
        assert reader.read_next_event_as_stream(0.0) is None
        out.close()
        assert rows(store) == 1
        assert reader.read_next_event_as_stream(1.0) is not None


def test_a_closed_event_is_fixed_and_another_can_be_begun(store: Engine) -> None:
    """Once it is closed no more bytes can be written to it."""
    with store.writer(STREAM) as writer:
        out = writer.begin_write_event("key")
        out.close()
        with pytest.raises(EventClosed):
            out.write(b"more")
        with writer.begin_write_event("key") as another:
            another.write(b"another")
    assert store.fetch_event(out.pointer) == b""
    assert store.fetch_event(another.pointer) == b"another"


def test_the_sample_that_copies_an_event_to_a_file(store: Engine, reader: Reader) -> None:
    """As in the seed's own samples: write in pieces, then copy to a normal file."""
    with store.writer(STREAM) as writer, writer.begin_write_event("routingKey1") as out:
        out.write(b"data1")
        out.write(b"data2" * MIB)
    stream, target = reader.read_next_event_as_stream(1.0), io.BytesIO()
    assert stream is not None
    with stream:
        shutil.copyfileobj(stream, target)
    assert target.getvalue() == b"data1" + b"data2" * MIB


# Other features


def test_a_writer_has_several_events_open_in_different_threads(store: Engine) -> None:
    """They do not disturb each other."""
    data = [os.urandom(2 * MIB + number) for number in range(4)]
    pointers: dict[int, penstock.EventPointer] = {}
    with store.writer(STREAM) as writer:

        def write(number: int) -> None:
            with writer.begin_write_event(f"key {number}") as out:
                for start in range(0, len(data[number]), 300_000):
                    out.write(data[number][start : start + 300_000])
            pointers[number] = out.pointer

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [store.fetch_event(pointers[number]) for number in range(4)] == data


def test_a_reader_has_several_events_open_in_different_threads(store: Engine, reader: Reader) -> None:
    """The stream goes on while earlier events are still being read."""
    data = [os.urandom(2 * MIB + number) for number in range(4)]
    for one in data:
        write_large(store, one)
    streams = [reader.read_next_event_as_stream(1.0) for _ in data]
    found: dict[int, bytes] = {}

    def read(number: int) -> None:
        stream = streams[number]
        assert stream is not None
        found[number] = stream.read()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(4)] == data


def test_a_reader_moves_on_before_the_end_of_an_event(store: Engine, reader: Reader) -> None:
    """A look at the first bytes may be enough."""
    write_large(store, b"first" + bytes(5 * MIB))
    write_large(store, b"second")
    first = reader.read_next_event_as_stream(1.0)
    assert first is not None
    assert first.read(5) == b"first"
    second = reader.read_next_event_as_stream(1.0)
    assert second is not None
    assert second.read() == b"second"


def test_an_event_is_read_by_its_pointer(store: Engine) -> None:
    """Large or small, without reading what is before it."""
    data = os.urandom(3 * MIB)
    small, large = write_large(store, b"small"), write_large(store, data)
    assert store.fetch_event(small) == b"small"
    assert store.fetch_event(large) == data
    with store.fetch_event_as_stream(large) as stream:
        stream.seek(2 * MIB)
        assert stream.read() == data[2 * MIB :]


@pytest.mark.buckets
def test_both_ways_of_writing_mix(store: Engine, reader: Reader) -> None:
    """In any order, which is kept."""
    with store.writer(STREAM) as writer:
        writer.write_event(b"1", "key")
        with writer.begin_write_event("key") as out:
            out.write(b"2" * 2 * MIB)
        writer.write_event(b"3", "key")
        with writer.begin_write_event("key") as out:
            out.write(b"4")
    found = [reader.read_next_event_as_stream(1.0) for _ in range(4)]
    assert [one.read(1) for one in found if one] == [b"1", b"2", b"3", b"4"]


def test_both_ways_of_reading_mix(store: Engine) -> None:
    """A reader may take each event as it likes."""
    for number in range(6):
        write_large(store, bytes([number]) * (number % 2 * 2 * MIB + 1))
    group = store.create_reader_group("mixed", [STREAM])
    with group.reader("reader", max_event_size=10 * MIB) as reader:
        found: list[bytes] = []
        for number in range(6):
            if number in (0, 3, 4):
                read = reader.read_next_event(1.0)
                assert read is not None
                found.append(read.event[:1])
            else:
                stream = reader.read_next_event_as_stream(1.0)
                assert stream is not None
                found.append(stream.read(1))
    assert found == [bytes([number]) for number in range(6)]


def test_events_of_the_event_api_are_read_as_files(store: Engine, reader: Reader) -> None:
    """A reader need not know how they were written."""
    with store.writer(STREAM) as writer:
        writer.write_batch([b"one", b"two"])
    found = [reader.read_next_event_as_stream(1.0) for _ in range(2)]
    assert [one.read() for one in found if one] == [b"one", b"two"]


def test_events_of_the_file_api_are_read_whole_up_to_a_limit(store: Engine, reader: Reader) -> None:
    """Putting them together is the reader's work, up to 1 MiB unless it says otherwise; above that it is told once."""
    write_large(store, bytes(3 * MIB))
    write_large(store, b"next")
    with pytest.raises(EventTooLarge) as caught:
        reader.read_next_event(1.0)
    assert (caught.value.size, caught.value.limit) == (3 * MIB, MIB)
    read = reader.read_next_event(1.0)
    assert read is not None
    assert read.event == b"next"
    with store.create_reader_group("large", [STREAM]).reader("reader", max_event_size=3 * MIB) as large:
        read = large.read_next_event(1.0)
        assert read is not None
        assert read.event == bytes(3 * MIB)


def test_the_event_api_takes_events_of_unlimited_size(store: Engine) -> None:
    """What was made for files serves it, too."""
    data = os.urandom(3 * MIB)
    with store.writer(STREAM) as writer:
        pointer = writer.write_event(data, "key").result()
    assert pointer is not None
    assert store.fetch_event(pointer) == data


# Chunking


def frame_of(block: bytes) -> str:
    return block[BLOCK_HEADER_SIZE:].hex()


def test_the_encoding_of_a_small_event_is_unchanged(store: Engine) -> None:
    """Byte for byte the seed's example, behind the block's header."""
    with store.writer(STREAM) as writer:
        pointer = writer.write_event(bytes.fromhex("12345678")).result()
    assert pointer is not None
    [(_, view)] = inside(store).segments.get(STREAM, 0)._log.opened.blocks(0, 10)  # type: ignore[union-attr]
    assert frame_of(bytes(view)) == "00000004" + "12345678"
    assert pointer.offset == BLOCK_HEADER_SIZE


def test_the_encoding_of_an_event_in_two_chunks(store: Engine) -> None:
    """The seed's second example, with one bit for "partial" as its text says; see decision 20."""
    log = store._logs.new("example")
    write = LargeWrite(lambda: log, store.clock, chunk_size=4)
    write.write(bytes.fromhex("123456789012"))
    assert write.finish() is None
    frames = [frame_of(bytes(view)) for _, view in log.blocks(0, log.length)]
    assert frames == ["80000004" + "12345678", "00000002" + "9012"]


def test_four_high_bits_are_corrupt() -> None:
    """The example's `f000 0004` cannot be told from a length that is absurd, so it is refused."""
    header = StreamBlockHeader(kind=3, count=1, flush_segments=0, time_ms=0)
    block = header.pack() + bytes.fromhex("f0000004" + "12345678")
    with pytest.raises(StreamCorrupt, match="is not the size of its block"):
        read_block(memoryview(block), where="segment", start=0)


def test_a_final_chunk_may_be_empty() -> None:
    """Encoded as `0000 0000`."""
    block = pack_chunk(0, number=0, back=0, partial=False, time_ms=0)
    assert frame_of(block) == "00000000"
    chunk = read_block(memoryview(block), where="segment", start=0)
    assert isinstance(chunk, Chunk)
    assert (bytes(chunk.data), chunk.partial) == (b"", False)


def test_an_event_of_one_chunk_is_an_event_of_before(store: Engine) -> None:
    """Up to the limit there is no difference, so older streams are read as they are."""
    pointer = write_large(store, bytes(CHUNK_SIZE))
    [block] = inside(store).segments.get(STREAM, 0).blocks(pointer.offset, size=1)
    assert isinstance(block, Block)
    assert len(block.data) == CHUNK_SIZE


def test_the_chunks_of_an_event_are_contiguous(store: Engine) -> None:
    """Whatever else is written meanwhile comes before or after."""
    with store.writer(STREAM) as writer, store.writer(STREAM) as other, writer.begin_write_event("key") as out:
        for number in range(5):
            out.write(bytes(MIB))
            other.write_event(b"%d" % number, "key").result()
    segment = inside(store).segments.get(STREAM, 0)
    kinds = [isinstance(block, Chunk) for block in segment.blocks(0, size=segment.tail)]
    assert kinds.count(True) == 5
    assert kinds[-5:] == [True] * 5


def test_the_size_need_not_be_known(store: Engine) -> None:
    """A writer only says that there is more, or that there is not."""
    pieces = iter([b"a" * MIB, b"b" * MIB, b"c"])
    with store.writer(STREAM) as writer, writer.begin_write_event("key") as out:
        for piece in pieces:
            out.write(piece)
    assert store.fetch_event(out.pointer) == b"a" * MIB + b"b" * MIB + b"c"


@pytest.mark.buckets
def test_several_large_events_in_one_explicit_transaction(store: Engine, reader: Reader) -> None:
    """All of them, or none, become part of the stream."""
    with store.transactional_writer(STREAM) as writer, writer.begin() as transaction:
        for number in range(3):
            with transaction.begin_write_event("key") as out:
                out.write(bytes([number]) * 2 * MIB)
        assert rows(store) == 0
    found = [reader.read_next_event_as_stream(1.0) for _ in range(3)]
    assert [one.read(1) for one in found if one] == [b"\0", b"\1", b"\2"]


def test_a_writer_learns_the_pointer_of_what_it_has_written(store: Engine) -> None:
    """Of events and of files."""
    with store.writer(STREAM) as writer:
        pointer = writer.write_event(b"small").result()
        with writer.begin_write_event() as out:
            out.write(bytes(2 * MIB))
    assert pointer is not None
    assert store.fetch_event(pointer) == b"small"
    assert len(store.fetch_event(out.pointer)) == 2 * MIB


def test_all_of_an_event_is_read_from_its_segment(store: Engine) -> None:
    """A reader of several segments does not change over in the middle of an event."""
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    with store.writer(STREAM) as writer:
        for number in range(8):
            with writer.begin_write_event(f"key {number}") as out:
                out.write(bytes([number]) * (2 * MIB + 5))
    group = store.create_reader_group("both", [STREAM])
    with group.reader("reader", max_event_size=4 * MIB) as reader:
        reads = [reader.read_next_event(1.0) for _ in range(8)]
    events = [read.event for read in reads if read]
    assert sorted(event[0] for event in events) == list(range(8))
    assert all(event == event[:1] * (2 * MIB + 5) for event in events)


def test_the_content_does_not_depend_on_how_it_is_read(store: Engine) -> None:
    """As one array of bytes, as a stream, by its pointer."""
    data = os.urandom(3 * MIB + 17)
    pointer = write_large(store, data)
    group = store.create_reader_group("whole", [STREAM])
    with group.reader("reader", max_event_size=4 * MIB) as reader:
        read = reader.read_next_event(1.0)
    with store.create_reader_group("stream", [STREAM]).reader("reader") as other:
        stream = other.read_next_event_as_stream(1.0)
    assert read is not None
    assert stream is not None
    assert read.event == stream.read() == store.fetch_event(pointer) == data


def test_skipping_within_an_event_reads_nothing_in_between(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed counts 1,024 reads for a gigabyte; here it is a computation."""
    pointer = write_large(store, bytes(20 * MIB) + b"end")
    with store.fetch_event_as_stream(pointer) as stream:
        assert stream.size == 20 * MIB + 3
        read = counted_reads(store, monkeypatch)
        assert stream.skip(20 * MIB) == 20 * MIB
        assert not read
        assert stream.read() == b"end"
        assert sum(read) < 2 * MIB


def test_passing_by_an_event_reads_its_extent_alone(
    store: Engine, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its size: 72 bytes, where the seed has 4 KiB for a gigabyte."""
    embedded_only(store)
    write_large(store, bytes(20 * MIB))
    write_large(store, b"next")
    read = counted_reads(store, monkeypatch)
    with pytest.raises(EventTooLarge):
        reader.read_next_event(1.0)
    assert 0 < sum(read) < 200


def counted_reads(store: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the bytes of every block that is read from now on."""
    plogs, found = inside(store)._manager.plogs, list[int]()
    real = plogs.blocks

    def blocks(*args: object) -> object:
        blocks = real(*args)  # type: ignore[arg-type]
        found.append(sum(len(view) for _, view in blocks))
        return blocks

    monkeypatch.setattr(plogs, "blocks", blocks)
    return found


def test_an_event_may_be_larger_than_a_length_word_can_say() -> None:
    """Chunks have lengths of 31 bits; what an extent counts has 64, so no event is too large for it."""
    block = StreamBlockHeader(kind=4, count=0, flush_segments=0, time_ms=0).pack() + pack_extent(1 << 40, (1 << 40) + 7)
    extent = read_block(memoryview(block), where="segment", start=0)
    assert isinstance(extent, Extent)
    assert (extent.size, extent.span) == (1 << 40, (1 << 40) + 7)
