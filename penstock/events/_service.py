"""What a server does when a function of FTN18 is called: for every connection the same, whatever its transport."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from penstock.errors import FutoinError, PenstockError
from penstock.events._adding import Adder
from penstock.events._delivery_budget import DeliveryBudget
from penstock.events._errors import invalid
from penstock.events._event import of_types
from penstock.events._event_log import PAGE_SIZE, EventLog
from penstock.events._feed import Feed
from penstock.events._functions import (
    LIVE,
    AddEvent,
    Call,
    PingServer,
    PollEvents,
    ReadyToReceive,
    Register,
)
from penstock.events._registrations import Registrations
from penstock.events._sizes import AROUND, EVENTS_MAX
from penstock.events._user_threads import UserThreads
from penstock.events.consumers import Consumer
from penstock.model import ByConsumption, Fixed, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from penstock.events._event import WireEvent
    from penstock.events._ports import EventStore

__all__ = ["Caller", "CallingUser", "EventService"]

T = TypeVar("T")
_THREADS: Final = 4
_USER_THREADS: Final = 8
_UNDER_WAY_MAX: Final = 256 << 20  # bytes on the way to all clients
_STORE_S: Final = 1.0  # how often positions are stored
_SCAN_MAX: Final = 16 << 20  # bytes that one poll looks at
_QUESTIONS_MAX: Final = 1_000  # live polls of which it is known how far they have looked
_logger: Final = logging.getLogger("penstock.events")


class CallingUser(Protocol):
    """A user of the server, or the anonymous one."""

    @property
    def name(self) -> str:
        """Its name."""

    def may(self, permission: Any, stream: str) -> bool:  # noqa: ANN401 - the server knows which there are
        """Whether it has a permission for a stream."""


class Caller(NamedTuple):
    """A user who calls; ``owner`` is the name that what it registers belongs to, None on a server without users.

    ``ask`` returns the user of the moment; ``NotAuthenticated`` if the credentials have ended. ``sign`` returns the
    code of an answer, which a caller who signs its messages checks.
    """

    name: str
    ask: Callable[[], CallingUser]
    owner: str | None
    is_secure: bool
    sign: Callable[[Mapping[str, Any]], str] | None = None

    def check(self, permission: str, stream: str) -> None:
        """Refuse a caller without the permission."""
        if not self.ask().may(permission, stream):
            raise FutoinError("SecurityError", f"{self.name} lacks the permission {permission} for {stream}")


class EventService:
    """The functions of FTN18 on the streams of a store; all calls come from one event loop.

    ``own_stream`` is created when it is first used by a caller who may; other streams have to exist. ``accepts``
    decides whether a user may get an event: it is called with the user's name and the event.
    ``archives`` is a folder with the archives of streams, by their names: polls of truncated events read them.
    ``user_share`` is the share of what is limited that one user gets.
    """

    def __init__(
        self,
        store: EventStore,
        *,
        own_stream: str,
        accepts: Callable[[str, WireEvent], bool] | None = None,
        archives: Path | None = None,
        user_share: float = 1.0,
    ) -> None:
        self._store, self._own_stream, self._accepts, self._archives = store, own_stream, accepts, archives
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(_THREADS, "penstock-futoin")  # for what is short
        self._readers = ThreadPoolExecutor(_THREADS, "penstock-futoin-read")  # for receivers that are behind
        self._user_threads = UserThreads(_USER_THREADS, user_share=user_share)  # for polls and filters
        self.budget: Final = DeliveryBudget(_UNDER_WAY_MAX, user_share=user_share)
        self._creating = asyncio.Lock()
        self._adder = Adder(store, now=store.clock.now)
        self.registrations: Final = Registrations(store)
        self._feeds: dict[str, Feed] = {}
        self._logs: dict[str, tuple[int, EventLog]] = {}
        self._looked_at: OrderedDict[_Question, int] = OrderedDict()
        self._storing = self._loop.create_task(self._store_positions())
        self.calls = self.pushed_events = 0  # since the start

    async def run(self, call: Callable[..., T], *given: object) -> T:
        """Call in a thread what waits for the disk, and not for long."""
        return await self._loop.run_in_executor(self._threads, call, *given)

    async def call(self, call: Call, caller: Caller, stream: str) -> object:
        """Return what a function returns; readyToReceive needs a connection, which does it itself."""
        if isinstance(call.parameters, AddEvent):
            return await (await self.add(call.parameters, caller, stream))
        self.calls += 1
        match call.parameters:
            case PingServer(echo):
                return {"echo": echo}
            case Register(component):
                caller.check("consume", stream)
                await self._ensure_stream(caller, stream)
                consumer = self._consumer(caller, stream, component)
                await self.run(self.registrations.register, consumer, self.log(stream))
                return True
            case PollEvents() as parameters:
                return await self._poll(parameters, caller, stream, call.answer_size_max - AROUND)
            case ReadyToReceive():
                raise FutoinError("InvalidRequest", "readyToReceive needs a WebSocket, on which events can be pushed")
        raise AssertionError("every function is served")

    async def add(self, event: AddEvent, caller: Caller, stream: str) -> asyncio.Future[str]:
        """Write an event; return the future of its id, which is done once the event is durable."""
        self.calls += 1
        caller.check("write", stream)
        if not caller.is_secure:
            raise FutoinError("SecurityError", "events are added over TLS, or on the same machine only")
        await self._ensure_stream(caller, stream)
        return await self._adder.add(stream, event.type, event.data)

    async def _ensure_stream(self, caller: Caller, stream: str) -> None:
        """Create the service's own stream if it does not exist, and look whether a stream can be used."""
        if stream == self._own_stream and stream not in self._store.catalog.streams:
            async with self._creating:
                if stream not in self._store.catalog.streams and caller.ask().may("admin", stream):
                    config = StreamConfig(scaling=Fixed(1), retention=ByConsumption())
                    await self.run(partial(self._store.create_stream, stream, config=config, exist_ok=True))
        self.log(stream)

    def log(self, stream: str) -> EventLog:
        """Return the events of a stream; ``InvalidRequest`` if there is no such stream, or it has several segments."""
        try:
            uid = self._store.catalog.open_stream(stream).uid
        except PenstockError as error:
            raise invalid(str(error)) from None
        known, log = self._logs.get(stream, (None, None))
        if log is None or known != uid:
            log = EventLog(self._store, stream, self._archives)
            self._logs[stream] = uid, log
        return log

    def join(self, stream: str) -> Feed:
        """Return the newest events of a stream, which all receivers share, until :meth:`leave`."""
        log, feed = self.log(stream), self._feeds.get(stream)
        if feed is None or feed.log is not log:
            if feed is not None:
                feed.close()
            feed = self._feeds[stream] = Feed(log, tail=self._threads, past=self._readers)
        feed.receivers += 1
        return feed

    def leave(self, feed: Feed) -> None:
        """Let go of what :meth:`join` has returned; without receivers nothing is kept in memory."""
        feed.receivers -= 1
        if not feed.receivers:
            feed.close()
            if self._feeds.get(feed.log.stream) is feed:
                del self._feeds[feed.log.stream]

    def _consumer(self, caller: Caller, stream: str, component: str) -> Consumer:
        return Consumer(stream, caller.name, component, caller.owner)

    async def start_of(self, caller: Caller, stream: str, wanted: ReadyToReceive) -> tuple[Consumer, int] | None:
        """Return the consumer that is to be pushed events, and behind which id it goes on; None for a live one."""
        caller.check(wanted.permission, stream)
        await self._ensure_stream(caller, stream)
        if wanted.component == LIVE:
            return None
        consumer = self._consumer(caller, stream, wanted.component)
        return consumer, await self.run(self.registrations.position, consumer)

    def accepted_by(self, caller: Caller) -> Callable[[WireEvent], bool] | None:
        """Return the filter of a user, None if there is none."""
        return None if self._accepts is None else partial(self._accepts, caller.name)

    def selected_by(self, caller: Caller) -> Callable[[list[WireEvent]], Awaitable[list[WireEvent]]] | None:
        """Return a function that returns those of some events that a user may get; None if there is no filter."""
        accepts = self.accepted_by(caller)
        if accepts is None:
            return None
        return lambda events: self._user_threads.run(caller.owner, list, filter(accepts, events))

    async def _poll(self, parameters: PollEvents, caller: Caller, stream: str, size_max: int) -> list[WireEvent]:
        consumer = None
        caller.check(parameters.permission, stream)
        await self._ensure_stream(caller, stream)
        if parameters.component != LIVE:
            consumer = self._consumer(caller, stream, parameters.component)
        log, after = self.log(stream), int(parameters.last_id or 0)
        select = partial(_select, log, want=parameters.types, accepts=self.accepted_by(caller), size_max=size_max)
        if consumer is not None:
            return await self._user_threads.run(caller.owner, self._poll_as, consumer, log, after, select)
        question = log, caller.name, parameters.types, after
        events, end = await self._user_threads.run(caller.owner, select, self._looked_at.get(question, after))
        if not events:
            self._note_looked_at(question, end)
        return events

    def _poll_as(
        self, consumer: Consumer, log: EventLog, after: int, select: Callable[[int], Selected]
    ) -> list[WireEvent]:
        """Return the next events; a consumer has got those before ``after``, and those that were left out."""
        after = max(min(after, log.tail), self.registrations.position(consumer))
        events, end = select(after)
        self.registrations.advance(consumer, log, after if events else end)
        return events

    def _note_looked_at(self, question: _Question, end: int) -> None:
        """Note how far a poll has looked in vain: the same one, which has no position, goes on from there."""
        self._looked_at[question] = end
        self._looked_at.move_to_end(question)
        if len(self._looked_at) > _QUESTIONS_MAX:
            self._looked_at.popitem(last=False)

    async def _store_positions(self) -> None:
        while True:
            await asyncio.sleep(_STORE_S)
            await self._forget_deleted()
            for writer, time_ms in self._adder.times():
                with suppress(PenstockError):  # a writer that has failed is replaced with the next event
                    await self.run(writer.note_time, time_ms)
            try:
                await self.run(self.registrations.store_positions)
            except PenstockError as error:  # they stay in memory until the disk has space again
                _logger.warning("positions of consumers were not stored", extra={"reason": str(error)})

    async def _forget_deleted(self) -> None:
        """Keep nothing of streams that were deleted."""
        self._logs = {stream: known for stream, known in self._logs.items() if known[1].is_current}
        for question in [question for question in self._looked_at if not question[0].is_current]:
            del self._looked_at[question]
        for writer in self._adder.forget_deleted():
            with suppress(PenstockError):  # every event that failed has told its caller
                await self.run(writer.close)

    async def close(self) -> None:
        """Store the positions; write and push no more."""
        self._storing.cancel()
        for feed in self._feeds.values():
            feed.close()
        with suppress(PenstockError):
            await self.run(self.registrations.store_positions)
        await self.run(self._adder.close)
        self._user_threads.close()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=False)


_Question = tuple[EventLog, str, frozenset[str] | None, int]
"""A live poll: the stream, the user, the types that are wanted, and the id behind which it asks for events."""

Selected = tuple["list[WireEvent]", int]
"""Events, and the id up to which all were looked at."""


def _select(
    log: EventLog,
    after: int,
    *,
    want: frozenset[str] | None,
    accepts: Callable[[WireEvent], bool] | None,
    size_max: int,
) -> Selected:
    """Return the events behind an id for which an answer has space."""
    after = min(after, log.tail)
    events: list[WireEvent] = []
    first, size = after, 0
    while len(events) < EVENTS_MAX and after - first < _SCAN_MAX:
        left = max(size_max - size, PAGE_SIZE)
        page = log.page(after, events_max=EVENTS_MAX - len(events), size_max=left)
        for event in of_types(page.events, want):
            if accepts is None or accepts(event):
                size += event.size()
                if size > size_max:
                    return events, int(events[-1].id)
                events.append(event)
        if page.end == after:
            break
        after = page.end
    return events, after
