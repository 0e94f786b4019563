"""FutoIn on the HTTP port: calls by POST and over WebSockets, at ``/futoin`` and at ``/futoin/<scope>/<stream>``."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from penstock.errors import BadArgument, NotAuthenticated
from penstock.events.serving import (
    MAC_SCHEMES,
    SMALL_MESSAGE,
    Caller,
    EventService,
    Peer,
    answer_http,
    answer_mac,
    load_filter,
    mac_matches,
    too_large,
)
from penstock.model import check_stream_name
from penstock.server._limits import Limits, QuotaKind, QuotaUse
from penstock.server._permissions import ANONYMOUS
from penstock.server._quotas import Quota

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection, Request
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket

    from penstock.server._config import Config
    from penstock.server._http_connections import WebSocketConnection
    from penstock.server._login import Logins
    from penstock.server._permissions import Principal
    from penstock.stream import Engine

__all__ = ["FutoinPort"]

_PATHS: Final = "invalid path: FutoIn is served at /futoin, and at /futoin/<scope>/<stream>"
_BODY_MAX: Final = 16 << 20  # read to the end: a client that is still sending when the connection ends loses the answer
_CLOSE_POLICY: Final = 1008
_TURN_MESSAGES: Final = 32  # of one connection, before others have their turn: a few milliseconds
_CLOSE_S: Final = 1.0
_WEBSOCKETS: Final = QuotaKind("max_connections", "WebSockets")


_Signed = tuple["Callable[[], Principal]", "Callable[[Mapping[str, Any]], str]"]


class FutoinPort:
    """The routes of FutoIn, for one store."""

    def __init__(self, store: Engine, logins: Logins | None, config: Config) -> None:
        self._store, self._logins, self._config = store, logins, config
        self._quota = Quota(_WEBSOCKETS, Limits.of(config))
        self._accepts = None if config.futoin_filter is None else load_filter(config.futoin_filter)
        self._service: EventService | None = None
        paths = ("/futoin", "/futoin/", "/futoin/{scope}/{name}", "/futoin/{scope}/{name}/")
        self.routes: Final[list[BaseRoute]] = [
            *(Route(path, self._post, methods=["POST"]) for path in paths),
            *(WebSocketRoute(path, self._websocket) for path in paths),
            Route("/futoin/{rest:path}", lambda _: _refusal(_PATHS), methods=["POST"]),
            WebSocketRoute("/futoin/{rest:path}", lambda socket: socket.send_denial_response(_refusal(_PATHS))),
        ]

    def quota(self) -> QuotaUse:
        """Return how many WebSockets users have, and may have."""
        return QuotaUse("websockets", self._quota.limit, self._quota.used, self._quota.refused)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Serve for as long as the application lives."""
        folder = self._config.futoin_archive
        self._service = EventService(
            self._store,
            own_stream=self._config.futoin_stream,
            accepts=self._accepts,
            archives=None if folder is None else Path(folder),
            user_share=self._config.max_user_share,
        )
        try:
            yield
        finally:
            await self._service.close()

    @property
    def service(self) -> EventService:
        """The service of the running application."""
        assert self._service is not None, "the application has started"
        return self._service

    async def _post(self, request: Request) -> Response:
        try:
            stream = self._stream_of(request)
        except BadArgument as error:
            return _refusal(str(error))
        body, size = bytearray(), 0
        try:
            async for part in request.stream():
                size += len(part)
                if size <= SMALL_MESSAGE:
                    body += part
                elif size > _BODY_MAX:
                    break
        except ClientDisconnect:
            return Response(status_code=400)
        if size > SMALL_MESSAGE:  # an error of FutoIn, because its clients do not look at the status
            answer = too_large(SMALL_MESSAGE)
            return Response(answer, 200, {"Connection": "close"}, media_type="application/futoin+json")
        authenticate = self._authenticator(request)
        async with AsyncExitStack() as stack:
            answer, coding = await answer_http(self.service, stream, authenticate, bytes(body), stack)
            held = stack.pop_all()  # the answer closes it
        return _Answer(answer, coding.content_type, held)

    async def _websocket(self, socket: WebSocket) -> None:
        try:
            stream = self._stream_of(socket)
        except BadArgument as error:
            await socket.send_denial_response(_refusal(str(error)))
            return
        await socket.accept()

        async def send(message: bytes, is_text: bool) -> None:
            if is_text:
                await socket.send_text(message.decode())
            else:
                await socket.send_bytes(message)

        place = _Place(self._quota, socket.state.connection)
        peer = Peer(self.service, stream, self._authenticator(socket, place), send)
        receiving = asyncio.create_task(self._receive(socket, peer))
        silence = asyncio.create_task(self._wait_for_silence(peer, place))
        try:
            await asyncio.wait([receiving, silence, peer.broken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            receiving.cancel()
            silence.cancel()
            await peer.close()
            place.leave()
            with suppress(
                TimeoutError, RuntimeError, OSError, WebSocketDisconnect
            ):  # it may be gone, or not read what it is sent
                async with asyncio.timeout(_CLOSE_S):
                    await socket.close(_CLOSE_POLICY)
            with suppress(asyncio.CancelledError, WebSocketDisconnect):
                await receiving

    async def _receive(self, socket: WebSocket, peer: Peer) -> None:
        """Take messages until the peer is gone; when it has sent very many, others have their turn in between."""
        for number in count(1):
            message = await socket.receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            data: bytes = message["bytes"] if text is None else text.encode()
            await peer.receive(data, is_text=text is not None)
            if number % _TURN_MESSAGES == 0:
                await asyncio.sleep(0)

    async def _wait_for_silence(self, peer: Peer, place: _Place) -> None:
        """Return when a peer has been silent for too long; one that is pushed events may be silent."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        while (left_s := since + self._patience_s(place) - loop.time()) > 0:
            await asyncio.sleep(left_s)
            since = peer.heard_at if peer.is_idle else loop.time()

    def _patience_s(self, place: _Place) -> float:
        return self._config.idle_timeout_s if place.is_taken else self._config.header_timeout_s

    def _stream_of(self, connection: HTTPConnection) -> str:
        """Return the stream that the path names, whether or not it exists; ``BadArgument`` if it is not a name."""
        given = connection.path_params
        name = f"{given['scope']}/{given['name']}" if given else self._config.futoin_stream
        check_stream_name(name)
        return name

    def _authenticator(self, connection: HTTPConnection, place: _Place | None = None) -> _Authenticator:
        host, port = connection.client or ("", 0)
        is_secure = connection.url.scheme in {"https", "wss"} or _is_loopback(host)
        return _Authenticator(self._logins, f"http:[{host}]:{port}", place, is_secure=is_secure)


class _Answer(Response):
    """An answer that holds something until it is sent, or the client is gone."""

    def __init__(self, content: bytes, media_type: str, held: AsyncExitStack) -> None:
        super().__init__(content, media_type=media_type)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


class _Place:
    """The place that a WebSocket has among those of its user, once a call was permitted."""

    def __init__(self, quota: Quota, connection: WebSocketConnection) -> None:
        self._quota, self._connection = quota, connection
        self._owner: str | None = None
        self.is_taken = False

    def take(self, owner: str | None) -> None:
        """Count for a user, and for the one before no more; ``LimitReached`` if the user has too many."""
        if self.is_taken and self._owner == owner:
            return
        self._quota.take(owner)
        self.leave()
        self._owner, self.is_taken = owner, True
        self._connection.note_authenticated()

    def leave(self) -> None:
        """Count for no user any more."""
        if self.is_taken:
            self._quota.give(self._owner)
        self.is_taken = False


class _OncePerTurn:
    """Asks for the user of the moment once in a turn of the event loop: calls that come together share a look."""

    def __init__(self, ask: Callable[[], Principal]) -> None:
        self._ask, self._loop = ask, asyncio.get_running_loop()
        self._user: Principal | None = None

    def __call__(self) -> Principal:
        """Return the user."""
        if self._user is None:
            self._user = self._ask()
            self._loop.call_soon(self._forget)
        return self._user

    def _forget(self) -> None:
        self._user = None


class _Authenticator:
    """Checks the credentials in messages of one connection; the last password that was right is not checked again."""

    def __init__(self, logins: Logins | None, peer: str, place: _Place | None, *, is_secure: bool) -> None:
        self._logins, self._peer, self._place, self._is_secure = logins, peer, place, is_secure
        self._last: tuple[str, Callable[[], Principal]] | None = None
        self._turn = asyncio.Lock()  # calls go on in the order in which they came

    async def __call__(self, sec: str | None, message: Mapping[str, Any]) -> Caller:
        """Return the caller; ``NotAuthenticated`` if the credentials are missing or wrong."""
        caller = await self._caller(sec, message)
        if self._place is not None:
            self._place.take(caller.owner)
        return caller

    async def _caller(self, sec: str | None, message: Mapping[str, Any]) -> Caller:
        if self._logins is None:
            return Caller(ANONYMOUS.name, lambda: ANONYMOUS, None, self._is_secure)
        if sec is None:
            raise NotAuthenticated("authentication required: send user:password as sec, or a signature")
        sign = None
        async with self._turn:
            if sec.startswith(MAC_SCHEMES):
                ask, sign = self._signed(self._logins, sec, message)
            else:
                ask = await self._with_password(self._logins, sec)
        name = ask().name
        return Caller(name, ask, name, self._is_secure, sign)

    async def _with_password(self, logins: Logins, sec: str) -> Callable[[], Principal]:
        if ":" not in sec:
            raise NotAuthenticated("invalid sec: send user:password, or -smac:user:algorithm:base64")
        if self._last is None or self._last[0] != sec:
            header = f"Basic {base64.b64encode(sec.encode()).decode()}"
            self._last = sec, _OncePerTurn(await asyncio.to_thread(logins, header, self._peer, waits=False))
        return self._last[1]

    def _signed(self, logins: Logins, sec: str, message: Mapping[str, Any]) -> _Signed:
        """Check the signature of a message, return how its answer is signed; none is remembered."""
        try:
            scheme, user, algorithm, code = sec.split(":")
        except ValueError:
            raise NotAuthenticated("invalid sec: a signature has the form -smac:user:algorithm:base64") from None
        right = b""

        def matches(key: bytes) -> bool:
            nonlocal right
            right = key
            return mac_matches(message, key, scheme=scheme, algorithm=algorithm, given=code)

        ask = logins.by_mac(user, matches, self._peer)
        return ask, partial(answer_mac, key=right, scheme=scheme, algorithm=algorithm)


def _refusal(reason: str) -> Response:
    """Return the answer for a path that cannot be that of a stream: it does not depend on which streams there are."""
    return Response(f"{reason}\n", 404, media_type="text/plain")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
