"""A connection of a FutoIn peer: messages in, answers and pushed events out; WebSocket and HTTP are its transports."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from penstock.errors import FutoinError
from penstock.events._codings import JSON, Coding, coding_of
from penstock.events._errors import ERROR_NAMES, error_of, invalid
from penstock.events._functions import (
    AddEvent,
    Call,
    ReadyToReceive,
    Request,
    call_of,
    request_of,
)
from penstock.events._push import Receiver, push
from penstock.events._sizes import AROUND, LARGE_MESSAGE, SMALL_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.events._feed import Feed
    from penstock.events._push import PushedPart
    from penstock.events._service import Caller, EventService

__all__ = ["Authenticate", "Closed", "Peer", "answer_http", "too_large"]

_CALLS_MAX: Final = 1_000  # under way on one connection
_CALLS_SIZE_MAX: Final = 512 << 10  # bytes of their messages, which take many times as much once they are decoded
ANSWER_S: Final = 30.0  # a receiver that takes longer is gone
_CHECK_S: Final = 1.0  # how often it is checked that a receiver may have events, if there are none
_READ_S: Final = 120.0  # a peer that has not read a message by then is gone
_decode_json: Final = JSON.decode


class Authenticate(Protocol):
    """Checks credentials: the ``sec`` of a message, and the message itself, which it may sign."""

    async def __call__(self, sec: str | None, message: Mapping[str, Any]) -> Caller:
        """Return the caller; ``NotAuthenticated`` if the credentials are wrong or missing."""


class Closed(Exception):
    """The peer broke the protocol, or does not answer: its connection has to be closed."""


class _Target(NamedTuple):
    """How a receiver wants its messages: as it asked for them itself."""

    minor: int
    coding: Coding
    is_text: bool
    is_live: bool
    size_max: int
    check: Callable[[], object]  # refuses a receiver that may not get events any more


class _Addition(NamedTuple):
    """A call that adds an event: how it is answered once the event is durable."""

    rid: str | None
    caller: Caller
    coding: Coding
    is_text: bool
    size: int  # bytes of the message


class Peer:
    """A WebSocket. ``send`` sends one message, as text if its last argument is True."""

    def __init__(
        self,
        service: EventService,
        stream: str,
        authenticate: Authenticate,
        send: Callable[[bytes, bool], Awaitable[None]],
    ) -> None:
        self._service, self._stream, self._authenticate = service, stream, authenticate
        self._transport_send = send
        self._sending = asyncio.Lock()  # a message is made and waits only behind one that is sent
        self._polling = asyncio.Lock()  # answers to polls are large: one at a time is in memory
        self._tasks: set[asyncio.Task[None]] = set()
        self._adding: dict[asyncio.Future[str], _Addition] = {}
        self._added: deque[asyncio.Future[str]] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._size_under_way, self._has_ended = 0, asyncio.Event()
        self._pushing: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._numbers = count(1)
        self._asked: dict[str, asyncio.Future[bool]] = {}
        self._loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[None] = self._loop.create_future()
        self.heard_at = self._loop.time()  # when the last message came

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way, and no events are pushed."""
        return not self._tasks and not self._adding and self._pushing is None

    async def _send(self, message: bytes, is_text: bool) -> None:
        async with self._sending:
            await self._transport_send(message, is_text)

    async def _send_large(self, make: Callable[[], bytes], is_text: bool) -> None:
        """Make and send a message: of those that wait for others, none is in memory. ``Closed`` if it is not read."""
        async with self._sending:
            try:
                async with asyncio.timeout(_READ_S):
                    await self._transport_send(make(), is_text)
            except TimeoutError:
                raise Closed from None

    async def receive(self, data: bytes, *, is_text: bool) -> None:
        """Take a message; wait only while too many calls, or too large ones, are under way."""
        self.heard_at = self._loop.time()
        while len(self._tasks) + len(self._adding) >= _CALLS_MAX or self._size_under_way > _CALLS_SIZE_MAX:
            self._has_ended.clear()
            await self._has_ended.wait()
        coding = coding_of(data)
        try:
            message = coding.decode(data)
            if not isinstance(message, dict):
                raise invalid("a message is a map")
        except FutoinError as error:
            await self._send(coding.encode(_error(error, None)), is_text)
            return
        if "f" not in message and ("r" in message or "e" in message):
            self._answered(message)
            return
        if str(message.get("f")).endswith(":addEvent"):
            await self._add(message, coding, len(data), is_text=is_text)
            return
        task = asyncio.create_task(self._serve(message, coding, is_text=is_text))
        self._tasks.add(task)
        self._size_under_way += len(data)
        task.add_done_callback(partial(self._ended, len(data)))

    def _ended(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._size_under_way -= size
        self._has_ended.set()
        self._check_ended(task)

    def _check_ended(self, task: asyncio.Task[None]) -> None:
        """Break the connection if an answer could not be sent."""
        if not task.cancelled() and task.exception() is not None:
            self._break()

    async def _add(self, message: dict[str, Any], coding: Coding, size: int, *, is_text: bool) -> None:
        """Write an event; without a task, so that the events of a connection are written in their order."""
        caller = None
        try:
            request = request_of(message, needs_rid=True)
            call = call_of(request)
            caller = await self._authenticate(request.sec, message)
            assert isinstance(call.parameters, AddEvent), "its name says so"
            added = await self._service.add(call.parameters, caller, self._stream)
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets an answer
            answer = _error(error_of(error), _rid_of(message))
            await self._send(_encoded(coding, answer, SMALL_MESSAGE, caller), is_text)
            return
        self._adding[added] = _Addition(request.rid, caller, coding, is_text, size)
        self._size_under_way += size
        added.add_done_callback(self._note_added)

    def _note_added(self, added: asyncio.Future[str]) -> None:
        self._added.append(added)
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer_added())
            self._answering.add_done_callback(self._check_ended)

    async def _answer_added(self) -> None:
        """Answer for the events that are durable, or failed; many become so at once."""
        while self._added:
            added = self._added.popleft()
            rid, caller, coding, is_text, size = self._adding[added]
            error = added.exception()
            answer = {"r": added.result(), "rid": rid} if error is None else _error(error_of(error), rid)
            await self._send(_encoded(coding, answer, SMALL_MESSAGE, caller), is_text)
            del self._adding[added]
            self._size_under_way -= size
            self._has_ended.set()

    async def _serve(self, message: dict[str, Any], coding: Coding, *, is_text: bool) -> None:
        rid = _rid_of(message)
        is_poll = str(message.get("f")).endswith(":pollEvents")
        async with AsyncExitStack() as held:
            if is_poll:
                await held.enter_async_context(self._polling)
            limit, caller = SMALL_MESSAGE, None
            try:
                request = request_of(message, needs_rid=True)
                call = call_of(request)
                limit = call.answer_size_max
                caller = await self._authenticate(request.sec, message)
                if limit > SMALL_MESSAGE:  # until the answer is read
                    await held.enter_async_context(self._service.budget.held(caller.owner, limit))
                answer = {"r": await self._call(call, caller, coding, is_text=is_text), "rid": rid}
            except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets an answer
                answer = _error(error_of(error), rid)
            if is_poll:
                await self._send_large(partial(_encoded, coding, answer, limit, caller), is_text)
            else:
                await self._send(_encoded(coding, answer, limit, caller), is_text)

    async def _call(self, call: Call, caller: Caller, coding: Coding, *, is_text: bool) -> object:
        if not isinstance(call.parameters, ReadyToReceive):
            return await self._service.call(call, caller, self._stream)
        async with self._starting:  # two that start at once would both push
            await self._start_pushing(call.parameters, call.minor, caller, coding, is_text=is_text)
        return True

    async def _start_pushing(
        self, wanted: ReadyToReceive, minor: int, caller: Caller, coding: Coding, *, is_text: bool
    ) -> None:
        start = await self._service.start_of(caller, self._stream, wanted)
        log = self._service.log(self._stream)
        check = partial(caller.check, wanted.permission, self._stream)
        await self._stop_pushing()
        feed = self._service.join(self._stream)
        size_max = LARGE_MESSAGE if minor >= 1 else SMALL_MESSAGE
        target = _Target(minor, coding, is_text, is_live=start is None, size_max=size_max, check=check)
        receiver = Receiver(
            send=partial(self._push, target),
            taken=None if start is None else partial(self._service.registrations.advance, start[0], log),
            want=wanted.types,
            select=self._service.selected_by(caller),
            hold=partial(self._service.budget.hold, caller.owner),
            size_max=size_max - AROUND,
        )
        position = feed.newest() if start is None else start[1]
        self._pushing = asyncio.create_task(_push_while(check, feed, receiver, position))
        self._pushing.add_done_callback(partial(self._pushing_ended, feed))

    def _pushing_ended(self, feed: Feed, task: asyncio.Task[None]) -> None:
        self._service.leave(feed)
        if not task.cancelled() and task.exception() is not None:
            self._break()

    def _break(self) -> None:
        if not self.broken.done():
            self.broken.set_result(None)

    async def _push(self, to: _Target, number: int, part: PushedPart) -> bool:
        """Push a group; return whether the receiver took it. ``Closed`` if it does not answer."""
        to.check()  # the permission may have been revoked since the last group
        rid = f"S{next(self._numbers)}"
        function = f"futoin.evt.receiver:1.{to.minor}:onEvents"
        asked = self._asked[rid] = asyncio.get_running_loop().create_future()
        try:
            parts = function.encode(), number, part.encoded, rid.encode()
            await self._send_large(
                lambda: _in_coding(to.coding, b'{"f":"%s","p":{"seq":%d,"events":%s},"rid":"%s"}' % parts, to.size_max),
                to.is_text,
            )
            async with asyncio.timeout(ANSWER_S):
                is_taken = await asked or to.is_live
        except TimeoutError:
            raise Closed from None
        finally:
            del self._asked[rid]
        self._service.pushed_events += part.number if is_taken else 0
        return is_taken

    def _answered(self, message: dict[str, Any]) -> None:
        """Take the answer to a push; one that no push waits for is not an error."""
        rid = message.get("rid")
        asked = self._asked.get(rid) if isinstance(rid, str) else None
        if asked is not None and not asked.done():
            asked.set_result(message.get("r") is True)

    async def _stop_pushing(self) -> None:
        if self._pushing is not None:
            self._pushing.cancel()
            await asyncio.wait([self._pushing])
            self._pushing = None

    async def close(self) -> None:
        """End what is under way."""
        for added in self._adding:
            added.remove_done_callback(self._note_added)
            added.cancel()
        for task in self._tasks:
            task.cancel()
        if self._answering is not None:
            self._answering.cancel()
        await self._stop_pushing()


async def _push_while(check: Callable[[], object], feed: Feed, receiver: Receiver, position: int) -> None:
    """Push events until a check fails, or the stream is gone, which is looked at about once a second."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(push(feed, receiver, position))
        while True:
            await asyncio.sleep(_CHECK_S)
            check()
            feed.log.check_exists()


async def answer_http(
    service: EventService, stream: str, authenticate: Authenticate, body: bytes, held: AsyncExitStack
) -> tuple[bytes, Coding]:
    """Return the answer to a request that came by HTTP, in the coding of the request.

    Its bytes count as under way until ``held`` is closed, once it is sent.
    """
    coding, limit, caller = coding_of(body), SMALL_MESSAGE, None
    try:
        message = coding.decode(body)
        request: Request = request_of(message)
        call = call_of(request)
        limit = call.answer_size_max
        caller = await authenticate(request.sec, message)
        if limit > SMALL_MESSAGE:
            await held.enter_async_context(service.budget.held(caller.owner, limit))
        answer: dict[str, object] = {"r": await service.call(call, caller, stream)}
        if request.rid is not None:
            answer["rid"] = request.rid
    except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets an answer
        answer = _error(error_of(error), None)
    encoded = _encoded(coding, answer, limit, caller)
    return encoded, coding_of(encoded)


def too_large(size_max: int) -> bytes:
    """Return the answer to a message that is too large to be read."""
    return JSON.encode(_error(invalid(f"a message has at most {size_max} bytes"), None))


def _rid_of(message: dict[str, Any]) -> str | None:
    rid = message.get("rid")
    return rid if isinstance(rid, str) else None


def _error(error: FutoinError, rid: str | None) -> dict[str, object]:
    assert error.name in ERROR_NAMES, "a reference client knows no others"
    answer: dict[str, object] = {"e": error.name, "edesc": error.reason[:1000]}
    return answer if rid is None else answer | {"rid": rid}


def _encoded(coding: Coding, answer: dict[str, Any], size_max: int, caller: Caller | None) -> bytes:
    """Return an answer in its coding, signed if the caller signs, too: a reference client refuses it otherwise."""
    message = JSON.encode(answer)
    if caller is not None and caller.sign is not None:
        plain = _decode_json(message)
        message = JSON.encode(plain | {"sec": caller.sign(plain)})
    encoded = _in_coding(coding, message, size_max)
    assert len(encoded) <= size_max, "answers are made to fit"
    return encoded


def _in_coding(coding: Coding, message: bytes, size_max: int) -> bytes:
    """Return a message of JSON in another coding; as it is, which every peer reads, if the coding has no space for it.

    MessagePack has no whole numbers above 64 bits, and needs more bytes than JSON for some others.
    """
    if coding is JSON:
        return message
    try:
        encoded = coding.encode(_decode_json(message))
    except (OverflowError, ValueError):
        return message
    return encoded if len(encoded) <= size_max else message
