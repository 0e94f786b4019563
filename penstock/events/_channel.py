"""A WebSocket to a FutoIn server, as Python programs use it: calls in both directions, told apart by their ids."""

from __future__ import annotations

import asyncio
import base64
import errno
import logging
import secrets
import socket
import ssl
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI, WebSocketException

from penstock.errors import BadArgument, FutoinError, ServerError, StoreUnreachable
from penstock.events._codings import JSON
from penstock.events._errors import ERROR_NAMES
from penstock.events._event import words_of
from penstock.events._functions import LARGE_MESSAGE
from penstock.events._mac import answer_mac, mac_matches
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Self

    from websockets.asyncio.client import ClientConnection

__all__ = ["Endpoint", "FutoinChannel"]

T = TypeVar("T")
_CONNECT_S: Final = 10.0
_SCHEME, _ALGORITHM = "-smac", "HS256"
_FIRST_RID_MAX: Final = 1 << 48
_logger: Final = logging.getLogger("penstock.events")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, and who calls: with a password, with a key that signs messages, or anonymously.

    ``mac_key`` is in base64, as ``penstock user mac-key`` prints it. ``tls_ca`` is the file of a certificate to trust.
    """

    url: str
    user: str | None = None
    password: str | None = None
    mac_key: str | None = None
    tls_ca: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is sent."""
        _check_url(self.url)
        if (self.user is None) != (self.password is None and self.mac_key is None):
            raise BadArgument("credentials are a user and a password, or a user and a mac_key")
        if self.user is not None and ":" in self.user:
            raise BadArgument(f"invalid user {self.user!r}: FutoIn has no way to send a name with a colon")
        if self.mac_key is not None:
            try:
                base64.b64decode(self.mac_key, validate=True)
            except ValueError:
                raise BadArgument("invalid mac_key: it is not base64") from None

    def signed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message with its credentials."""
        if self.mac_key is not None:
            code = answer_mac(message, base64.b64decode(self.mac_key), scheme=_SCHEME, algorithm=_ALGORITHM)
            return message | {"sec": f"{_SCHEME}:{self.user}:{_ALGORITHM}:{code}"}
        return message if self.user is None else message | {"sec": f"{self.user}:{self.password}"}

    def check_signature(self, answer: Mapping[str, Any]) -> None:
        """Refuse an answer without the right signature, if messages are signed: it may be of anybody on the way.

        An error may lack it, as a server cannot sign the refusal of a message that it does not accept.
        """
        if self.mac_key is None or ("sec" not in answer and answer.get("e") in ERROR_NAMES):
            return
        key, code = base64.b64decode(self.mac_key), str(answer.get("sec"))
        if not mac_matches(answer, key, scheme=_SCHEME, algorithm=_ALGORITHM, given=code):
            raise FutoinError("SecurityError", "the signature of the answer is missing or wrong: it is not used")

    def context(self) -> ssl.SSLContext | None:
        """Return how TLS is checked; None without TLS. ``BadArgument`` if ``tls_ca`` is not a certificate."""
        if not self.url.startswith("wss://"):
            return None
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:  # an SSLError is one, too
            reason = "use a certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise BadArgument(f"invalid tls_ca {self.tls_ca}: {reason}") from None


def _check_url(url: str) -> None:
    """Refuse what is not the address of an event stream; the message does not repeat a password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadArgument(f"invalid address {shown(url)}: {str(error)[0].lower()}{str(error)[1:]}") from None
    if "@" in parts.netloc:
        raise BadArgument("invalid address with a user or password in it: pass them as user and password")
    if parts.scheme not in {"ws", "wss"} or not host or parts.fragment or not url.isprintable() or " " in url:
        raise BadArgument(f"invalid address {shown(url)}: use ws://host:port/futoin/scope/stream, or wss://")


_SIGNS: Final = (
    (OSError, f"[Errno {errno.ECONNREFUSED}]", "no server listens there (Connection refused)"),
    (socket.gaierror, "", "unknown host name"),
    (ssl.SSLError, "WRONG_VERSION_NUMBER", "the server does not use TLS: use an address that begins with ws://"),
    (ssl.SSLError, "certificate verify failed", "its certificate is not trusted: make tls_ca a copy of its server.crt"),
    (InvalidMessage, "", "it is not an HTTP port, or it uses TLS: use the server's HTTP port, and wss:// with TLS"),
    (InvalidStatus, "HTTP 40", "there is no event stream at this address: use ws://host:port/futoin/scope/stream"),
    (TimeoutError, "", "it does not answer"),
)


def _reason(error: Exception) -> str:
    """Return why a server cannot be reached, and what to do."""
    for kind, sign, words in _SIGNS:
        if isinstance(error, kind) and sign in str(error):
            return words
    return str(error) or type(error).__name__


class _Answer(msgspec.Struct, frozen=True):
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
            raise StoreUnreachable(endpoint.url, reason=_reason(error)) from error
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
        answer = msgspec.convert(message, _Answer)
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
        except Exception as error:
            _logger.exception("pushed events could not be processed; the server sends them again")
            answer = {"e": "InternalError", "edesc": f"{type(error).__name__}: {error}"[:1000]}
        with suppress(StoreUnreachable):
            await self._send(answer | {"rid": message.get("rid")})
