"""Events are added, polled and pushed through the clients in Python, over a real server."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import BadArgument, FutoinError, StoreUnreachable
from penstock.events import (
    Event,
    Generator,
    LiveReceiver,
    PollClient,
    PositionFile,
    PushClient,
    ReliableReceiver,
    _clients,
)
from penstock.server import Config, Server
from tests.events.tasks import ended, until
from tests.server.apart import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def add(url: str, numbers: range) -> list[int]:
    """Add events of two types, pipelined; return their ids."""
    async with Generator(url) as generator:
        calls = (generator.add_event("EVEN" if n % 2 == 0 else "ODD", {"n": n}) for n in numbers)
        return await asyncio.gather(*calls)


def numbers_of(events: list[Event]) -> list[int]:
    return [event.data["n"] for event in events]  # type: ignore[index]


def test_events_come_in_order_with_increasing_ids(url: str) -> None:
    """Also when many are under way at once; a consumer gets them once it has registered."""

    async def run() -> None:
        async with PollClient(url, "billing") as client:
            with pytest.raises(FutoinError) as refusal:
                await client.poll()
            assert refusal.value.name in {"NotRegistered", "InvalidRequest"}
            await client.register()
            ids = await add(url, range(2_500))
            assert ids == sorted(ids)
            found: list[Event] = []
            while part := await client.poll(found[-1].id if found else None):
                assert len(part) <= 1_000
                found += part
            assert [int(event.id) for event in found] == ids
            assert numbers_of(found) == list(range(2_500))

    asyncio.run(run())


def test_polling_goes_on_when_the_server_comes_again(tmp_path: Path) -> None:
    """A restart of the server is no reason to end a loop over its events."""
    port = free_port()
    config = Config(store=str(tmp_path / "data"), anonymous=True, port=0, http_port=port)
    url = f"ws://127.0.0.1:{port}/futoin"

    async def run() -> None:
        async with PollClient(url, "LIVE") as client:
            events = client.events()
            for numbers in (range(2), range(2, 4)):
                with Server(config):
                    await add(url, numbers)
                    assert numbers_of([await anext(events) for _ in numbers]) == list(numbers)

    asyncio.run(run())


def test_filter_counts_what_is_left_out_as_delivered(url: str) -> None:
    """Or a consumer of rare events would hold retention back."""

    async def run() -> None:
        async with PollClient(url, "billing", want=["NEVER"]) as client:
            await client.register()
            ids = await add(url, range(10))
            assert await client.poll() == []
        async with PollClient(url, "billing") as client:
            assert await client.poll() == []
            async with PollClient(url, "LIVE", want=["ODD"]) as live:
                assert numbers_of(await live.poll()) == [1, 3, 5, 7, 9]
                assert numbers_of(await live.poll(ids[6])) == [7, 9]

    asyncio.run(run())


def test_receiver_gets_everything_once_over_restarts(url: str, tmp_path: Path) -> None:
    """It goes on behind the last event that it has processed, whatever the server knows."""

    async def run() -> None:
        got: list[Event] = []
        position = PositionFile(tmp_path / "position")
        for low, high in ((0, 300), (300, 600)):
            receiver = ReliableReceiver(url, "billing", got.extend, position=position)
            task = asyncio.create_task(receiver.run())
            await add(url, range(low, high))
            await until(lambda high=high: len(got) >= high, task)  # type: ignore[misc]
            await ended(task)
        assert numbers_of(got) == list(range(600))
        assert position.load() == int(got[-1].id)

    asyncio.run(run())


def test_events_that_could_not_be_processed_come_again(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The receiver answers with an error, and the server sends the same group again, before any other."""

    async def run() -> None:
        got: list[Event] = []
        failures = iter([True, True, False])

        def handle(events: list[Event]) -> None:
            if next(failures, False):
                raise RuntimeError("the database is away")
            got.extend(events)

        task = asyncio.create_task(ReliableReceiver(url, "billing", handle).run())
        await add(url, range(50))
        await until(lambda: len(got) >= 50, task)
        await ended(task)
        assert numbers_of(got) == list(range(50))

    asyncio.run(run())
    assert caplog.text.count("RuntimeError: the database is away") == 2, "the log says why"


def test_live_receiver_gets_what_happens_now(url: str) -> None:
    """It does not register, so it gets nothing of the past."""

    async def run() -> None:
        await add(url, range(10))
        got: list[Event] = []
        receiver = LiveReceiver(url, got.extend, want=["ODD"])
        task = asyncio.create_task(receiver.run())
        for n in range(10, 10_000):
            await add(url, range(n, n + 1))
            if got:
                break
        await ended(task)
        assert all(number % 2 == 1 and number >= 10 for number in numbers_of(got))
        assert receiver.missed == 0

    asyncio.run(run())


def test_first_receiver_and_first_poll_find_the_stream_of_a_new_server(tmp_path: Path) -> None:
    """The first call creates the server's own stream: a reader must not have to wait for the first event."""

    async def poll(url: str) -> None:
        async with PollClient(url, "LIVE") as client:
            assert await client.poll() == []

    async def receive(url: str) -> None:
        got: list[Event] = []
        task = asyncio.create_task(LiveReceiver(url, got.extend).run())
        await until(lambda: "futoin/events" in {info.name for info in store.streams()}, task)
        await ended(task)

    for first in (poll, receive):
        config = Config(store=str(tmp_path / first.__name__), anonymous=True, port=0, http_port=0)
        with Server(config) as server, penstock.connect(server.address) as store:
            asyncio.run(first(f"ws://127.0.0.1:{server.http_port}/futoin"))


def test_futoin_stream_is_an_ordinary_stream(server: Server, url: str) -> None:
    """Reader groups and Spark read the same events, and what others write there is passed over."""
    with penstock.connect(server.address) as store:
        store.create_stream("plant/alarms", segments=1)
        with store.writer("plant/alarms") as writer:
            writer.write_batch([b"not JSON", b'{"type":"ok","ts":"","data":1}', b'{"type":"A","data":2}']).result()
        ids = asyncio.run(add(f"{url}/plant/alarms", range(3)))
        events = [event for batch in store.read("plant/alarms") for event in batch["event"].to_pylist()]
        assert len(events) == 6
        assert events[3].startswith(b'{"type":"EVEN","ts":"20')

        async def poll() -> list[Event]:
            async with PollClient(f"{url}/plant/alarms", "LIVE") as client:
                return await client.poll()

        assert [int(event.id) for event in asyncio.run(poll())] == ids


def test_stream_with_several_segments_is_refused(server: Server, url: str) -> None:
    """Ids of several segments would not be one order."""
    with penstock.connect(server.address) as store:
        store.create_stream("plant/readings", segments=2)
    with pytest.raises(FutoinError, match="several segments"):
        asyncio.run(add(f"{url}/plant/readings", range(1)))


def test_position_of_a_deleted_stream_does_not_count_for_its_namesake(server: Server, url: str) -> None:
    """Ids begin anew: the new stream's first events would count as delivered."""
    address = f"{url}/plant/alarms"

    async def run(store: penstock.Store) -> None:
        async with PollClient(address, "billing") as client:
            store.create_stream("plant/alarms", segments=1)
            await client.register()
            ids = await add(address, range(20))
            assert await client.poll(ids[-1]) == []
            store.seal_stream("plant/alarms")
            store.delete_stream("plant/alarms")
            store.create_stream("plant/alarms", segments=1)
            await client.register()
            await add(address, range(5))
            assert numbers_of(await client.poll()) == list(range(5))

    with penstock.connect(server.address) as store:
        asyncio.run(run(store))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("A", math.nan),
        ("A", [math.inf]),
        ("A", b"bytes"),
        ("A", {1, 2}),
        ("A", object()),
        ("A", {1: 2}),
        ("A", "\ud800"),
        ("A", "x" * 70_000),
        ("lower", 1),
    ],
)
def test_event_that_cannot_be_sent_as_it_is_is_refused(kind: str, data: object) -> None:
    """It would be stored as something else, or end the connection and all calls beside it."""

    async def run() -> None:
        async with Generator("ws://127.0.0.1:1/futoin") as generator:
            await generator.add_event(kind, data)

    with pytest.raises(BadArgument, match="invalid event"):
        asyncio.run(run())


@pytest.mark.parametrize(
    "given",
    [
        {"url": "http://127.0.0.1/futoin"},
        {"url": "ws://h/futoin", "user": "anna"},
        {"url": "ws://h/futoin", "password": "secret"},
        {"url": "ws://h/futoin", "user": "an:na", "password": "secret"},
        {"url": "ws://h/futoin", "user": "anna", "mac_key": "no base64!"},
    ],
)
def test_what_cannot_work_is_refused_at_once(given: dict[str, str]) -> None:
    """Not at the first call, somewhere else."""
    with pytest.raises(BadArgument):
        Generator(given.pop("url"), **given)


URL = "ws://127.0.0.1:1/futoin"
WRONG_ARGUMENTS: list[tuple[Any, Any, str]] = [
    (Generator, None, "invalid url None: use a value of type str"),
    (lambda want: PollClient(URL, "a", want=want), 7, "invalid want 7: use a list of event types"),
    (lambda want: PollClient(URL, "a", want=want), "DEMO", "invalid want 'DEMO': use a list of event types"),
    (lambda handle: ReliableReceiver(URL, "a", handle), None, "invalid handle None: use a function"),
    (lambda handle: LiveReceiver(URL, handle), 7, "invalid handle 7: use a function"),
    (lambda handle: PushClient(URL, "a", handle), 7, "invalid handle 7: use a function"),
    (lambda position: ReliableReceiver(URL, "a", print, position=position), "a.id", "with a method load"),
    *(
        (lambda last: asyncio.run(PollClient(URL, "a").poll(last)), last, "invalid last_id .*: use an event id")
        for last in (0, -1, 10**18, "x", "05", 1.5, True, b"7")
    ),
]


@pytest.mark.parametrize(("call", "argument", "message"), WRONG_ARGUMENTS)
def test_wrong_arguments_are_named_at_once(call: Callable[[Any], object], argument: object, message: str) -> None:
    """A receiver without a function would ask for the same events for ever."""
    with pytest.raises(BadArgument, match=message):
        call(argument)


def test_server_that_is_away_is_named() -> None:
    """The error says which server, and why."""

    async def ping() -> None:
        async with Generator("ws://127.0.0.1:1/futoin") as generator:
            await generator.ping()

    with pytest.raises(StoreUnreachable, match=r"ws://127\.0\.0\.1:1/futoin"):
        asyncio.run(ping())


def test_polls_become_rarer_while_no_events_come(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specification leaves that to consumers: a loop of empty polls would only cost."""
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)
        if len(delays) == 3:
            await add(url, range(1))
        if len(delays) == 12:
            raise asyncio.CancelledError

    async def run() -> None:
        async with PollClient(url, "billing") as client:
            await client.register()
            async for event in client.events():
                assert event.type == "EVEN"

    monkeypatch.setattr(_clients, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert delays[:3] == [0.05, 0.1, 0.2]
    assert min(delays[4:6]) < 0.2, "an event makes it quick again"
    assert delays[-1] == 5.0
