"""What one caller, or one stream, must not cost the others: threads, memory, and places that are kept for ever."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from penstock.embedded import open_store
from penstock.events import _service
from penstock.events._functions import Call, call_of, request_of
from penstock.events.serving import Caller, EventService
from penstock.server._permissions import ANONYMOUS
from tests.events.wire import LONG_S, message_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from penstock.stream import Engine

STREAM = "futoin/events"
CALLER = Caller("anonymous", lambda: ANONYMOUS, None, is_secure=True)


def called(function: str, **parameters: Any) -> Call:  # noqa: ANN401 - of several types
    return call_of(request_of(message_of(function, **parameters)))


def adding(data: object, kind: str = "A") -> Call:
    return called("evt.gen:1.1:addEvent", type=kind, data=data)


@pytest.fixture
def store() -> Iterator[Engine]:
    """A store in memory."""
    with open_store("memory:") as store:
        yield store


@asynccontextmanager
async def serving(store: Engine, **options: Any) -> AsyncIterator[EventService]:  # noqa: ANN401 - of several types
    """Yield a service, which is closed then."""
    service = EventService(store, own_stream=STREAM, **options)
    try:
        async with asyncio.timeout(LONG_S):
            yield service
    finally:
        await service.close()


def test_nothing_is_kept_of_a_stream_that_was_deleted(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lives for years, with streams that come and go, would grow with each of them."""
    monkeypatch.setattr(_service, "_STORE_S", 0.01)

    async def run() -> None:
        async with serving(store) as service:
            await service.call(adding(1), CALLER, STREAM)
            await service.run(store.seal_stream, STREAM)
            await service.run(store.delete_stream, STREAM)
            while service._logs or service._adder._writers:
                await asyncio.sleep(0.01)

    asyncio.run(run())


class User:
    """A user who may do everything."""

    def __init__(self, name: str) -> None:
        self.name = name

    def may(self, permission: object, stream: str) -> bool:
        """Whatever it is."""
        del permission, stream
        return True


def caller(name: str) -> Caller:
    return Caller(name, lambda: User(name), name, is_secure=True)


def test_slow_polls_of_a_user_hold_up_no_other_user(store: Engine) -> None:
    """A filter that waits for a database, or a long history, is the trouble of the user who asks for it."""
    is_over = threading.Event()
    slow, quick = caller("slow"), caller("quick")

    def accepts(user: str, _: object) -> bool:
        return user != "slow" or is_over.wait(LONG_S)

    async def run() -> None:
        poll = called("evt.poll:1.1:pollEvents", component="LIVE")
        async with serving(store, accepts=accepts, user_share=0.5) as service:
            await service.call(adding(1), slow, STREAM)
            polls = [asyncio.create_task(service.call(poll, slow, STREAM)) for _ in range(20)]
            await asyncio.sleep(0)
            try:
                await service.call(called("evt.poll:1.1:registerConsumer", component="C"), quick, STREAM)
                await service.call(adding(2), quick, STREAM)
                events: Any = await service.call(poll, quick, STREAM)
                assert len(events) == 2
            finally:
                is_over.set()
            assert all(await asyncio.gather(*polls))

    asyncio.run(run())


def test_live_poll_for_rare_events_goes_on_where_it_looked_last(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no position, so without an event in reach it would ask for the same events for ever."""
    monkeypatch.setattr(_service, "_SCAN_MAX", 10_000)

    async def run() -> None:
        async with serving(store) as service:
            rare = called("evt.poll:1.1:pollEvents", component="LIVE", want=["RARE"])
            for _ in range(100):
                await service.call(adding("x" * 1_000), CALLER, STREAM)
            found = await service.call(adding(7, "RARE"), CALLER, STREAM)
            events: Any = []
            polls = 0
            while not events:
                events = await service.call(rare, CALLER, STREAM)
                polls += 1
            assert [event.id for event in events] == [found]
            assert polls < 20
            other: Any = await service.call(called("evt.poll:1.1:pollEvents", component="LIVE"), CALLER, STREAM)
            assert len(other) > 9, "another question is answered from its own place"

    asyncio.run(run())
