"""A WebSocket to a FutoIn server, as Python programs use it: calls in both directions, told apart by their ids."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from penstock.errors import FutoinError, ServerError, StoreUnreachable
from penstock.events._codings import JSON
from penstock.events._endpoint import reason_of
from penstock.events._errors import ERROR_NAMES
from penstock.events._event import words_of
from penstock.events._functions import LARGE_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from websockets.asyncio.client import ClientConnection

    from penstock.events._endpoint import Endpoint

__all__ = ["FutoinChannel"]

T = TypeVar("T")
_CONNECT_S: Final = 10.0
_FIRST_RID_MAX: Final = 1 << 48
_logger: Final = logging.getLogger("penstock.events")


class _PeerAnswer(msgspec.Struct, frozen=True):
    rid: str
    r: Any = msgspec.UNSET
    e: str | None = None
    edesc: str | None = None


class FutoinChannel:
    """An open WebSocket. ``called`` answers the calls of the server."""

    def __init__(
        self,
        endpoint: Endpoint,
        socket: ClientConnection,
        called: Callable[[str, object], Awaitable[object]],
    ) -> None:
        self._endpoint, self._socket, self._called = endpoint, socket, called
        self._numbers = count(secrets.randbelow(_FIRST_RID_MAX))  # an answer of another connection fits no call here
        self._asked: dict[str, asyncio.Future[object]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def open(cls, endpoint: Endpoint, *, called: Callable[[str, object], Awaitable[object]]) -> Self:
        """Connect; ``StoreUnreachable`` if that is not possible."""
        try:
            socket = await connect(
                endpoint.url,
                ssl=endpoint.context(),
                compression=None,
                max_size=LARGE_MESSAGE,
                open_timeout=_CONNECT_S,
            )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise StoreUnreachable(endpoint.url, reason=reason_of(error)) from error
        return cls(endpoint, socket, called)

    async def call(self, function: str, parameters: dict[str, Any], result: type[T]) -> T:
        """Call a function of the server, and return its result; ``FutoinError`` if the server refuses it."""
        rid = f"C{next(self._numbers)}"
        message = self._endpoint.signed({"f": function, "p": parameters, "rid": rid})
        asked = self._asked[rid] = asyncio.get_running_loop().create_future()
        try:
            if self.is_lost:
                raise self.lost()
            await self._send(message)
            found = await asked
        finally:
            del self._asked[rid]
        try:
            return msgspec.convert(found, result)
        except msgspec.ValidationError as error:
            raise ServerError(f"the answer to {function} is not as FutoIn defines it: {words_of(error)}") from None

    @property
    def is_lost(self) -> bool:
        """Whether the connection is over."""
        return self._receiving.done()

    async def wait_closed(self) -> None:
        """Return when the connection is lost."""
        await asyncio.wait([self._receiving])

    async def finish(self) -> None:
        """Wait for the calls of the server that are being answered."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        for task in self._tasks:
            task.cancel()
        try:
            await self._socket.close()
        except asyncio.CancelledError:
            self._socket.transport.abort()  # there is no time to say goodbye
            raise
        with suppress(asyncio.CancelledError):
            await self._receiving

    def lost(self) -> StoreUnreachable:
        """Return the error of calls on a connection that is over."""
        return StoreUnreachable(self._endpoint.url, reason="the connection was lost")

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            await self._socket.send(JSON.encode(message), text=True)
        except (WebSocketException, OSError):
            raise self.lost() from None

    async def _receive(self) -> None:
        try:
            async for data in self._socket:
                self._take(data.encode() if isinstance(data, str) else data)
        except (WebSocketException, OSError, FutoinError, msgspec.ValidationError):
            await self._socket.close()
        finally:
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(self.lost())

    def _take(self, data: bytes) -> None:
        message = JSON.decode(data)
        if isinstance(message, dict) and "f" in message:
            task = asyncio.create_task(self._answer(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        answer = msgspec.convert(message, _PeerAnswer)
        asked = self._asked.get(answer.rid)
        if asked is None or asked.done():
            return
        try:
            self._endpoint.check_signature(message)
        except FutoinError as error:
            asked.set_exception(error)
            return
        if answer.e is None:
            asked.set_result(None if answer.r is msgspec.UNSET else answer.r)
        elif answer.e in ERROR_NAMES:
            asked.set_exception(FutoinError(answer.e, answer.edesc or "the server gave no reason"))
        else:
            asked.set_exception(ServerError(f"{answer.e}: {answer.edesc}"))

    async def _answer(self, message: dict[str, Any]) -> None:
        """Answer a call of the server."""
        try:
            answer: dict[str, Any] = {"r": await self._called(str(message["f"]), message.get("p"))}
        except FutoinError as error:
            answer = {"e": error.name, "edesc": error.reason}
        except Exception:
            _logger.exception("pushed events could not be processed; the server sends them again")
            answer = {"e": "InternalError", "edesc": "the receiver failed: its log says why"}
        with suppress(StoreUnreachable):
            await self._send(answer | {"rid": message.get("rid")})
