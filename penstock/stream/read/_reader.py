"""The reader: the events of the segments that its group gives it, one by one or as Arrow batches.

Reading an event is a look at a flag and a step of an iterator over events that are ready. Everything else (the lease,
recording places, the turns of segments) is done once a block, or when the group has raised the flag.

Events that a reader returned count as read when it is called again, or closed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock import forks
from penstock.deadlines import DeadlineExceeded, within
from penstock.errors import PenstockError
from penstock.model import EventPointer, Position, check_timeout, check_whole
from penstock.ports import interruptible, uninterrupted
from penstock.stream.read._batches import BatchReads
from penstock.stream.read._event_files import file_of
from penstock.stream.read._event_read import EventRead, Milestone, Page, Trail, guarded
from penstock.stream.read._held_segments import UNREADABLE
from penstock.stream.read._reader_member import READER_LEASE_S
from penstock.stream.segment import LargeBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    import pyarrow as pa

    from penstock.model import TimeWindow
    from penstock.stream.catalog import Key
    from penstock.stream.read._event_files import EventInputStream
    from penstock.stream.read._held_segments import Cursor
    from penstock.stream.read._reader_member import ReaderMember
    from penstock.stream.serializers import Serializer

__all__ = ["BATCH_SIZE_DEFAULT", "LEASE_CHECK_S", "Reader"]

T = TypeVar("T")

BATCH_SIZE_DEFAULT: Final = 8 << 20
_RECORD_EVERY_S: Final = 1.0
LEASE_CHECK_S: Final = READER_LEASE_S / 6  # how soon a waiting reader notices that another is silent
_MOVES_MAX: Final = 64


class Reader:
    """Reads what its group gives it. Get one from :meth:`ReaderGroup.reader`; one thread at a time uses it."""

    def __init__(self, member: ReaderMember, serializer: Serializer[Any] | None, max_event_size: int) -> None:
        forks.guard(self)
        self.reader_id: Final = member.reader_id
        self._member, self._membership, self._clock = member, member.membership, member.membership.clock
        self._held = member.held
        self._deserialize = None if serializer is None else guarded(serializer.deserialize)
        self._event_size_max = max_event_size
        self._reads: Iterator[EventRead] = iter(())
        self._trail = Trail({})
        self._batches = BatchReads(self._membership, self._held, self._next_cursor, event_size_max=max_event_size)
        self._told: str | None = None  # the checkpoint that was returned last
        self._recorded = self._clock.elapsed()
        self._is_dirty = False
        self._is_returning = False  # what was taken is on its way to the caller

    # What users call

    def read_next_event(self, timeout: float | None = None) -> EventRead | None:
        """Return the next event; None when ``timeout`` seconds are over, or there is nothing more to come.

        After an error about one event the next call returns the next one.
        """
        if not self._member.needs_sync:
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
        page = self._member.page
        if page is not None:
            page.cursor.advance(page.index - 1)
            self._close_page()
            self._held.put_last(page.cursor)

    def read_batch(self, max_bytes: int = BATCH_SIZE_DEFAULT, timeout: float | None = None) -> pa.RecordBatch | None:
        """Return the next events as bytes; None when ``timeout`` seconds are over, or there is nothing more to come.

        Columns are event, key, timestamp, headers, segment_id, offset and mark_time, and stream if the group has
        several. A batch has at most ``max_bytes``, or one event. Checkpoints are passed without being returned.
        """
        check_whole("max_bytes", max_bytes, least=1)
        return self._in_time(lambda deadline: self._next_batch(deadline, max_bytes), timeout)

    def read_next_event_as_stream(self, timeout: float | None = None) -> EventInputStream | None:
        """Return the next event, of any size, as a file; None when the time is over, or there is nothing more to come.

        The next call may come before the file was read to its end; files stay good. Checkpoints are passed without
        being returned.
        """
        return self._in_time(self._next_stream, timeout)

    def __iter__(self) -> Iterator[EventRead]:
        """Return all events to come; ends where the group ends, or its streams do, once they are sealed."""
        while (read := self.read_next_event()) is not None:
            yield read

    def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        """Return between which times the group is in a stream, the only one by default; None without any marks.

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

    def keep_alive(self) -> AbstractContextManager[None]:
        """Keep the segments while a block runs, for work on an event that may take longer than the 30 s of the lease.

        Others wait for the block, so give up work that hangs. A reader whose process ends is taken offline as ever.
        """
        return self._member.keep_alive()

    def close(self) -> None:
        """Let others go on from here; what was returned counts as read. Closing again does nothing."""
        self._leave(returned=True)

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    @forks.silent_in_child
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error, what was returned last does not count as read."""
        self._leave(returned=kind is None)

    @uninterrupted
    def _leave(self, *, returned: bool) -> None:
        if self._member.error is None:
            self._membership.leave(self._member.places(returned=returned))
        self._member.let_go()

    # Reading

    def _in_time(self, step: Callable[[float | None], T | None], timeout: float | None) -> T | None:
        """Do what may take time, but no more than there is; an interrupt on the way back loses nothing."""
        check_timeout("timeout", timeout)
        deadline, self._is_returning = None if timeout is None else time.monotonic() + timeout, False
        try:
            return self._seen_alive(step, deadline)
        except BaseException:
            if self._is_returning:
                self._go_back()
            raise

    @uninterrupted
    def _seen_alive(self, step: Callable[[float | None], T | None], deadline: float | None) -> T | None:
        self._member.is_called = True
        try:
            with within(deadline):
                result = step(deadline)
        except DeadlineExceeded:
            self._member.needs_sync = True  # what the group was asked last is asked again
            return None
        finally:
            self._member.note_call(self._clock.elapsed())
        self._is_returning = True
        return result

    @uninterrupted
    def _go_back(self) -> None:
        """Return again what was taken since the last call, and the checkpoint, too."""
        self._close_page()
        self._told, self._member.needs_sync = None, True
        self._held.go_back()

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
            if not self._member.needs_sync and not self._wait(deadline):
                return None

    def _next_batch(self, deadline: float | None, max_bytes: int) -> pa.RecordBatch | None:
        while True:
            self._settle(passing=True)
            self._close_page()
            batch = self._batches.next(max_bytes)
            if batch is not None:
                return batch
            if not self._member.needs_sync and not self._wait(deadline):
                return None

    def _next_stream(self, deadline: float | None) -> EventInputStream | None:
        while True:
            self._settle(passing=True)
            self._close_page()
            cursor = self._next_cursor()
            if cursor is not None:
                return self._open_stream(cursor)
            if not self._member.needs_sync and not self._wait(deadline):
                return None

    def _open_stream(self, cursor: Cursor) -> EventInputStream:
        self._held.touched.add(cursor)
        block, index = cursor.take()
        self._held.put_last(cursor)
        return file_of(block, index, EventPointer(*cursor.key, block.offset_of(index)))

    def _tell(self, checkpoint: str) -> EventRead:
        self._told, self._member.needs_sync = checkpoint, True
        return EventRead(0, Milestone(checkpoint, Position.of(self._member.places(returned=True))), None)

    def _next_cursor(self, *, first: bool = True) -> Cursor | None:
        """Return the next segment with something to read; None if there is none, or one is read to its end."""
        cursor, is_over = self._held.next(self._event_size_max, first=first)
        if cursor is None or not is_over:
            return cursor
        self._finish(cursor)
        return None

    def _open_page(self, cursor: Cursor) -> None:
        """Have the events of a block ready to be returned one by one."""
        block = cursor.block
        assert block is not None, "only what was loaded is read"
        self._held.put_last(cursor)
        self._held.touched.add(cursor)
        if cursor.stop == cursor.first:
            raise cursor.skip_large(block, self._event_size_max)
        page = Page(cursor, block, self._trail)
        try:
            self._reads = page.reads(self._deserialize)
        except UNREADABLE:
            if isinstance(block, LargeBlock):
                cursor.skip_unreadable(block)
            raise
        self._member.page = page

    def _close_page(self) -> None:
        self._member.page, self._reads = None, iter(())

    # Keeping in step with the group

    def _settle(self, *, passing: bool) -> str | None:
        """Count what was returned and do what has become due; return the checkpoint that the reader has come to.

        With ``passing`` it goes on beyond checkpoints at once.
        """
        self._count_returned()
        if self._is_record_due():
            self._recorded = self._clock.elapsed()
            self._record()
        self._check_online()
        checkpoint = self._look_at_group(passing=passing) if self._member.needs_sync else None
        if self._member.losses:
            raise self._next_loss()
        return checkpoint

    def _is_record_due(self) -> bool:
        return self._clock.elapsed() - self._recorded >= _RECORD_EVERY_S

    @uninterrupted
    def _next_loss(self) -> PenstockError:
        self._member.needs_sync = True
        return self._member.losses.next()

    def _count_returned(self) -> None:
        page = self._member.page
        if page is not None:
            index = page.index
            if index == page.stop:
                self._close_page()
            page.cursor.advance(index)
            page.counted = index
        held = self._held
        for cursor in held.touched:
            cursor.place = cursor.reached
            self._trail.moves.append((cursor.key, cursor.reached))
            held.put_last(cursor)  # only now it may be over
            self._is_dirty = True
        held.touched = set() if self._member.page is None else {self._member.page.cursor}
        if len(self._trail.moves) > _MOVES_MAX + len(held.cursors):
            self._trail = Trail(self._member.places(returned=True))

    def _commit_returned(self, _: float | None) -> None:
        self._count_returned()
        self._record(durable=True)
        self._check_online()

    @uninterrupted
    def _record(self, *, durable: bool = False) -> None:
        if self._member.error is None:
            self._membership.record(
                self._member.places(returned=True) if self._is_dirty or durable else None, durable=durable
            )
            self._is_dirty = False

    def _check_online(self) -> None:
        if self._member.error is not None:
            self._member.let_go()
            raise self._member.error.with_traceback(None)

    @uninterrupted
    def _look_at_group(self, *, passing: bool) -> str | None:
        """Do what the group asks for: come to a checkpoint, give and take segments."""
        self._member.needs_sync = False  # first: what comes now is looked at, or raises the flag again
        try:
            assignment = self._membership.sync(self._member.places(returned=True), told=self._told, passing=passing)
        except BaseException:
            self._member.needs_sync = True
            raise
        if assignment is None:
            return None
        self._told = None
        for key in assignment.passed & self._held.cursors.keys():
            self._remove_cursor(key)
        self._follow(assignment.held)
        return assignment.checkpoint

    def _follow(self, held: dict[Key, int]) -> None:
        """Read those segments that the reader holds, and no others."""
        known = self._held.cursors.keys()
        if held.keys() == known:
            return
        for key in known - held.keys():
            self._remove_cursor(key)
        try:
            if not self._held.follow(held):
                self._member.needs_sync = True  # ask again: a segment was truncated away since
        except PenstockError:
            self._member.needs_sync = True
            raise
        self._trail = Trail(self._member.places(returned=True))

    def _remove_cursor(self, key: Key) -> None:
        cursor = self._held.remove(key)
        if self._member.page is not None and self._member.page.cursor is cursor:
            self._close_page()

    @uninterrupted
    def _finish(self, cursor: Cursor) -> None:
        """Tell the group that a segment is read to its end, unless it is gone, and look what there is to read now."""
        self._member.needs_sync = True
        if cursor.head() is None:
            return
        if self._member.error is None:
            try:
                self._membership.finish_segment(cursor.key, cursor.place)
            except BaseException:
                self._held.put_last(cursor)  # so that it is finished again
                raise
        self._remove_cursor(cursor.key)

    def _wait(self, deadline: float | None) -> bool:
        """Wait until something happens; False if the time is over, or nothing more is to come."""
        if self._membership.finished:
            return False
        if self._held.has_ready or self._member.needs_sync:
            return True  # something came meanwhile
        pause_s = self._pause_s(deadline)
        if pause_s is not None and pause_s <= 0:
            return False
        interruptible(lambda: self._member.wake_up.wait(pause_s))
        return True

    def _pause_s(self, deadline: float | None) -> float | None:
        """Return for how long to wait before something is due; None if nothing is."""
        pauses = [] if deadline is None else [deadline - time.monotonic()]
        if self._is_dirty:
            pauses.append(_RECORD_EVERY_S)
        if self._membership.has_company:
            pauses.append(LEASE_CHECK_S)
        return min(pauses, default=None)
