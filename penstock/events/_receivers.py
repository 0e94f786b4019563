"""Receivers of pushed events: in order and each once, or live.

A server numbers the groups of events that it pushes on a connection from 0, and may push several before the first is
answered. A reliable receiver processes them in this order, and answers a group when it is processed; it stores the id
of the last event before it answers, so that events which come again are known, and none counts as delivered before.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, Protocol, TypeVar

import msgspec
from msgspec import Meta

from penstock.errors import BadArgument, CorruptData, FutoinError, StoreUnreachable
from penstock.events._channel import FutoinChannel
from penstock.events._endpoint import Endpoint
from penstock.events._errors import invalid
from penstock.events._event import Event, checked_component, checked_want, words_of
from penstock.events._functions import EVENTS_MAX, LIVE
from penstock.events._job_folder import replace_file
from penstock.events._outage import Outage, first_line
from penstock.model import check_method, shown
from penstock.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["LiveReceiver", "PositionFile", "PushClient", "ReliableReceiver", "checked_function"]

_ID: Final = re.compile("[0-9]{1,18}")
_LASTING_S: Final = 1.0  # a connection that ends sooner does not end an outage
_GROUPS_MAX: Final = 64  # that wait for their turn
_ON_EVENTS: Final = ("futoin.evt.receiver:1.0:onEvents", "futoin.evt.receiver:1.1:onEvents")
_T = TypeVar("_T")
_logger: Final = logging.getLogger("penstock.events")


class _OnEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seq: Annotated[int, Meta(ge=0)]
    events: Annotated[list[Event], Meta(max_length=EVENTS_MAX)]


class PositionStore(Protocol):
    """Where a receiver keeps the id of the last event that it has processed."""

    def load(self) -> int:
        """Return the id, 0 if there is none."""

    def store(self, event_id: int) -> None:
        """Make an id durable."""


class PositionFile:
    """A position in a file, replaced as a whole and synced."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise BadArgument(f"cannot keep a position in {path}: there is no folder {self._path.parent}")
        if self._path.exists() and not self._path.is_file():
            raise BadArgument(f"cannot keep a position in {path}: it is not a regular file")

    def load(self) -> int:
        """Return the id, 0 if there is no file."""
        try:
            text = self._path.read_text("ascii").strip()
        except FileNotFoundError:
            return 0
        except UnicodeDecodeError:
            text = ""
        if not _ID.fullmatch(text):
            raise CorruptData(str(self._path), offset=0, reason="it holds no event id")
        return int(text)

    def store(self, event_id: int) -> None:
        """Make an id durable."""
        replace_file(self._path, b"%d\n" % event_id)


class PushClient:
    """Has events pushed to it over one connection after the other, and gives each group to a function.

    ``lost`` is called when a connection is over: the groups of the next one are numbered from 0 again.
    """

    def __init__(
        self,
        url: str,
        component: str,
        handle: Callable[[int, list[Event]], Awaitable[None]],
        *,
        want: Sequence[str] | None = None,
        lost: Callable[[], object] = lambda: None,
        **credentials: str | None,
    ) -> None:
        self._endpoint = Endpoint(url=url, **credentials)
        self._component, self._want = checked_component(component), checked_want(want)
        self._handle, self._lost = checked_function(handle), lost

    async def run(self) -> None:
        """Receive until cancelled; connect again after a lost connection.

        ``StoreUnreachable`` if the server is away for ten minutes, ``FutoinError`` if it refuses.
        """
        outage = Outage("the event stream")
        while True:
            try:
                await self._run_once(outage)
            except (StoreUnreachable, FutoinError) as error:
                await asyncio.sleep(outage.pause_after(error))

    async def _run_once(self, outage: Outage) -> NoReturn:
        """Receive on one connection; ``StoreUnreachable`` when it is lost."""
        channel = await FutoinChannel.open(self._endpoint, called=self._serve)
        try:
            push = "futoin.evt.push:1.1:"
            if self._component != LIVE:
                await channel.call(f"{push}registerConsumer", {"component": self._component}, bool)
            wanted = {"component": self._component, "want": self._want}
            await channel.call(f"{push}readyToReceive", wanted, bool)
            begun = time.monotonic()
            await channel.wait_closed()
            self._lost()
            await channel.finish()
            self._lost()  # what was still being processed has counted its group
        finally:
            await channel.close()
        if time.monotonic() - begun >= _LASTING_S:
            outage.end()
        raise channel.lost()

    async def _serve(self, function: str, parameters: object) -> object:
        if function not in _ON_EVENTS:
            raise FutoinError("UnknownInterface", f"there is no function {function} here")
        try:
            pushed = msgspec.convert(parameters, _OnEvents)
        except msgspec.ValidationError as error:
            raise invalid(words_of(error)) from None
        await self._handle(pushed.seq, pushed.events)
        return True


class LiveReceiver:
    """Gives live events to a function; under load some are left out, which ``missed`` counts, in groups."""

    def __init__(
        self,
        url: str,
        handle: Callable[[list[Event]], Awaitable[None] | None],
        *,
        want: Sequence[str] | None = None,
        **credentials: str | None,
    ) -> None:
        self._handle, self._next = checked_function(handle), 0
        self.missed = 0
        self._client = PushClient(url, LIVE, self._take, want=want, lost=self._restart, **credentials)

    async def run(self) -> None:
        """Receive until cancelled."""
        await self._client.run()

    def _restart(self) -> None:
        self._next = 0

    async def _take(self, number: int, events: list[Event]) -> None:
        self.missed += max(number - self._next, 0)
        self._next = number + 1
        await _handled(self._handle, events)


class ReliableReceiver:
    """Gives all events to a function, in order, each once.

    What the function raises is answered to the server, which sends the events again. ``position`` keeps the last
    processed id over restarts; without it, events may come again after a restart. A position that cannot be stored is
    tried again for some seconds; then :meth:`run` ends with the error, and the server sends the events again.
    """

    def __init__(
        self,
        url: str,
        component: str,
        handle: Callable[[list[Event]], Awaitable[None] | None],
        *,
        position: PositionStore | None = None,
        want: Sequence[str] | None = None,
        **credentials: str | None,
    ) -> None:
        if component == LIVE:
            raise BadArgument("LIVE is the component of live delivery: use LiveReceiver")
        if position is not None:
            check_method("position", position, "load")
        self._handle, self._position = checked_function(handle), position
        self.last_id = self._stored_id = 0 if position is None else position.load()
        self._failure: Exception | None = None
        self._next, self._turns = 0, dict[int, asyncio.Future[None]]()
        self._processing = asyncio.Lock()  # a group of a lost connection may still be at work
        self._client = PushClient(url, component, self._take, want=want, lost=self._restart, **credentials)

    async def run(self) -> None:
        """Receive until cancelled; the group that is being processed then is processed to its end."""
        self._failure, self._has_failed = None, asyncio.Event()
        tasks = [asyncio.create_task(self._client.run()), asyncio.create_task(self._has_failed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            async with self._processing:
                pass
        if self._failure is not None:
            raise self._failure
        await tasks[0]

    def _restart(self) -> None:
        self._next = 0
        for turn in self._turns.values():
            turn.cancel()
        self._turns.clear()

    async def _take(self, number: int, events: list[Event]) -> None:
        if number > self._next:
            await self._turn(number)
        await asyncio.shield(self._process(events))
        if number == self._next:
            self._next += 1
            turn = self._turns.pop(self._next, None)
            if turn is not None and not turn.done():
                turn.set_result(None)

    async def _process(self, events: list[Event]) -> None:
        """Process what is new of some events, and store how far that is."""
        async with self._processing:
            new = [event for event in events if int(event.id) > self.last_id]
            if new:
                await _handled(self._handle, new)
                self.last_id = int(new[-1].id)
            if self._position is not None and self._stored_id < self.last_id:
                await self._store(self._position, self.last_id)

    async def _store(self, position: PositionStore, event_id: int) -> None:
        """Store the position; end the receiver if that keeps failing: its events would come twice after a restart."""
        try:
            await asyncio.to_thread(_stored, position, event_id)
        except Exception as error:  # noqa: BLE001 - whatever a store of positions raises
            self._failure = error
            self._has_failed.set()
            raise FutoinError("InternalError", "the position of the receiver could not be stored") from None
        self._stored_id = event_id

    async def _turn(self, number: int) -> None:
        if len(self._turns) >= _GROUPS_MAX:
            raise FutoinError("InternalError", f"more than {_GROUPS_MAX} groups wait for one before them")
        turn = self._turns[number] = asyncio.get_running_loop().create_future()
        await turn


def checked_function(handle: _T) -> _T:
    """Require a function for the events."""
    if not callable(handle):
        raise BadArgument(f"invalid handle {shown(handle)}: use a function")
    return handle


async def _handled(handle: Callable[[list[Event]], Awaitable[None] | None], events: list[Event]) -> None:
    done = handle(events)
    if inspect.isawaitable(done):
        await done


def _stored(position: PositionStore, event_id: int) -> None:
    """Store a position; try again for some seconds, within the time that the server waits for an answer."""
    retry, is_first = Retry(), True
    while True:
        try:
            position.store(event_id)
        except Exception as error:  # noqa: BLE001 - of any kind: the caller gets it when it lasts
            if is_first:
                _logger.warning("the position of a receiver could not be stored, trying again: %s", first_line(error))
            is_first = False
            retry.after(error)
        else:
            return
