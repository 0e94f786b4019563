"""What must not be passed, doubled or mixed up while groups are under way, positions are stored and connections end."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from websockets.asyncio.server import serve

from penstock.embedded import open_store
from penstock.events import Event, ReliableReceiver
from penstock.events._delivery_budget import DeliveryBudget
from penstock.events._event import WireEvent
from penstock.events._event_log import EventLog, EventPage
from penstock.events._feed import Group
from penstock.events._push import PushedPart, Receiver, push
from penstock.events._registrations import Registrations
from penstock.events.consumers import Consumer
from tests.events.wire import LONG_S, message_of, websocket

if TYPE_CHECKING:
    import pytest
    from websockets.asyncio.server import ServerConnection

    from penstock.server import Server

TIME = "2026-11-16T14:26:37Z"


class ReadyFeed:
    """A feed whose groups are all there, and which then waits for ever."""

    start = 0

    def __init__(self, *pages: EventPage) -> None:
        self._groups = {page.start: Group(page) for page in pages}

    async def after(self, event_id: int) -> Group:
        """Return the next group at once."""
        if event_id not in self._groups:
            await asyncio.get_running_loop().create_future()
        return self._groups[event_id]


def wire_event(event_id: int, kind: str) -> WireEvent:
    return WireEvent(str(event_id), kind, msgspec.Raw(b"1"), TIME)


def test_what_is_left_out_does_not_pass_a_group_that_is_under_way() -> None:
    """The position would lie behind an event that the receiver never took."""
    feed = ReadyFeed(EventPage(0, 10, [wire_event(10, "A")]), EventPage(10, 20, [wire_event(20, "B")]))
    taken: list[int] = []
    sent: list[PushedPart] = []

    async def send(_: int, part: PushedPart) -> bool:
        sent.append(part)
        await asyncio.get_running_loop().create_future()
        return False

    async def run() -> None:
        hold = partial(DeliveryBudget(1 << 20, user_share=1.0).hold, None)
        receiver = Receiver(send=send, taken=taken.append, want=frozenset("A"), select=None, hold=hold, size_max=1000)
        task = asyncio.create_task(push(feed, receiver, 0))  # type: ignore[arg-type]
        while not sent:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(run())
    assert max(taken, default=0) == 0


def test_connection_has_one_push_however_often_it_asks(server: Server) -> None:
    """Two would send every group twice, under the same numbers."""
    with websocket(server) as peer:
        assert "r" in peer.call(message_of("evt.gen:1.1:addEvent", type="A", data=1))
        assert peer.call(message_of("evt.push:1.1:registerConsumer", component="billing"))["r"] is True
        components = ["LIVE", "billing"] * 6
        ready = [message_of("evt.push:1.1:readyToReceive", component=component) for component in components]
        for message in ready:
            peer.send(message)
        assert all(peer.answer()["r"] is True for _ in ready)
        groups = [peer.pushed()]
        while groups[-1]["p"]["events"][-1]["data"] == 1:
            peer.send({"r": True, "rid": groups[-1]["rid"]})
            assert "r" in peer.call(message_of("evt.gen:1.1:addEvent", type="A", data=2))
            groups.append(peer.pushed())
        assert groups[-1]["p"]["seq"] == 1, "it is the second group of the last push, which is the only one"


def test_positions_move_while_others_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storing waits for the disk, and the event loop must not wait for that."""
    with open_store("memory:") as store:
        store.create_stream("plant/alarms", 1)
        with store.writer("plant/alarms") as writer:
            writer.write_batch([b"x"] * 10).result()
        registrations, log = Registrations(store), EventLog(store, "plant/alarms")
        consumer = Consumer("plant/alarms", "anna", "billing", None)
        registrations.register(consumer, log)
        storing, may_store = threading.Event(), threading.Event()
        register = store.registered.register

        def slow(*args: Any, **named: Any) -> None:  # noqa: ANN401 - passed on
            storing.set()
            assert may_store.wait(LONG_S)
            register(*args, **named)

        monkeypatch.setattr(store.registered, "register", slow)
        middle = log.page(0, events_max=5).end
        registrations.advance(consumer, log, middle)
        thread = threading.Thread(target=registrations.store_positions)
        thread.start()
        assert storing.wait(LONG_S)
        registrations.advance(consumer, log, log.tail)
        may_store.set()
        thread.join()
        assert registrations.position(consumer) == log.tail
        registrations.store_positions()
        assert store.consumers("plant/alarms")[consumer.name].offsets == {0: log.tail}


def pushed(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": str(number), "type": "A", "data": number, "ts": TIME} for number in numbers]


class LosingServer:
    """A server that loses its first connection while a group is being processed, and sends two groups on the next."""

    GROUPS: Final = {"S1": (0, pushed(1, 2)), "S2": (1, pushed(3))}

    def __init__(self) -> None:
        self.connections = 0
        self.is_processing, self.is_lost = asyncio.Event(), asyncio.Event()

    async def serve(self, peer: ServerConnection) -> None:
        """Answer every call, and push; a group that is answered with an error is pushed again."""
        self.connections += 1
        async for text in peer:
            message = json.loads(text)
            if "e" in message:
                await self._push(peer, message["rid"], *self.GROUPS[message["rid"]])
            elif "f" in message:
                await peer.send(json.dumps({"r": True, "rid": message["rid"]}))
                if message["f"].endswith("readyToReceive"):
                    await self._begin(peer)

    async def _begin(self, peer: ServerConnection) -> None:
        if self.connections > 1:
            for rid, group in self.GROUPS.items():
                await self._push(peer, rid, *group)
            return
        await self._push(peer, "S1", 0, pushed(1))
        await self.is_processing.wait()
        peer.transport.abort()
        self.is_lost.set()

    async def _push(self, peer: ServerConnection, rid: str, seq: int, events: list[dict[str, Any]]) -> None:
        parameters = {"seq": seq, "events": events}
        await peer.send(json.dumps({"f": "futoin.evt.receiver:1.1:onEvents", "p": parameters, "rid": rid}))


def test_group_of_a_lost_connection_does_not_count_on_the_next(caplog: pytest.LogCaptureFixture) -> None:
    """Or the next connection's second group would be processed before its first, which then seems to be old."""
    got, failures = list[int](), [True]

    async def run() -> None:
        server = LosingServer()

        async def handle(events: list[Event]) -> None:
            ids = [int(event.id) for event in events]
            server.is_processing.set()
            if ids == [1]:
                await server.is_lost.wait()
                await asyncio.sleep(0.05)  # the receiver notices the loss meanwhile
            if 2 in ids and failures:
                failures.pop()
                raise RuntimeError("try again")
            got.extend(ids)

        async with serve(server.serve, "127.0.0.1", 0) as listening, asyncio.timeout(LONG_S):
            port = next(iter(listening.sockets)).getsockname()[1]
            task = asyncio.create_task(ReliableReceiver(f"ws://127.0.0.1:{port}/", "billing", handle).run())
            while 3 not in got:
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())
    assert got == [1, 2, 3]
    assert "try again" in caplog.text


def test_one_consumer_is_looked_up_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll, and each position that is stored, listed all of them: a user with 5,000 slowed down the others."""
    with open_store("memory:") as store:
        store.create_stream("plant/alarms", 1)
        registrations, log = Registrations(store), EventLog(store, "plant/alarms")
        consumer = Consumer("plant/alarms", "anna", "billing", None)
        with monkeypatch.context() as patch:
            patch.delattr(type(store.registered), "cuts")
            registrations.register(consumer, log)
            registrations.advance(consumer, log, log.tail)
            registrations.store_positions()
            assert registrations.position(consumer) == log.tail
