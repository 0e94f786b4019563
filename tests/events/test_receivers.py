"""Receivers when something beside them fails: the store of their position, their server, their function."""

from __future__ import annotations

import asyncio
import errno
import json
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.server import serve

from penstock.errors import BadArgument, FutoinError, StoreUnreachable
from penstock.events import (
    Event,
    Generator,
    LiveReceiver,
    PollClient,
    PositionFile,
    PushClient,
    ReliableReceiver,
    _outage,
    _peer,
)
from penstock.server import Config, Server
from tests.events.tasks import ended, until
from tests.events.wire import LONG_S
from tests.server.apart import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from websockets.asyncio.server import ServerConnection


async def add(url: str, *numbers: int) -> list[int]:
    async with Generator(url) as generator:
        return [await generator.add_event("DEMO", number) for number in numbers]


class Positions:
    """Positions on a disk that is full for some attempts."""

    def __init__(self, failures: float) -> None:
        self.failures, self.attempts, self.stored = failures, 0, 0

    def load(self) -> int:
        return self.stored

    def store(self, event_id: int) -> None:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.stored = event_id


def test_position_that_could_not_be_stored_is_stored_with_the_next_attempt(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A position that stays behind means events that are processed twice; nothing is processed twice here."""

    async def run() -> None:
        got: list[Event] = []
        positions = Positions(failures=3)
        task = asyncio.create_task(ReliableReceiver(url, "billing", got.extend, position=positions).run())
        ids = await add(url, 1)
        await until(lambda: positions.stored == ids[0], task)
        await ended(task)
        assert [event.data for event in got] == [1]

    asyncio.run(run())
    assert caplog.text.count("the position of a receiver could not be stored") == 1


def test_receiver_stops_with_the_error_of_its_position_and_loses_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server must not count events as delivered whose receipt is nowhere noted."""
    monkeypatch.setattr("penstock.retry.PAUSE_MAX_S", 0.0)

    async def run() -> None:
        positions, got = Positions(failures=float("inf")), list[Event]()
        task = asyncio.create_task(ReliableReceiver(url, "billing", got.extend, position=positions).run())
        ids = await add(url, 1, 2)
        with pytest.raises(OSError, match="No space left"):
            await asyncio.wait_for(task, LONG_S)
        assert got[0].data == 1
        positions.failures, again = 0, list[Event]()
        task = asyncio.create_task(ReliableReceiver(url, "billing", again.extend, position=positions).run())
        await until(lambda: positions.stored == ids[-1], task)
        await ended(task)
        assert [event.data for event in again] == [1, 2]

    asyncio.run(run())


def test_server_that_stays_away_ends_the_receiver_with_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that waits for ever looks as if there were no events; so does a loop of polls."""
    monkeypatch.setattr(_outage, "PATIENCE_S", 0.05)
    url = f"ws://127.0.0.1:{free_port()}/futoin"

    async def poll() -> None:
        async with PollClient(url, "LIVE") as client:
            await anext(client.events())

    for wait in (ReliableReceiver(url, "billing", print).run(), LiveReceiver(url, print).run(), poll()):
        with pytest.raises(StoreUnreachable, match="cannot reach"):
            asyncio.run(wait)


class BusyServer:
    """A server that answers its first calls with an error, and then closes each connection as soon as it is ready."""

    def __init__(self, *errors: str) -> None:
        self.errors, self.connections = list(errors), 0

    async def serve(self, peer: ServerConnection) -> None:
        self.connections += 1
        async for text in peer:
            message = json.loads(text)
            if self.errors:
                await peer.send(json.dumps({"e": self.errors.pop(0), "rid": message["rid"]}))
                continue
            await peer.send(json.dumps({"r": True, "rid": message["rid"]}))
            if message["f"].endswith("readyToReceive"):
                return


@pytest.mark.parametrize(("errors", "connections"), [(("InternalError", "CommError"), 3), (("SecurityError",), 1)])
def test_busy_server_is_called_again_and_a_refusal_is_final(
    errors: tuple[str, ...], connections: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections that end at once do not end an outage: the attempts are bounded, and the log says it once."""
    monkeypatch.setattr(_outage, "PATIENCE_S", 0.2)

    async def run() -> None:
        server = BusyServer(*errors)
        async with serve(server.serve, "127.0.0.1", 0) as listening, asyncio.timeout(LONG_S):
            port = next(iter(listening.sockets)).getsockname()[1]
            with pytest.raises((StoreUnreachable, FutoinError)) as raised:
                await ReliableReceiver(f"ws://127.0.0.1:{port}/", "billing", print).run()
        assert server.connections >= connections
        assert isinstance(raised.value, StoreUnreachable) == (connections > 1)

    asyncio.run(run())
    assert caplog.text.count("out of reach") == (connections > 1)


def test_push_client_gets_numbered_groups_and_notices_a_lost_connection(tmp_path: Path) -> None:
    """It is for programs that order groups themselves: what is under way when a connection ends comes again."""
    config = Config(store=str(tmp_path / "data"), anonymous=True, port=0, http_port=free_port())
    url = f"ws://127.0.0.1:{config.http_port}/futoin"
    got, lost = list[tuple[int, list[object]]](), list[int]()

    async def handle(number: int, events: list[Event]) -> None:
        got.append((number, [event.data for event in events]))

    async def run() -> None:
        client = PushClient(url, "billing", handle, want=["DEMO"], lost=lambda: lost.append(len(got)))
        task = asyncio.create_task(client.run())
        for number in (1, 2):
            with Server(config):
                await add(url, number)
                await until(lambda number=number: (0, [number]) in got, task)  # type: ignore[misc]
        await ended(task)

    asyncio.run(run())
    assert got[0] == (0, [1])
    assert {count for count in lost if count < len(got)} == {1}, "the first connection ended behind its only group"


@pytest.mark.parametrize("place", ["missing/position", "."])
def test_position_that_can_be_kept_nowhere_is_refused_at_once(tmp_path: Path, place: str) -> None:
    """Not after the first events were processed."""
    with pytest.raises(BadArgument, match="cannot keep a position"):
        PositionFile(tmp_path / place)


class PushingServer:
    """A server that pushes some messages when its client is ready, and keeps the answers."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages, self.answers = messages, dict[str, dict[str, Any]]()

    async def serve(self, peer: ServerConnection) -> None:
        async for text in peer:
            message = json.loads(text)
            if "f" not in message:
                self.answers[message["rid"]] = message
                continue
            await peer.send(json.dumps({"r": True, "rid": message["rid"]}))
            if message["f"].endswith("readyToReceive"):
                for number, pushed in enumerate(self._messages):
                    await peer.send(json.dumps(pushed | {"rid": f"S{number}"}))

    async def run(self, handle: Callable[[list[Event]], None]) -> None:
        """Push to a receiver until all its answers have come."""
        async with serve(self.serve, "127.0.0.1", 0) as listening:
            port = next(iter(listening.sockets)).getsockname()[1]
            task = asyncio.create_task(ReliableReceiver(f"ws://127.0.0.1:{port}/", "billing", handle).run())
            await until(lambda: len(self.answers) == len(self._messages), task)
            await ended(task)


def pushed(seq: object, *ids: int, function: str = "futoin.evt.receiver:1.1:onEvents") -> dict[str, Any]:
    events = [{"id": str(n), "type": "A", "data": n, "ts": "2026-11-16T14:26:37Z"} for n in ids]
    return {"f": function, "p": {"seq": seq, "events": events}}


def test_groups_are_processed_in_the_order_of_their_numbers() -> None:
    """Many are under way at once, and may come in any order: the order is up to the consumer."""
    got: list[object] = []
    server = PushingServer(pushed(2, 5, 6), pushed(1, 3, 4), pushed(3, 7), pushed(0, 1, 2))
    asyncio.run(server.run(lambda events: got.extend(event.data for event in events)))
    assert got == [1, 2, 3, 4, 5, 6, 7]
    assert [answer["r"] for answer in server.answers.values()] == [True] * 4


def test_receiver_offers_the_callback_of_the_specification_and_nothing_else() -> None:
    """What is wrong is refused by its name, and not processed; the receiver goes on."""
    got: list[object] = []
    wrong = {
        "UnknownInterface": [pushed(0, 1, function="futoin.evt.gen:1.1:addEvent"), {"f": "x", "p": {}}],
        "InvalidRequest": [
            pushed(-1, 1),
            pushed("0", 1),
            pushed(0, 0),
            {"f": pushed(0)["f"], "p": {"seq": 0}},
            {"f": pushed(0)["f"], "p": pushed(0)["p"] | {"more": 1}},
            pushed(0, *range(1, 1002)),
        ],
    }
    messages = [(name, message) for name, list_ in wrong.items() for message in list_]
    old = pushed(0, 1, function="futoin.evt.receiver:1.0:onEvents")
    server = PushingServer(*(message for _, message in messages), old)
    asyncio.run(server.run(lambda events: got.extend(event.data for event in events)))
    *refused, taken = [server.answers[f"S{number}"] for number in range(len(server.answers))]
    assert [answer["e"] for answer in refused] == [name for name, _ in messages]
    assert taken == {"r": True, "rid": f"S{len(messages)}"}
    assert got == [1]


def test_function_slower_than_the_server_waits_gets_its_events_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gives the connection up, and sends the events again: they are known by then."""
    monkeypatch.setattr(_peer, "ANSWER_S", 0.05)
    got: list[Event] = []

    async def handle(events: list[Event]) -> None:
        if not got:
            await asyncio.sleep(0.3)
        got.extend(events)

    async def run() -> None:
        task = asyncio.create_task(ReliableReceiver(url, "billing", handle).run())
        await add(url, 1)
        await until(lambda: len(got) >= 1, task)
        await add(url, 2)
        await until(lambda: len(got) >= 2, task)
        await ended(task)

    asyncio.run(run())
    assert [event.data for event in got] == [1, 2]
