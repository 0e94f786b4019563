"""The Python clients against the server of the reference implementation, on SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

import pytest

from penstock.errors import FutoinError
from penstock.events import Event, Generator, LiveReceiver, PollClient, PositionFile, ReliableReceiver
from tests.events.javascript import PACKAGES, Reference
from tests.events.tasks import ended, until
from tests.events.test_clients import numbers_of
from tests.server.apart import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANNA = {"user": "anna", "password": "secret"}


@pytest.fixture
def url(node: Reference, tmp_path: Path) -> Iterator[str]:
    """The address of a reference server with a user."""
    tables = PACKAGES / "futoin-eventstream/sql/active/sqlite/V18.1__Tables.sql"
    with sqlite3.connect(tmp_path / "events.db") as database:
        database.executescript(tables.read_text())
    database.close()
    port = free_port()
    config = {"DB_EVT_TYPE": "sqlite", "DB_EVT_SOCKET": str(tmp_path / "events.db")}
    with node.server(port, config, anna="secret"):
        yield f"ws://127.0.0.1:{port}/futoin"


def test_events_are_added_and_polled(url: str) -> None:
    """The ids are those of the server, and its errors have their names."""

    async def run() -> None:
        async with Generator(url, **ANNA) as generator, PollClient(url, "billing", **ANNA) as client:
            assert await generator.ping(7) == 7
            with pytest.raises(FutoinError) as refusal:
                await client.poll()
            assert refusal.value.name == "NotRegistered"
            await client.register()
            ids = [await generator.add_event("TEST", {"n": n}) for n in range(150)]
            found: list[Event] = []
            while part := await client.poll(int(found[-1].id) if found else None):
                found += part
            assert [int(event.id) for event in found] == ids
            assert numbers_of(found) == list(range(150))
        async with Generator(url, user="anna", password="wrong") as generator:
            with pytest.raises(FutoinError) as refusal:
                await generator.add_event("TEST", 1)
            assert refusal.value.name == "SecurityError"

    asyncio.run(run())


def test_receivers_get_what_is_pushed(url: str, tmp_path: Path) -> None:
    """The reliable one from the oldest event on, the live one what happens now."""

    async def run() -> None:
        got: list[Event] = []
        live: list[Event] = []
        position = PositionFile(tmp_path / "position")
        async with Generator(url, **ANNA) as generator:
            for n in range(20):
                await generator.add_event("TEST", {"n": n})
            reliable = ReliableReceiver(url, "billing", got.extend, position=position, **ANNA)
            tasks = [asyncio.create_task(reliable.run())]
            tasks.append(asyncio.create_task(LiveReceiver(url, live.extend, **ANNA).run()))
            await until(lambda: len(got) >= 20, tasks[0])
            n = 20
            while not live or len(got) < n:
                await generator.add_event("TEST", {"n": n})
                n += 1
                await until(lambda count=n: len(got) >= count, tasks[0])  # type: ignore[misc]
        for task in tasks:
            await ended(task)
        assert numbers_of(got) == list(range(n))
        assert position.load() == int(got[-1].id)
        assert set(numbers_of(live)) <= set(range(20, n))

    asyncio.run(run())
