"""What one caller, or one stream, must not cost the others: threads, memory, and places that are kept for ever."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from penstock.embedded import open_store
from penstock.events import _service
from penstock.events._delivery_budget import DeliveryBudget
from penstock.events._functions import Call, call_of, request_of
from penstock.events._sizes import LARGE_MESSAGE
from penstock.events.serving import Caller, EventService, Peer, answer_http
from penstock.server import Config, Server
from penstock.server._permissions import ANONYMOUS
from tests.events.wire import LONG_S, call, message_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

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


def test_bytes_under_way_are_bounded_in_all_and_for_a_user() -> None:
    """Receivers that do not read hold what is sent to them in memory; other users must not wait for that."""

    async def run() -> None:
        budget = DeliveryBudget(100, user_share=0.5)
        first = [await budget.hold("anna", 25) for _ in range(2)]
        waiting = [asyncio.create_task(budget.hold("anna", 25)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting), "her share is used"
        berts = [await budget.hold("bert", 25), await budget.hold("bert", 25)]
        assert budget.used == 100
        assert (await budget.hold("carl", 200)).size == 200, "who has nothing under way gets on"
        waiting[0].cancel()
        for held in (*berts, first[0].share()):
            held.release()
        assert budget.used == 250
        await asyncio.sleep(0)
        assert not waiting[1].done(), "in all there is too much"
        first[0].release()
        first[1].release()
        assert (await waiting[1]).size == 25
        assert budget.used == 225

    asyncio.run(run())


def test_receivers_that_do_not_read_leave_memory_to_other_users(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a few groups; so all of them together would take what the machine has."""
    monkeypatch.setattr(_service, "_UNDER_WAY_MAX", 4 << 20)

    async def run() -> None:
        received = asyncio.Event()

        async def never(_: bytes, is_text: bool) -> None:
            await asyncio.get_running_loop().create_future()

        async def read(data: bytes, is_text: bool) -> None:
            del is_text
            if b"onEvents" in data:
                received.set()

        def peer(name: str, send: Callable[[bytes, bool], Awaitable[None]]) -> Peer:
            async def authenticate(sec: str | None, message: object) -> Caller:
                del sec, message
                return caller(name)

            return Peer(service, STREAM, authenticate, send)

        async with serving(store, user_share=0.5) as service:
            for _ in range(200):
                await service.call(adding("x" * 50_000), caller("bert"), STREAM)
            peers = [peer("anna", never) for _ in range(20)] + [peer("bert", read)]
            for number, each in enumerate(peers):
                name = "bert" if each is peers[-1] else "anna"
                register = called("evt.poll:1.1:registerConsumer", component=f"c{number}")
                await service.call(register, caller(name), STREAM)
                ready = message_of("evt.push:1.1:readyToReceive", component=f"c{number}")
                await each.receive(json.dumps(ready).encode(), is_text=True)
            await received.wait()
            assert 1 << 20 < service.budget.used <= 4 << 20
            for each in peers:
                await each.close()
            await asyncio.sleep(0)
            assert service.budget.used == 0

    asyncio.run(run())


def test_answers_by_http_count_until_they_are_sent(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that ask for 8 MiB and do not read them have it all in the memory of the server."""
    monkeypatch.setattr(_service, "_UNDER_WAY_MAX", LARGE_MESSAGE)
    poll = message_of("evt.poll:1.1:pollEvents", component="LIVE")

    async def authenticate(sec: str | None, message: object) -> Caller:
        del sec, message
        return CALLER

    async def run() -> None:
        async with serving(store) as service:
            await service.call(adding(1), CALLER, STREAM)
            async with AsyncExitStack() as held:
                answer, _ = await answer_http(service, STREAM, authenticate, json.dumps(poll).encode(), held)
                assert b'"data":1' in answer
                assert service.budget.used == LARGE_MESSAGE
            assert service.budget.used == 0

    asyncio.run(run())
    with Server(Config(store=str(tmp_path / "data"), anonymous=True, port=0, http_port=0)) as server:
        assert "r" in call(server, message_of("evt.gen:1.1:addEvent", type="A", data=1))
        for _ in range(3):
            assert len(call(server, poll)["r"]) == 1, "the one before was sent"
