"""The routes of the console: its pages, and the JSON API that they call.

Calls work in threads of the console, a few at a time, so that health and metrics have theirs. A call is counted for its
user before it waits for a thread, and one above the limit is refused, so that the page tries again. So one user leaves
places and threads to the others. Who calls is found out in threads of their own, which no call keeps busy.

A sign-in has a thread while it waits for its turn, or for the end of the delay after wrong passwords. How many do is
limited where passwords are checked (:meth:`Access.sign_in`), by network, so that they do not keep others out. Sign-outs
and downloads that have begun are never refused, and have threads of their own.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.console import _guard
from penstock.console._answers import error_answer, failure_answer, json_answer
from penstock.console._calls import CALLS
from penstock.console._changes import CHANGES
from penstock.console._mark_history import MarkHistory
from penstock.console._overview import overviews_of
from penstock.console._static import INDEX, StaticFiles
from penstock.console._turns import SharedThreads
from penstock.errors import BadArgument, NotAuthenticated, PenstockError
from penstock.model import UNDECODABLE, EventPointer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.routing import BaseRoute

    from penstock.console._changes import Change
    from penstock.console._ports import Access, ConsoleStore, ConsoleUser, ServerFigures
    from penstock.stream.read import EventInputStream

    Handler = Callable[["Console", Request], Awaitable[Response]]

__all__ = ["Console"]

T = TypeVar("T")
_CALL_THREADS: Final = 8
_DOWNLOAD_THREADS: Final = 4
_IDENTITY_THREADS: Final = 2  # a moment for each call; a connection has one call under way, so connections limit them
_REFUSAL_THREADS: Final = 4  # beyond those of the sign-ins that wait, for those that are refused
_SIGN_OUT_THREADS: Final = 2
_BODY_MAX: Final = 64 << 10
_DOWNLOAD_CHUNK: Final = 256 << 10


class _RequestConnection(Protocol):
    """The connection of a request, as the server gives it."""

    def note_progress(self) -> None:
        """Give a long answer its time again."""

    def abort(self) -> None:
        """Close the connection: the answer cannot be completed."""


class _Credentials(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str


class Console:
    """The pages and the API of one server, for one store."""

    def __init__(self, store: ConsoleStore, access: Access, server: ServerFigures) -> None:
        self.store, self.access, self.server = store, access, server
        self.rates: Final = overviews_of(store).rates
        self.history: Final = MarkHistory()
        self._files = StaticFiles()
        self._threads = self._shared_threads("penstock-console", _CALL_THREADS)
        self._downloads = self._shared_threads("penstock-download", _DOWNLOAD_THREADS)
        self._identities = ThreadPoolExecutor(_IDENTITY_THREADS, "penstock-identity")
        self._sign_ins = ThreadPoolExecutor(access.sign_ins_max + _REFUSAL_THREADS, "penstock-sign-in")
        self._sign_outs = ThreadPoolExecutor(_SIGN_OUT_THREADS, "penstock-sign-out")
        api = f"{_guard.PATH}/api"
        self.routes: Final[list[BaseRoute]] = [
            Route("/", lambda _: RedirectResponse(f"{_guard.PATH}/", 307)),
            Route(_guard.PATH, lambda _: RedirectResponse(f"{_guard.PATH}/", 308)),
            Route(f"{_guard.PATH}/", self._page),
            Route(f"{_guard.PATH}/static/{{name}}", self._page),
            Route(f"{api}/session", self._guarded(self._session)),
            Route(f"{api}/session", self._guarded(self._sign_in, changes=True), methods=["POST"]),
            Route(f"{api}/session", self._guarded(self._sign_out, changes=True), methods=["DELETE"]),
            Route(f"{api}/event/data", self._guarded(self._download)),
            *(Route(f"{api}/{path}", self._guarded(partial(self._ask, path))) for path in CALLS),
            *(
                Route(f"{api}/{path}", self._guarded(partial(self._change, kind), changes=True), methods=["POST"])
                for path, kind in CHANGES.items()
            ),
            Route(f"{_guard.PATH}/{{rest:path}}", _nothing, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]

    def sample(self) -> None:
        """Note where writers are now; called every ``SAMPLE_EVERY_S``."""
        self.history.sample(self.store)

    def close(self) -> None:
        """End the threads; calls under way come to their end."""
        self._threads.close()
        self._downloads.close()
        for pool in (self._identities, self._sign_ins, self._sign_outs):
            pool.shutdown(wait=False, cancel_futures=True)

    def _shared_threads(self, name: str, threads: int) -> SharedThreads:
        """Return threads of which one user has half, or all on a server without users."""
        return SharedThreads(name, threads=threads, of_user_max=threads if self.access.is_anonymous else threads // 2)

    async def _page(self, request: Request) -> Response:
        return self._files.answer(request, request.path_params.get("name", INDEX))

    def _guarded(
        self, handle: Callable[[Request], Awaitable[Response]], *, changes: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that refuses requests of other sites, and answers errors."""

        async def guarded(request: Request) -> Response:
            try:
                if self.access.is_anonymous:
                    _guard.check_host(request)
                if changes:
                    _guard.check_origin(request)
                return await handle(request)
            except ClientDisconnect:
                return Response(status_code=400)
            except PenstockError as error:
                return error_answer(error)
            except Exception as error:  # noqa: BLE001 - it is logged, and the page can say that the server failed
                return failure_answer(error)

        return guarded

    # Sessions

    async def _session(self, request: Request) -> Response:
        def describe(user: ConsoleUser) -> dict[str, Any]:
            is_anonymous = self.access.is_anonymous
            return {
                "user": user.name,
                "anonymous": is_anonymous,
                "reads_all": user.may("read", "*"),
                "administers_any": self.access.administers_any(user),
                "manages_users": not is_anonymous and user.may("admin", "*"),
                "cluster": self.server.is_cluster and user.may("read", "*"),
            }

        try:
            return json_answer(await self._as_user(request, describe))
        except NotAuthenticated:  # not an error: the page asks whether there is a session
            has_users = await asyncio.get_running_loop().run_in_executor(self._identities, self.access.has_users)
            return json_answer({"user": None, "has_users": has_users})

    async def _sign_in(self, request: Request) -> Response:
        given = await _body(request, _Credentials)
        sign_in = partial(self.access.sign_in, given.user, given.password, _guard.peer_of(request))
        session = await asyncio.get_running_loop().run_in_executor(self._sign_ins, sign_in)
        response = json_answer({"user": given.user})
        _guard.remember_session(request, response, session)
        return response

    async def _sign_out(self, request: Request) -> Response:
        token = _guard.token_of(request)
        if token is not None:
            sign_out = partial(self.access.sign_out, token, _guard.peer_of(request))
            await asyncio.get_running_loop().run_in_executor(self._sign_outs, sign_out)
        response = json_answer({})
        _guard.forget_session(request, response)
        return response

    # Calls

    async def _ask(self, path: str, request: Request) -> Response:
        return json_answer(await self._as_user(request, lambda user: CALLS[path](self, user, request.query_params)))

    async def _change(self, kind: type[Change], request: Request) -> Response:
        change = await _body(request, kind)

        def run(user: ConsoleUser) -> dict[str, Any]:
            change.check(self.access, user)
            return change.run(self.store, self.access, user)

        return json_answer(await self._as_user(request, run))

    async def _download(self, request: Request) -> Response:
        """Send an event of any size as a file, for as long as the user may read it."""
        pointer = EventPointer.parse(request.query_params.get("pointer", ""))
        token, peer = _guard.token_of(request), _guard.peer_of(request)

        def check() -> None:
            self.access.check(self.access.principal(token, peer), "read", pointer.stream)

        def opened(user: ConsoleUser) -> tuple[str | None, EventInputStream]:
            self.access.check(user, "read", pointer.stream)
            return self.access.owner(user), self.store.fetch_event_as_stream(pointer)

        owner, event = await self._as_user(request, opened)
        name = f"{pointer.stream.replace('/', '-')}-{pointer.segment_id}-{pointer.offset}.bin"
        headers = {
            **_guard.HEADERS,
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Length": str(event.size),
        }
        connection: _RequestConnection = request.state.connection

        def chunk() -> bytes:
            check()
            return event.read(_DOWNLOAD_CHUNK)

        async def chunks() -> AsyncIterator[bytes]:
            with closing(event):
                try:
                    while data := await self._downloads.run(owner, chunk):
                        yield data
                        connection.note_progress()
                except PenstockError:  # the user may not read it any more, or it was truncated away
                    connection.abort()

        return StreamingResponse(chunks(), headers=headers, media_type="application/octet-stream")

    async def _as_user(self, request: Request, work: Callable[[ConsoleUser], T]) -> T:
        """Do something for the user of the session, in a thread; the user is looked up again when its turn comes."""
        identify = partial(self.access.principal, _guard.token_of(request), _guard.peer_of(request))
        user = await asyncio.get_running_loop().run_in_executor(self._identities, identify)
        release = self.access.take_call(user)
        try:
            return await self._threads.run(self.access.owner(user), lambda: work(identify()))
        finally:
            release()


async def _body(request: Request, kind: type[T]) -> T:
    """Return the body of a request, if it is JSON of the kind that is asked for."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadArgument("invalid body: send JSON, as application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _BODY_MAX:
            raise BadArgument(f"the body is larger than {_BODY_MAX} bytes")
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except UNDECODABLE as error:
        raise BadArgument(f"invalid body: {str(error).replace('`', '')}") from None


async def _nothing(_: Request) -> Response:
    return json_answer({"error": "NoSuchPage", "message": "the console has no such page: begin at /console/"}, 404)
