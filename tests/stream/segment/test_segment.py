"""A segment over a real log: what readers see, and that its table of writers is found again."""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import AppendTooLarge, DiskFailed
from penstock.log import LogStream, MetadataManager, PlogSizes
from penstock.plog import APPEND_SIZE_MAX, FilePlogs
from penstock.stream.format import block_digest
from penstock.stream.format._block import BLOCK_HEADER_SIZE, WRITERS, Block, StreamBlockHeader, read_header
from penstock.stream.segment import NumbersTaken, SegmentEnded, SentBlock
from penstock.stream.segment._readable import WakeUp
from penstock.stream.segment._segment import Segment
from penstock.stream.segment._segment_writers import TABLE_EVERY_BLOCKS, TABLE_EVERY_BYTES
from penstock.stream.segment._writer_table import WriterTable, writer_hash
from penstock.testing import Fault, FaultyDisk, ManualClock, MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cpo import Cpo
    from penstock.ports import Disk
    from penstock.stream.segment._segment import PendingBlock

W1: Final = writer_hash("w1")
W2: Final = writer_hash("w2")
W3: Final = writer_hash("w3")
MIB: Final = 1 << 20


class World:
    """A partition on a disk in memory that can be opened again, and how often a segment reads from its log."""

    def __init__(self, cpo: Cpo) -> None:
        self.disk: Disk = MemoryDisk()
        self.cpo = cpo
        self.sizes = PlogSizes(first=1024, largest=4096)
        self.inherited = WriterTable()
        self.inherits = 0
        self.read: Counter[str] = Counter()
        self.clock = ManualClock()

    def _inherit(self) -> WriterTable:
        self.inherits += 1
        return WriterTable(dict(self.inherited.own))

    def segment(self, manager: MetadataManager, end: int | None = None) -> Segment:
        return Segment(manager, "s0.0", where="segment 0 of a/b", end=end, inherit=self._inherit, clock=self.clock)

    @contextmanager
    def manager(self) -> Iterator[MetadataManager]:
        with FilePlogs(self.disk) as plogs, MetadataManager.open(plogs, self.cpo, "p0", sizes=self.sizes) as manager:
            yield manager

    @contextmanager
    def open(self, end: int | None = None) -> Iterator[Segment]:
        with self.manager() as manager:
            yield self.segment(manager, end)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with open_cpo("memory:") as cpo:
        world = World(cpo)
        real = LogStream.labelled_blocks

        def counted(log: LogStream, offset: int, end: int) -> Iterator[tuple[int, memoryview, bytes]]:
            for start, view, label in real(log, offset, end):
                world.read["blocks"] += 1
                world.read["bytes"] += len(view)
                yield start, view, label

        monkeypatch.setattr(LogStream, "labelled_blocks", counted)
        yield world


def submit(
    segment: Segment, event: bytes = b"event", *, writer: bytes = W1, last: int = 1, time_ms: int = 0
) -> PendingBlock:
    header = StreamBlockHeader(count=1, time_ms=time_ms, writer=writer, last_number=last, flush_last=last)
    return segment.submit(header, struct.pack(">I", len(event)), event)


def write(
    segment: Segment, event: bytes = b"event", *, writer: bytes = W1, last: int = 1, time_ms: int = 0
) -> PendingBlock:
    pending = submit(segment, event, writer=writer, last=last, time_ms=time_ms)
    pending.result()
    return pending


def plog_starts(segment: Segment) -> list[int]:
    starts = segment.plog_starts()
    return [starts[index] for index in range(len(starts))]


def tables_in(manager: MetadataManager) -> list[int]:
    """Return where in the segment's log there are tables of writers."""
    log = manager.log("s0.0")
    blocks = log.blocks(log.start, log.length)
    return [start for start, view in blocks if read_header(view, where="", start=start).kind == WRITERS]


def test_readers_see_what_was_acknowledged_and_nothing_beyond(world: World) -> None:
    """What is not durable could still be gone after a crash, and somebody would have read it."""
    with world.open() as segment:
        pending = submit(segment, b"first")
        assert (segment.tail, list(segment.blocks(0))) == (0, [])
        pending.result()
        assert segment.tail == BLOCK_HEADER_SIZE + 4 + 5
        assert [block.events() for block in segment.blocks(0) if isinstance(block, Block)] == [[b"first"]]
        assert write(segment, b"second").start == BLOCK_HEADER_SIZE + 4 + 5


def test_blocks_come_back_from_any_offset_over_many_plogs_and_a_restart(world: World) -> None:
    """From the block that holds the offset on; a reader goes on where it was."""
    events = [f"event {number}".encode() * 5 for number in range(100)]
    with world.open() as segment:
        starts = [write(segment, event).start for event in events]
        assert len(segment.plog_starts()) > 3
    with world.open() as segment:
        for index in (0, 1, 50, 99):
            found = list(segment.blocks(starts[index] + 7))
            assert [block.event(0) for block in found if isinstance(block, Block)] == events[index:]
            assert [block.start for block in found] == starts[index:]
        assert list(segment.blocks(segment.tail)) == []


def test_blocks_are_about_as_many_as_asked_for_and_end_where_told(world: World) -> None:
    """A reader's memory is bounded by what it asks for; at least one block comes, however large."""
    with world.open() as segment:
        starts = [write(segment, bytes(100)).start for _ in range(10)]
        assert len(list(segment.blocks(0, size=1))) == 1
        assert len(list(segment.blocks(0, size=starts[2]))) == 2
        assert len(list(segment.blocks(0, end=starts[3]))) == 3
        assert list(segment.blocks(starts[3], end=starts[3])) == []


def test_a_segment_that_was_never_written_to_has_no_log(world: World) -> None:
    """Ten thousand unused segments cost nothing."""
    with world.manager() as manager:
        segment = world.segment(manager)
        assert (segment.tail, segment.start, list(segment.blocks(0)), plog_starts(segment)) == (0, 0, [], [])
        assert segment.writers().own == {}
        segment.truncate(0)
        segment.keep_table(before=10)
        assert segment.end() == 0
        assert manager.logs() == []


def test_a_segment_that_ended_takes_no_more(world: World) -> None:
    """Its successors do; an event that slipped in behind its end would never be read."""
    with world.open() as segment:
        pending = submit(segment)
        end = segment.end()
        assert end == segment.tail == pending.start + BLOCK_HEADER_SIZE + 4 + 5, "what was under way is part of it"
        with pytest.raises(SegmentEnded):
            submit(segment)
        segment.reopen()
        write(segment)
    with world.open(end=end) as segment:
        assert segment.tail == end
        with pytest.raises(SegmentEnded):
            submit(segment)


def test_what_was_taken_is_counted(world: World) -> None:
    """Automatic scaling goes by it: events, and all bytes that they cost."""
    with world.open() as segment:
        header = StreamBlockHeader(count=3, time_ms=0)
        segment.submit(header, struct.pack(">III", 1, 1, 1), b"abc").result()
        assert (segment.events, segment.bytes) == (3, segment.tail)


def test_whoever_watches_is_told_of_every_block(world: World) -> None:
    """That is how a reader at the tail wakes at once; who stopped watching is not disturbed."""
    with world.open() as segment:
        one, other = WakeUp(), WakeUp()
        segment.watch(one)
        segment.watch(other)
        pending = submit(segment)
        assert not one.wait(0), "nothing to be read yet"
        pending.result()
        assert one.wait(0)
        assert other.wait(0)
        segment.unwatch(one)
        write(segment)
        assert not one.wait(0)
        assert other.wait(0)


def test_the_borders_of_a_segment_are_where_events_begin_and_end(world: World) -> None:
    """A cut within an event would have it read in half."""
    with world.open() as segment:
        write(segment, b"event")
        start = write(segment, b"event").start
        borders = {0, BLOCK_HEADER_SIZE, start, start + BLOCK_HEADER_SIZE, segment.tail}
        assert {offset for offset in range(segment.tail + 1) if segment.is_border(offset)} == borders


# The table of writers


def test_the_table_of_writers_is_found_again(world: World) -> None:
    """It is what makes an event harmless that is sent again after a restart."""
    with world.open() as segment:
        write(segment, last=5)
        write(segment, last=8, writer=W2)
        write(segment, last=9)
        before = segment.writers()
    with world.open() as segment:
        assert segment.writers() == before
        assert segment.writers().last(W1, None) == 9


def test_a_segment_begins_with_what_it_inherited(world: World) -> None:
    """And has it again after a restart, as long as it has no table of its own."""
    world.inherited.note(StreamBlockHeader(count=1, time_ms=0, writer=W3, last_number=7))
    with world.open() as segment:
        write(segment, last=1)
        assert segment.writers().last(W3, None) == 7
    with world.open() as segment:
        assert segment.writers().own.keys() == {W1, W3}
    assert world.inherits == 2


def test_a_table_is_written_every_few_megabytes(world: World) -> None:
    """So the search for it ends soon, however long the segment is."""
    world.sizes = PlogSizes()
    event = bytes(MIB)
    with world.open() as segment:
        write(segment, b"", writer=W3, last=77)
        for number in range(30):
            write(segment, event, last=number + 1)
    with world.manager() as manager:
        assert len(tables_in(manager)) == 3
        world.read.clear()
        table = world.segment(manager).writers()
    assert (table.last(W1, None), table.last(W3, None)) == (30, 77)
    assert world.read["bytes"] < 2 * (TABLE_EVERY_BYTES + 2 * MIB)
    assert world.inherits == 1


def test_a_table_is_written_every_few_thousand_blocks(world: World) -> None:
    """Small blocks cost by their number, not by their bytes."""
    world.sizes = PlogSizes()
    with world.open() as segment:
        write(segment, b"", writer=W3, last=77)
        pending = [submit(segment, b"", last=number + 1) for number in range(5 * TABLE_EVERY_BLOCKS)]
        pending[-1].result()
    with world.manager() as manager:
        assert len(tables_in(manager)) == 4
        world.read.clear()
        table = world.segment(manager).writers()
    assert (table.last(W1, None), table.last(W3, None)) == (5 * TABLE_EVERY_BLOCKS, 77)
    assert world.read["blocks"] < 3 * TABLE_EVERY_BLOCKS


def test_the_distance_to_the_last_table_is_known_after_a_restart(world: World) -> None:
    """Or a store that is opened every few minutes would never write another."""
    world.sizes = PlogSizes()
    for last in range(1, 21):
        with world.open() as segment:
            write(segment, bytes(MIB), last=last)
    with world.manager() as manager:
        assert len(tables_in(manager)) == 2
    for _ in range(2):
        with world.open() as segment:
            pending = [submit(segment, b"", last=21) for _ in range(TABLE_EVERY_BLOCKS // 2 + 2)]
            pending[-1].result()
    with world.manager() as manager:
        assert len(tables_in(manager)) == 3


def test_a_kept_table_outlives_the_blocks_that_it_was_read_from(world: World) -> None:
    """Truncation takes the blocks away; what their writers wrote must still be known."""
    with world.open() as segment:
        write(segment, last=5)
        while len(segment.plog_starts()) < 4:
            write(segment, writer=W2, last=1)
        segment.keep_table(before=segment.tail)
        segment.truncate(segment.tail)
        assert segment.start > 0
    with world.open() as segment:
        assert segment.writers().last(W1, None) == 5
        assert [block.count for block in segment.blocks(segment.start)][-1] == 0, "a table is a block without events"


def test_a_table_that_stays_is_not_written_again(world: World) -> None:
    """Retention passes come often; each would add a block."""
    with world.manager() as manager:
        segment = world.segment(manager)
        write(segment, last=5)
        cut = segment.tail
        segment.keep_table(before=cut)
        segment.keep_table(before=cut)
        assert tables_in(manager) == [cut]
        segment.keep_table(before=segment.tail)
        assert len(tables_in(manager)) == 2
    with world.manager() as manager:
        segment = world.segment(manager)
        segment.keep_table(before=cut)
        assert len(tables_in(manager)) == 2


def test_a_refused_block_does_not_lose_what_is_under_way(world: World) -> None:
    """After it the table is read again, and what another thread is just writing must be in it."""
    with world.open() as segment:
        pending = submit(segment, last=5)
        with pytest.raises(AppendTooLarge):
            submit(segment, bytes(APPEND_SIZE_MAX), writer=W2, last=1)
        assert segment.writers().last(W1, None) == 5
        assert segment.writers().last(W2, None) == 0
        pending.result()


def test_a_failed_block_is_not_in_the_table(world: World) -> None:
    """It was not acknowledged, so it must be taken when it is sent again."""
    disk = FaultyDisk(MemoryDisk())
    world.disk = disk
    with pytest.raises(DiskFailed), world.open() as segment:  # noqa: PT012 - the store stops, and says so at close
        write(segment, last=5)
        disk.fail(Fault.EIO, on="datasync")
        pending = submit(segment, last=6)
        with pytest.raises(DiskFailed):
            pending.result()
        assert segment.tail == BLOCK_HEADER_SIZE + 4 + 5
        assert segment.writers().last(W1, None) == 5


# Truncation, and what retention asks for


def test_truncate_frees_whole_plogs_before_the_offset(world: World) -> None:
    """What is behind it stays, and offsets stay what they are."""
    with world.open() as segment:
        starts = [write(segment, bytes(100), time_ms=number).start for number in range(100)]
        plogs = plog_starts(segment)
        middle = next(start for start in starts if start > plogs[3] + 10)
        segment.truncate(middle)
        assert segment.start == plogs[3]
        assert plog_starts(segment) == plogs[3:]
        assert next(segment.blocks(middle)).start == middle
        segment.truncate(plogs[2])
        assert segment.start == plogs[3], "it never goes back"


def test_truncate_at_the_tail_keeps_the_plog_that_takes_blocks(world: World) -> None:
    """Also while a block is on its way into a plog that is not known to be part of the log yet."""
    with world.manager() as manager:
        segment, log = world.segment(manager), manager.log("s0.0")
        while len(segment.plog_starts()) < 5:
            write(segment, bytes(500))
        last = segment.plog_starts()[4]
        pending = submit(segment)
        while log.tail.plog_id == log.plogs()[-1][0]:
            pending.result()
            pending = submit(segment)
        tail = segment.tail
        segment.truncate(tail)
        assert (segment.start, segment.tail) == (last, tail)
        pending.result()
        segment.truncate(segment.tail)
        assert segment.start == segment.plog_starts()[0] > last


def test_the_starts_of_plogs_are_those_of_the_log_at_one_moment(world: World) -> None:
    """They are asked for while others write and truncate; nothing is copied, so an index must not slip."""
    with world.open() as segment:
        while len(segment.plog_starts()) < 6:
            write(segment, bytes(500))
        starts = segment.plog_starts()
        before = plog_starts(segment)
        while len(segment.plog_starts()) < 9:
            write(segment, bytes(500))
        assert [starts[index] for index in range(len(starts))] == before
        segment.truncate(before[3])
        assert [starts[index] for index in range(len(starts))] == [before[3]] * 3 + before[3:]
        with pytest.raises(IndexError):
            starts[6]


def test_the_time_at_an_offset_is_that_of_the_block_that_holds_it(world: World) -> None:
    """One block is read for it, and none if the same is asked again."""
    with world.open() as segment:
        first = int(world.clock.now() * 1000)
        starts = []
        for _ in range(100):
            starts.append(write(segment, bytes(100)).start)
            world.clock.advance(1)
        assert [segment.time_at(start) - first for start in starts] == list(range(0, 100_000, 1000))
        assert [segment.time_at(start - 1) - first for start in starts[1:]] == list(range(0, 99_000, 1000))
        world.read.clear()
        assert segment.time_at(segment.tail - 1) == segment.time_at(segment.tail - 1) == first + 99_000
        assert world.read["blocks"] == 1


def test_times_do_not_go_back_with_the_clock_unless_it_was_wrong(world: World) -> None:
    """A reader that starts at a time would miss events; but after a clock from the future nothing would ever be old."""
    with world.open() as segment:
        times = []
        for step in (0.0, 5.0, -3.0, 1.0, 100.0, -90.0, 0.0, 50.0):
            world.clock.advance(step)
            times.append(segment.time_at(write(segment).start))
    begin = times[0]
    assert [time - begin for time in times] == [0, 5000, 5000, 5000, 103_000, 13_000, 13_000, 63_000]
    with world.open() as segment:
        world.clock.advance(-30)
        assert segment.time_at(write(segment).start) - begin == 63_000, "known after a restart, too"


def test_blocks_that_were_sent_before_are_found_by_reading_the_segment_once(world: World) -> None:
    """A writer that was disconnected asks for all that it had under way, and a hostile one for much more."""
    with world.open() as segment:
        starts = {last: write(segment, b"%d" % last, last=last).start for last in range(1, 101)}
        write(segment, b"another's", writer=W2, last=7)
        sent = {last: SentBlock(last, 1, digest_of(b"%d" % last, last)) for last in range(1, 101)}
        world.read.clear()
        missing = SentBlock(101, 1, bytes(16))
        assert segment.find_blocks(W1, [*sent.values(), missing]) == {sent[last]: starts[last] for last in starts}
        assert world.read["blocks"] <= 2 * 102, "however many are asked for"
        assert segment.find_blocks(W3, [*sent.values()]) == {}
        with pytest.raises(NumbersTaken):
            segment.find_blocks(W1, [sent[1], SentBlock(50, 1, bytes(16))])


def digest_of(event: bytes, last: int) -> bytes:
    header = StreamBlockHeader(count=1, writer=W1, last_number=last, flush_last=last)
    return block_digest(header, struct.pack(">I", len(event)), event)
