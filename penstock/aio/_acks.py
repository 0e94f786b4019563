"""Acknowledgements that tasks await, and the flushes that they wait for.

A task that awaits an acknowledgement asks for a flush. At most one flush of a writer is under way for tasks; it runs in
a thread and ends with one wake-up of the event loop, however many tasks wait. What they have asked for meanwhile is in
the next one.

A writer whose buffer is full lets tasks wait in a queue, so that no event overtakes another that was there first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from penstock.errors import StoreClosed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from penstock.aio._threads import Threads
    from penstock.stream.write import ReadyWriter

__all__ = ["AsyncAck", "Flushes"]

T_co = TypeVar("T_co", covariant=True)


class Acknowledgement(Protocol[T_co]):
    """What writing returns."""

    def done(self) -> bool:
        """Whether it is durable, or has failed."""

    def result(self, timeout: float | None = None) -> T_co:
        """Return the pointer, or raise what made it fail."""


class AsyncAck(msgspec.Struct, Generic[T_co], eq=False, gc=False):  # there is one for every event
    """What a write returns: await it for the event's pointer, or those of a batch, once it is durable.

    It may be awaited by several tasks, again, or never. A task that is cancelled meanwhile changes nothing.
    """

    _ack: Acknowledgement[T_co]
    _flushes: Flushes

    def done(self) -> bool:
        """Whether the event is durable, or has failed."""
        return self._ack.done()

    def __await__(self) -> Generator[Any, None, T_co]:
        ack = self._ack
        if not ack.done():
            self._flushes.threads.check(self)
            yield from self._flushes.settled(ack)
        return ack.result()


class Flushes:
    """Flushes one writer for the tasks that wait for it."""

    def __init__(self, writer: ReadyWriter, threads: Threads) -> None:
        self._writer, self.threads = writer, threads
        self._waiting: list[tuple[Acknowledgement[object], asyncio.Future[None]]] = []
        self.blocked: deque[asyncio.Future[None]] = deque()  # the tasks that have to wait until the buffer has space
        self._is_asked_for = False  # a flush is under way, or is going to be

    def settled(self, ack: Acknowledgement[object]) -> Generator[Any, None, None]:
        """Wait until an acknowledgement is done."""
        done = self.threads.loop.create_future()
        self._waiting.append((ack, done))
        self._ask()
        yield from done

    async def space(self) -> None:
        """Wait until it is this task's turn to add an event; :meth:`next_turn` ends the turn."""
        turn = self.threads.loop.create_future()
        self.blocked.append(turn)
        self._ask()
        try:
            await turn
        except BaseException:
            self.blocked.remove(turn)
            self.next_turn()
            raise
        self.blocked.popleft()

    def next_turn(self) -> None:
        """Let the next task add its event, if there is space."""
        if not self.blocked or self.blocked[0].done():
            return
        if self._writer.is_full:
            self._ask()
        else:
            self.blocked[0].set_result(None)

    def _ask(self) -> None:
        """Have a flush begin when the tasks that can run now have done so: they may have more to flush."""
        if not self._is_asked_for:
            self._is_asked_for = True
            self.threads.loop.call_soon(self._begin)

    def _begin(self) -> None:
        acks = [ack for ack, done in self._waiting if not done.done()]
        try:
            self.threads.start(lambda: self._writer.flush_for(acks)).add_done_callback(self._flushed)
        except StoreClosed as error:
            self._flushed(None, error)

    def _flushed(self, flushed: asyncio.Future[None] | None, error: BaseException | None = None) -> None:
        self._is_asked_for = False
        failure = error if flushed is None else flushed.exception()
        waiting, self._waiting = self._waiting, []
        for ack, done in waiting:
            if done.done():  # its task was cancelled
                continue
            if ack.done():
                done.set_result(None)
            elif failure is not None:
                done.set_exception(failure)
            else:
                self._waiting.append((ack, done))
        if failure is not None:
            for turn in self.blocked:
                if not turn.done():
                    turn.set_result(None)  # adding the event raises what is wrong
            return
        self.next_turn()
        if self._waiting:
            self._ask()
