"""Bounded reads as asynchronous iterators of Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.aio._threads import Turns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.aio._threads import Threads

__all__ = ["AsyncBatches"]


class AsyncBatches:
    """The batches of a bounded read, read in a thread one after another; the first begins the read.

    A batch that a cancelled task did not get is the first that the next task gets.
    """

    def __init__(self, begin: Callable[[], Iterator[pa.RecordBatch]], threads: Threads) -> None:
        self._begin, self._threads = begin, threads
        self._turns = Turns(threads)
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._lost: list[asyncio.Future[pa.RecordBatch | None]] = []  # no longer than one

    def __aiter__(self) -> AsyncBatches:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        """Return the next batch."""
        self._threads.check(self)
        batch = await self._turns.call(self._next, end=self._note_lost)
        if batch is None:
            raise StopAsyncIteration
        return batch

    def _next(self) -> pa.RecordBatch | None:
        if self._lost:
            return self._lost.pop().result()
        if self._batches is None:
            self._batches = self._begin()
        return next(self._batches, None)

    def _note_lost(self, lost: asyncio.Future[pa.RecordBatch | None] | None) -> None:
        if lost is not None:
            self._lost.append(lost)
