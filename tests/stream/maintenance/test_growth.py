"""What a store takes of its disk, and does, in proportion to what it holds: counted in bytes, files and reads.

Nothing here is measured in seconds; ``python -m bench.growth`` prints those curves.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from penstock.cpo import Cpo, open_cpo
from penstock.log import PlogSizes
from penstock.model import BySize, ByTime, StreamConfig
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE
from penstock.stream.format._block import Block
from penstock.stream.write._lanes import KEY_BYTES_MAX
from penstock.testing import ManualClock, MemoryDisk
from tests.stream.harness import STREAM
from tests.stream.large_harness import SIZES, settle, store_and_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from penstock.log import MetadataManager
    from penstock.stream import Engine
    from penstock.stream.write._writer import StreamWriter
    from penstock.testing._memory import MemoryFile


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as oracle:
        yield oracle


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def opened(disk: MemoryDisk, cpo: Cpo, clock: ManualClock) -> Iterator[tuple[Engine, MetadataManager]]:
    with store_and_manager(disk, cpo, clock=clock) as found:
        yield found


def allocated(disk: MemoryDisk, manager: MetadataManager, kind: str) -> int:
    """Return how many bytes the files of all logs of a kind take: ``s`` of segments, ``t`` of transactions."""
    settle(manager)
    found = 0
    for name, chain in manager.partition.metadata.logs.items():
        if name.startswith(kind) and name != "catalog":
            plogs = [*(plog_id for plog_id, _ in chain.sealed), chain.active, chain.next]
            names = [f"{plog_id.uid}.plog" for plog_id in plogs]
            found += sum(disk.open(one).size() for one in names if one in disk.names())
    return found


def write(store: Engine, size: int, count: int = 1) -> None:
    """Write events of a size, each in a block of its own."""
    with store.writer(STREAM) as writer:
        for _ in range(count):
            writer.write_event(bytes(size), key="k").result()


def scale(store: Engine) -> None:
    """Let the one segment of the stream be followed by another."""
    [segment] = store.stream(STREAM).segments
    store.scale_stream(STREAM, [segment.segment_id], [(0.0, 1.0)])


def test_segments_that_ended_take_no_more_than_their_blocks(
    opened: tuple[Engine, MetadataManager], disk: MemoryDisk
) -> None:
    """Twenty scales once left twice the size of the data allocated, for appends that can never come."""
    store, manager = opened
    store.create_stream(STREAM)
    for _ in range(10):
        write(store, 3000, count=3)
        scale(store)
    blocks = 10 * (HEAD_SIZE * 2 + 3 * (3000 + 100))  # two plogs of 4 and 16 KiB, and what blocks say of themselves
    assert allocated(disk, manager, "s") < blocks


def test_a_sealed_stream_takes_no_more_than_its_blocks(
    opened: tuple[Engine, MetadataManager], disk: MemoryDisk
) -> None:
    """What is kept for years should not keep space allocated that cannot be written."""
    store, manager = opened
    store.create_stream(STREAM)
    write(store, 100)
    assert allocated(disk, manager, "s") > SIZES.first
    store.seal_stream(STREAM)
    assert allocated(disk, manager, "s") < HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE + 200


def test_a_prepared_transaction_takes_no_more_than_its_blocks(
    opened: tuple[Engine, MetadataManager], disk: MemoryDisk
) -> None:
    """Ten thousand may be prepared at once, and each may wait for a day."""
    store, manager = opened
    store.create_stream(STREAM)
    for _ in range(5):
        transaction = store.transactional_writer(STREAM).begin()
        transaction.write_event(bytes(100), key="k")
        transaction.prepare()
    assert allocated(disk, manager, "t") < 5 * (HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE + 200)


def test_segments_that_a_commit_made_and_ended_take_no_more_than_their_blocks(
    opened: tuple[Engine, MetadataManager], disk: MemoryDisk
) -> None:
    """A transaction over a scale leaves a segment that is complete from its first moment on."""
    store, manager = opened
    store.create_stream(STREAM)
    transaction = store.transactional_writer(STREAM).begin()
    transaction.write_event(bytes(100), key="k")
    store.scale_stream(STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
    transaction.prepare()
    transaction.commit()
    assert allocated(disk, manager, "s") < 2 * (HEAD_SIZE + PLOG_BLOCK_HEADER_SIZE) + 200


@pytest.mark.parametrize("segments", [1, 4])
def test_retention_by_size_keeps_little_more_than_the_size(disk: MemoryDisk, cpo: Cpo, segments: int) -> None:
    """A megabyte that was asked for was once nine on the disk, because a plog only goes as a whole."""
    with store_and_manager(disk, cpo, sizes=PlogSizes()) as (store, manager):
        store.create_stream(STREAM, segments, StreamConfig(retention=BySize(1 << 20)))
        with store.writer(STREAM) as writer:
            for _ in range(8):
                writer.write_batch([bytes(1000)] * 1000, keys=[str(number) for number in range(1000)])
                writer.flush()
                store.maintain()
        assert 1 << 19 < store.stream(STREAM).size_bytes <= 1 << 20
        assert allocated(disk, manager, "s") < 2 << 20


def test_a_stream_that_is_to_be_kept_by_size_from_now_on_goes_on_in_small_plogs(disk: MemoryDisk, cpo: Cpo) -> None:
    """The configuration of a stream may change at any time."""
    with store_and_manager(disk, cpo, sizes=PlogSizes()) as (store, _):
        store.create_stream(STREAM)
        write(store, 100_000, count=30)
        store.update_stream(STREAM, StreamConfig(retention=BySize(1 << 20)))
        write(store, 100_000, count=80)
        store.maintain()
        assert store.stream(STREAM).size_bytes <= 1 << 20


def test_retention_by_time_removes_all_that_is_old_enough(disk: MemoryDisk, cpo: Cpo, clock: ManualClock) -> None:
    """The plog that takes events must not keep for hours what was to be gone after a minute."""
    with store_and_manager(disk, cpo, clock=clock, sizes=PlogSizes()) as (store, _):
        store.create_stream(STREAM, config=StreamConfig(retention=ByTime(60)))
        for _ in range(100):
            write(store, 100)
            clock.advance(1)
            store.maintain()
        assert 60 * 100 < store.stream(STREAM).size_bytes < 75 * 200
        clock.advance(61)
        store.maintain()
        assert store.stream(STREAM).size_bytes == 0
        write(store, 100)
        assert sum(batch.num_rows for batch in store.read(STREAM)) == 1


def test_opening_a_store_does_what_became_due_while_it_was_closed(
    disk: MemoryDisk, cpo: Cpo, clock: ManualClock
) -> None:
    """Where processes come and go quickly, none would stay long enough to remove anything."""
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        store.create_stream(STREAM, config=StreamConfig(retention=ByTime(60)))
        write(store, 3000, count=10)
    clock.advance(61)
    with store_and_manager(disk, cpo, clock=clock):
        pass
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        assert store.stream(STREAM).size_bytes == 0


def test_prepared_transactions_leave_few_files(opened: tuple[Engine, MetadataManager], disk: MemoryDisk) -> None:
    """Three megabytes a minute were once twelve thousand files; they are merged in the background."""
    store, manager = opened
    store.create_stream(STREAM)
    writer = store.transactional_writer(STREAM)
    pointers = []
    for number in range(60):
        transaction = writer.begin()
        with transaction.begin_write_event("k") as output:
            output.write(b"%d" % number)
        transaction.prepare()
        transaction.commit()
        pointers.append(output.pointer)
    before = store.tail(STREAM)
    settle(manager)
    files = len(disk.names())
    store.maintain()
    settle(manager)
    assert manager.plog_count("s0.0") < 10
    assert len(disk.names()) < files - 50
    assert store.tail(STREAM) == before
    assert [store.fetch_event(pointer) for pointer in pointers] == [b"%d" % number for number in range(60)]


def test_what_was_not_merged_before_a_store_was_closed_is_merged_by_the_next(disk: MemoryDisk, cpo: Cpo) -> None:
    """A process that commits and ends at once never merges anything itself."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        for _ in range(20):
            transaction = store.transactional_writer(STREAM).begin()
            transaction.write_event(b"event", key="k")
            transaction.prepare()
            transaction.commit()
        assert manager.plog_count("s0.0") > 20
    with store_and_manager(disk, cpo):
        pass
    with store_and_manager(disk, cpo) as (store, manager):
        assert manager.plog_count("s0.0") < 5
        assert [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()] == [b"event"] * 20


def test_merging_does_not_mix_what_retention_removes_at_different_times(
    disk: MemoryDisk, cpo: Cpo, clock: ManualClock
) -> None:
    """A plog only goes as a whole, so one that spans an hour would keep the first minute for an hour."""
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        store.create_stream(STREAM, config=StreamConfig(retention=ByTime(80)))
        for _ in range(100):
            transaction = store.transactional_writer(STREAM).begin()
            transaction.write_event(bytes(100), key="k")
            transaction.prepare()
            transaction.commit()
            clock.advance(1)
        store.maintain()
        store.maintain()
        assert 80 <= sum(batch.num_rows for batch in store.read(STREAM)) <= 91


def calls_of(task: Callable[[], object]) -> int:
    """Return how many calls of Python functions, and steps of generators, a task takes."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        task()
    finally:
        sys.setprofile(before)
    return count


def test_a_scale_costs_the_same_however_many_there_were(opened: tuple[Engine, MetadataManager]) -> None:
    """A stream that is scaled by its load for years would be slower to scale every day."""
    store, _ = opened
    store.create_stream(STREAM)
    for _ in range(20):
        scale(store)
    early = calls_of(lambda: scale(store))
    for _ in range(200):
        scale(store)
    assert calls_of(lambda: scale(store)) < 1.5 * early


class CountingDisk(MemoryDisk):
    """A disk that counts how many files are opened."""

    opened = 0

    def open(self, name: str) -> MemoryFile:
        self.opened += 1
        return super().open(name)


def test_the_first_write_after_a_restart_looks_at_few_segments_however_many_there_were(cpo: Cpo) -> None:
    """Which events of a writer are there is found in the last table of writers, which must never be far away."""
    opened = []
    for count in (40, 160):
        disk = CountingDisk()
        with store_and_manager(disk, cpo, partition=f"p{count}") as (store, _):
            store.create_stream(STREAM)
            with store.writer(STREAM, "w") as writer:
                for _ in range(count):
                    writer.write_event(b"event").result()
                    scale(store)
        with store_and_manager(disk, cpo, partition=f"p{count}") as (store, _):
            before = disk.opened
            with store.writer(STREAM, "w") as writer:
                writer.write_event(b"again", number=count - 1).result()
                writer.write_event(b"next", number=count).result()
            opened.append(disk.opened - before)
            assert sum(batch.num_rows for batch in store.read(STREAM)) == count + 1
    assert opened[1] <= opened[0] < 30


def test_a_writer_remembers_a_bounded_number_of_bytes_of_keys(opened: tuple[Engine, MetadataManager]) -> None:
    """Keys of a few kilobytes, each used once, took hundreds of megabytes before any of them was forgotten."""
    store, _ = opened
    store.create_stream(STREAM, 2)
    with store.writer(STREAM) as writer:
        for number in range(600):
            writer.write_event(b"", key=f"{number}".ljust(40_000))
        assert 0 < sum(len(key) for key in writer._lanes.by_key if key is not None) <= KEY_BYTES_MAX < 600 * 40_000
    assert sum(batch.num_rows for batch in store.read(STREAM)) == 600


def noted(clock: ManualClock, writers: Sequence[StreamWriter]) -> None:
    """Let writers write, and note the time."""
    clock.advance(10)
    for writer in writers:
        writer.write_event(b"event", key="k")
        writer.note_time(int(clock.now() * 1000))
        writer.flush()


def test_watermarks_of_many_streams_share_their_syncs(
    opened: tuple[Engine, MetadataManager], clock: ManualClock
) -> None:
    """With two syncs a stream, five hundred streams did not get through within the second that a run has."""
    store, manager = opened
    names = [f"plant/s{number}" for number in range(30)]
    for name in names:
        store.create_stream(name)
    writers = [store.writer(name, "w") for name in names]
    for _ in range(3):
        noted(clock, writers)
        store.maintain()
    noted(clock, writers)
    before = manager.plogs.syncs.count
    store.maintain()
    assert manager.plogs.syncs.count - before < 10
    assert all(len(store.watermarks(name)) >= 3 for name in names)


def test_a_maintenance_run_puts_a_bounded_number_of_bytes_of_marks_on_record(
    opened: tuple[Engine, MetadataManager], clock: ManualClock
) -> None:
    """Two hundred writers on two hundred segments wrote 650 kB of catalog every second."""
    store, manager = opened
    store.create_stream(STREAM, 200)
    catalog, writers = manager.log("catalog"), [store.writer(STREAM, f"w{number}") for number in range(60)]
    grown = []
    for _ in range(4):
        noted(clock, writers)
        before = catalog.length
        store.maintain()
        grown.append(catalog.length - before)
    assert max(grown) < 100_000 < 60 * 200 * 16
    assert store.watermark(STREAM) is not None


def test_marks_of_all_writers_come_on_record_in_turn_and_all_when_the_store_is_closed(
    disk: MemoryDisk, cpo: Cpo, clock: ManualClock
) -> None:
    """A writer that always came last would count with its first mark after a crash."""
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        store.create_stream(STREAM, 200)
        writers = [store.writer(STREAM, f"w{number}") for number in range(60)]
        for _ in range(8):
            noted(clock, writers)
            store.maintain()
        times = [mark.time for mark in store.catalog.stream(STREAM).writers.values()]
        assert min(times) > int((clock.now() - 60) * 1000)
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        times = [mark.time for mark in store.catalog.stream(STREAM).writers.values()]
        assert set(times) == {int(clock.now() * 1000)}


@pytest.mark.parametrize("by", ["store.read", "read_batch"])
def test_blocks_of_one_event_are_read_together(opened: tuple[Engine, MetadataManager], by: str) -> None:
    """An acknowledged event is often alone in its block; an array for each took most of the time of reading them."""
    store, _ = opened
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        pointers = [writer.write_event(b"%d" % n, key=f"k{n}" if n % 3 else None).result() for n in range(300)]
        writer.write_event(b"with headers", headers={"name": b"value"}).result()
        writer.write_batch([b"a", b"b"]).result()
    with patch.object(Block, "arrow", autospec=True, side_effect=Block.arrow) as arrays:
        batches = list(store.read(STREAM)) if by == "store.read" else [_one_batch(store)]
    [batch] = batches
    assert arrays.call_count < 10, "one for each block that has more than an event"
    assert batch["event"].to_pylist() == [b"%d" % n for n in range(300)] + [b"with headers", b"a", b"b"]
    assert batch["key"].to_pylist() == [f"k{n}".encode() if n % 3 else None for n in range(300)] + [None] * 3
    assert batch["headers"].to_pylist()[299:] == [None, [("name", b"value")], None, None]
    assert batch["offset"].to_pylist()[:300] == [pointer.offset for pointer in pointers if pointer is not None]


def _one_batch(store: Engine) -> pa.RecordBatch:
    with store.create_reader_group("g", [STREAM]).reader("r") as reader:
        batch = reader.read_batch(timeout=1)
        assert batch is not None
        return batch
