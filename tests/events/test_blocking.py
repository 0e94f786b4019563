"""The blocking forms of the clients, over a real server."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, FutoinError, StoreClosed
from penstock.events import Event, Generator, PositionFile
from penstock.events.blocking import (
    BlockingGenerator,
    BlockingLiveReceiver,
    BlockingPollClient,
    BlockingReliableReceiver,
)
from tests.events.wire import LONG_S

if TYPE_CHECKING:
    from pathlib import Path


def test_program_without_an_event_loop_adds_and_polls(url: str) -> None:
    """Scripts and threads need no asyncio; several threads share one connection."""
    with BlockingGenerator(url) as generator, BlockingPollClient(url, "billing") as client:
        client.register()
        assert generator.ping(7) == 7
        with ThreadPoolExecutor(4) as threads:
            ids = list(threads.map(lambda n: generator.add_event("TEST", {"n": n}), range(50)))
        assert sorted(int(event.id) for event in client.poll()) == sorted(ids)
        assert [int(event.id) for event in islice(client.events(), 50)] == sorted(ids)
        assert client.poll(max(ids)) == []


def test_errors_are_those_of_the_other_clients(url: str) -> None:
    """A caller handles the same ones."""
    with BlockingGenerator(url) as generator:
        with pytest.raises(BadArgument, match="invalid event"):
            generator.add_event("lower case", 1)
        generator.add_event("A", 1)
    with BlockingPollClient(url, "billing") as client, pytest.raises(FutoinError, match="NotRegistered"):
        client.poll()


def test_closed_client_leaves_no_thread(url: str) -> None:
    """Neither does one that was never opened, because its arguments were wrong; closing twice is no error."""
    with BlockingGenerator(url) as generator:
        generator.ping()
    generator.close()
    with pytest.raises(BadArgument):
        BlockingGenerator("http://127.0.0.1/futoin")
    assert "penstock-events" not in {thread.name for thread in threading.enumerate()}


def test_receiver_of_a_program_without_an_event_loop_may_block(url: str, tmp_path: Path) -> None:
    """A function that waits holds up no connection; what it was given before ``stop`` is noted."""
    got: list[Event] = []

    def handle(events: list[Event]) -> None:
        with BlockingGenerator(url) as other:  # which blocks, and needs the server meanwhile
            other.ping()
        got.extend(events)
        if len(got) >= 3:
            receiver.stop()

    position = PositionFile(tmp_path / "position")
    with (
        BlockingGenerator(url) as generator,
        BlockingReliableReceiver(url, "billing", handle, position=position) as receiver,
    ):
        ids = [generator.add_event("TEST", n) for n in range(3)]
        receiver.run()
        assert [event.data for event in got] == [0, 1, 2]
        assert position.load() == receiver.last_id == ids[-1]
        ids.append(generator.add_event("TEST", 3))
        receiver.run()
        assert [event.data for event in got] == [0, 1, 2, 3]


def test_live_receiver_ends_when_it_is_stopped_or_closed(url: str) -> None:
    """From another thread, or by leaving its block: both must not wait for an event."""
    got: list[Event] = []
    with BlockingLiveReceiver(url, got.extend) as receiver, BlockingGenerator(url) as generator:
        generator.add_event("TEST", 0)  # which creates the stream
        thread = threading.Thread(target=receiver.run)
        thread.start()
        while not got:
            generator.add_event("TEST", 1)
        receiver.stop()
        thread.join(LONG_S)
        assert not thread.is_alive()
        assert receiver.missed == 0
        thread, count = threading.Thread(target=receiver.run), len(got)
        thread.start()
        while len(got) == count:
            generator.add_event("TEST", 1)
    thread.join(LONG_S)
    assert not thread.is_alive()
    receiver.stop()
    with pytest.raises(StoreClosed, match="the client is closed"):
        receiver.run()


def test_error_of_a_receiver_is_raised_in_the_thread_that_runs_it(url: str) -> None:
    """Not in a thread that has no caller."""
    with BlockingReliableReceiver(f"{url}/no/such", "billing", print) as receiver, pytest.raises(FutoinError):
        receiver.run()


@pytest.mark.filterwarnings("error")
def test_closed_client_says_so(url: str) -> None:
    """The error names the mistake, with and without an event loop."""
    generator = BlockingGenerator(url)
    generator.close()
    with pytest.raises(StoreClosed, match="the client is closed"):
        generator.ping()

    async def run() -> None:
        async with Generator(url) as closed:
            await closed.ping()
        with pytest.raises(StoreClosed, match="the client is closed"):
            await closed.add_event("A", 1)

    asyncio.run(run())


def test_function_that_could_not_be_called_is_refused_at_once() -> None:
    """Events whose coroutine was never awaited would count as processed."""

    async def handle(events: list[Event]) -> None:
        raise AssertionError(events)

    for wrong, message in (
        (handle, "a coroutine function is for ReliableReceiver; use a plain one here"),
        (None, "use a function"),
    ):
        with pytest.raises(BadArgument, match=message):
            BlockingReliableReceiver("ws://127.0.0.1:1/futoin", "a", wrong)  # type: ignore[arg-type]
        with pytest.raises(BadArgument, match=message):
            BlockingLiveReceiver("ws://127.0.0.1:1/futoin", wrong)  # type: ignore[arg-type]
