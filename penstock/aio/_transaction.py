"""Asynchronous transactions. Their calls come one after another: a commit never overtakes a write.

Small events wait in the event loop, and are added together, in a thread, before the next call of the transaction or
when there are enough of them. None waits for longer than until the next write after ``_PENDING_S``, so that a task that
writes now and then renews the lease of its transaction with each event, and learns soon that it has ended.
"""

from __future__ import annotations

import math
from asyncio import sleep
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.aio._event_files import AsyncEventOutputStream
from penstock.aio._handle import AsyncHandle, ClosedAtEnd, Opening, in_thread
from penstock.aio._threads import Turns
from penstock.errors import PenstockError
from penstock.store import OpenTransaction, Transaction, TransactionalWriter
from penstock.stream.format import Attributes

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from penstock.aio._threads import Threads
    from penstock.stream.format import GivenHeaders
    from penstock.stream.transaction import Status

__all__ = ["AsyncOpenTransaction", "AsyncTransaction", "AsyncTransactionalWriter"]

_PENDING_SIZE_MAX: Final = 256 << 10  # bytes that wait; an event that is larger does not
_PENDING_S: Final = 0.05
_TURN: Final = 64  # events after which other tasks run
T = TypeVar("T")
X = TypeVar("X", bound=Transaction)


class AsyncTransaction(AsyncHandle[X]):
    """Events that become part of a stream together, or not at all.

    If a task is cancelled while it writes, the event is part of the transaction or not: abort it. If it is cancelled
    while it commits, :meth:`status` says what became of it.
    """

    def __init__(self, inner: X, threads: Threads, *, is_buffered: bool = False) -> None:
        super().__init__(inner, threads)
        self._turns = Turns(threads)
        self._is_buffered = is_buffered
        self._pending: deque[tuple[bytes, str | bytes | None, GivenHeaders | None]] = deque()
        self._pending_size = 0
        self._added_at = -math.inf

    async def _call(self, step: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        self._threads.check(self)
        self._added_at, self._pending_size = self._threads.loop.time(), 0
        return await self._turns.call(partial(self._behind_pending, step), end=partial(self._undo, undo))

    def _behind_pending(self, step: Callable[[], T]) -> T:
        """Add the events that wait, then take a step; if they cannot be added, the transaction is aborted."""
        self._add_pending()
        return step()

    def _add_pending(self) -> None:
        """Add the events that wait. This runs in a thread, while tasks may write the next ones."""
        rows = [self._pending.popleft() for _ in range(len(self._pending))]
        if rows:
            events, keys, headers = zip(*rows, strict=True)
            try:
                self._inner.write_batch(events, keys, headers if any(headers) else None)
            except BaseException:
                with suppress(PenstockError):
                    self._inner.abort()  # or a commit would leave them out
                raise

    def _undo(self, undo: Callable[[T], object] | None, lost: Any) -> None:  # noqa: ANN401 - the future of a step
        if undo is not None and lost is not None and lost.exception() is None:
            self._threads.start(lambda: undo(lost.result()))

    @property
    def id(self) -> str:
        """Its id, with which another process finds it."""
        return self._inner.id

    async def status(self) -> Status:
        """Return ``open``, ``prepared``, ``committed`` or ``aborted``."""
        self._threads.check(self)
        return await self._turns.call(lambda: self._inner.status)

    ping = in_thread(Transaction.ping)

    async def write_event(
        self, event: object, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> None:
        """Add an event; readers see it after the commit.

        It returns as soon as the event is in a buffer, or in the transaction. If what is buffered cannot be added, the
        next call raises why, and nothing is committed. See :meth:`Transaction.write_event` for the arguments.
        """
        self._threads.check(self)
        now = self._threads.loop.time()
        is_small = self._is_buffered and type(event) is bytes and len(event) <= _PENDING_SIZE_MAX
        if not is_small or now - self._added_at > _PENDING_S or self._turns.is_taken:
            await self._call(partial(self._inner.write_event, event, key, headers=headers))
            return
        assert type(event) is bytes
        attributes = Attributes.of(key, headers)  # which raises what is wrong with them
        self._pending.append((event, key, headers))
        self._pending_size += len(event) + attributes.size
        if self._pending_size > _PENDING_SIZE_MAX:
            await self._call(lambda: None)
        elif len(self._pending) % _TURN == 0:
            await sleep(0)

    write_batch = in_thread(Transaction.write_batch)

    def begin_write_event(
        self,
        key: str | bytes | None = None,
        *,
        headers: GivenHeaders | None = None,
        position: float | None = None,
    ) -> Opening[AsyncEventOutputStream]:
        """Begin an event of any size, to be written as a file; closing the file adds it to the transaction.

        Without a key it goes to the segment that has ``position``, or to any.
        """

        async def begin() -> AsyncEventOutputStream:
            step = partial(self._inner.begin_write_event, key, headers=headers, position=position)
            return AsyncEventOutputStream(await self._call(step, lambda output: output.abort()), self._threads)

        return Opening(begin)

    async def prepare(self) -> None:
        """Make it outlive this process and the owner of the store; it accepts no more events then."""
        self._is_buffered = False
        await self._call(self._inner.prepare)

    async def commit(self, timestamp: int | None = None) -> None:
        """Add all events to the stream at once; returns when they are durable and can be read.

        With a ``timestamp`` the writer notes that time behind them.
        """
        self._is_buffered = False  # a write behind this raises at once that it has ended
        await self._call(partial(self._inner.commit, timestamp))

    async def abort(self) -> None:
        """Drop the transaction; aborting it again does nothing."""
        self._is_buffered = False
        self._threads.check(self)
        await self._turns.call(self._drop)

    def _drop(self) -> None:
        """Drop the events that wait, with the transaction: not before the turn of the call, which may be cancelled."""
        self._pending.clear()
        self._inner.abort()


class AsyncOpenTransaction(AsyncTransaction[OpenTransaction], ClosedAtEnd):
    """A transaction that this process has begun."""

    async def close(self) -> None:
        """Commit, unless it was prepared, committed or aborted."""
        self._is_buffered = False
        await self._call(partial(self._inner.__exit__, None, None, None))

    async def __aenter__(self) -> Self:
        """Commit at the end of the block, or abort if it ends with an exception, also that of a cancelled task."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, unless it was prepared, committed or aborted in the block; abort after an exception."""
        if self._threads.is_abandoned(error):
            return
        if error is None or not self._threads.is_closed:  # with the store it was aborted
            self._threads.check(self)
            self._is_buffered = False
            await self._turns.call_to_the_end(partial(self._end, kind, error))

    def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        if error is None:
            self._add_pending()
        else:
            self._pending.clear()
        self._inner.__exit__(kind, error, None)


class AsyncTransactionalWriter(AsyncHandle[TransactionalWriter], ClosedAtEnd):
    """Begins transactions on a stream, and commits prepared ones together."""

    def __init__(self, inner: TransactionalWriter, threads: Threads, *, is_buffered: bool) -> None:
        super().__init__(inner, threads)
        self._is_buffered = is_buffered  # a serializer has to see each event when it is written

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._inner.stream

    @property
    def writer_id(self) -> str | None:
        """The id under which it notes time and numbers; None if it has none."""
        return self._inner.writer_id

    async def last_number(self) -> int | None:
        """Return the highest number that :meth:`commit_all` has committed under this writer id; None without any."""
        return await self._call(lambda: self._inner.last_number)

    def begin(self, lease: float = 30.0) -> Opening[AsyncOpenTransaction]:
        """Begin a transaction, in ``async with`` or with ``await``.

        It is aborted when no call pings it, or writes to it, for ``lease`` seconds.
        """

        async def begin() -> AsyncOpenTransaction:
            step = partial(self._inner.begin, lease)
            begun = await self._call(step, lambda begun: begun.abort())
            return AsyncOpenTransaction(begun, self._threads, is_buffered=self._is_buffered)

        return Opening(begin)

    async def get(self, transaction: str) -> AsyncTransaction[Transaction]:
        """Return a transaction by its id; one that has ended tells how."""
        return AsyncTransaction(await self._call(partial(self._inner.get, transaction)), self._threads)

    commit_all = in_thread(TransactionalWriter.commit_all)

    async def close(self) -> None:
        """Begin no more transactions, and note no more time; open transactions end by their lease."""
        await self._close(self._inner.close)
