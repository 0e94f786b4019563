"""What one caller, or one stream, must not cost the others: threads, memory, and places that are kept for ever."""

from __future__ import annotations

import asyncio
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
