"""The threads in which an asynchronous store does what may wait, and how the event loop waits for them.

A call runs to its end in its thread, also when the task that waits for it is cancelled. So a call that opens something
says how to undo that, and calls of one handle that must not overtake each other go through :class:`Turns`.

The threads are daemons: a call that waits for a server, or for ever, does not keep the process from ending. An idle
thread ends by itself, so a store that was never closed leaves none behind.

When a task goes on, the thread of its call has let go of everything the call used (:class:`PooledCall`). Otherwise the
last reference to an Arrow reader might be dropped in the thread while the process ends, which Python answers by ending
the thread inside of Arrow: the whole process is aborted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.errors import StoreClosed, WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CALL_THREADS_MAX", "READ_THREADS_MAX", "Threads", "Turns"]

T = TypeVar("T")

CALL_THREADS_MAX: Final = 32
READ_THREADS_MAX: Final = 4  # polls of readers, which are short; they never wait behind a call that waits for a reader
_IDLE_S: Final = 10.0
_LAST_CALLS_S: Final = 1.0  # for calls that end with their store


class PooledCall(Generic[T]):
    """A step that is taken in a thread, and the future that gets its outcome in the event loop.

    The thread gives everything away before the loop hears of it: afterwards it holds an empty job.
    """

    def __init__(self, threads: Threads, step: Callable[[], T], undo: Callable[[T], object] | None) -> None:
        self.done: asyncio.Future[T] = threads.loop.create_future()
        self._threads, self._context = threads, copy_context()
        self._step, self._undo = step, undo
        self._result: T
        self._error: BaseException | None = None

    def run(self) -> None:
        """Take the step; if the loop has ended by then, undo it."""
        try:
            self._result = self._context.run(self._step)
        except BaseException as error:  # noqa: BLE001 - the task that waits raises it
            self._error = error
        del self._step
        if not self._threads.call_soon(self._deliver) and self._error is None and self._undo is not None:
            with suppress(Exception):
                self._undo(self._result)

    def _deliver(self) -> None:
        done, error = self.done, self._error
        del self.done, self._error, self._undo, self._context
        if error is None:
            done.set_result(self._result)
            del self._result
            return
        if isinstance(error, StopIteration):  # which no future takes
            failure = RuntimeError("a serializer raised StopIteration")
            failure.__cause__ = error
            error = failure
        done.set_exception(error)


class Pool:
    """Threads that are started as they are needed, up to a limit; what comes then waits for one of them."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name, self._threads_max = name, threads_max
        self._jobs: SimpleQueue[PooledCall[Any]] = SimpleQueue()  # no longer than the tasks that wait are many
        self._lock = threading.Lock()
        self._threads = self._idle = 0
        self._left = 0  # jobs that have not ended
        self._rests = threading.Condition(self._lock)

    def run(self, job: PooledCall[Any]) -> None:
        """Run a job in one of the threads."""
        with self._lock:
            self._jobs.put(job)
            self._left += 1
            if self._idle:
                self._idle -= 1  # the thread that gets the job is not idle any more
                return
            if self._threads == self._threads_max:
                return
            self._threads += 1
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._threads -= 1
                        self._idle = max(self._idle - 1, 0)
                        return
                continue
            job.run()
            del job  # or what it holds would live until the next one
            with self._lock:
                self._left -= 1
                if self._jobs.empty():
                    self._idle += 1
                if not self._left:
                    self._rests.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until no job is left; return whether that is so."""
        with self._rests:
            return self._rests.wait_for(lambda: not self._left, timeout)


class Threads:
    """The threads of one store, and the event loop that it belongs to."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.ident: Final = threading.get_ident()  # of the thread in which the loop was running
        self._calls, self._reads = Pool("penstock-aio", CALL_THREADS_MAX), Pool("penstock-aio-read", READ_THREADS_MAX)
        self.is_closed = False

    def check(self, handle: object) -> None:
        """Refuse a call from outside of the event loop.

        Asking for the loop that runs takes a system call. So methods that are called for every event ask first whether
        this is the thread ``ident`` and the loop is running: then no other loop can be running here.
        """
        try:
            is_ours = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_ours = False
        if not is_ours:
            raise WrongEventLoop(type(handle).__name__)

    def is_abandoned(self, error: BaseException | None) -> bool:
        """Whether a block ends because its coroutine is deleted after its loop has ended: nothing can be awaited there.

        What the block has open is then as if it had never been closed, and ends with its store or with the process.
        """
        return isinstance(error, GeneratorExit) and not self.loop.is_running()

    def start(
        self, step: Callable[[], T], *, reads: bool = False, undo: Callable[[T], object] | None = None
    ) -> asyncio.Future[T]:
        """Take a step in a thread; the future is never cancelled. If the loop has ended by then, the step is undone."""
        if self.is_closed:
            raise StoreClosed("the store")
        job = PooledCall(self, step, undo)
        (self._reads if reads else self._calls).run(job)
        return job.done

    def call_soon(self, callback: Callable[..., object], *args: Any) -> bool:  # noqa: ANN401 - as the callback takes them
        """Call back in the event loop, from any thread; False if the loop is closed, so that no task waits there."""
        try:
            self.loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return False
        return True

    async def call(self, step: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
        """Take a step in a thread and wait for it; if the task is cancelled meanwhile, undo the step in the end."""
        started = self.start(step, undo=undo)
        try:
            return await asyncio.shield(started)
        except asyncio.CancelledError:
            if undo is not None:
                started.add_done_callback(lambda done: self._undo(done, undo))
            raise

    def _undo(self, done: asyncio.Future[T], undo: Callable[[T], object]) -> None:
        if done.exception() is None:
            result = done.result()
            with suppress(StoreClosed):  # then it was closed with the store
                self.start(lambda: undo(result)).add_done_callback(lambda undone: undone.exception())

    async def close(self, step: Callable[[], object]) -> None:
        """Take the last step in a thread of its own, because all others may be busy with calls that it ends."""
        self.is_closed = True
        job = PooledCall(self, lambda: self._end(step), None)
        threading.Thread(target=job.run, name="penstock-aio-close", daemon=True).start()
        await asyncio.shield(job.done)

    def _end(self, step: Callable[[], object]) -> None:
        """Take the step, then let the calls end that it has ended; one that goes on all the same is left alone."""
        try:
            step()
        finally:
            deadline = time.monotonic() + _LAST_CALLS_S
            for pool in (self._calls, self._reads):
                pool.wait(max(deadline - time.monotonic(), 0))


class Turns:
    """Calls of one handle, one after another, in the order in which tasks make them.

    The next call begins when the thread has ended the one before, also if the task that waited for it was cancelled.
    """

    def __init__(self, threads: Threads, *, reads: bool = False) -> None:
        self._threads, self._reads = threads, reads
        self._lock = asyncio.Lock()
        self._last: set[asyncio.Task[Any]] = set()

    @property
    def is_taken(self) -> bool:
        """Whether a call is under way."""
        return self._lock.locked()

    async def call(
        self,
        step: Callable[[], T],
        *,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[asyncio.Future[T] | None], object] = lambda _: None,
    ) -> T:
        """Take a step in a thread. ``begin`` is called in the loop before the step, and ``end`` behind it.

        If the task was cancelled, ``end`` is called with the future of the step, whose outcome no task got.
        """
        await self._lock.acquire()
        try:
            begin()
            started = self._threads.start(step, reads=self._reads)
        except BaseException:
            self._lock.release()
            raise
        try:
            result = await asyncio.shield(started)
        except asyncio.CancelledError:
            if started.done():
                self._end(end, started)
            else:
                started.add_done_callback(lambda done: self._end(end, done))
            raise
        except BaseException:
            self._end(end, None)
            raise
        self._end(end, None)
        return result

    async def call_to_the_end(self, step: Callable[[], T], *, begin: Callable[[], object] = lambda: None) -> T:
        """Take a step that closes something: it is taken although the task is cancelled before its turn has come."""
        last = self._threads.loop.create_task(self.call(step, begin=begin))
        self._last.add(last)  # the loop itself does not keep tasks alive
        last.add_done_callback(self._last.discard)
        return await asyncio.shield(last)

    def _end(self, end: Callable[[asyncio.Future[T] | None], object], lost: asyncio.Future[T] | None) -> None:
        try:
            end(lost)
            if lost is not None:
                lost.exception()  # it counts as seen: asyncio would log it otherwise
        finally:
            self._lock.release()
