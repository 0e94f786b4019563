"""Times of FutoIn events become watermarks of a stream, if its tags say so."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import penstock
from penstock.events import Generator, PollClient
from penstock.model import Fixed, StreamConfig

if TYPE_CHECKING:
    from penstock import Store
    from penstock.events import Event
    from penstock.server import Server


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
