"""A segment at work: blocks in at the end, blocks out from anywhere, and who waits for the next one.

Its log is created with the first event, so a segment that was never written to costs nothing. What was acknowledged is
``tail`` bytes long; a reader sees that and nothing beyond.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import NoSuchLog, PenstockError
from penstock.stream.format import (
    BLOCK_HEADER_SIZE,
    CHUNK,
    WRITERS,
    Block,
    BlockHeader,
    Chunk,
    Extent,
    SpliceLabel,
    block_digest,
    read_block,
    read_header,
    without_keys,
)
from penstock.stream.segment._readable import READ_SIZE
from penstock.stream.segment._writer_table import WriterTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from penstock.log import LogPosition, LogStream, MetadataManager, PendingLogAppend, PlogSizes, PlogStarts
    from penstock.plog import LocatedBlocks
    from penstock.ports import Bytes, Clock
    from penstock.stream.format import AnyBlock
    from penstock.stream.segment._wake_up import WakeUp

__all__ = ["NumbersTaken", "PendingBlock", "Segment", "SegmentEnded"]

_TABLE_EVERY_BYTES: Final = 8 << 20
_TABLE_EVERY_BLOCKS: Final = 4096
_SEGMENT_AS_BLOCKS: Final = 512  # to go back to another segment takes as long as to read so many blocks
_ASKED_MAX: Final = 8
_CLOCK_BACK_MAX_MS: Final = 60_000
_FIRST_LOOK: Final = 256 << 10  # how far back the last table is looked for at first


class SegmentEnded(Exception):
    """The segment takes no more blocks; its successors do."""


class NumbersTaken(Exception):
    """There are other events under the numbers of a block: its writer was not the only one with its id."""


class PendingBlock(msgspec.Struct, eq=False):
    """A block under way; ``start`` is its offset."""

    segment: Segment
    pending: PendingLogAppend
    start: int

    def result(self) -> None:
        """Return when it is durable, and readers see it."""
        self.segment.finish(self.pending)

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.pending.end

    def wait(self) -> int:
        """Return where it ends, when it is durable; nobody sees it yet. The caller holds the segment, or is alone."""
        try:
            return self.pending.result()
        except PenstockError:
            self.segment.give_up(self.pending)
            raise


class Segment:
    """One segment; see the module. ``inherit`` returns the table of writers that it begins with."""

    def __init__(
        self,
        manager: MetadataManager,
        log_name: str,
        *,
        where: str,
        end: int | None,
        inherit: Callable[[], WriterTable],
        clock: Clock,
        sizes: PlogSizes | None = None,
        keeps_keys: bool = True,
        head: tuple[int, int] = (0, 0),
    ) -> None:
        self._manager, self._log_name, self.where, self._inherit = manager, log_name, where, inherit
        self._clock, self._sizes, self._keeps_keys = clock, sizes, keeps_keys
        self._head = head  # where the segment begins now, and how many of its events lie before
        self._lock = threading.Lock()
        self._log: LogStream | None = None
        self._table: WriterTable | None = None
        self._last: PendingLogAppend | None = None
        self._table_at = -1  # where the last table of writers is, if there is one
        self._bytes_since = self._blocks_since = 0  # since then
        self._watchers: list[WakeUp] = []
        self._asked: dict[int, int] = {}  # the last places whose time was asked for, and these times
        self._counted = (-1, 0)  # the last place whose count was asked for, and that count
        self._total = 0  # events in the log, with those under way; known while the table is
        self._last_ms = -1  # when the last block was appended; -1: not known yet
        self._is_frozen = False
        self.ended = end is not None
        self.events = 0  # appended since the store was opened; what automatic scaling goes by
        self.bytes = 0
        self.tail = end if end is not None else self._find_tail()

    def _find_tail(self) -> int:
        log = self._existing_log()
        return 0 if log is None else log.length

    def _existing_log(self) -> LogStream | None:
        if self._log is None and self._manager.has_log(self._log_name):
            self._log = self._manager.log(self._log_name, sizes=self._sizes)
        return self._log

    def configure(self, sizes: PlogSizes, *, keeps_keys: bool) -> None:
        """Store keys from the next block on, or store none; let the plogs from the next one on have other sizes.

        Where those are smaller, the next plog begins now.
        """
        with self._lock:
            self._keeps_keys = keeps_keys
            is_smaller = self._sizes is not None and sizes.largest < self._sizes.largest
            self._sizes = sizes
            log = self._existing_log()
            if log is not None:
                self._manager.log(self._log_name, sizes=sizes)
        if log is not None and is_smaller:
            with suppress(PenstockError):  # then the plogs that are there are filled first
                log.roll()

    def _log_with_data(self) -> LogStream:
        """Return the log of a segment that has data; ``NoSuchLog`` if it was truncated away, or its stream deleted."""
        log = self._existing_log()
        if log is None:
            raise NoSuchLog(self._log_name, partition=self._manager.partition.name)
        return log

    @property
    def start(self) -> int:
        """Where the first plog that is left begins."""
        log = self._existing_log()
        return 0 if log is None else log.start

    def submit(self, header: BlockHeader, *parts: Bytes) -> PendingBlock:
        """Append a block without waiting; ``SegmentEnded`` if there are successors to write to."""
        with self._lock:
            if self.ended:
                raise SegmentEnded
            self._keep_table_near()
            return self.submit_held(header, *parts)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody else append meanwhile."""
        with self._lock:
            if not self.ended:
                self._keep_table_near()
            yield

    def _keep_table_near(self) -> None:
        """Write the table of writers if the last one is too far away to be found quickly."""
        table = self._table or self._learn_table()
        if self._bytes_since > _TABLE_EVERY_BYTES or self._blocks_since > _TABLE_EVERY_BLOCKS:
            self._last = self._submit_table(table)

    def submit_held(self, header: BlockHeader, *parts: Bytes, expected: LogPosition | None = None) -> PendingBlock:
        """Append a block without waiting; the caller holds the segment, and may say where its log has to end.

        It gets the time of now, and keeps its keys if the stream does, whatever its writer knows of that.
        """
        if self._table is None:
            self._learn_table()
        if not self._keeps_keys:
            header, *kept = without_keys(header, *parts)
            parts = tuple(kept)
        try:
            head = header.pack_at(self.next_ms(), self._total)
            pending = self._last = self.own_log().submit(head, *parts, expected=expected)
        except BaseException:
            self._table = None  # nobody knows what is in the log now: read it again
            raise
        self._note(header, blocks=1, size=pending.end - pending.start)
        self._total += header.events
        return PendingBlock(self, pending, pending.start)

    @property
    def total(self) -> int:
        """How many events there are, with those under way; the caller holds the segment."""
        return self._count_all() if self._table is None else self._total

    def next_ms(self) -> int:
        """Return the time of what is appended now; the caller holds the segment.

        It does not go back where the clock was set back a little. A clock that is far behind is believed: it was wrong
        before, and nothing would ever be old enough to go.
        """
        if self._last_ms < 0:
            self._last_ms = self._find_last_ms()
        now_ms = int(self._clock.now() * 1000)
        if not 0 < self._last_ms - now_ms <= _CLOCK_BACK_MAX_MS:
            self._last_ms = now_ms
        return self._last_ms

    def _find_last_ms(self) -> int:
        log = self._existing_log()
        return 0 if log is None or log.length <= log.start else self._block_time(log.length - 1)[1]

    def own_log(self) -> LogStream:
        """Return the segment's log, which is made now if it was not there; the caller holds the segment."""
        if self._log is None:
            self._log = self._manager.log(self._log_name, sizes=self._sizes)
        return self._log

    def take_over(self, headers: Iterable[BlockHeader] | None, *, events: int, size: int) -> None:
        """Note that the segment's log has taken over others with these blocks of writers; the caller holds it.

        Without ``headers`` nobody knows which: they are read.
        """
        if headers is None:
            self._table = None
        elif not self.ended:
            for header in headers:
                self._note(header, blocks=0, size=0)
            self._note(None, blocks=events, size=size)
            self.events += events
            self._total += events
        self._last = None

    def _note(self, header: BlockHeader | None, *, blocks: int, size: int) -> None:
        if header is not None:
            (self._table or self._learn_table()).note(header)
            self.events += header.count
        self._bytes_since += size
        self._blocks_since += blocks
        self.bytes += size

    def _submit_table(self, table: WriterTable) -> PendingLogAppend:
        self._bytes_since = self._blocks_since = 0
        pending = self.own_log().submit(table.pack(self.next_ms(), self._total))
        self._table_at = pending.start
        return pending

    def finish(self, pending: PendingLogAppend) -> None:
        """Wait for a block, and let readers see it."""
        try:
            end = pending.result()
        except PenstockError:
            with self._lock:
                self.give_up(pending)
            raise
        self.show(end)

    def give_up(self, pending: PendingLogAppend) -> None:
        """Note that a block failed: nobody knows what is in the log now; the caller holds the segment."""
        self._table = None
        if self._last is pending:
            self._last = None  # it is over, and who wrote it is told: nobody else need fail because of it

    def show(self, end: int | None = None) -> None:
        """Let readers see everything up to ``end``, or up to the end of the log."""
        with self._lock:
            self._see(self.own_log().length if end is None else end)
        self.notify()

    def _see(self, end: int) -> None:
        if not self._is_frozen:
            self.tail = max(self.tail, end)

    @property
    def written(self) -> int:
        """Where it ends, with what readers do not see yet because a commit is only half there."""
        return max(self.tail, self._find_tail()) if self._is_frozen else self.tail

    def hold_back(self) -> None:
        """Show no more than there is: what the segment was made for is still to come; the caller holds it."""
        self.tail = min(self.tail, self._find_tail())

    def freeze(self, end: int | None = None) -> None:
        """Show nothing beyond ``end``, or that comes from here on, because a commit is only half there.

        The caller holds the segment, or is alone.
        """
        self._is_frozen = True
        if end is not None:
            self.tail = min(self.tail, end)

    def thaw(self) -> None:
        """Show what comes again, with the next that is shown."""
        with self._lock:
            self._is_frozen = False

    def notify(self) -> None:
        """Let everybody who watches know that something happened."""
        for wake_up in self._watchers:
            wake_up.notify()

    def keep_table(self, *, before: int) -> None:
        """Write the table of writers, durably, if what it was read from lies ``before`` and is about to be gone."""
        with self._lock:
            table = self._table or self._learn_table()
            if self._table_at >= before or not (table.own or table.inherited):
                return
            assert not self.ended, "a segment with successors leaves the table to them"
            self.own_log()
            pending = self._last = self._submit_table(table)
        self.finish(pending)

    def end(self) -> int:
        """Take no more blocks; return how long the segment is, once all under way are durable."""
        with self._lock:
            self.ended, last = True, self._last
        if last is not None:
            self.finish(last)
        self.release()
        return self.tail

    def release(self) -> None:
        """Give back the allocated size that no block has used, because no more come; where that fails, it is kept."""
        log = self._existing_log()
        if log is not None:
            with suppress(PenstockError):
                log.release()

    def reopen(self) -> None:
        """Take blocks again: the change that was to end the segment did not come about."""
        with self._lock:
            self.ended = False

    def last_of(self, writer: bytes, place: float) -> int:
        """Return the number up to which a writer's events with this key are here; 0 if there are none."""
        return self.writers().last(writer, place)

    def forget_writer(self, writer: bytes) -> None:
        """Give the place of a writer that never comes again to others."""
        with self._lock:
            if self._table is not None:
                self._table.own.pop(writer, None)

    def find_block(self, writer: bytes, *, last: int, count: int, digest: bytes) -> int | None:
        """Return where a block of a writer is, by the number of its last event and its digest; None if it is not here.

        ``NumbersTaken`` if there are other events under its numbers.
        """
        entry, log = self.writers().own.get(writer), self._existing_log()
        if entry is None or log is None or entry.last <= last - count:
            return None
        end = log.length
        while end > log.start:
            blocks = list(log.blocks(max(log.start, end - _FIRST_LOOK), end))
            for start, view in reversed(blocks):
                header = read_header(view, where=self.where, start=start)
                if header.writer == writer and header.last <= last:
                    if header.last == last and block_digest(header, view[BLOCK_HEADER_SIZE:]) == digest:
                        return start
                    if header.last > last - count:
                        raise NumbersTaken
                    return None
            end = blocks[0][0]
        return None

    def has_block(self, writer: bytes, *, end: int) -> bool:
        """Whether a block of this writer ends there."""
        if not 0 < end <= self.tail:
            return False
        start, view = self._view_at(end - 1)
        return start + len(view) == end and read_header(view, where=self.where, start=start).writer == writer

    def writers(self) -> WriterTable:
        """Return the table of writers; it changes as blocks come."""
        with self._lock:
            return self._table or self._learn_table()

    def hand_on(self) -> tuple[WriterTable, int, int]:
        """Return the table of writers for who follows, and how many blocks and bytes lie behind the last stored one."""
        with self._lock:
            table = self._table or self._learn_table()
            return table, self._blocks_since + _SEGMENT_AS_BLOCKS, self._bytes_since

    def _learn_table(self) -> WriterTable:
        """Find out which writers there are, once nothing is under way."""
        if self._last is not None:
            with suppress(PenstockError):  # who wrote it is told; here it only has to be over
                self._last.result()
        self._table, self._total = self._read_table(), self._count_all()
        return self._table

    def _count_all(self) -> int:
        log = self._existing_log()
        return self._head[1] if log is None or log.length <= log.start else self._count_behind(log.length)

    def has_table(self) -> bool:
        """Whether the table of writers is known, or stands in the segment, so that none has to be inherited."""
        with self._lock:
            return self._table is not None or self._find_table()[0] is not None

    def _read_table(self) -> WriterTable:
        """Read the last table in the segment, or inherit one, and take in the blocks behind it."""
        table, headers = self._find_table()
        if table is None:
            table = self._inherit()
            self._blocks_since += table.blocks_behind
            self._bytes_since += table.bytes_behind
        for header in reversed(headers):
            table.note(header)
        return table

    def _find_table(self) -> tuple[WriterTable | None, list[BlockHeader]]:
        """Find the last table in the segment, reading backwards; return it with the headers behind it, last first."""
        log = self._existing_log()
        low = end = 0 if log is None else log.length
        look, headers = _FIRST_LOOK, list[BlockHeader]()
        table, self._table_at = None, -1
        while log is not None and low > log.start and table is None:
            blocks = list(log.blocks(max(log.start, low - look), low))
            low, look = blocks[0][0], 2 * look
            for start, view in reversed(blocks):
                header = read_header(view, where=self.where, start=start)
                if header.kind == WRITERS:
                    table, self._table_at = WriterTable.unpack(header, view, where=self.where, start=start), start
                    break
                if header.kind == CHUNK and header.floor:
                    low = start - header.floor  # where the large event begins: what lies between is all chunks
                    break
                headers.append(header)
        self._blocks_since, self._bytes_since = len(headers), end - max(self._table_at, 0)
        self._see(end)
        return table, headers

    def blocks(self, offset: int, *, end: int | None = None, size: int = READ_SIZE) -> Iterator[AnyBlock]:
        """Return the blocks from the one that holds ``offset`` on, as far as they were acknowledged.

        They are about ``size`` bytes, at least one block if there is any. Some may hold no events.
        """
        stop = offset + size if end is None else min(offset + size, end)
        for start, view, commit_ms in self.views(offset, stop):
            yield read_block(view, where=self.where, start=start, commit_ms=commit_ms)

    def views(self, offset: int, end: int) -> Iterator[tuple[int, memoryview, int]]:
        """Return the blocks that hold any byte from ``offset`` to ``end``, as they are stored, and where they begin.

        With each comes when it became part of the segment, if it was written before that, in a transaction; else 0.
        """
        stop = min(self.tail, end)
        found = iter(()) if offset >= stop else self._log_with_data().labelled_blocks(offset, stop)
        return ((start, view, _commit_ms(label)) for start, view, label in found)

    def locate(self, offset: int, end: int) -> list[tuple[int, int, LocatedBlocks]]:
        """Return where the blocks are that hold any byte from ``offset`` to ``end``, by plog, as :meth:`views` does."""
        stop, log = min(self.tail, end), self._existing_log()
        found = [] if log is None or offset >= stop else log.locate(offset, stop)
        return [(start, _commit_ms(label), located) for start, label, located in found]

    def headers(self, offset: int) -> Iterator[BlockHeader]:
        """Return the headers of all blocks from ``offset`` on that are durable, shown or not."""
        log = self._existing_log()
        end = 0 if log is None else log.length
        if log is not None and offset < end:
            for start, view in log.blocks(offset, end):
                yield read_header(view, where=self.where, start=start)

    def is_border(self, offset: int) -> bool:
        """Whether an event begins or ends there, or the segment does."""
        if offset in (0, self.tail):
            return True
        return any(block.index_at(offset) is not None for block in self.blocks(offset, size=1))

    def event_border(self, offset: int) -> int:
        """Return where the large event that goes on at ``offset`` begins, with its extent; if none does, ``offset``."""
        block = self._block_at(offset)
        if not isinstance(block, Chunk):
            return offset
        before = self._block_at(block.start - block.back - 1)
        return before.start if isinstance(before, Extent) else block.start - block.back

    def _block_at(self, offset: int) -> AnyBlock | None:
        return next(self.blocks(offset, size=1), None) if offset >= self.start else None

    def truncate(self, offset: int, *, count: int = 0) -> None:
        """Free what lies before ``offset``, and these are so many events, as far as it fills whole plogs."""
        self._head = offset, count
        log = self._existing_log()
        if log is not None and log.start < offset:
            log.truncate(log.plog_at(offset))

    def roll(self, *, older_than_ms: int, now_ms: int) -> None:
        """Let blocks go into a new plog if the last one begins with one that is older: then all of it can go.

        Also if that one is from the future: what follows says how old it is.
        """
        log = self._existing_log()
        if log is None or self.ended:
            return
        start = log.plog_starts()[-1]
        if start < self.tail and not older_than_ms <= self.time_at(start) <= now_ms:
            log.roll()

    def merge_plogs(self, *, guard: AbstractContextManager[object], span_ms: int | None = None) -> None:
        """Merge small plogs; with ``span_ms`` only such as begin in the same of the spans that time is divided into.

        ``guard`` is held whenever the plogs change.
        """
        log = self._existing_log()
        if log is None:
            return

        def span(start: int) -> int:
            return self.time_at(start) // span_ms if span_ms else 0

        largest = (self._sizes or self._manager.partition.sizes).largest
        while (found := log.small_plogs(largest=largest, group=span if span_ms else None)) is not None:
            log.merge(*found, guard=guard, rewrite=self._without_label)

    def _without_label(self, view: memoryview, label: bytes) -> tuple[Bytes, ...]:
        """Return a block that is copied into another plog, with what the label of the first says of it."""
        if not label:
            return (view,)
        header, spliced = read_header(view, where=self.where, start=0), SpliceLabel.unpack(label)
        return header.pack_at(spliced.time_ms, spliced.events + header.before), view[BLOCK_HEADER_SIZE:]

    def plog_starts(self) -> Sequence[int] | PlogStarts:
        """Return where each plog begins, in order; nothing is copied."""
        log = self._existing_log()
        return () if log is None else log.plog_starts()

    def time_at(self, offset: int) -> int:
        """Return when the byte at ``offset`` became part of the segment, in milliseconds since 1970.

        The last answers are remembered, because retention asks for the same again and again until it is old enough.
        """
        assert offset < self.tail, "readers see what was acknowledged, and nothing beyond"
        found = self._asked.get(offset)
        if found is None:
            found = self._block_time(offset)[1]
            self._asked = {**(self._asked if len(self._asked) < _ASKED_MAX else {}), offset: found}
        return found

    def _block_time(self, offset: int) -> tuple[tuple[int, int], int]:
        """Return where the block at ``offset`` begins and ends, and when it became part of the segment."""
        start, view, label = self._labelled_view_at(offset)
        header = read_header(view, where=self.where, start=start)
        return (start, start + len(view)), header.time_ms if label is None else label.time_ms

    def offset_at_time(self, time_ms: int, *, low: int) -> int:
        """Return where the first block from ``low`` on begins that is not older than a time; the end if all are.

        Blocks are in the order of their times, unless the clock was set back: then it is one of the places where the
        blocks before are older.
        """
        low, high = max(low, self.start), self.tail
        while low < high:
            (start, end), found_ms = self._block_time((low + high) // 2)
            if found_ms < time_ms:
                low = end
            else:
                high = max(start, low)
        return self.event_border(low) if low < self.tail else low

    def count_before(self, offset: int) -> int:
        """Return how many events of the segment lie before ``offset``, where one begins or ends; gone ones count, too.

        It takes one read. The last answer is remembered, because those who ask how much there is ask for the head.
        """
        counted = self._counted
        if counted[0] == offset:
            return counted[1]
        if offset <= self._head[0]:
            return self._head[1]
        known = self._count_before(offset)
        if self.ended or offset < self.tail:  # a tail that moves would only push out what stays
            self._counted = (offset, known)
        return known

    def _count_before(self, offset: int) -> int:
        log = self._existing_log()
        assert log is not None, "what was acknowledged is in a log"
        if offset >= log.length:
            return self._count_behind(offset)
        start, view, label = self._labelled_view_at(offset)
        base = 0 if label is None else label.events
        block = read_block(view, where=self.where, start=start)
        if isinstance(block, Chunk):  # the extent before it was counted already
            return base + read_header(view, where=self.where, start=start).before - 1
        return base + block.before + ((block.index_at(offset) or 0) if isinstance(block, Block) else 0)

    def _count_behind(self, offset: int) -> int:
        """Return how many events lie before a place where a block ends."""
        start, view, label = self._labelled_view_at(offset - 1)
        header = read_header(view, where=self.where, start=start)
        return (0 if label is None else label.events) + header.before + header.events

    def _labelled_view_at(self, offset: int) -> tuple[int, memoryview, SpliceLabel | None]:
        """Return the block that holds the byte at ``offset``, where it begins, and the label that it has there."""
        log = self._existing_log()
        assert log is not None, "what was acknowledged is in a log"
        start, view, label = next(log.labelled_blocks(offset, offset + 1))
        return start, view, SpliceLabel.unpack(label) if label else None

    def _view_at(self, offset: int) -> tuple[int, memoryview]:
        """Return the block that holds the byte at ``offset``, and where it begins."""
        log = self._existing_log()
        assert log is not None, "what was acknowledged is in a log"
        return next(log.blocks(offset, offset + 1))

    def watch(self, wake_up: WakeUp) -> None:
        """Notify the wake-up whenever there is something new."""
        with self._lock:
            self._watchers = [*self._watchers, wake_up]

    def unwatch(self, wake_up: WakeUp) -> None:
        """Notify it no more."""
        with self._lock:
            self._watchers = [one for one in self._watchers if one is not wake_up]


def _commit_ms(label: bytes) -> int:
    return SpliceLabel.unpack(label).time_ms if label else 0
