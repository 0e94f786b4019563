"""The reader: the events of the segments that its group gives it, one by one or as Arrow batches.

Reading an event is a look at a flag and a step of an iterator over events that are ready. Everything else (the lease,
the places that are recorded, whose turn it is) is done once a block, or when somebody raised the flag.

What a reader returned counts as read when it comes back for more, or is closed.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from penstock import forks
from penstock.deadlines import TimeIsOver, within
from penstock.errors import DataTruncated, NoSuchStream, PenstockError
from penstock.model import EventPointer, Position, StreamCut, check_timeout, check_whole
from penstock.ports import interruptible, uninterrupted
from penstock.stream.format import READ_SCHEMA
from penstock.stream.read._arrow import event_columns, joined
from penstock.stream.read._cursor import UNREADABLE, Cursor
from penstock.stream.read._event_read import EventRead, Milestone, Page, Trail
from penstock.stream.read._large_read import LargeBlock, file_of
from penstock.stream.segment import WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from penstock.model import TimeWindow
    from penstock.stream.catalog import Key
    from penstock.stream.read._cursor import Piece
    from penstock.stream.read._large_read import EventInputStream
    from penstock.stream.read._membership import Membership
    from penstock.stream.segment import Times
    from penstock.stream.serializers import Serializer

__all__ = ["BATCH_SIZE_DEFAULT", "EVENT_SIZE_DEFAULT", "READER_LEASE_S", "EventRead", "Reader"]

T = TypeVar("T")

READER_LEASE_S: Final = 30.0
EVENT_SIZE_DEFAULT: Final = 1 << 20
BATCH_SIZE_DEFAULT: Final = 8 << 20
_RECORD_EVERY_S: Final = 1.0
_LOOK_AROUND_EVERY_S: Final = READER_LEASE_S / 6  # how soon a waiting reader notices that another is silent
_ALONE_SIZE_MIN: Final = 256 << 10  # a block of this size is a batch of its own: nothing is copied
_MOVES_MAX: Final = 64
_BATCH_SCHEMA: Final = READ_SCHEMA.set(0, READ_SCHEMA.field("event").with_nullable(nullable=False))
_STREAMS_SCHEMA: Final = _BATCH_SCHEMA.append(
    pa.field("stream", pa.dictionary(pa.int32(), pa.string()), nullable=False)
)


class Reader:
    """Reads what its group gives it. Get one from :meth:`ReaderGroup.reader`; one thread at a time uses it."""

    is_remote: Final = False

    def __init__(
        self, membership: Membership, reader_id: str, serializer: Serializer[Any] | None, max_event_size: int
    ) -> None:
        forks.guard(self)
        self.reader_id: Final = reader_id
        self._membership, self._clock = membership, membership.clock
        self._deserialize = None if serializer is None else _checked(serializer.deserialize)
        self._event_size_max = max_event_size
        self._wake_up = WakeUp()
        self._attention = True
        self._reads: Iterator[EventRead] = iter(())
        self._page: Page | None = None
        self._cursors: dict[Key, Cursor] = {}
        self._ready: deque[Cursor] = deque()  # of which something may be read, in turn
        self._touched: set[Cursor] = set()  # what was returned of them does not count yet
        self._times: dict[Key, Times] = {}
        self._trail = Trail({})
        self._losses: deque[PenstockError] = deque()  # to be told, one a call
        self._told: str | None = None  # the checkpoint that was returned last
        self.error: PenstockError | None = None  # why it reads no more
        self._recorded = self._seen = self._clock.elapsed()
        self._is_dirty = self._is_inside = False
        self._is_returning = False  # what was taken is on its way to the caller
        self._calls = 0
        self._seen_pulse = (0, 0)

    # What users call

    def read_next_event(self, timeout: float | None = None) -> EventRead | None:
        """Return the next event; None when ``timeout`` seconds are over, or there is nothing more to come.

        After an error about one event the next call returns the next one.
        """
        if not self._attention:
            try:
                for read in self._reads:  # no interrupt comes between taking an event and returning it, as with next()
                    return read
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._turn_back()
                raise
        return self._in_time(self._next_read, timeout)

    @uninterrupted
    def _turn_back(self) -> None:
        """Return an event again whose serializer was interrupted."""
        page = self._page
        if page is not None:
            page.cursor.advance(page.index - 1)
            self._close_page()
            self._put_last(page.cursor)

    def read_batch(self, max_bytes: int = BATCH_SIZE_DEFAULT, timeout: float | None = None) -> pa.RecordBatch | None:
        """Return the next events as bytes; None when ``timeout`` seconds are over, or there is nothing more to come.

        Columns are event, key, timestamp, headers, segment_id, offset and mark_time, and stream if the group has
        several. A batch has at most ``max_bytes``, or one event. It comes to a checkpoint without a word.
        """
        check_whole("max_bytes", max_bytes, least=1)
        return self._in_time(lambda deadline: self._next_batch(deadline, max_bytes), timeout)

    def read_next_event_as_stream(self, timeout: float | None = None) -> EventInputStream | None:
        """Return the next event, of any size, as a file; None when the time is over, or there is nothing more to come.

        The next call may come before the file was read to its end; files stay good. It comes to a checkpoint without a
        word.
        """
        return self._in_time(self._next_stream, timeout)

    def __iter__(self) -> Iterator[EventRead]:
        """Return all events to come; ends where the group ends, or its streams do, once they are sealed."""
        while (read := self.read_next_event()) is not None:
            yield read

    def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        """Return between which times the group is in a stream, the only one by default; None if nobody gave time.

        Everything from before ``lower`` was read, by this reader or another, and no writer had noted a time after
        ``upper`` when the next watermark was made.
        """
        return self._membership.time_window(stream)

    @property
    def finished(self) -> bool:
        """Whether the group has read everything, up to its end or that of its streams, which are sealed."""
        return self._membership.finished

    def commit(self) -> None:
        """Make durable how far the reader has come, with what it returned last; otherwise that takes up to a second."""
        self._in_time(self._commit_returned, None)

    def close(self) -> None:
        """Let others go on from here; what was returned counts as read. Closing again does nothing."""
        self._leave(returned=True)

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error, what was returned last does not count as read."""
        self._leave(returned=kind is None)

    @uninterrupted
    def _leave(self, *, returned: bool) -> None:
        if self.error is None:
            self._membership.leave(self.places(returned=returned))
        self.let_go()

    # What the group calls, from any thread

    def attend(self) -> None:
        """Assignment at the group before the next event."""
        self._attention = True
        self._wake_up.notify()

    def stop(self, error: PenstockError) -> None:
        """Read no more; ``error`` says why."""
        self.error = error
        self.attend()

    def missed(self, lost: Mapping[Key, int]) -> dict[Key, int]:
        """Return of segments that are gone those that it has not read to the end, and where it was."""
        places, found = self.places(returned=True), {}
        for key, recorded in lost.items():
            cursor, place = self._cursors.get(key), places.get(key, recorded)
            if cursor is None or place < cursor.limit:
                found[key] = place
        return found

    def hear(self, cursor: Cursor) -> None:
        """Note that something happened to a segment."""
        self._put_last(cursor)
        self._wake_up.notify()

    def miss(self, error: PenstockError) -> None:
        """Tell that something was truncated away, or deleted, before it was read."""
        self._losses.append(error)
        self.attend()

    def let_go(self) -> None:
        """Be woken by no segment any more."""
        for cursor in list(self._cursors.values()):
            cursor.segment.unwatch(cursor.wake_up)

    def places(self, *, returned: bool) -> dict[Key, int]:
        """Return how far it has come, with what it returned last or without."""
        page = self._page
        found = {one.key: one.reached if returned else one.place for one in list(self._cursors.values())}
        if page is not None and page.cursor.key in found:
            index = page.index if returned else max(page.index - 1, page.counted)
            found[page.cursor.key] = page.block.offset_of(index)
        return found

    def is_silent(self, now: float) -> bool:
        """Whether nobody has called it for as long as the lease.

        The call for an event that was ready leaves no time behind, only a trace: it may take two leases to notice.
        """
        pulse = self._pulse()
        if self._is_inside or pulse != self._seen_pulse:
            self._seen_pulse, self._seen = pulse, now
        return now - self._seen > READER_LEASE_S

    def _pulse(self) -> tuple[int, int]:
        page = self._page
        return self._calls, 0 if page is None else page.index

    # Reading

    def _in_time(self, step: Callable[[float | None], T | None], timeout: float | None) -> T | None:
        """Do what may take time, but no more than there is; an interrupt on the way back loses nothing."""
        deadline, self._is_returning = _deadline(timeout), False
        try:
            return self._seen_alive(step, deadline)
        except BaseException:
            if self._is_returning:
                self._go_back()
            raise

    @uninterrupted
    def _seen_alive(self, step: Callable[[float | None], T | None], deadline: float | None) -> T | None:
        self._is_inside = True
        try:
            with within(deadline):
                result = step(deadline)
        except TimeIsOver:
            self._attention = True  # what the group was asked last is asked again
            return None
        finally:
            self._calls += 1
            self._seen_pulse, self._seen = self._pulse(), self._clock.elapsed()
            self._is_inside = False
        self._is_returning = True
        return result

    @uninterrupted
    def _go_back(self) -> None:
        """Return again what was taken since the last call, and the checkpoint, too."""
        self._close_page()
        self._told, self._attention = None, True
        for cursor in self._touched:
            cursor.go_back()
            self._put_last(cursor)

    def _next_read(self, deadline: float | None) -> EventRead | None:
        while True:
            checkpoint = self._settle(passing=False)
            if checkpoint is not None:
                return self._tell(checkpoint)
            read = next(self._reads, None)
            if read is None and (cursor := self._next_cursor()) is not None:
                self._open_page(cursor)
                read = next(self._reads)
            if read is not None:
                return read
            if not self._attention and not self._wait(deadline):
                return None

    def _next_batch(self, deadline: float | None, max_bytes: int) -> pa.RecordBatch | None:
        while True:
            self._settle(passing=True)
            self._close_page()
            batch = self._gathered(max_bytes)
            if batch is not None:
                return batch
            if not self._attention and not self._wait(deadline):
                return None

    def _next_stream(self, deadline: float | None) -> EventInputStream | None:
        while True:
            self._settle(passing=True)
            self._close_page()
            cursor = self._next_cursor()
            if cursor is not None:
                return self._open_stream(cursor)
            if not self._attention and not self._wait(deadline):
                return None

    def _open_stream(self, cursor: Cursor) -> EventInputStream:
        self._touched.add(cursor)
        block, index = cursor.take()
        self._put_last(cursor)
        return file_of(block, index, EventPointer(*cursor.key, block.offset_of(index)))

    def _tell(self, checkpoint: str) -> EventRead:
        self._told, self._attention = checkpoint, True
        return EventRead(0, Milestone(checkpoint, Position.of(self.places(returned=True))), None)

    def _next_cursor(self, *, first: bool = True) -> Cursor | None:
        """Return the next segment with something to read, in turn; None if there is none, or one is over.

        If it is not the ``first`` of a batch, an error only ends the batch, and comes again with the next one.
        """
        while self._ready:
            cursor = self._ready.popleft()
            cursor.is_ready = False  # before it is looked at: what comes now rings again
            if self._cursors.get(cursor.key) is not cursor:
                continue
            before = cursor.place, cursor.reached
            try:
                if cursor.load(self._event_size_max) is not None:
                    return cursor
                is_over = cursor.is_over()
            except BaseException as error:
                self._put_last(cursor)
                if first or not isinstance(error, PenstockError):
                    raise
                cursor.go_back(*before)
                return None
            if is_over:
                self._finish(cursor)
                return None
        return None

    def _put_last(self, cursor: Cursor) -> None:
        """Let a segment have its turn after the others; any thread may call it."""
        if not cursor.is_ready:
            cursor.is_ready = True
            self._ready.append(cursor)

    def _open_page(self, cursor: Cursor) -> None:
        """Have the events of a block ready to be returned one by one."""
        block = cursor.block
        assert block is not None, "only what was loaded is read"
        self._put_last(cursor)
        self._touched.add(cursor)
        if cursor.stop == cursor.first:
            raise cursor.skip_large(block, self._event_size_max)
        page = Page(cursor, block, self._trail)
        try:
            events = page.events()
        except UNREADABLE:
            if isinstance(block, LargeBlock):
                cursor.skip_unreadable(block)
            raise
        values = events if self._deserialize is None else map(self._deserialize, events)
        self._page = page
        self._reads = map(EventRead, page.indexes, repeat(page), values)

    def _close_page(self) -> None:
        self._page, self._reads = None, iter(())

    def _gathered(self, max_bytes: int) -> pa.RecordBatch | None:
        """Return the next batch; whatever happens on the way to it, nothing is left out."""
        pieces: list[Piece] = []
        try:
            self._gather(pieces, max_bytes)
            return self._as_batch(pieces) if pieces else None
        except BaseException as error:
            if not _is_about_one_event(error, pieces):
                for cursor in self._touched:
                    cursor.go_back()
                    self._put_last(cursor)
            raise

    def _as_batch(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
        """Return the events as a batch; without a copy where they are of one block."""
        counts = [stop - start for _, _, start, stop, _ in pieces]
        runs = [  # of each segment in its turn, all blocks together
            (key, np.concatenate([places[start:stop] for _, _, start, stop, places in some]))
            for key, some in groupby(pieces, itemgetter(0))
        ]
        times = [self._times_of(key).of(offsets) for key, offsets in runs]
        columns = [
            *event_columns([(block, start, stop) for _, block, start, stop, _ in pieces]),
            pa.array(np.repeat([segment for (_, segment), *_ in pieces], counts)),
            pa.array(np.concatenate([offsets for _, offsets in runs])),
            joined(times),
        ]
        streams = self._membership.streams
        if len(streams) == 1:
            return pa.record_batch(columns, _BATCH_SCHEMA)
        numbers = np.array([streams.index(stream) for (stream, _), *_ in pieces], np.int32)
        columns.append(pa.DictionaryArray.from_arrays(np.repeat(numbers, counts), pa.array(streams)))
        return pa.record_batch(columns, _STREAMS_SCHEMA)

    def _times_of(self, key: Key) -> Times:
        if key not in self._times:
            self._times[key] = self._membership.times_of(key)
        return self._times[key]

    def _gather(self, pieces: list[Piece], max_bytes: int) -> None:
        """Find what the next batch is made of: blocks or parts of them, of one segment after another."""
        budget = max_bytes
        while budget > 0 and (piece := self._next_piece(budget, first=not pieces)) is not None:
            pieces.append(piece)
            _, block, start, stop, offsets = piece
            budget = 0 if block.size >= _ALONE_SIZE_MIN else budget - int(offsets[stop] - offsets[start])

    def _next_piece(self, budget: int, *, first: bool) -> Piece | None:
        cursor = self._next_cursor(first=first)
        block = None if cursor is None else cursor.block
        if cursor is None or block is None:
            return None
        self._touched.add(cursor)
        is_large = cursor.stop == cursor.first
        is_alone = isinstance(block, LargeBlock) or block.size >= _ALONE_SIZE_MIN
        piece = None
        if not is_large and (first or not is_alone):
            piece = cursor.cut(block, budget, at_least_one=first)
        if piece is None and not first:
            cursor.is_ready = True
            self._ready.appendleft(cursor)  # first of the next batch
            return None
        self._put_last(cursor)
        if is_large:
            raise cursor.skip_large(block, self._event_size_max)
        return piece

    # Keeping in step with the group

    def _settle(self, *, passing: bool) -> str | None:
        """Count what was returned and do what has become due; return the checkpoint that the reader has come to.

        With ``passing`` it goes on beyond checkpoints at once.
        """
        self._count_returned()
        now = self._clock.elapsed()
        if now - self._recorded >= _RECORD_EVERY_S:
            self._recorded = now
            self._record()
        self._check_online()
        checkpoint = self._look_at_group(passing=passing) if self._attention else None
        if self._losses:
            raise self._told_loss()
        return checkpoint

    @uninterrupted
    def _told_loss(self) -> PenstockError:
        """Return what is to be told next; the group knows then that it was."""
        self._attention = True
        self._membership.note_told(*_lost_part(self._losses[0]))
        return self._losses.popleft()

    def _count_returned(self) -> None:
        page = self._page
        if page is not None:
            index = page.index
            if index == page.stop:
                self._close_page()
            page.cursor.advance(index)
            page.counted = index
        for cursor in self._touched:
            cursor.place = cursor.reached
            self._trail.moves.append((cursor.key, cursor.reached))
            self._put_last(cursor)  # only now it may be over
            self._is_dirty = True
        self._touched = set() if self._page is None else {self._page.cursor}
        if len(self._trail.moves) > _MOVES_MAX + len(self._cursors):
            self._trail = Trail(self.places(returned=True))

    def _commit_returned(self, _: float | None) -> None:
        self._count_returned()
        self._record(durable=True)
        self._check_online()

    @uninterrupted
    def _record(self, *, durable: bool = False) -> None:
        if self.error is None:
            self._membership.record(self.places(returned=True) if self._is_dirty or durable else None, durable=durable)
            self._is_dirty = False

    def _check_online(self) -> None:
        if self.error is not None:
            self.let_go()
            raise self.error.with_traceback(None)

    @uninterrupted
    def _look_at_group(self, *, passing: bool) -> str | None:
        """Do what the group asks for: come to a checkpoint, give and take segments."""
        self._attention = False  # first: what comes now is looked at, or raises the flag again
        try:
            assignment = self._membership.sync(self.places(returned=True), told=self._told, passing=passing)
        except BaseException:
            self._attention = True
            raise
        if assignment is None:
            return None
        self._told = None
        for key in assignment.passed & self._cursors.keys():
            self._remove_cursor(key)
        self._follow(assignment.held)
        return assignment.checkpoint

    def _follow(self, held: dict[Key, int]) -> None:
        """Read those segments that the reader holds, and no others."""
        if held.keys() == self._cursors.keys():
            return
        for key in self._cursors.keys() - held.keys():
            self._remove_cursor(key)
        for key in sorted(held.keys() - self._cursors.keys()):
            self._add_cursor(key, held[key])
        self._trail = Trail(self.places(returned=True))

    def _remove_cursor(self, key: Key) -> None:
        cursor = self._cursors.pop(key)
        self._times.pop(key, None)
        cursor.segment.unwatch(cursor.wake_up)
        self._touched.discard(cursor)
        if self._page is not None and self._page.cursor is cursor:
            self._close_page()

    def _add_cursor(self, key: Key, place: int) -> None:
        try:
            segment = self._membership.segment(key)
        except KeyError:
            self._attention = True  # look again: it was truncated away since
        except PenstockError:
            self._attention = True
            raise
        else:
            cursor = Cursor(self._membership, key, segment, place=place, end=self._membership.end_of(key))
            cursor.wake_up = _SegmentBell(self, cursor)
            segment.watch(cursor.wake_up)
            self._cursors[key] = cursor
            self._put_last(cursor)

    @uninterrupted
    def _finish(self, cursor: Cursor) -> None:
        """Tell the group that a segment is read to its end, unless it is gone, and look what there is to read now."""
        self._attention = True
        if cursor.head() is None:
            return
        if self.error is None:
            try:
                self._membership.finish_segment(cursor.key, cursor.place)
            except BaseException:
                self._put_last(cursor)  # and it is told again
                raise
        self._remove_cursor(cursor.key)

    def _wait(self, deadline: float | None) -> bool:
        """Wait until something happens; False if the time is over, or nothing more is to come."""
        if self._membership.finished:
            return False
        if self._ready or self._attention:
            return True  # something came meanwhile
        patience = [] if deadline is None else [deadline - time.monotonic()]
        if patience and patience[0] <= 0:
            return False
        if self._is_dirty:
            patience.append(_RECORD_EVERY_S)
        if self._membership.has_company:
            patience.append(_LOOK_AROUND_EVERY_S)
        interruptible(lambda: self._wake_up.wait(min(patience, default=None)))
        return True


class _SegmentBell(WakeUp):
    """Rings for one segment, so that a reader of very many need not look at all of them."""

    __slots__ = ("_cursor", "_reader")

    def __init__(self, reader: Reader, cursor: Cursor) -> None:
        super().__init__()
        self._reader, self._cursor = reader, cursor

    def notify(self) -> None:
        """Wake the reader, and tell it why."""
        self._reader.hear(self._cursor)


def _is_about_one_event(error: BaseException, pieces: Sequence[Piece]) -> bool:
    """Whether an error says what is wrong with an event, which the reader has passed by: large ones are alone."""
    if not pieces:
        return isinstance(error, PenstockError)
    return isinstance(error, UNREADABLE) and isinstance(pieces[0][1], LargeBlock)


def _lost_part(error: PenstockError) -> tuple[str, list[int]]:
    """Return of which stream the segments are that were lost; none if it is all of the stream."""
    if isinstance(error, DataTruncated) and isinstance(error.place, StreamCut):
        return error.place.stream, list(error.place.offsets)
    assert isinstance(error, NoSuchStream), "nothing else is lost"
    return error.stream, []


def _deadline(timeout: float | None) -> float | None:
    check_timeout("timeout", timeout)
    return None if timeout is None else time.monotonic() + timeout


def _checked(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Let no serializer end an iteration: the events behind would be lost."""

    def checked(data: bytes) -> Any:  # noqa: ANN401 - whatever the serializer makes of it
        try:
            return deserialize(data)
        except StopIteration as error:
            raise RuntimeError("the serializer raised StopIteration") from error

    return checked
