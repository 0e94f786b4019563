"""The newest events of a stream, read once for all who are pushed them.

A receiver goes on behind an id. While that lies within the pages kept here, receivers share those; one that is further
behind reads pages by itself until it has caught up. There is no second queue, so nothing is lost between the past and
the present.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict, deque
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import NoSuchStream
from penstock.events._event import of_types
from penstock.stream.segment import WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from penstock.events._event import WireEvent
    from penstock.events._event_log import EventLog, EventPage

__all__ = ["Feed", "Group"]

_KEPT: Final = 64  # pages
_FRESH: Final = 4  # of which all encodings are kept
_OLD_KEPT: Final = 8  # pages of the past, which receivers that start together share
_ENCODINGS_MAX: Final = 16  # of one group
_DELAY_S: Final = 0.005  # events of so long come together
_encode: Final = msgspec.json.Encoder().encode


class Group:
    """A page of events, and how they look when they are sent, by the types that a receiver wants."""

    __slots__ = ("_encodings", "_is_old", "page")

    def __init__(self, page: EventPage) -> None:
        self.page = page
        self._is_old = False
        self._encodings: OrderedDict[tuple[object, int], tuple[list[WireEvent], bytes]] = OrderedDict()

    def wanted(self, want: frozenset[str] | None, after: int) -> tuple[list[WireEvent], bytes]:
        """Return the events of these types behind an id, and their JSON; it is made once for all receivers."""
        key = want, max(after, self.page.start)
        found = self._encodings.get(key)
        if found is None:
            page = self.page.behind(after)
            events = of_types(page.events, want)
            found = events, _encode(events)
            if not self._is_old or key == self._whole:
                self._encodings[key] = found
            if len(self._encodings) > _ENCODINGS_MAX:
                self._encodings.popitem(last=False)
        return found

    def grow_old(self) -> None:
        """Keep only what receivers of all types share; the few who are late have the rest made for them again."""
        self._is_old = True
        for key in self._encodings.keys() - {self._whole}:
            del self._encodings[key]

    @property
    def _whole(self) -> tuple[object, int]:
        return None, self.page.start


class Feed:
    """Follows one stream. All calls come from one event loop; ``tail`` reads new pages, ``past`` those of the past.

    Those may be in an archive, which takes longer.
    """

    def __init__(self, log: EventLog, *, tail: Executor, past: Executor) -> None:
        self.log, self._tail, self._past_reads = log, tail, past
        self._loop = asyncio.get_running_loop()
        self._groups: deque[Group] = deque(maxlen=_KEPT)
        self._old: OrderedDict[int, asyncio.Future[Group]] = OrderedDict()
        self._grown = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._wake_up = _LoopWakeUp(self._loop, self._grown.set)
        self._segment = log.segment
        self._segment.watch(self._wake_up)
        self._is_closed = False
        self._has_more = False  # than the last page has space for
        self.receivers = 0
        self.end = log.tail  # all events up to here are in the groups, or were there before the feed

    @property
    def start(self) -> int:
        """The id behind which the groups begin."""
        return self._groups[0].page.start if self._groups else self.end

    def close(self) -> None:
        """Follow the stream no more; receivers that wait fail."""
        self._segment.unwatch(self._wake_up)
        self._is_closed = True
        self._grown.set()
        if self._reading is not None and not self.receivers:
            self._reading.cancel()

    def newest(self) -> int:
        """Return the id of the newest event, from where a live receiver starts.

        If all other receivers are behind, the feed goes on from here, too: they read by themselves.
        """
        if self._reading is None or self._reading.done():
            self._groups.clear()
            self.end = self._segment.tail
        return self._segment.tail

    async def after(self, event_id: int) -> Group:
        """Return the next group behind an id; wait until there is one."""
        while event_id >= self.end:
            if self._reading is None or self._reading.done():
                self._reading = self._loop.create_task(self._read_on())
            await asyncio.shield(self._reading)
        if event_id < self.start:
            return await self._past(event_id)
        return self._groups[bisect_right(self._groups, event_id, key=lambda group: group.page.end)]

    async def _read_on(self) -> None:
        """Wait for new events, and add them as a group."""
        while self._segment.tail <= self.end:
            if self._is_closed:
                raise NoSuchStream(self.log.stream)
            self.log.check_exists()
            self._grown.clear()
            if self._segment.tail <= self.end:
                await self._grown.wait()
        if not self._has_more:
            await asyncio.sleep(_DELAY_S)
        tail = self._segment.tail
        page = await self._page(self._tail, self.end)
        self._groups.append(Group(page))
        if len(self._groups) > _FRESH:
            self._groups[-_FRESH - 1].grow_old()
        self.end, self._has_more = page.end, page.end < tail

    async def _past(self, event_id: int) -> Group:
        """Return a group of events that are not kept here; receivers that ask for the same one share it."""
        found = self._old.get(event_id)
        if found is None:
            found = self._old[event_id] = asyncio.ensure_future(self._read_past(event_id))
            found.add_done_callback(partial(self._drop_failed, event_id))
            if len(self._old) > _OLD_KEPT:
                self._old.popitem(last=False)
        return await asyncio.shield(found)

    def _drop_failed(self, event_id: int, done: asyncio.Future[Group]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._old.pop(event_id, None)

    async def _read_past(self, event_id: int) -> Group:
        return Group(await self._page(self._past_reads, event_id))

    async def _page(self, executor: Executor, event_id: int) -> EventPage:
        return await self._loop.run_in_executor(executor, self.log.page, event_id)


class _LoopWakeUp(WakeUp):
    """Calls something in an event loop when it is notified."""

    __slots__ = ("_call", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        super().__init__()
        self._loop, self._call = loop, call

    def notify(self) -> None:
        """Call it soon; an event loop that has ended needs it no more."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call)
