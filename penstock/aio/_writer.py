"""The asynchronous writer: adds events in the event loop itself, and waits for the disk in threads."""

from __future__ import annotations

from asyncio import sleep
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from penstock.aio._acks import AsyncAck, Flushes
from penstock.aio._event_files import AsyncEventOutputStream
from penstock.aio._handle import AsyncHandle, ClosedAtEnd, Opening, in_thread
from penstock.stream import StreamWriter
from penstock.stream.write import BUFFER_SIZE, ReadyWriter, WouldWait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.aio._threads import Threads
    from penstock.model import EventPointer
    from penstock.stream import EventPointers
    from penstock.stream.format import GivenHeaders

__all__ = ["AsyncStreamWriter"]


class AsyncStreamWriter(AsyncHandle[StreamWriter], ClosedAtEnd):
    """Writes events to a stream; get one from :meth:`AsyncStore.writer`. Tasks may share it."""

    def __init__(self, inner: StreamWriter, threads: Threads) -> None:
        super().__init__(inner, threads)
        ready = ReadyWriter(inner)
        self._flushes = Flushes(ready, threads)
        self._write, self._lanes, self._is_locked = ready.write_event, ready.lanes, ready.lock.locked
        self._blocked = self._flushes.blocked
        self._ident, self._is_running = threads.ident, threads.loop.is_running
        self._flush_count = 0

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._inner.stream

    @property
    def writer_id(self) -> str | None:
        """The id of the writer; None if it has none."""
        return self._inner.writer_id

    @property
    def last_number(self) -> int | None:
        """The number up to which all events of this writer id are durable, over restarts; None if there are none."""
        return self._inner.last_number

    async def write_event(
        self,
        event: object,
        key: str | bytes | None = None,
        *,
        number: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> AsyncAck[EventPointer | None]:
        """Write one event, when the buffer has space; await the acknowledgement to know that it is durable.

        It returns as soon as the event is in the buffer, so that one task can write many before it awaits the first
        acknowledgement. Events above 1 MiB, and the first with a ``number``, are durable when it returns. If the task
        is cancelled, the event was written or not. See :meth:`StreamWriter.write_event` for the arguments.
        """
        lanes = self._lanes
        if get_ident() != self._ident or not self._is_running():
            self._threads.check(self)
        if self._blocked or lanes.size > BUFFER_SIZE or self._is_locked():
            return await self._write_in_turn(event, key, number=number, headers=headers)
        try:
            if number is None and headers is None:
                ack = AsyncAck(self._write(event, key), self._flushes)
            else:
                ack = AsyncAck(self._write(event, key, number=number, headers=headers), self._flushes)
        except WouldWait:
            return await self._write_in_thread(event, key, number=number, headers=headers)
        if lanes.turn != self._flush_count:
            self._flush_count = lanes.turn
            await sleep(0)  # a task that only writes lets the others run, about once in a millisecond
        return ack

    async def _write_in_turn(self, *args: Any, **options: Any) -> AsyncAck[EventPointer | None]:  # noqa: ANN401 - as above
        """Write an event when there is space, behind the tasks that came before."""
        await self._flushes.space()
        try:
            return AsyncAck(self._write(*args, **options), self._flushes)
        except WouldWait:
            return await self._write_in_thread(*args, **options)
        finally:
            self._flushes.next_turn()

    async def _write_in_thread(self, *args: Any, **options: Any) -> AsyncAck[EventPointer | None]:  # noqa: ANN401 - as above
        return AsyncAck(await self._threads.call(partial(self._inner.write_event, *args, **options)), self._flushes)

    async def write_batch(
        self,
        events: Iterable[object],
        keys: Iterable[str | bytes | None] | str | bytes | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
    ) -> AsyncAck[EventPointers]:
        """Write many events: a list of bytes or an Arrow array, with one acknowledgement for all.

        It returns when they are in the buffer; await the acknowledgement to know that they are durable. If the task is
        cancelled, all of them were written, or none. See :meth:`StreamWriter.write_batch` for the arguments.
        """
        ack = await self._call(partial(self._inner.write_batch, events, keys, headers))
        return AsyncAck(ack, self._flushes)

    def begin_write_event(
        self, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> Opening[AsyncEventOutputStream]:
        """Begin an event of any size, to be written as a file; nothing of it can be read before that is closed.

        Use it in ``async with``, or await it. Many may be open at once. The order of events is that in which they are
        closed. An exception in the block, also that of a cancelled task, aborts.
        """

        async def begin() -> AsyncEventOutputStream:
            step = partial(self._inner.begin_write_event, key, headers=headers)
            return AsyncEventOutputStream(await self._call(step, lambda output: output.abort()), self._threads)

        return Opening(begin)

    async def note_time(self, time: int) -> None:
        """Promise that all events up to a time, in milliseconds since 1970, are written: what comes is later.

        See :meth:`StreamWriter.note_time`. It waits for nothing.
        """
        self._threads.check(self)
        self._inner.note_time(time)

    flush = in_thread(StreamWriter.flush)

    async def close(self) -> None:
        """Make everything durable; write no more, nor note time. Closing again does nothing."""
        await self._close(self._inner.close)
