"""Times of FutoIn events become watermarks of a stream, if its tags say so."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.embedded import open_store
from penstock.events import Generator, PollClient, StoreEvents
from penstock.events._adding import Adder
from penstock.model import Fixed, StreamConfig
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store
    from penstock.events import Event
    from penstock.server import Server
    from penstock.stream import Engine


async def _add_until(store: Store, stream: str, url: str) -> None:
    """Add events until the stream has two watermarks."""
    async with Generator(url) as generator:
        while len(await asyncio.to_thread(store.watermarks, stream)) < 2:
            await generator.add_event("A", None)


async def _all(url: str) -> list[Event]:
    found: list[Event] = []
    async with PollClient(url, "LIVE") as client:
        while events := await client.poll(int(found[-1].id) if found else None):
            found += events
    return found


def _ms(event: Event) -> int:
    return int(datetime.fromisoformat(event.ts).timestamp() * 1000)


def test_no_event_behind_a_watermark_has_an_earlier_time(server: Server) -> None:
    """Windows that Spark closes by it are complete; without the tag, a stream has no watermarks."""
    config = StreamConfig(scaling=Fixed(1), tags=("futoin-time",))
    with penstock.connect(f"penstock://127.0.0.1:{server.port}") as store:
        store.create_stream("shop/timed", config=config)
        store.create_stream("shop/plain")
        url = f"ws://127.0.0.1:{server.http_port}/futoin/shop/"
        asyncio.run(_add_until(store, "shop/timed", f"{url}timed"))
        marks = store.watermarks("shop/timed")
        events = asyncio.run(_all(f"{url}timed"))
        assert [_ms(event) for event in events] == sorted(map(_ms, events))
        for mark in marks:
            behind = [_ms(event) for event in events if int(event.id) > mark.cut.offsets[0]]
            assert all(time > mark.lower for time in behind)
        assert marks[-1].lower > _ms(events[0]) - 1_000
        assert store.watermarks("shop/plain") == []


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["mark", "watermark"])
def test_times_do_not_go_back_when_the_clock_does(tmp_path: Path, is_forgotten: bool) -> None:
    """Events that come after a restart would lie before a watermark; other streams have the time of the clock."""
    config = StreamConfig(scaling=Fixed(1), tags=("futoin-time",))
    clock = ManualClock()
    noted: list[int] = []

    async def add(store: Engine, *streams: str) -> None:
        adder = Adder(store, now=clock.now)
        for stream in streams:
            await adder.add(stream, "A", None)
        for writer, time_ms in adder.times():
            writer.note_time(time_ms)
            noted.append(time_ms)
        await asyncio.to_thread(adder.close)

    with open_store(tmp_path, clock=clock, maintenance_interval_s=3600) as store:
        store.create_stream("shop/timed", config=config)
        store.create_stream("shop/plain")
        asyncio.run(add(store, "shop/timed"))
        for seconds in (0, 4_000, 4_000):
            clock.advance(seconds if is_forgotten else 0)
            store.maintenance.run_once()
        assert bool(store.watermark("shop/timed")) == is_forgotten
    clock.advance(-86_400)
    with open_store(tmp_path, clock=clock, maintenance_interval_s=3600) as store:
        asyncio.run(add(store, "shop/timed", "shop/plain"))
        timed, plain = (StoreEvents(store, stream).page(0).events[-1].ts for stream in ("shop/timed", "shop/plain"))
        assert noted[0] < int(datetime.fromisoformat(timed).timestamp() * 1000) < noted[0] + 1_001
        assert datetime.fromisoformat(plain).timestamp() == int(clock.now())
