"""What reading costs: receivers share it, and a poll does not pay for the history before it."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from penstock.embedded import open_store
from penstock.events._event_log import EventLog
from penstock.events._feed import Group
from penstock.events._store_events import packed_event
from penstock.events.serving import EventService, Peer
from penstock.model import Fixed, StreamConfig
from penstock.stream.segment import Segment
from tests.events.test_delivery_model import CALLER, STREAM, anybody, called
from tests.events.wire import LONG_S, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine

EVENTS = 2_500


@pytest.fixture
def store() -> Iterator[Engine]:
    """A store that keeps everything."""
    with open_store("memory:") as store:
        yield store


def write(store: Engine, stream: str, events: int, *, at_once: int) -> None:
    """Write events, so many into each block."""
    with store.writer(stream) as writer:
        for _ in range(0, events, at_once):
            writer.write_batch([packed_event("A", None)] * at_once)
            writer.flush()


@pytest.mark.parametrize("receivers", [1, 50])
def test_receivers_share_the_reads_of_history_and_of_new_events(
    store: Engine, monkeypatch: pytest.MonkeyPatch, receivers: int
) -> None:
    """Hundreds of them would read, and decode, every event hundreds of times."""
    reads, page = list[int](), EventLog.page

    def counted(log: EventLog, after: int, **options: Any) -> Any:  # noqa: ANN401 - what page() takes
        reads.append(after)
        return page(log, after, **options)

    monkeypatch.setattr(EventLog, "page", counted)
    store.create_stream(STREAM, config=StreamConfig(scaling=Fixed(1)))
    write(store, STREAM, EVENTS, at_once=EVENTS)

    async def run() -> None:
        service = EventService(store, own_stream=STREAM)
        counts, peers = [0] * receivers, list[Peer]()

        async def send(data: bytes, is_text: bool, *, number: int) -> None:
            message = json.loads(data)
            if "f" in message:
                counts[number] += len(message["p"]["events"])
                answer = json.dumps({"r": True, "rid": message["rid"]}).encode()
                asyncio.get_running_loop().create_task(peers[number].receive(answer, is_text=is_text))

        async def received(events: int) -> None:
            async with asyncio.timeout(LONG_S):
                while min(counts) < events:
                    await asyncio.sleep(0.001)

        for number in range(receivers):
            await service.call(called("evt.poll:1.1:registerConsumer", component=f"c{number}"), CALLER, STREAM)
            peers.append(Peer(service, STREAM, anybody, partial(send, number=number)))
        ready = [message_of("evt.push:1.1:readyToReceive", component=f"c{number}") for number in range(receivers)]
        for peer, message in zip(peers, ready, strict=True):
            await peer.receive(json.dumps(message).encode(), is_text=True)
        await received(EVENTS)
        history = len(reads)
        await asyncio.to_thread(write, store, STREAM, EVENTS, at_once=EVENTS)
        await received(2 * EVENTS)
        assert counts == [2 * EVENTS] * receivers
        for peer in peers:
            await peer.close()
        await service.close()
        assert history == 3  # pages of 1,000 events
        assert len(reads) - history <= 4  # some events may be there before the others

    asyncio.run(run())


def test_poll_reads_as_much_of_a_long_history_as_of_a_short_one(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it finds events or none; a stream may be years long."""
    blocks, read = list[int](), Segment.blocks

    def counted(segment: Segment, offset: int, **options: Any) -> Iterator[Any]:  # noqa: ANN401 - what blocks() takes
        for block in read(segment, offset, **options):
            blocks.append(block.start)
            yield block

    monkeypatch.setattr(Segment, "blocks", counted)
    costs: dict[int, list[int]] = {}
    for length in (100, 1_000):
        stream = f"plant/e{length}"
        store.create_stream(stream, config=StreamConfig(scaling=Fixed(1)))
        write(store, stream, 10 * length, at_once=10)
        log = EventLog(store, stream)
        block = log.tail // length
        for after in (log.tail, log.tail - 3 * block, log.tail - 3 * block + 1):
            before = len(blocks)
            log.page(after)
            costs.setdefault(length, []).append(len(blocks) - before)
    assert costs[100] == costs[1_000]
    assert max(costs[100]) < 20


def test_id_that_no_event_has_is_read_behind_at_once(store: Engine) -> None:
    """A consumer that makes one up would be read from the beginning of a block, and get nothing of a large one."""
    store.create_stream(STREAM, config=StreamConfig(scaling=Fixed(1)))
    write(store, STREAM, EVENTS, at_once=EVENTS)
    log = EventLog(store, STREAM)
    first = log.page(0)
    ids = [int(event.id) for page in (first, log.page(first.end)) for event in page.events]
    for index in (1, 1_000, 1_500, 1_999):
        for after in (ids[index] - 1, ids[index - 1] + 1):
            assert int(log.page(after).events[0].id) == ids[index]


def test_only_the_newest_events_are_kept_as_each_receiver_wants_them(store: Engine) -> None:
    """Fifteen receivers, each with types of its own, took 220 MiB of a server for one stream."""
    store.create_stream(STREAM, config=StreamConfig(scaling=Fixed(1)))

    async def run() -> None:
        service = EventService(store, own_stream=STREAM)
        feed, want, groups = service.join(STREAM), frozenset({"A", "B"}), list[Group]()
        for _ in range(6):
            write(store, STREAM, 1, at_once=1)
            groups.append(await feed.after(feed.end))
        oldest, newest = groups[0], groups[-1]
        shared = {
            (group is newest, types): group.wanted(types, 0)[1] is group.wanted(types, 0)[1]
            for group in (oldest, newest)
            for types in (None, want)
        }
        assert shared == {(True, None): True, (True, want): True, (False, None): True, (False, want): False}
        service.leave(feed)
        await service.close()

    asyncio.run(run())
