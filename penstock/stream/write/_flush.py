"""Flushing: what waits in the lanes of a writer becomes durable.

One flush takes all lanes, appends one or more blocks to each segment and ends when all of them are durable, before the
next one begins. So the durable events of each key, and of each writer's numbers, have no gaps, whatever happens.

Two locks order it. The flush lock is held from the beginning of a flush to its end, and taken first. The lock of the
lanes is never held while waiting, so events can be written while a flush is under way. Callbacks of acknowledgements
run when neither is held, because they may write, or wait.

The pump flushes what a writer has buffered when no other thread does. A thread that waits for an acknowledgement, or
fills a buffer, flushes at once by itself. The pump is for events that no thread waits for: they are flushed a moment
later, so that more of them go together. While a writer is in use the pump comes back to it again and again, so that not
every event has to wake it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from penstock.deadlines import ANSWER_SLACK_S, DeadlineExceeded, run_locked
from penstock.errors import NoSuchStream, PenstockError, StoreClosed, StreamSealed, WriterFailed, WriterFenced
from penstock.ports import uninterrupted
from penstock.stream.format import StreamBlockHeader
from penstock.stream.segment import SegmentEnded, WakeUp
from penstock.stream.write._acks import BlockPlace, settle
from penstock.stream.write._lanes import Lanes, Numbers, place_again

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from penstock.ports import Bytes
    from penstock.stream.write._acks import Run
    from penstock.stream.write._host import Pending, WriterHost
    from penstock.stream.write._lanes import BlockPlan, Load
    from penstock.stream.write._managed_writer import ManagedWriter

__all__ = ["LINGER_S", "Flusher", "Pump"]

T = TypeVar("T")
LINGER_S: Final = 0.001
_logger: Final = logging.getLogger("penstock.stream")


class Flusher:
    """Makes durable what waits in the lanes of one writer, and the time that the writer has noted behind it.

    ``trouble`` is the reason why nothing can be written any more, None while all is well. ``identity`` is what the
    blocks of a writer without an id carry.
    """

    def __init__(self, writer: ManagedWriter, host: WriterHost, *, identity: bytes) -> None:
        self._writer, self._host = writer, host
        self.lanes = self._lanes = Lanes(self, host, writer.stream)
        self.numbers = self._numbers = Numbers.of(host, writer.stream, writer.writer_id, identity)
        self.lock = threading.Lock()  # guards the lanes
        self.flush_lock = threading.Lock()
        self.trouble: BaseException | None = None
        self._settled: deque[Run] = deque()  # whose callbacks are still to be called
        self._noted_time: int | None = None  # to be marked behind the events before it
        self._is_floor_stored = True  # whether the last block says how far the numbers are durable

    def check(self) -> None:
        """Raise what is wrong with the writer, if something is."""
        if self.trouble is not None:
            raise self.trouble

    def note_time(self, time: int) -> None:
        """Mark a time with the next flush; it counts as a byte that waits."""
        with self.lock:
            self.check()
            if self._noted_time is None:
                self._lanes.size += 1
            self._noted_time = max(time, self._noted_time or 0)

    def holding(self, step: Callable[[], T]) -> T:
        """Take a step while no other thread flushes, then call the callbacks that have become due."""
        try:
            with self.flush_lock:
                return step()
        finally:
            if self._settled:
                self.announce()

    @property
    def is_at_work(self) -> bool:
        """True; in a process that was forked from the writer's, asking raises ``ForkedHandle``."""
        return self._writer.is_at_work

    def drive(self, run: Run, timeout: float | None) -> None:
        """Return when the run is done; flush if no other thread does."""
        if timeout is None:
            try:
                with self.flush_lock:
                    if self._writer.is_at_work and not run.done:
                        self.flush()
            finally:
                if self._settled:
                    self.announce()
        elif not (self._host.is_remote and self._host.pump.is_at_work_here):
            self._await(run, timeout)
        else:
            deadline = time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
            try:
                run_locked(self.flush_lock, lambda: None if run.done else self.flush(), deadline)
            except DeadlineExceeded:
                raise self._no_acknowledgement(timeout) from None
            finally:
                self.announce()

    def _await(self, run: Run, timeout: float) -> None:
        """Return when the run is done, which another thread flushes: the disk, or a server, may take longer.

        For a server that is the pump. Here it is a thread of its own, so that writers of many threads share a sync.
        """
        wake_up, is_remote = WakeUp(), self._host.is_remote
        run.when_done(wake_up.notify)
        if is_remote:
            self._host.pump.add(self._writer, at_once=True)
        else:
            threading.Thread(target=self.drive, args=(run, None), name="penstock-flush", daemon=True).start()
        slack = ANSWER_SLACK_S if is_remote or timeout <= 0 else 0.0  # without any time it is flushed, too
        if not wake_up.wait(max(timeout, 0) + slack):
            raise self._no_acknowledgement(timeout)

    def _no_acknowledgement(self, timeout: float) -> TimeoutError:
        return TimeoutError(f"no acknowledgement from stream {self._writer.stream!r} within {max(timeout, 0):.3g} s")

    def with_empty_lanes(self, step: Callable[[], T]) -> T:
        """Flush until nothing waits, then take a step; the caller holds the flush lock."""
        while True:
            with self.lock:
                self.check()
                if not self._lanes.size:
                    return step()
            self.flush()

    @uninterrupted
    def announce(self) -> None:
        """Call the callbacks that are due; if an interrupt comes before that, the next call does, or the pump."""
        while self._settled:
            with suppress(IndexError):  # another thread has taken it
                self._settled.popleft().announce()

    @uninterrupted
    def flush(self) -> None:
        """Make durable what waits; the caller holds the flush lock. Acknowledgements report errors, none is raised."""
        runs: set[Run] = set()
        with self.lock:
            loads = self._lanes.take(runs)
            flush_last = self._numbers.give(loads)
            noted = self._take_time(None)
        try:
            noted = self._send_all(loads, flush_last, runs, noted)
        except BaseException as error:  # noqa: BLE001 - acknowledgements report it, whatever it was
            self.fail(error, runs)
            return
        self._settled += settle(runs)
        if runs and self._writer.writer_id is not None:
            self._host.note_activity(self._writer.stream, self._writer.stream_uid, self._writer.writer_id)
        if noted is not None:
            self._mark(noted)

    def _send_all(self, loads: list[Load], flush_last: int, runs: set[Run], noted: int | None) -> int | None:
        """Make loads durable, wherever their segments end meanwhile; return the time to be marked behind them.

        ``flush_last`` is the number of their last event, ``noted`` the time to be marked if nothing else comes.

        What is written meanwhile is taken along where a segment has ended: its runs are added to ``runs``.
        """
        numbers, lanes, is_anonymous = self._numbers, self._lanes, self._writer.writer_id is None
        # Blocks of the same flush that an earlier writer left must not be counted with these.
        segments = len(loads) if flush_last > numbers.resume else 0
        if loads:
            self._is_floor_stored = bool(segments) or is_anonymous
        unsent, taken_size = self._send(loads, flush_last, segments=segments), 0
        while unsent:
            with self._host.steady:  # or segments end again while events are put into them, and again
                with self.lock:
                    taken_size = lanes.size
                    more = lanes.take(runs)
                    lanes.size = taken_size  # a full buffer holds back writing threads as before
                    noted = self._take_time(noted)
                    flush_last = max(flush_last, numbers.give(more))
                    lanes.refresh()
                    loads = place_again(lanes, unsent, more, numbers_given=numbers.are_given)
                self._is_floor_stored = is_anonymous
                unsent = self._send(loads, flush_last, segments=0)
        with self.lock:
            lanes.size -= taken_size
        numbers.floor = flush_last
        if not self._is_floor_stored:
            with suppress(StreamSealed):  # then no writer goes on with these numbers
                self._store_floor()
        return noted

    def _take_time(self, before: int | None) -> int | None:
        """Take the time that waits to be marked, or the one taken before; the caller holds the lock."""
        noted, self._noted_time = self._noted_time, None
        return before if noted is None else max(noted, before or 0)

    def _mark(self, time: int) -> None:
        """Mark a time behind all that is durable, which is everything that was written before the time was noted."""
        try:
            self._host.mark_behind(self._writer, time)
        except Exception as error:  # noqa: BLE001 - the next write raises it, whatever it was
            self.fail(error)

    def _send(self, loads: Sequence[Load], flush_last: int, *, segments: int) -> list[BlockPlan]:
        """Append blocks and wait for them; return the plans whose segment has ended.

        ``segments`` is how many segments the flush goes to; 0 if that must not be counted.
        """
        unsent: list[BlockPlan] = []
        sent: list[tuple[BlockPlan, Bytes, Pending]] = []
        if len(loads) > 1:
            self._host.prepare([lane.segment for lane, _ in loads])
        for lane, plans in loads:
            for plan in plans:
                flush_segments = segments if plan is plans[-1] else 0
                columns, body = plan.run.packed(plan.first, plan.stop, keeps_keys=self._lanes.keeps_keys)
                header = StreamBlockHeader(
                    columns=columns,
                    flush_segments=flush_segments,
                    count=plan.stop - plan.first,
                    writer=self._numbers.writer,
                    last_number=plan.last_number,
                    flush_last=flush_last if flush_segments else 0,
                    durable_floor=flush_last if flush_segments == 1 else self._numbers.floor,
                )
                try:
                    sent.append((plan, body[0], lane.segment.submit(header, *body)))
                except SegmentEnded:
                    unsent += plans[plans.index(plan) :]
                    break
        for plan, words, pending in sent:
            try:
                pending.result()
            except SegmentEnded:
                unsent.append(plan)
            else:
                plan.run.places.append(BlockPlace(plan.first, pending.start, words))
        return unsent

    def _store_floor(self) -> None:
        """Append a block without events that says how far the numbers are durable: those of the flush could not."""
        floor = self._numbers.floor
        header = StreamBlockHeader(
            count=0, writer=self._numbers.writer, last_number=floor, flush_last=floor, durable_floor=floor
        )
        segment = self._lanes.open[0].segment
        while not self._is_floor_stored:
            try:
                segment.submit(header).result()
                self._is_floor_stored = True
            except SegmentEnded:
                uid, segments, _ = self._host.lanes(self._writer.stream)
                if uid != self._lanes.uid:
                    raise NoSuchStream(self._writer.stream) from None
                segment = segments[0].segment

    def note_floor(self, floor: int) -> None:
        """Note that all events up to a number are durable and a block says so; the caller holds the flush lock."""
        self._numbers.floor, self._is_floor_stored = floor, True
        self._host.note_activity(self._writer.stream, self._writer.stream_uid, self._writer.writer_id)

    def fail(self, error: BaseException, runs: Collection[Run] = ()) -> None:
        """Write no more, because later events would be out of order; events that wait fail with those of ``runs``.

        The error is that of ``runs``. For the events that wait it is the error of an earlier write.
        """
        waiting: set[Run] = set()
        with self.lock:
            if self.trouble is None:
                is_known = isinstance(error, StreamSealed | WriterFenced | NoSuchStream | StoreClosed)
                self.trouble = error if is_known else self._failed(error)
            self._lanes.take(waiting)
        self._settled += settle(waiting.difference(runs), self.trouble)
        self._settled += settle(runs, error if isinstance(error, PenstockError) else self.trouble)

    def _failed(self, error: BaseException) -> WriterFailed:
        failed = WriterFailed(self._writer.stream, cause=error)
        failed.__cause__ = error
        return failed


class Pumped(Protocol):
    """A writer, as the pump sees it."""

    def pump(self) -> bool:
        """Flush; False if nothing was written since the last time, so that the pump need not come again."""


class Pump:
    """One thread for all writers of a store, started with the first event that it may have to flush."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake_up, self._linger = WakeUp(), WakeUp()
        self._waiting: dict[Pumped, None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, writer: Pumped, *, at_once: bool = False) -> None:
        """Flush what the writer has, a moment later, or now because a caller waits for it."""
        with self._lock:
            self._waiting[writer] = None
            if self._thread is None and not self._closed:
                self._start()
        if at_once:
            self._linger.notify()
        self._wake_up.notify()

    @uninterrupted
    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="penstock-pump", daemon=True)
        thread.start()
        self._thread = thread

    @property
    def is_at_work_here(self) -> bool:
        """Whether this thread is the pump's: then no other flushes what it waits for."""
        return threading.current_thread() is self._thread

    def _work(self) -> None:
        while True:
            if not self._waiting:
                self._wake_up.wait(None)
            if self._closed:
                return
            self._linger.wait(LINGER_S)
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            busy = [writer for writer in waiting if _pumped(writer)]
            with self._lock:
                self._waiting.update(dict.fromkeys(busy))

    def close(self) -> None:
        """End the thread; what is buffered stays where it is."""
        with self._lock:
            self._closed, thread = True, self._thread
        self._linger.notify()
        self._wake_up.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


def _pumped(writer: Pumped) -> bool:
    """Return whether to come again; a writer that fails does not keep the others from being flushed."""
    try:
        return writer.pump()
    except BaseException:
        _logger.exception("the pump could not flush a writer")
        return False
