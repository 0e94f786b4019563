"""The blocking forms of the clients, over a real server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from penstock.errors import BadArgument, FutoinError
from penstock.events.blocking import BlockingGenerator, BlockingPollClient


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
