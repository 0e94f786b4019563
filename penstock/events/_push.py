"""Pushing events to one receiver.

Groups are numbered from 0; several may be under way, and each is answered by itself. A group that the receiver answers
with an error is sent again under its number. The receiver's position is the end of the last group before which all were
taken; groups of which a receiver wants nothing count as taken.

A live receiver has no position. It gets only what the feed still holds: when it is too slow, events are left out, and a
number with them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.events._event_log import PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from penstock.events._delivery_budget import HeldBytes
    from penstock.events._event import WireEvent
    from penstock.events._feed import Feed

__all__ = ["PushedPart", "Receiver", "Window", "parts_of", "push"]

_UNDER_WAY_MAX: Final = 4  # groups
_LIVE_UNDER_WAY_MAX: Final = 2
_RESEND_S: Final = (0.1, 5.0)  # the first delay before a group is sent again, and the longest
_encode: Final = msgspec.json.Encoder().encode


class Window:
    """The groups under way: how far the receiver has taken all."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.next_number = 0
        self._under_way: deque[list[int]] = deque()  # the end of each, and 1 once it is taken

    def __len__(self) -> int:
        """Return how many groups are under way."""
        return len(self._under_way)

    def add(self, end: int) -> tuple[int, list[int]]:
        """Add the next group, which ends at an id; return its number, and what :meth:`take` needs."""
        number, group = self.next_number, [end, 0]
        self.next_number += 1
        self._under_way.append(group)
        return number, group

    def skip(self, end: int) -> None:
        """Note that nothing up to an id is sent."""
        self._under_way.append([end, 1])
        self._settle()

    def take(self, group: list[int]) -> None:
        """Note that a group was taken."""
        group[1] = 1
        self._settle()

    def _settle(self) -> None:
        while self._under_way and self._under_way[0][1]:
            self.position = self._under_way.popleft()[0]


class PushedPart(NamedTuple):
    """Events for one message: how many, their JSON, and the id up to which all are sent with it."""

    number: int
    encoded: bytes
    end: int


class Receiver(NamedTuple):
    """A receiver, and what it may get.

    ``send`` sends a group, its number and events, and returns whether the receiver took it. ``taken`` is told how far
    it has taken all, None for a live one. ``select`` returns those of some events that the receiver may get. ``hold``
    waits until so many more bytes may be under way.
    """

    send: Callable[[int, PushedPart], Awaitable[bool]]
    taken: Callable[[int], object] | None
    want: frozenset[str] | None
    select: Callable[[list[WireEvent]], Awaitable[list[WireEvent]]] | None
    hold: Callable[[int], Awaitable[HeldBytes]]
    size_max: int


async def push(feed: Feed, receiver: Receiver, position: int) -> None:
    """Push events behind a position until cancelled, or until the receiver is gone."""
    window = Window(position)
    under_way_max = _LIVE_UNDER_WAY_MAX if receiver.taken is None else _UNDER_WAY_MAX
    slots = asyncio.Semaphore(under_way_max)
    async with asyncio.TaskGroup() as tasks:
        while True:
            async with slots:  # one more may be under way
                pass
            if receiver.taken is None and position < feed.start:
                position = feed.start
                window.next_number += 1
            held = await receiver.hold(PAGE_SIZE) if position < feed.start else None  # it gets a page of its own
            try:
                group = await feed.after(position)
                events, encoded = group.wanted(receiver.want, position)
                position = group.page.end
                if receiver.select is not None and events:
                    events = await receiver.select(events)
                    encoded = _encode(events)
                if not events:
                    window.skip(position)
                    _tell(receiver, window)
                for part in parts_of(events, encoded, position, receiver.size_max):
                    held = held or await receiver.hold(len(encoded))
                    await slots.acquire()
                    added = window.add(part.end)  # before the task runs, or what is skipped meanwhile would pass it
                    task = tasks.create_task(_deliver(receiver, window, slots, part, added))
                    task.add_done_callback(partial(_release, held.share()))
            finally:
                if held is not None:
                    held.release()


def _release(held: HeldBytes, _: object) -> None:
    held.release()


async def _deliver(
    receiver: Receiver, window: Window, slots: asyncio.Semaphore, part: PushedPart, added: tuple[int, list[int]]
) -> None:
    """Send a part until the receiver has taken it; a live receiver gets it once."""
    number, group = added
    delay_s, longest_s = _RESEND_S
    while not await receiver.send(number, part) and receiver.taken is not None:
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, longest_s)
    window.take(group)
    slots.release()
    _tell(receiver, window)


def _tell(receiver: Receiver, window: Window) -> None:
    if receiver.taken is not None:
        receiver.taken(window.position)


def parts_of(events: list[WireEvent], encoded: bytes, end: int, size_max: int) -> Iterator[PushedPart]:
    """Return events in parts whose JSON has at most ``size_max`` bytes; ``end`` is that of the last part."""
    if not events:
        return
    if len(encoded) <= size_max:
        yield PushedPart(len(events), encoded, end)
        return
    first, size = 0, 2
    for index, event in enumerate(events):
        size += event.size()
        if size > size_max and index > first:
            part = events[first:index]
            yield PushedPart(len(part), _encode(part), int(part[-1].id))
            first, size = index, 2 + event.size()
    yield PushedPart(len(events) - first, _encode(events[first:]), end)
