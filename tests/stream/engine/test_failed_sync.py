"""After a failed sync: nothing more is written, and everything that was acknowledged is read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cpo import open_cpo
from penstock.errors import DiskFailed, PenstockError
from penstock.testing import Fault, FaultyDisk, ManualClock, MemoryDisk
from tests.log.harness import SECONDS_MAX
from tests.stream.harness import STREAM, event_of, store_on
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.cpo import Cpo
    from penstock.stream import Reader

EVENTS = 24


class Life:
    """A store whose disk fails when it is told to."""

    def __init__(self, disk: FaultyDisk, store: Any, clock: ManualClock) -> None:  # noqa: ANN401 - here or over the wire
        self.disk, self.store, self.clock = disk, store, clock

    def stop(self) -> None:
        """Let a sync fail, of an append; from then on every one would."""
        self.disk.fail(Fault.EIO, on="datasync", call=None)
        with pytest.raises(PenstockError):
            self.store.create_stream("other/stream")
        with pytest.raises(DiskFailed, match="takes no more writes"):
            self.store.create_stream("other/stream")


@pytest.fixture
def memory() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as cpo:
        yield cpo


@contextmanager
def life_on(memory: MemoryDisk, cpo: Cpo, how: str) -> Iterator[Life]:
    disk, clock = FaultyDisk(memory), ManualClock()
    with suppress(DiskFailed), store_on(disk, cpo, "main", seed=1, clock=clock) as store:
        store.create_stream(STREAM, segments=2)
        if how == "embedded":
            yield Life(disk, store, clock)
        else:
            with over_the_wire(store, clock) as outside:
                yield Life(disk, outside, clock)


@pytest.fixture(params=["embedded", "remote"])
def life(memory: MemoryDisk, cpo: Cpo, request: pytest.FixtureRequest) -> Iterator[Life]:
    with life_on(memory, cpo, request.param) as life:
        yield life


def write(life: Life, numbers: range) -> list[Any]:
    with life.store.writer(STREAM) as writer:
        acks = [writer.write_event(event_of(number, str(number)), key=str(number)) for number in numbers]
        return [ack.result() for ack in acks]


def read_all(*readers: Reader) -> list[int]:
    """Return the numbers of the events that readers get, in turn, until there are no more."""
    found, dry = [], 0
    while dry < 2 * len(readers):
        for reader in readers:
            read = reader.read_next_event(0.05)
            dry = dry + 1 if read is None else 0
            found += [] if read is None else [int(bytes(read.event).split(b":")[1])]
    return sorted(found)


def test_a_new_reader_reads_everything_after_a_failed_sync(life: Life) -> None:
    """A user who saves the data before the disk is replaced needs a reader that was not open before."""
    write(life, range(EVENTS))
    group = life.store.create_reader_group("group", [STREAM])
    life.stop()
    with group.reader("first") as first, group.reader("second") as second:
        assert read_all(first, second) == list(range(EVENTS))
        assert group.readers() == ["first", "second"]
        assert group.lag().events == 0
    assert group.readers() == []
    with group.reader("third") as third:
        assert read_all(third) == [], "the group knows where it is, as long as the store is open"


def test_a_reader_takes_the_successors_of_its_segments_after_a_failed_sync(life: Life) -> None:
    """A scale that was acknowledged must not hide what was written behind it."""
    group = life.store.create_reader_group("group", [STREAM])
    with group.reader("reader") as reader:
        write(life, range(EVENTS))
        assert reader.read_next_event(1) is not None, "it has its segments"
        life.store.scale_stream(STREAM, [0, 1], [(0.0, 0.3), (0.3, 1.0)])
        write(life, range(EVENTS, 2 * EVENTS))
        life.stop()
        assert len(read_all(reader)) == 2 * EVENTS - 1


def test_a_sealed_stream_is_read_to_its_end_after_a_failed_sync(life: Life) -> None:
    """A program that reads until the group is finished must not wait for ever."""
    write(life, range(EVENTS))
    life.store.seal_stream(STREAM)
    group = life.store.create_reader_group("group", [STREAM])
    life.stop()
    with group.reader("reader") as reader:
        assert read_all(reader) == list(range(EVENTS))
        assert reader.read_next_event() is None
    assert group.finished


def test_every_way_to_read_works_after_a_failed_sync(life: Life) -> None:
    """Nothing that only looks may need the disk to take a write."""
    store = life.store
    pointers = write(life, range(EVENTS))
    with store.writer(STREAM) as writer, writer.begin_write_event("large") as out:
        out.write(bytes(3000))
    middle = store.tail(STREAM)
    life.clock.advance(10)
    write(life, range(EVENTS, 2 * EVENTS))
    group = store.create_reader_group("group", [STREAM])
    life.stop()
    count = 2 * EVENTS + 1
    assert sum(map(len, store.read(STREAM))) == count
    assert sum(map(len, store.read(STREAM, start=middle))) == EVENTS
    assert sum(map(len, store.read(STREAM, end=middle))) == EVENTS + 1
    ranges = store.segment_ranges(STREAM)
    assert sum(len(batch) for one in ranges for batch in store.read_range(one)) == count
    assert [bytes(store.fetch_event(pointer)) for pointer in pointers[:3]] == [event_of(n, str(n)) for n in range(3)]
    assert store.fetch_event_as_stream(out.pointer).read() == bytes(3000)
    assert store.stream(STREAM).events == count
    assert [info.name for info in store.streams()] == [STREAM]
    assert store.head(STREAM) != store.tail(STREAM)
    assert store.cut_at_time(STREAM, int(life.clock.now() * 1000), by="append") == middle
    assert store.watermarks(STREAM) == []
    assert store.reader_groups() == ["group"]
    assert group.lag().events == count
    assert group.position == (store.head(STREAM),)
    assert group.checkpoints == {}
    with group.reader("reader") as reader:
        batch = reader.read_batch(timeout=1)
        assert batch is not None
        assert reader.current_time_window(STREAM) is None


def test_what_promises_to_be_durable_is_refused_after_a_failed_sync(life: Life) -> None:
    """No caller may count on a position, a checkpoint or a group that the next open does not know of."""
    write(life, range(EVENTS))
    group = life.store.create_reader_group("group", [STREAM])
    life.stop()
    with group.reader("reader") as reader:
        for _ in range(2):
            assert reader.read_next_event(1) is not None
            with pytest.raises(DiskFailed):
                reader.commit()
        changes: list[Callable[[], object]] = [
            partial(group.checkpoint, "noon", timeout=1),
            partial(group.reset, "head"),
            group.delete,
            partial(life.store.create_reader_group, "other", [STREAM]),
        ]
        for change in changes:
            with pytest.raises(DiskFailed):
                change()
        assert reader.read_next_event(1) is not None


def test_a_checkpoint_that_is_under_way_at_a_failed_sync_fails_and_its_readers_go_on(life: Life) -> None:
    """It would be gone when the store is opened again, and its caller relies on it."""
    write(life, range(EVENTS))
    group = life.store.create_reader_group("group", [STREAM])
    with ThreadPoolExecutor() as pool, group.reader("reader") as reader:
        assert reader.read_next_event(1) is not None, "it has its segments"
        asked, count = pool.submit(group.checkpoint, "noon"), 1
        while (read := reader.read_next_event(SECONDS_MAX)).checkpoint is None:
            count += 1
        assert read.checkpoint == "noon"
        life.stop()
        assert len(read_all(reader)) == EVENTS - count
        with pytest.raises(DiskFailed):
            asked.result(SECONDS_MAX)


def test_positions_after_a_failed_sync_are_lost_and_those_before_are_not(memory: MemoryDisk, cpo: Cpo) -> None:
    """The documents say so: what was read since is read again, and nothing is left out."""
    with life_on(memory, cpo, "embedded") as life:
        write(life, range(EVENTS))
        reader = life.store.create_reader_group("group", [STREAM]).reader("reader")
        before = [reader.read_next_event(1) for _ in range(5)]
        reader.commit()
        life.stop()
        assert len(read_all(reader)) == EVENTS - len(before)
        assert not life.store.groups.positions.run_once(), "there is nothing for it to do"
        reader.close()
    with store_on(memory, cpo, "main", seed=2) as store, store.reader_group("group").reader("reader") as reader:
        assert len(read_all(reader)) == EVENTS - len(before)
