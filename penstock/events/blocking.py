"""Blocking forms of the clients, for programs without an event loop: a loop in a thread of its own does the work.

Threads may share a client; each call waits for its own result.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.events import _clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from penstock.events._event import Event

__all__ = ["BlockingGenerator", "BlockingPollClient"]

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound=_clients.Client)


class _Blocking(Generic[ClientT]):
    """A client, and the event loop that it runs in."""

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-events", daemon=True)
        self._thread.start()

    def ping(self, echo: int = 1) -> int:
        """Return the same number from the server."""
        return self._run(self._client.ping(echo))

    def close(self) -> None:
        """Close the connection, and end the thread. Closing again changes nothing."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

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
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


class BlockingGenerator(_Blocking[_clients.Generator]):
    """Adds events to a stream."""

    def __init__(self, url: str, **credentials: str | None) -> None:
        super().__init__(_clients.Generator(url, **credentials))

    def add_event(self, kind: str, data: object) -> int:
        """Add an event, and return its id once the event is durable."""
        return self._run(self._client.add_event(kind, data))


class BlockingPollClient(_Blocking[_clients.PollClient]):
    """Polls the events of a stream as one component of the user."""

    def __init__(
        self, url: str, component: str, *, want: Sequence[str] | None = None, **credentials: str | None
    ) -> None:
        super().__init__(_clients.PollClient(url, component, want=want, **credentials))

    def register(self) -> None:
        """Register the component: the server keeps events until it has got them. Doing so again changes nothing."""
        self._run(self._client.register())

    def poll(self, last_id: int | None = None) -> list[Event]:
        """Return the next events, in order, at most 1,000; those up to ``last_id`` are acknowledged by this."""
        return self._run(self._client.poll(last_id))

    def events(self, last_id: int | None = None) -> Iterator[Event]:
        """Yield events for ever, as the client for event loops does."""
        events = self._client.events(last_id)
        while True:
            yield self._run(_next_of(events))


async def _next_of(events: AsyncIterator[Event]) -> Event:
    return await anext(events)
