"""Delivery under random interleavings: adds, answers of every kind, disconnects, filters, polls and retention."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.embedded import open_store
from penstock.events import _feed, _push
from penstock.events._functions import Call, call_of, request_of
from penstock.events.consumers import Consumer
from penstock.events.serving import Caller, EventService, Peer
from penstock.log import PlogSizes
from penstock.server._permissions import ANONYMOUS
from tests.events.test_websocket_limits import figures
from tests.events.wire import LONG_S, call, message_of, websocket

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import Engine

STREAM = "futoin/events"
CALLER = Caller("anonymous", lambda: ANONYMOUS, None, is_secure=True)
KINDS = ("A", "B", "C")


async def anybody(sec: str | None, message: Any) -> Caller:  # noqa: ANN401 - not looked at
    del sec, message
    return CALLER


def called(function: str, **parameters: Any) -> Call:  # noqa: ANN401 - of several types
    return call_of(request_of(message_of(function, **parameters)))


@pytest.fixture
def store() -> Iterator[Engine]:
    """A store that discards what was consumed as soon as it can."""
    sizes = PlogSizes(first=4096, largest=4096)
    with open_store("memory:", sizes=sizes, maintenance_interval_s=0.01) as store:
        yield store


class Receiver:
    """A receiver that answers as it likes, and what it must have seen so far."""

    def __init__(self, chance: random.Random, want: list[str] | None) -> None:
        self._chance, self.want = chance, want
        self.taken: dict[int, int] = {}  # ids, and the data of their events
        self.groups: dict[int, Any] = {}  # of this connection
        self.peer: Peer | None = None

    async def connect(self, service: EventService) -> None:
        """Connect, after a disconnect or for the first time."""
        if self.peer is not None:
            await self.peer.close()
        self.groups = {}
        self.peer = Peer(service, STREAM, anybody, self._send)
        ready = message_of("evt.push:1.1:readyToReceive", component="billing", want=self.want)
        await self.peer.receive(json.dumps(ready).encode(), is_text=True)

    async def _send(self, data: bytes, is_text: bool) -> None:
        assert is_text
        message = json.loads(data)
        if "f" not in message:
            assert message["r"] is True
            return
        number, events = message["p"]["seq"], message["p"]["events"]
        assert number in self.groups or number == len(self.groups), "numbers have no gaps"
        assert self.groups.setdefault(number, events) == events, "a group that comes again is the same"
        assert self.want is None or all(event["type"] in self.want for event in events)
        answers: list[dict[str, Any]] = [{"r": True}] * 4 + [{"e": "InternalError"}, {"r": False}]
        answer = self._chance.choice(answers)
        if answer.get("r") is True:
            self.taken |= {int(event["id"]): event["data"] for event in events}
        delay_s = self._chance.choice([0.0, 0.0, 0.001, 0.02])
        peer = self.peer
        assert peer is not None
        answered = json.dumps(answer | {"rid": message["rid"]}).encode()
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, lambda: loop.create_task(peer.receive(answered, is_text=True)))


@pytest.mark.parametrize("seed", range(6))
def test_no_event_is_lost_whatever_happens(store: Engine, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Numbers have no gaps, the position never goes back, and never beyond what was taken; retention obeys it."""
    monkeypatch.setattr(_push, "_RESEND_S", (0.001, 0.01))
    monkeypatch.setattr(_feed, "_KEPT", 2)
    chance = random.Random(seed)
    want = chance.choice([None, ["A", "B"], ["C"]])

    async def run() -> None:
        service = EventService(store, own_stream=STREAM)
        await service.call(called("evt.poll:1.1:registerConsumer", component="billing"), CALLER, STREAM)
        consumer, receiver = Consumer(STREAM, "anonymous", "billing", None), Receiver(chance, want)
        added: dict[int, tuple[str, int]] = {}
        positions = [0]

        async def add(number: int) -> None:
            kind = chance.choice(KINDS)
            call = called("evt.gen:1.1:addEvent", type=kind, data=number)
            added[int(str(await service.call(call, CALLER, STREAM)))] = kind, number

        def look() -> None:
            """Check that the position is behind nothing that was not taken."""
            positions.append(service.registrations.position(consumer))
            missing = wanted().keys() - receiver.taken.keys()
            assert not missing or min(missing) > positions[-1], "it was not taken, and counts as delivered"

        def wanted() -> dict[int, int]:
            return {event: number for event, (kind, number) in added.items() if want is None or kind in want}

        await receiver.connect(service)
        for step in range(60):
            await asyncio.gather(*(add(step * 20 + index) for index in range(chance.randrange(20))))
            if chance.random() < 0.15:
                await receiver.connect(service)
            if chance.random() < 0.1:
                poll = called("evt.poll:1.1:pollEvents", component="billing", want=want)
                events: Any = await service.call(poll, CALLER, STREAM)
                assert all(int(event.id) > positions[-1] for event in events)
            if chance.random() < 0.2:
                await service.run(service.registrations.store_positions)
            await asyncio.sleep(chance.choice([0, 0.001, 0.01]))
            look()
        async with asyncio.timeout(30):
            while wanted().keys() - receiver.taken.keys():
                await asyncio.sleep(0.01)
        assert {event: receiver.taken[event] for event in wanted()} == wanted()
        assert positions == sorted(positions)
        async with asyncio.timeout(30):
            while not service.log(STREAM).head:
                await asyncio.sleep(0.01)
        assert receiver.peer is not None
        await receiver.peer.close()
        await service.close()

    asyncio.run(run())


@pytest.mark.parametrize("history", [0, 3_000])
def test_hand_over_from_history_to_live_loses_nothing_under_load(store: Engine, history: int) -> None:
    """The reference loses what is added between the read of the history and the start of live pushing."""

    async def run() -> None:
        service = EventService(store, own_stream=STREAM)
        await service.call(called("evt.poll:1.1:registerConsumer", component="billing"), CALLER, STREAM)

        async def add(numbers: range) -> None:
            for low in range(numbers.start, numbers.stop, 50):
                calls = [called("evt.gen:1.1:addEvent", type="A", data=n) for n in range(low, low + 50)]
                await asyncio.gather(*(service.call(call, CALLER, STREAM) for call in calls))

        await add(range(history))
        chance = random.Random(history)
        receivers = [Receiver(chance, None) for _ in range(3)]
        adding = asyncio.create_task(add(range(history, history + 3_000)))
        for index, receiver in enumerate(receivers):
            await asyncio.sleep(0.01 * index)
            await receiver.connect(service)
        await adding
        async with asyncio.timeout(60):
            while min(len(receiver.taken) for receiver in receivers[:1]) < history + 3_000:
                await asyncio.sleep(0.01)
        assert sorted(receivers[0].taken.values()) == list(range(history + 3_000))
        for receiver in receivers:
            assert receiver.peer is not None
            await receiver.peer.close()
        await service.close()

    asyncio.run(run())


def test_slow_live_receiver_gets_a_gap_instead_of_a_backlog(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it gets is new, and the gap in the numbers tells that something is missing."""
    monkeypatch.setattr(_feed, "_KEPT", 2)

    async def run() -> None:
        service = EventService(store, own_stream=STREAM)
        await service.call(called("evt.gen:1.1:addEvent", type="A", data=-1), CALLER, STREAM)
        gate, groups = asyncio.Event(), list[tuple[int, list[int]]]()
        peers: list[Peer] = []

        async def slow(data: bytes, is_text: bool) -> None:
            del is_text
            message = json.loads(data)
            if "f" in message:
                groups.append((message["p"]["seq"], [event["data"] for event in message["p"]["events"]]))
                await gate.wait()
                answer = json.dumps({"r": True, "rid": message["rid"]}).encode()
                asyncio.get_running_loop().call_soon(lambda: tasks.append(asyncio.create_task(answered(answer))))

        async def answered(answer: bytes) -> None:
            await peers[0].receive(answer, is_text=True)

        async def quick(data: bytes, is_text: bool) -> None:
            message = json.loads(data)
            if "f" in message:
                answer = json.dumps({"r": True, "rid": message["rid"]}).encode()
                tasks.append(asyncio.create_task(peers[1].receive(answer, is_text=is_text)))

        tasks: list[asyncio.Task[None]] = []
        for send in (slow, quick):
            peers.append(Peer(service, STREAM, anybody, send))
            ready = message_of("evt.push:1.1:readyToReceive", component="LIVE")
            await peers[-1].receive(json.dumps(ready).encode(), is_text=True)
        for number in range(200):
            await service.call(called("evt.gen:1.1:addEvent", type="A", data=number), CALLER, STREAM)
            await asyncio.sleep(0.006 if number % 4 == 0 else 0)
        gate.set()
        async with asyncio.timeout(30):
            while not groups or groups[-1][1][-1] != 199:
                await asyncio.sleep(0.01)
        numbers, data = [number for number, _ in groups], [one for _, group in groups for one in group]
        assert numbers == sorted(numbers)
        assert numbers != list(range(len(numbers))), "a number is left out"
        assert data == sorted(data)
        assert len(data) < 200
        for peer in peers:
            await peer.close()
        await service.close()

    asyncio.run(run())


SERVE = """
import sys
from penstock.server import Config, run
config = Config(store=sys.argv[1], port=0, http_port=0, anonymous=True)
run(config, ready=lambda server: print(server.http_port, flush=True))
"""


class Killable:
    """A server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", SERVE, str(folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self.http_port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def test_registration_and_position_survive_a_kill(tmp_path: Path) -> None:
    """A position is stored within about a second; the registration is durable when it is answered."""
    server: Any = Killable(tmp_path / "data")
    assert call(server, message_of("evt.poll:1.1:registerConsumer", component="early"))["r"] is True
    assert call(server, message_of("evt.poll:1.1:registerConsumer", component="late"))["r"] is True
    event = call(server, message_of("evt.gen:1.1:addEvent", type="A", data=1))["r"]
    with websocket(server) as wire:
        assert "r" in wire.call(message_of("evt.push:1.1:readyToReceive", component="early"))
        wire.send({"r": True, "rid": wire.pushed()["rid"]})
        deadline = time.monotonic() + LONG_S
        while figures(server)['penstock_futoin_lag_bytes{consumer="anonymous.early",stream="futoin/events"}']:
            assert time.monotonic() < deadline
    server.kill()
    server = Killable(tmp_path / "data")
    try:
        poll = message_of("evt.poll:1.1:pollEvents", component="early")
        assert call(server, poll)["r"] == []
        assert [found["id"] for found in call(server, poll | {"p": {"component": "late"}})["r"]] == [event]
        later = call(server, message_of("evt.gen:1.1:addEvent", type="A", data=2))["r"]
        assert int(later) > int(event)
        assert [found["id"] for found in call(server, poll)["r"]] == [later]
    finally:
        server.kill()
