"""A segment at work: blocks in at the end, blocks out from anywhere, and readers that wait for the next one.

What was acknowledged is ``tail`` bytes long; a reader sees that and nothing beyond. While a commit is only half there,
the segment is frozen: the tail stays where it is, although blocks still come.

``_segment_log`` has the log below it, ``_segment_writers`` what writers have written here, ``_readable`` finds where
events begin.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import PenstockError, StoreClosed
from penstock.stream.format import StreamBlockHeader, read_header, without_keys
from penstock.stream.segment._readable import event_border, is_border
from penstock.stream.segment._segment_log import Lookup, SegmentLog
from penstock.stream.segment._segment_reads import SegmentReads
from penstock.stream.segment._segment_writers import SegmentEnded, SegmentWriters, SentBlock, find_blocks
from penstock.stream.segment._writer_table import no_owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from penstock.log import LogPosition, LogStream, MetadataManager, PendingLogAppend, PlogSizes, PlogStarts
    from penstock.ports import Bytes, Clock
    from penstock.stream.segment._readable import WakeUp
    from penstock.stream.segment._writer_table import Owners, WriterTable

__all__ = ["PendingBlock", "Segment"]

_CLOCK_BACK_MAX_MS: Final = 60_000


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
        """The offset behind the block."""
        return self.pending.end

    def wait(self) -> int:
        """Return where it ends, when it is durable; readers do not see it yet. The caller holds the segment."""
        try:
            return self.pending.result()
        except PenstockError:
            self.segment.give_up(self.pending)
            raise


class Segment(SegmentReads):
    """One segment. ``inherit`` returns the table of writers that it begins with, ``owners`` whose they are."""

    def __init__(
        self,
        manager: MetadataManager,
        log_name: str,
        *,
        where: str,
        end: int | None,
        inherit: Callable[[], WriterTable],
        clock: Clock,
        owners: Owners = no_owners,
        sizes: PlogSizes | None = None,
        keeps_keys: bool = True,
        head: tuple[int, int] = (0, 0),
        known_end: tuple[int, int] | None = None,
    ) -> None:
        self.where, self._clock, self._keeps_keys = where, clock, keeps_keys
        self._log = SegmentLog(manager, log_name, where=where, sizes=sizes)
        self._writers = SegmentWriters(self._log, inherit, owners)
        self._lookup = Lookup(self._log, head)
        self._lock = threading.Lock()
        self._last: PendingLogAppend | None = None
        self._watchers: list[WakeUp] = []
        self._total = 0  # events in the log, with those under way; known while the table is
        self._last_ms = -1  # when the last block was appended; -1: not known yet
        self._is_frozen = self._is_closed = False
        self.ended = end is not None
        self.events = self.bytes = 0  # appended since the store was opened; what automatic scaling goes by
        self.tail = end if end is not None else self._log.length if known_end is None else known_end[0]
        if known_end is not None:
            self._lookup.tail_counted = known_end

    def configure(self, sizes: PlogSizes, *, keeps_keys: bool) -> None:
        """Store keys from the next block on, or store none; let the plogs from the next one on have other sizes.

        Where those are smaller, the next plog begins now.
        """
        with self._lock:
            self._keeps_keys = keeps_keys
            is_to_roll = self._log.resize(sizes)
        if is_to_roll:
            with suppress(PenstockError):  # then the plogs that are there are filled first
                self._log.roll()

    @property
    def start(self) -> int:
        """Where the first plog that is left begins."""
        return self._log.start

    def submit(self, header: StreamBlockHeader, *parts: Bytes) -> PendingBlock:
        """Append a block without waiting; ``SegmentEnded`` if there are successors to write to."""
        with self._lock:
            if self.ended:
                raise SegmentEnded
            if self._writers.table is None or self._writers.is_far:
                self._keep_table_near()
            return self.submit_held(header, *parts)

    def missing_log(self) -> tuple[str, PlogSizes | None] | None:
        """Return the name and the sizes of the log that the first block needs; None if it is there, or none comes."""
        return None if self._log.known is not None or self.ended else self._log.missing()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the segment: no other thread appends meanwhile."""
        with self._lock:
            if not self.ended:
                self._keep_table_near()
            yield

    def _keep_table_near(self) -> None:
        """Write the table of writers if the last one is too far away to be found quickly."""
        self._table()
        if self._writers.is_far:
            self._last = self._submit_table()

    def _table(self) -> WriterTable:
        """Return the table of writers; the caller holds the segment."""
        return self._writers.table or self._learn_table()

    def submit_held(
        self, header: StreamBlockHeader, *parts: Bytes, expected: LogPosition | None = None
    ) -> PendingBlock:
        """Append a block without waiting; the caller holds the segment, and may say where its log has to end.

        It gets the time of now. Its keys are dropped if the stream stores none: the writer may not know that yet.
        """
        if self._writers.table is None:
            self._learn_table()
        if not self._keeps_keys:
            header, *kept = without_keys(header, *parts)
            parts = tuple(kept)
        try:
            time_ms, log = self.next_ms(), self._log.known or self._log.created()
            events, head = header.events, header.pack_at(time_ms, self._total)
            pending = self._last = log.submit(head, *parts, expected=expected)
        except BaseException:
            self._writers.table = None  # what is in the log now is not known: read it again
            raise
        size = pending.end - pending.start
        self._writers.note(header, blocks=1, size=size)
        self.events += header.count
        self.bytes += size
        self._total += events
        return PendingBlock(self, pending, pending.start)

    @property
    def total(self) -> int:
        """How many events there are, with those under way; the caller holds the segment."""
        return self._lookup.count_all() if self._writers.table is None else self._total

    def next_ms(self) -> int:
        """Return the time of what is appended now; the caller holds the segment.

        It does not go back where the clock was set back a little. A clock that is far behind is believed: it was wrong
        before, and nothing would ever be old enough to go.
        """
        if self._last_ms < 0:
            self._last_ms = self._lookup.last_time()
        now_ms = int(self._clock.now() * 1000)
        if not 0 < self._last_ms - now_ms <= _CLOCK_BACK_MAX_MS:
            self._last_ms = now_ms
        return self._last_ms

    def own_log(self) -> LogStream:
        """Return the segment's log, which is made now if it was not there; the caller holds the segment."""
        return self._log.created()

    def take_over(self, headers: Iterable[StreamBlockHeader] | None, *, events: int, size: int) -> None:
        """Note that the segment's log has taken over others with these blocks of writers; the caller holds it.

        Without ``headers`` it is not known which, so they are read again.
        """
        if headers is None:
            self._writers.table = None
        elif not self.ended:
            self._table()
            for header in headers:
                self._writers.note(header, blocks=0, size=0)
                self.events += header.count
            self._writers.note(None, blocks=events, size=size)
            self.bytes += size
            self.events += events
            self._total += events
        self._last = None

    def _submit_table(self) -> PendingLogAppend:
        pending = self.own_log().submit(self._writers.pack(self.next_ms(), self._total))
        self._writers.stored_at = pending.start
        return pending

    def finish(self, pending: PendingLogAppend) -> None:
        """Wait for a block, and let readers see it."""
        try:
            end = pending.result()
        except PenstockError:
            with self._lock:
                self.give_up(pending)
            raise
        with self._lock:
            if not self._is_frozen and end > self.tail:
                self.tail = end
        if self._watchers:
            self.notify()

    def give_up(self, pending: PendingLogAppend) -> None:
        """Note that a block failed, so what is in the log now is not known; the caller holds the segment."""
        self._writers.table = None
        if self._last is pending:
            self._last = None  # it is over, and its writer reports it: no other block need fail because of it

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
        return max(self.tail, self._log.length) if self._is_frozen else self.tail

    def hold_back(self) -> None:
        """Show no more than is in the log: what the segment was made for is still to come; the caller holds it."""
        self.tail = min(self.tail, self._log.length)

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
        """Notify every wake-up that watches the segment."""
        for wake_up in self._watchers:
            wake_up.notify()

    def keep_table(self, *, before: int) -> None:
        """Write the table of writers, durably, if what it was read from lies ``before`` and is about to be gone."""
        with self._lock:
            table = self._table()
            if self._writers.stored_at >= before or table.is_empty:
                return
            assert not self.ended, "a segment with successors leaves the table to them"
            pending = self._last = self._submit_table()
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
        self._log.release()

    def reopen(self) -> None:
        """Take blocks again, because the change that was to end the segment has failed."""
        with self._lock:
            self.ended = False

    def last_of(self, writer: bytes, place: float, *, durable: int) -> int:
        """Return the number up to which a writer's events with this key are here; see :meth:`WriterTable.last`."""
        return self.writers().last(writer, place, durable=durable)

    def forget_writer(self, writer: bytes) -> None:
        """Give the place of a writer that never comes again to others."""
        with self._lock:
            if self._writers.table is not None:
                self._writers.table.forget(writer)

    def find_blocks(self, writer: bytes, sent: Sequence[SentBlock]) -> dict[SentBlock, int]:
        """Return where blocks of a writer are, those that are here.

        ``NumbersTaken`` if there are other events under the numbers of one.
        """
        entry = self.writers().get(writer)
        last = -1 if entry is None else entry.last_number
        return find_blocks(self._log, writer, [block for block in sent if block.last - block.events < last])

    def has_block(self, writer: bytes, *, end: int) -> bool:
        """Whether a block of this writer ends there."""
        if not 0 < end <= self.tail:
            return False
        start, view, _ = self._log.block_at(end - 1)
        return start + len(view) == end and read_header(view, where=self.where, start=start).writer == writer

    def writers(self) -> WriterTable:
        """Return the table of writers; it changes as blocks come."""
        with self._lock:
            return self._table()

    def hand_on(self) -> tuple[WriterTable, int, int]:
        """Return the table of writers for a successor, and how many blocks and bytes lie behind the last stored one."""
        with self._lock:
            return self._table(), *self._writers.behind()

    def has_table(self) -> bool:
        """Whether the table of writers is known, or stored in the segment, so that none has to be inherited."""
        with self._lock:
            if self._writers.table is not None:
                return True
            is_stored, end = self._writers.is_stored()
            self._see(end)
            return is_stored

    def _learn_table(self) -> WriterTable:
        """Read the table of writers, once nothing is under way."""
        if self._is_closed:
            raise StoreClosed("the store")
        if self._last is not None:
            with suppress(PenstockError):  # its writer reports it; here it only has to be over
                self._last.result()
        self._see(self._writers.read())
        self._total = self._lookup.count_all()
        return self._table()

    def is_border(self, offset: int) -> bool:
        """Whether an event begins or ends there, or the segment does."""
        return is_border(self, offset)

    def event_border(self, offset: int) -> int:
        """Return where the large event that goes on at ``offset`` begins, with its extent; if none does, ``offset``."""
        return event_border(self, offset, low=self.start)

    def truncate(self, offset: int, *, count: int = 0) -> None:
        """Free what lies before ``offset``, and these are so many events, as far as it fills whole plogs."""
        self._lookup.head = offset, count
        self._log.truncate(offset)

    def roll(self, *, older_than_ms: int, now_ms: int) -> None:
        """Let blocks go into a new plog if the last one begins with one that is older: then all of it can go.

        Also if that one is from the future: what follows says how old it is.
        """
        if self.ended or self._log.opened is None:
            return
        start = self._log.plog_starts()[-1]
        if start < self.tail and not older_than_ms <= self.time_at(start) <= now_ms:
            self._log.roll()

    def merge_plogs(self, *, guard: AbstractContextManager[object], span_ms: int | None = None) -> None:
        """Merge small plogs; with ``span_ms`` only such as begin in the same of the spans that time is divided into.

        ``guard`` is held whenever the plogs change.
        """
        group = (lambda start: self.time_at(start) // span_ms) if span_ms else None
        self._log.merge_plogs(guard=guard, group=group)

    def plog_starts(self) -> Sequence[int] | PlogStarts:
        """Return where each plog begins, in order; nothing is copied."""
        return self._log.plog_starts()

    def time_at(self, offset: int) -> int:
        """Return when the byte at ``offset`` became part of the segment, in milliseconds since 1970."""
        assert offset < self.tail, "readers see what was acknowledged, and nothing beyond"
        return self._lookup.time_at(offset)

    def offset_at_time(self, time_ms: int, *, low: int) -> int:
        """Return where the first block from ``low`` on begins that is not older than a time; the end if all are.

        Blocks are in the order of their times, unless the clock was set back: then it is one of the places where the
        blocks before are older.
        """
        offset = self._lookup.offset_at_time(time_ms, low=max(low, self.start), high=self.tail)
        return self.event_border(offset) if offset < self.tail else offset

    def count_before(self, offset: int) -> int:
        """Return how many events lie before ``offset``, where one begins or ends; events that are gone count, too."""
        known = self.known_end
        if known is not None and known[0] == offset:
            return known[1]
        return self._lookup.count_before(offset, is_final=self.ended or offset < self.tail)

    @property
    def known_end(self) -> tuple[int, int] | None:
        """Where the last block ends and how many events lie before, if that is known without reading it.

        The total is read first: where the last block that was submitted is one that readers see, it is counted, and no
        other.
        """
        total, last, tail = self._total, self._last, self.tail
        if self._is_frozen or self.ended or (last is not None and last.end != tail):
            return None
        if last is not None and self._writers.table is not None:
            return tail, total
        return self._lookup.tail_counted if self._lookup.tail_counted[0] == tail else None

    def close(self) -> tuple[int, int] | None:
        """Take no more blocks, because the store is about to be closed; return :attr:`known_end`, which stays true."""
        with self._lock:
            known = self.known_end
            self._is_closed, self._writers.table = True, None  # without the table, nothing is appended
            return known

    def watch(self, wake_up: WakeUp) -> None:
        """Notify the wake-up whenever there is something new."""
        with self._lock:
            self._watchers = [*self._watchers, wake_up]

    def unwatch(self, wake_up: WakeUp) -> None:
        """Stop notifying the wake-up."""
        with self._lock:
            self._watchers = [watcher for watcher in self._watchers if watcher is not wake_up]
