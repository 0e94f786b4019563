"""Blocking forms of the clients, for programs without an event loop: a loop in a thread of its own does the work.

Threads may share a client; each call waits for its own result. A client that is closed raises ``StoreClosed``.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import BadArgument, StoreClosed
from penstock.events import _clients, _receivers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from penstock.events._event import Event

__all__ = ["BlockingGenerator", "BlockingLiveReceiver", "BlockingPollClient", "BlockingReliableReceiver"]

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound=_clients.Client)
ReceiverT = TypeVar("ReceiverT", bound=_receivers.LiveReceiver | _receivers.ReliableReceiver)


class _LoopThread:
    """An event loop in a thread of its own, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the connection, and end the thread. Closing again changes nothing."""
        if self._loop.is_closed():
            return
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Close the connection at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what a call returns; an interrupt ends the call, too."""
        if self._loop.is_closed():
            call.close()
            raise StoreClosed("the client")
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


class _BlockingClient(_LoopThread, Generic[ClientT]):
    """A client that makes calls."""

    def __init__(self, client: ClientT) -> None:
        self._client = client
        super().__init__()

    def ping(self, echo: int = 1) -> int:
        """Return the same number from the server."""
        return self._run(self._client.ping(echo))

    async def _close(self) -> None:
        await self._client.close()


class BlockingGenerator(_BlockingClient[_clients.Generator]):
    """Adds events to a stream."""

    def __init__(self, url: str, **credentials: str | None) -> None:
        super().__init__(_clients.Generator(url, **credentials))

    def add_event(self, kind: str, data: object) -> int:
        """Add an event, and return its id once the event is durable."""
        return self._run(self._client.add_event(kind, data))


class BlockingPollClient(_BlockingClient[_clients.PollClient]):
    """Polls the events of a stream as one component of the user."""

    def __init__(
        self, url: str, component: str, *, want: Sequence[str] | None = None, **credentials: str | None
    ) -> None:
        super().__init__(_clients.PollClient(url, component, want=want, **credentials))

    def register(self) -> None:
        """Register the component: the server keeps events until it has got them. Doing so again changes nothing."""
        self._run(self._client.register())

    def poll(self, last_id: int | str | None = None) -> list[Event]:
        """Return the next events, in order, at most 1,000; those up to ``last_id`` are acknowledged by this."""
        return self._run(self._client.poll(last_id))

    def events(self, last_id: int | str | None = None) -> Iterator[Event]:
        """Yield events for ever, as the client for event loops does."""
        events = self._client.events(last_id)
        while True:
            yield self._run(_next_of(events))


async def _next_of(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


class _BlockingReceiver(_LoopThread, Generic[ReceiverT]):
    """A receiver whose function is called in a thread, one group after the other: it may take its time, and block."""

    def __init__(self, receiver: ReceiverT) -> None:
        self._receiver = receiver
        self._receiving: asyncio.Task[None] | None = None
        super().__init__()

    def run(self) -> None:
        """Receive until :meth:`stop`, Ctrl-C or an error; the group that is being processed is processed to its end."""
        self._run(self._receive())

    def stop(self) -> None:
        """Let :meth:`run` return; any thread may call this, and the function, too."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()

    async def _receive(self) -> None:
        self._receiving = asyncio.create_task(self._receiver.run())
        try:
            await asyncio.wait([self._receiving])
        finally:
            await self._close()
        if not self._receiving.cancelled():
            self._receiving.result()

    async def _close(self) -> None:
        if self._receiving is not None and not self._receiving.done():
            self._receiving.cancel()
            await asyncio.wait([self._receiving])


class BlockingReliableReceiver(_BlockingReceiver[_receivers.ReliableReceiver]):
    """Gives all events to a function, in order, each once, as ``ReliableReceiver`` does."""

    def __init__(
        self,
        url: str,
        component: str,
        handle: Callable[[list[Event]], object],
        *,
        position: _receivers.PositionStore | None = None,
        want: Sequence[str] | None = None,
        **credentials: str | None,
    ) -> None:
        called = _in_thread(handle)
        super().__init__(
            _receivers.ReliableReceiver(url, component, called, position=position, want=want, **credentials)
        )

    @property
    def last_id(self) -> int:
        """The id of the last event that was processed."""
        return self._receiver.last_id


class BlockingLiveReceiver(_BlockingReceiver[_receivers.LiveReceiver]):
    """Gives live events to a function, as ``LiveReceiver`` does; under load some are left out."""

    def __init__(
        self,
        url: str,
        handle: Callable[[list[Event]], object],
        *,
        want: Sequence[str] | None = None,
        **credentials: str | None,
    ) -> None:
        super().__init__(_receivers.LiveReceiver(url, _in_thread(handle), want=want, **credentials))

    @property
    def missed(self) -> int:
        """How many groups of events were left out."""
        return self._receiver.missed


def _in_thread(handle: Callable[[list[Event]], object]) -> Callable[[list[Event]], Awaitable[None]]:
    if inspect.iscoroutinefunction(_receivers.checked_function(handle)):
        raise BadArgument("invalid handle: a coroutine function is for ReliableReceiver; use a plain one here")

    async def called(events: list[Event]) -> None:
        await asyncio.to_thread(handle, events)

    return called
