"""The asynchronous reader: a thread has a block of events ready, and the event loop takes them one by one.

Where there is nothing to read, no thread waits: the reader is polled again when its group or a segment notifies it.

What a task was about to get when it was cancelled is not lost. An event that a thread has taken is returned again, and
an error that it met is raised, by the next call.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from penstock.aio._event_files import AsyncEventInputStream
from penstock.aio._handle import AsyncHandle, ClosedAtEnd
from penstock.aio._threads import Turns
from penstock.errors import ReaderBusy
from penstock.model import check_timeout
from penstock.stream.read import BATCH_SIZE_DEFAULT, BLOCKS_AHEAD, PolledReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    import pyarrow as pa

    from penstock.aio._threads import Threads
    from penstock.model import TimeWindow
    from penstock.stream import EventRead, Reader

__all__ = ["AsyncReader"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Read(Protocol[T_co]):
    """A method that reads."""

    def __call__(self, *, timeout: float | None) -> T_co | None:
        """Return what comes next."""


_TURN_EVENTS: Final = 1024  # that are returned before other tasks of the event loop get a turn


class AsyncReader(AsyncHandle[PolledReader], ClosedAtEnd):
    """Reads what its group gives it. Get one from :meth:`AsyncReaderGroup.reader`; one task at a time reads from it."""

    def __init__(self, inner: Reader, threads: Threads) -> None:
        super().__init__(PolledReader(inner), threads)
        self._loop, self._member = threads.loop, self._inner.member
        self._ident, self._is_running = threads.ident, threads.loop.is_running
        self._turns = Turns(threads, reads=True)
        self._ready: Iterator[EventRead] = iter(())
        self._pages_left = 0  # until the next poll
        self._is_reading = False  # a task is
        self._must_take_back = False  # what the last call has taken: its task was cancelled
        self._owed: BaseException | None = None  # the error that it met

    @property
    def reader_id(self) -> str:
        """The name of the reader in its group."""
        return self._inner.reader_id

    # What users call

    async def read_next_event(self, timeout: float | None = None) -> EventRead | None:
        """Return the next event; None when ``timeout`` seconds are over, or there is nothing more to come.

        After an error about one event the next call returns the next one. If the task is cancelled, the next call
        returns what this one would have returned.
        """
        if get_ident() == self._ident and self._is_running() and not self._member.needs_sync:
            for read in self._ready:
                return read
        return await self._next_event(timeout)

    def __aiter__(self) -> AsyncIterator[EventRead]:
        """Return all events to come; ends where the group ends, or its streams do, once they are sealed."""
        self._threads.check(self)
        return _Iteration(self)

    async def read_batch(
        self, max_bytes: int = BATCH_SIZE_DEFAULT, timeout: float | None = None
    ) -> pa.RecordBatch | None:
        """Return the next events as bytes; None when ``timeout`` seconds are over, or there is nothing more to come.

        See :meth:`Reader.read_batch` for the columns. If the task is cancelled, the next call returns the same events.
        """
        return await self._next(partial(self._inner.read_batch, max_bytes), timeout)

    async def read_next_event_as_stream(self, timeout: float | None = None) -> AsyncEventInputStream | None:
        """Return the next event, of any size, as a file; None when the time is over, or there is nothing more to come.

        The next call may come before the file was read to its end; files stay good. Checkpoints are passed without
        being returned.
        """
        file = await self._next(self._inner.read_next_event_as_stream, timeout)
        return None if file is None else AsyncEventInputStream(file, self._threads)

    async def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        """Return between which times the group is in a stream, the only one by default; None without any marks.

        See :meth:`Reader.current_time_window`.
        """
        return await self._in_turn(partial(self._inner.current_time_window, stream))

    async def finished(self) -> bool:
        """Return whether the group has read everything, up to its end or that of its streams, which are sealed."""
        return await self._in_turn(lambda: self._inner.finished)

    async def commit(self) -> None:
        """Make durable how far the reader has come, with what it returned last; otherwise that takes up to a second."""
        await self._in_turn(self._inner.commit)

    def keep_alive(self) -> AbstractContextManager[None]:
        """Keep the segments while a ``with`` block runs; see :meth:`Reader.keep_alive`."""
        self._threads.check(self)
        return self._inner.keep_alive()

    async def close(self) -> None:
        """Let others go on from here; what was returned counts as read. Closing again does nothing."""
        await self._leave(returned=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error, what was returned last does not count as read."""
        if not self._threads.is_abandoned(error):
            await self._leave(returned=kind is None)

    async def _leave(self, *, returned: bool) -> None:
        self._threads.check(self)
        if self._threads.is_closed:  # and the reader with it
            return
        leave = partial(self._after_taking_back, partial(self._inner.leave, returned=returned))
        await self._turns.call_to_the_end(leave, begin=self._begin)
        self._inner.wake_up.notify()  # a task that still waits finds out that it is closed

    # Reading

    async def _next_event(self, timeout: float | None) -> EventRead | None:
        """Return the next event: one at hand, if there is any, or one that is read now."""
        if self._is_free() and self._inner.has_reads:
            await asyncio.sleep(0)  # other tasks only had to get a turn
        if self._is_free() and (self._inner.has_reads or self._turn_page()):
            self._ready = islice(self._inner.reads, _TURN_EVENTS)
            for read in self._ready:
                return read
        return await self._next(self._inner.read_next_event, timeout)

    def _is_free(self) -> bool:
        """Whether events at hand can be returned: no thread has the reader, or has to do something before."""
        self._threads.check(self)
        is_taken = self._turns.is_taken or self._is_reading or self._must_take_back or self._owed is not None
        return not is_taken and not self._member.needs_sync

    def _turn_page(self) -> bool:
        """Go on with the next block, unless it is time for a poll, which gives other tasks a turn."""
        self._pages_left -= 1
        return self._pages_left >= 0 and self._inner.turn_page()

    async def _next(self, read: Read[T], timeout: float | None) -> T | None:
        """Poll until there is something, the time is over, or nothing more is to come."""
        check_timeout("timeout", timeout)
        self._threads.check(self)
        if self._is_reading:
            raise ReaderBusy(self.reader_id)
        deadline = None if timeout is None else time.monotonic() + timeout
        self._is_reading = True
        try:
            while True:
                left_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                found = await self._in_turn(partial(self._poll, read, left_s), takes=True)
                if found is not None or self._inner.is_over:
                    return found
                pause_s = self._inner.pause_s if deadline is None else deadline - time.monotonic()
                if pause_s <= 0:
                    return None
                await self._pause(min(pause_s, self._inner.pause_s))
        finally:
            self._is_reading = False

    def _poll(self, read: Read[T], left_s: float | None) -> T | None:
        if self._owed is not None:
            owed, self._owed = self._owed, None
            raise owed
        return self._inner.poll(partial(read, timeout=left_s))

    async def _in_turn(self, step: Callable[[], T], *, takes: bool = False) -> T:
        """Take a step in a thread, while no other task uses the reader; ``takes`` if it takes events."""
        self._threads.check(self)
        end = partial(self._end, takes=takes)
        return await self._turns.call(partial(self._after_taking_back, step), begin=self._begin, end=end)

    def _after_taking_back(self, step: Callable[[], T]) -> T:
        if self._must_take_back:
            self._must_take_back = False
            self._inner.take_back()
        return step()

    def _begin(self) -> None:
        self._ready = iter(())  # a thread has the reader now

    def _end(self, lost: asyncio.Future[T] | None, *, takes: bool) -> None:
        """Have events at hand again; if a task was cancelled, remember what it has not got."""
        if lost is None or not takes:
            self._ready, self._pages_left = islice(self._inner.reads, _TURN_EVENTS), BLOCKS_AHEAD
        elif (error := lost.exception()) is not None:
            self._owed = error
        elif lost.result() is not None:
            self._must_take_back = True

    async def _pause(self, seconds: float) -> None:
        """Wait until something happens to the reader, or the time is over."""
        woken: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(seconds, _wake, woken)
        self._inner.wake_up.call_once(lambda: self._threads.call_soon(_wake, woken))
        try:
            await woken
        finally:
            timer.cancel()
            self._inner.wake_up.call_once(None)


class _Iteration:
    """All events to come, for ``async for``.

    Each step is one of a generator, without a call of a function in Python: ``__anext__`` is its method, in a slot. A
    generator ends with an exception, also that of a cancelled task, and puts another one into its place first.
    """

    __slots__ = ("__anext__", "_reader")

    def __init__(self, reader: AsyncReader) -> None:
        self._reader = reader
        self._begin()

    def _begin(self) -> None:
        self.__anext__ = self._reads().__anext__

    def __aiter__(self) -> _Iteration:
        return self

    async def _reads(self) -> AsyncGenerator[EventRead]:
        reader = self._reader
        member = reader._member
        try:
            while True:
                ready = reader._ready
                for read in () if member.needs_sync else ready:
                    yield read
                    if member.needs_sync or reader._ready is not ready:
                        break
                found = await reader._next_event(None)
                if found is None:
                    return
                yield found
        except BaseException:
            self._begin()
            raise


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
