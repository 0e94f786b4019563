"""Clients of FutoIn event streams: adding events, and polling them. They work with every server of FTN18.

A client connects at its first call, and again after a lost connection; ``StoreClosed`` once it is closed.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import FutoinError, StoreClosed, StoreUnreachable
from penstock.events._channel import FutoinChannel
from penstock.events._codings import JSON
from penstock.events._endpoint import Endpoint
from penstock.events._event import Event, EventId, checked_component, checked_last_id, checked_want
from penstock.events._functions import EVENTS_MAX, PingServer
from penstock.events._outage import Outage
from penstock.events._store_events import packed_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["Client", "Generator", "PollClient"]

T = TypeVar("T")
_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_POLL_OLD: Final = "futoin.evt.poll:1.0"


class Client:
    """A connection to one event stream, opened when it is needed."""

    interface: str
    """Every function is called under it, also ping: the reference server offers no other."""

    def __init__(self, url: str, **credentials: str | None) -> None:
        self._endpoint = Endpoint(url=url, **credentials)
        self._channel: FutoinChannel | None = None
        self._opening, self._is_closed = asyncio.Lock(), False

    async def ping(self, echo: int = 1) -> int:
        """Return the same number from the server."""
        return (await self._call("ping", {"echo": echo}, PingServer)).echo

    async def close(self) -> None:
        """Close the connection; calls under way fail. Closing again changes nothing."""
        self._is_closed = True
        async with self._opening:
            if self._channel is not None:
                await self._channel.close()

    async def __aenter__(self) -> Self:
        """Close the connection at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        await self.close()

    async def _call(self, function: str, parameters: dict[str, Any], result: type[T]) -> T:
        async with self._opening:
            if self._is_closed:
                raise StoreClosed("the client")
            if self._channel is None or self._channel.is_lost:
                self._channel = await FutoinChannel.open(self._endpoint, called=_serve_nothing)
        return await self._channel.call(f"{self.interface}:{function}", parameters, result)


class Generator(Client):
    """Adds events to a stream."""

    interface = "futoin.evt.gen:1.1"

    async def add_event(self, kind: str, data: object) -> int:
        """Add an event, and return its id once the event is durable. Many calls may be under way at once.

        ``BadArgument`` if the type, or the data, is not what FutoIn permits; nothing is sent then.
        """
        event = JSON.load(packed_event(kind, data))
        return int(await self._call("addEvent", {"type": event["type"], "data": event["data"]}, EventId))


class PollClient(Client):
    """Polls the events of a stream as one component of the user."""

    interface = "futoin.evt.poll:1.1"

    def __init__(
        self, url: str, component: str, *, want: Sequence[str] | None = None, **credentials: str | None
    ) -> None:
        super().__init__(url, **credentials)
        self._component, self._want = checked_component(component), checked_want(want)

    async def _call(self, function: str, parameters: dict[str, Any], result: type[T]) -> T:
        """Call a function; a reference server that pushes, too, offers version 1.0 of polling alone."""
        try:
            return await super()._call(function, parameters, result)
        except FutoinError as error:
            if error.name != "NotSupportedVersion" or self.interface == _POLL_OLD:
                raise
            self.interface = _POLL_OLD
            return await super()._call(function, parameters, result)

    async def register(self) -> None:
        """Register the component: the server keeps events until it has got them. Doing so again changes nothing."""
        await self._call("registerConsumer", {"component": self._component}, bool)

    async def poll(self, last_id: int | str | None = None) -> list[Event]:
        """Return the next events, in order, at most 1,000; those up to ``last_id`` are acknowledged by this."""
        parameters = {
            "component": self._component,
            "last_id": None if last_id is None else checked_last_id(last_id),
            "want": self._want,
        }
        return await self._call("pollEvents", parameters, list[Event])

    async def events(self, last_id: int | str | None = None) -> AsyncIterator[Event]:
        """Yield events for ever; an event is acknowledged with the poll after the loop has asked for the next one.

        While few events come, polls become rarer, up to one in five seconds. ``StoreUnreachable`` if the server is away
        for ten minutes.
        """
        delay_s, outage = _SHORTEST_S, Outage("the event stream")
        while True:
            try:
                found = await self.poll(last_id)
            except (StoreUnreachable, FutoinError) as error:
                await sleep(outage.pause_after(error))
                continue
            outage.end()
            for event in found:
                yield event
                last_id = event.id
            if len(found) < EVENTS_MAX // 2:
                await sleep(delay_s)
            delay_s = _SHORTEST_S if found else min(2 * delay_s, _LONGEST_S)


async def _serve_nothing(function: str, _: object) -> object:
    raise FutoinError("UnknownInterface", f"there is no function {function} here")
