"""The asynchronous reader: events one by one and in batches, waiting without a thread, and cancelled at any moment."""

from __future__ import annotations

import asyncio
import random
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import EventRead, aio
from penstock.aio import AsyncStore, _reader
from penstock.aio._threads import Threads
from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    CheckpointFailed,
    EventTooLarge,
    PenstockError,
    ReaderBusy,
    ReaderOffline,
    WrongEventLoop,
)
from penstock.stream.read import READER_LEASE_S
from penstock.testing import ManualClock
from tests.aio.harness import KINDS, STREAM, Gate, all_events, cancelled, opened, run, settle
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


async def write(store: aio.AsyncStore, events: Sequence[bytes], *, blocks: int = 1) -> None:
    """Write events, in so many blocks."""
    async with store.writer(STREAM) as writer:
        for part in range(blocks):
            first, last = (len(events) * place // blocks for place in (part, part + 1))
            await (await writer.write_batch(list(events[first:last])))


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_events_come_one_by_one_until_the_stream_ends(kind: str, tmp_path: Path) -> None:
    """``async for`` is how a consumer is written; it ends where the group does, and knows where each event is."""

    async def main() -> None:
        async with opened(kind, tmp_path) as store:
            await write(store, numbered(5000))
            await store.seal_stream(STREAM)
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                reads = [read async for read in reader]
                assert [read.event for read in reads] == numbered(5000)
                assert reads[7].pointer is not None
                assert await store.fetch_event(reads[7].pointer) == b"7"
                assert await reader.finished()
                assert await reader.read_next_event() is None
                assert await reader.read_batch() is None
            assert await group.finished()

    run(main())


@pytest.mark.parametrize("segments", [1, 3])
def test_blocks_of_one_event_are_read_without_a_thread_for_each(segments: int, tmp_path: Path) -> None:
    """A service that answers when an event is durable writes such blocks; some hold none, or one that is too large."""
    count = 400

    async def main() -> None:
        async with aio.connect(tmp_path) as store:
            await store.create_stream(STREAM, segments=segments)
            async with store.writer(STREAM, "w") as writer:
                for number in range(count):
                    size = 20 if number == 100 else 3 << 19 if number == 200 else 0
                    await (await writer.write_event(b"%d " % number + bytes(size), str(number % 7)))
                end = await store.tail(STREAM)
                await (await writer.write_batch([b"behind"] * 20))
            group = await store.create_reader_group("g", [STREAM], end=end)
            async with group.reader("r", max_event_size=10) as reader:
                inner: Any = reader._inner
                poll, polls, found, too_large = inner.poll, 0, [], 0

                def counted(read: Any) -> Any:  # noqa: ANN401 - as poll() takes it
                    nonlocal polls
                    polls += 1
                    return poll(read)

                inner.poll = counted
                while not await reader.finished():
                    try:
                        async for read in reader:
                            found.append(int(read.event))  # noqa: PERF401 - an error ends the loop, and not the list
                    except EventTooLarge:
                        too_large += 1
            assert sorted(found) == [number for number in range(count) if number not in {100, 200}]
            assert [n for n in found if n % 7 == 3] == sorted(n for n in found if n % 7 == 3)
            assert too_large == 2
            assert polls < count / 8

    run(main())


def test_blocks_of_one_event_come_in_order_and_count_as_read_one_by_one(tmp_path: Path) -> None:
    """Blocks that were read ahead are not read yet: the next reader begins where this one has stopped."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(300), blocks=300)
            group = await store.create_reader_group("g", [STREAM])
            found: list[bytes] = []
            for count in (1, 70, 3, 100, 126):
                async with group.reader("r") as reader:
                    reads = [await reader.read_next_event() for _ in range(count)]
                    found += [read.event for read in reads if read is not None]
                    last = reads[-1]
                    assert last is not None
                    assert await group.position() == last.position.cuts
            assert found == numbered(300)

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_that_waits_is_woken_by_an_event_and_takes_no_thread(kind: str, tmp_path: Path) -> None:
    """A service has a waiting reader for each of its clients: a thread for each would be too many."""

    async def main() -> None:
        async with opened(kind, tmp_path) as store, store.writer(STREAM) as writer:
            groups = [await store.create_reader_group(f"g{number}", [STREAM]) for number in range(40)]
            readers = [await group.reader("r") for group in groups]
            await asyncio.gather(*(reader.read_next_event(timeout=0) for reader in readers))
            before = threading.active_count()
            tasks = [asyncio.ensure_future(reader.read_next_event()) for reader in readers]
            await settle(50)
            await writer.write_event(b"1")
            reads = await asyncio.gather(*tasks)
            assert {read.event for read in reads if read is not None} == {b"1"}
            assert threading.active_count() - before <= 8
            for reader in readers:
                await reader.close()

    run(main())


def test_a_timeout_returns_none_and_the_next_call_goes_on(tmp_path: Path) -> None:
    """A timeout is no error: a consumer does other work and comes back."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                for timeout in (0, 0.001, -1):
                    assert await reader.read_next_event(timeout=timeout) is None
                    assert await reader.read_batch(timeout=timeout) is None
                    assert await reader.read_next_event_as_stream(timeout=timeout) is None
                for bad in (float("nan"), "1", True):
                    with pytest.raises(BadArgument):
                        await reader.read_next_event(timeout=bad)  # type: ignore[arg-type]
                with pytest.raises(BadArgument):
                    await reader.read_batch(max_bytes=0)
                await write(store, [b"1"])
                assert (await reader.read_next_event(timeout=float("inf"))).event == b"1"  # type: ignore[union-attr]

    run(main())


def test_the_ways_to_read_can_be_mixed(tmp_path: Path) -> None:
    """Each call goes on where the one before it ended, also within a block that an iteration is in."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(100))
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                iteration = aiter(reader)
                found = [(await anext(iteration)).event for _ in range(3)]
                found.append((await reader.read_next_event()).event)  # type: ignore[union-attr]
                file = await reader.read_next_event_as_stream()
                assert file is not None
                found.append(await file.read())
                found.append((await anext(iteration)).event)
                batch = await reader.read_batch(max_bytes=200)
                assert batch is not None
                found += batch["event"].to_pylist()
                found += [(await anext(iteration)).event for _ in range(3)]
                assert found == numbered(len(found))
                await reader.commit()
            assert [read.event for read in await _rest(store)] == numbered(100)[len(found) :]

    run(main())


async def _rest(store: aio.AsyncStore, group: str = "g") -> list[EventRead]:
    """Return what a new reader of the group gets."""
    found = []
    async with (await store.reader_group(group)).reader("next") as reader:
        while (read := await reader.read_next_event(timeout=0)) is not None:
            found.append(read)
    return found


WAYS = {
    "event": lambda reader: reader.read_next_event(),
    "batch": lambda reader: reader.read_batch(max_bytes=60),
    "stream": lambda reader: reader.read_next_event_as_stream(),
    "iteration": lambda reader: anext(aiter(reader)),
}


async def _events_of(found: Any) -> list[bytes]:  # noqa: ANN401 - of any way to read
    if isinstance(found, aio.AsyncEventInputStream):
        return [await found.read()]
    return [found.event] if isinstance(found, EventRead) else list(found["event"].to_pylist())


@pytest.mark.parametrize("moment", ["before the read", "behind the read", "with the result", "behind the result"])
@pytest.mark.parametrize("way", WAYS)
def test_an_event_that_a_cancelled_task_was_about_to_get_comes_again(way: str, moment: str, tmp_path: Path) -> None:
    """A timeout around a read is an everyday thing, and an event that is lost with it would be missed by nobody."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(20))
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                await _cancel_at(moment, reader, lambda: WAYS[way](reader))
                found: list[bytes] = []
                for next_way in ("event", "batch", "stream", "iteration", "batch"):
                    found += await _events_of(await WAYS[next_way](reader))
                assert found == numbered(len(found))
            assert [read.event for read in await _rest(store)] == numbered(20)[len(found) :]

    run(main())


async def _cancel_at(moment: str, reader: aio.AsyncReader, call: Callable[[], Any]) -> None:
    """Make a call, and cancel its task: around the read in the thread, or when its result is in the event loop."""
    inner: Any = reader._inner
    threads: Any = reader._threads
    if "read" in moment:
        gate = inner.poll = Gate(inner.poll, holds_result=moment == "behind the read")
        task = asyncio.ensure_future(call())
        await gate.reached()
        await cancelled(task)
        gate.may_go.set()
        del inner.poll
        return
    start, loop = threads.start, asyncio.get_running_loop()

    def starting(*args: Any, **options: Any) -> asyncio.Future[Any]:  # noqa: ANN401 - as start() takes them
        started: asyncio.Future[Any] = start(*args, **options)
        add = partial(started.add_done_callback, lambda _: task.cancel())
        add() if moment == "with the result" else loop.call_soon(add)  # before or behind the task's own callback
        return started

    threads.start = starting
    task = asyncio.ensure_future(call())
    await asyncio.wait({task})
    del threads.start
    assert task.cancelled()


def test_closing_does_not_count_what_a_cancelled_task_did_not_get(tmp_path: Path) -> None:
    """Otherwise the next reader would begin behind an event that no task has seen."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(3))
            group = await store.create_reader_group("g", [STREAM])
            reader = await group.reader("r")
            inner: Any = reader._inner
            gate = Gate(inner.poll, holds_result=True)
            inner.poll = gate
            task = asyncio.ensure_future(reader.read_next_event())
            await gate.reached()
            await cancelled(task)
            closing = asyncio.ensure_future(reader.close())
            gate.may_go.set()
            await closing
            assert [read.event for read in await _rest(store)] == numbered(3)

    run(main())


def test_a_reader_is_closed_although_its_task_is_cancelled_again_and_again(tmp_path: Path) -> None:
    """Web frameworks cancel a task at every wait until it ends: the reader would hold its segments until its lease."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(3))
            group = await store.create_reader_group("g", [STREAM])

            async def consume() -> None:
                async with group.reader("r") as reader:
                    inner: Any = reader._inner
                    inner.poll = gate
                    await reader.read_next_event()

            gate = Gate(lambda read: read(), holds_result=True)
            task = asyncio.ensure_future(consume())
            await gate.reached()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            gate.may_go.set()
            while await group.readers():
                await asyncio.sleep(0.001)
            assert [read.event for read in await _rest(store)] == numbered(3)

    run(main())


def test_an_error_that_a_cancelled_task_was_about_to_get_is_raised_next(tmp_path: Path) -> None:
    """An error about one event is all that a reader learns of it: it must not be lost, either."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, [b"much larger than the others", b"small"])
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r", max_event_size=10) as reader:
                inner: Any = reader._inner
                read, gate = inner.read_next_event, threading.Event()

                def failing(timeout: float | None) -> EventRead | None:
                    try:
                        return read(timeout)  # type: ignore[no-any-return]
                    finally:
                        gate.wait(10)

                inner.read_next_event = failing
                task = asyncio.ensure_future(reader.read_next_event())
                await settle()
                await cancelled(task)
                gate.set()
                del inner.read_next_event
                with pytest.raises(EventTooLarge):
                    await reader.read_next_event()
                assert (await reader.read_next_event()).event == b"small"  # type: ignore[union-attr]

    run(main())


@pytest.mark.parametrize("seed", range(examples(24)))
def test_every_event_comes_once_wherever_reads_are_cancelled(seed: int, tmp_path: Path) -> None:
    """Tasks are cancelled at random moments while events arrive, in large blocks and in small ones."""
    dice = random.Random(seed)
    count = 300

    async def produce(store: aio.AsyncStore) -> None:
        async with store.writer(STREAM) as writer:
            for number in range(count):
                await writer.write_event(b"%d" % number, "k")
                if dice.random() < 0.1:
                    await writer.flush()

    async def main() -> None:
        found: list[bytes] = []
        async with opened(KINDS[seed % 3], tmp_path) as store:
            group = await store.create_reader_group("g", [STREAM])
            producer = asyncio.ensure_future(produce(store))
            while len(found) < count:  # with a new reader now and then
                async with group.reader("r") as reader:
                    for _ in range(100):
                        task = asyncio.ensure_future(WAYS[dice.choice(list(WAYS))](reader))
                        if dice.random() < 0.5:
                            await settle(dice.randrange(12))
                            task.cancel()
                        else:
                            await asyncio.wait({task}, timeout=0.01)
                            task.cancel()
                        await asyncio.wait({task})
                        if not task.cancelled():
                            found += await _events_of(task.result())
            await producer
            assert found == numbered(count)

    run(main())


def test_an_iteration_goes_on_after_it_was_cancelled(tmp_path: Path) -> None:
    """A generator would be over then, which looks like the end of the stream."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                iteration = aiter(reader)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await anext(iteration)
                await write(store, numbered(2))
                assert [(await anext(iteration)).event for _ in range(2)] == numbered(2)

    run(main())


def test_a_second_task_that_reads_is_refused(tmp_path: Path) -> None:
    """An event counts as read when the next one is asked for: two tasks would count each other's."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                task = asyncio.ensure_future(reader.read_next_event())
                await settle()
                for call in (reader.read_next_event(), reader.read_batch(), anext(aiter(reader))):
                    with pytest.raises(ReaderBusy, match="'r'"):
                        await call
                await reader.commit()  # which another task may do
                assert await reader.current_time_window() is None
                await write(store, [b"1"])
                assert await task is not None

    run(main())


def test_a_task_that_waits_finds_out_that_the_reader_was_closed(tmp_path: Path) -> None:
    """It would wait for ever otherwise, for a reader that gets nothing any more."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            group = await store.create_reader_group("g", [STREAM])
            for end in (lambda r: r.close(), lambda _: group.reader_offline("r"), lambda _: store.close()):
                reader = await group.reader("r")
                task = asyncio.ensure_future(reader.read_next_event())
                await settle(20)
                await end(reader)
                async with asyncio.timeout(3):
                    await asyncio.wait({task})
                assert isinstance(task.exception(), PenstockError)

    run(main())


def test_a_reader_that_waits_for_longer_than_its_lease_stays_a_member(tmp_path: Path) -> None:
    """A reader of a quiet stream must not lose its segments to the next one that joins."""
    clock = ManualClock()

    async def main() -> None:
        async with AsyncStore(open_store(tmp_path, clock=clock), Threads()) as store:
            await store.create_stream(STREAM)
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                assert await reader.read_next_event(timeout=0.001) is None
                task = asyncio.ensure_future(reader.read_next_event(timeout=1000))
                while not reader._inner.pause_s > 0.1:
                    await asyncio.sleep(0.001)
                assert reader._inner.pause_s <= READER_LEASE_S / 2
                for _ in range(5):
                    clock.advance(20)
                    reader._inner.wake_up.notify()  # as its pause ends, which is a fraction of the lease
                    await asyncio.sleep(0.01)
                async with group.reader("s"):
                    assert sorted(await group.readers()) == ["r", "s"]
                await write(store, [b"1"])
                assert await task is not None

    run(main())


def test_a_reader_is_kept_alive_while_its_task_works_on_an_event(tmp_path: Path) -> None:
    """A request to another service that takes a minute must not cost the reader its segments."""
    clock = ManualClock()

    async def main() -> None:
        async with AsyncStore(open_store(tmp_path, clock=clock), Threads()) as store:
            await store.create_stream(STREAM)
            await write(store, [b"a"])
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r1") as first, group.reader("r2") as second:
                assert await first.read_next_event() is not None
                with first.keep_alive():
                    for _ in range(3):
                        clock.advance(READER_LEASE_S)
                        assert await second.read_next_event(timeout=0) is None
                await first.commit()
            with pytest.raises(WrongEventLoop):
                await asyncio.to_thread(first.keep_alive)

    run(main())


def test_a_checkpoint_is_reached_by_readers_of_the_same_loop(tmp_path: Path) -> None:
    """The call waits for the readers, and they need the loop: neither may stop the other."""

    async def consume(reader: aio.AsyncReader, found: list[Any]) -> None:
        async for read in reader:
            found.append(read.checkpoint or read.event)  # noqa: PERF401 - seen by the test meanwhile

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(3))
            group = await store.create_reader_group("g", [STREAM])
            with pytest.raises(CheckpointFailed):
                async with group.reader("idle"):
                    await group.checkpoint("none", timeout=0.01)
            async with group.reader("r") as reader:
                found: list[Any] = []
                task = asyncio.ensure_future(consume(reader, found))
                checkpoint = await group.checkpoint("first")
                await write(store, [b"3"])
                while b"3" not in found:
                    await asyncio.sleep(0.001)
                await cancelled(task)
                assert [event for event in found if event != "first"] == numbered(4)
                assert found.count("first") == 1
            assert list(await group.checkpoints()) == ["first"]
            assert (await group.lag()).events == 0
            await group.reset(checkpoint)
            assert len(await group.position()) == 1
            assert await group.streams() == (STREAM,)
            await group.delete()
            assert await store.reader_groups() == []

    run(main())


def test_a_task_that_reads_much_lets_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has a hundred thousand small events: other tasks must not wait for all of them."""
    monkeypatch.setattr(_reader, "_TURN_EVENTS", 10)

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(1000))
            await store.seal_stream(STREAM)
            group = await store.create_reader_group("g", [STREAM])
            turns, is_over = 0, False

            async def count() -> None:
                nonlocal turns
                while not is_over:
                    turns += 1
                    await asyncio.sleep(0)

            counter = asyncio.ensure_future(count())
            async with group.reader("r") as reader:
                found = [read.event async for read in reader]
            is_over = True
            await counter
            assert found == numbered(1000)
            assert turns > 90

    run(main())


class Numbers:
    def serialize(self, value: int) -> bytes:
        return str(value).encode()

    def deserialize(self, data: bytes) -> int:
        return int(data)


def test_an_event_that_the_serializer_refuses_is_skipped_by_the_next_call(tmp_path: Path) -> None:
    """One broken event must not stop a consumer for ever, nor take the events behind it along."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, [b"0", b"broken", b"2", b"broken", b"broken", b"5"])
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r", serializer=Numbers()) as reader:
                found: list[Any] = []
                while len(found) < 6:
                    try:
                        async for read in reader:
                            found.append(read.event)
                            if len(found) == 6:
                                break
                    except ValueError:
                        found.append(None)
                assert found == [0, None, 2, None, None, 5]

    run(main())


@pytest.mark.parametrize("is_error", [False, True])
def test_what_was_returned_last_counts_unless_the_block_ends_with_an_error(is_error: bool, tmp_path: Path) -> None:
    """A consumer that is cancelled while it works on an event gets that event again."""

    async def consume(group: aio.AsyncReaderGroup) -> None:
        async with group.reader("r") as reader:
            await reader.read_next_event()
            await reader.read_next_event()
            if is_error:
                await asyncio.Event().wait()

    async def main() -> None:
        async with opened("remote", tmp_path) as store:
            await write(store, numbered(4))
            task = asyncio.ensure_future(consume(await store.create_reader_group("g", [STREAM])))
            await asyncio.wait({task}, timeout=0.2 if is_error else None)
            task.cancel()
            await asyncio.wait({task})
            assert [read.event for read in await _rest(store)] == numbered(4)[1 if is_error else 2 :]

    run(main())


def test_two_readers_of_a_group_in_one_loop_share_the_segments(tmp_path: Path) -> None:
    """Tasks divide the work of a stream as processes do."""

    async def consume(reader: aio.AsyncReader, found: list[bytes]) -> None:
        async for read in reader:
            found.append(read.event)  # noqa: PERF401 - seen by the test meanwhile

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await store.scale_stream(STREAM, seal=[0], ranges=[(0.0, 0.5), (0.5, 1.0)])
            group = await store.create_reader_group("g", [STREAM])
            parts: list[list[bytes]] = [[], []]
            async with group.reader("a") as first, group.reader("b") as second:
                tasks = [
                    asyncio.ensure_future(consume(first, parts[0])),
                    asyncio.ensure_future(consume(second, parts[1])),
                ]
                async with store.writer(STREAM) as writer:
                    for number in range(200):
                        await writer.write_event(b"%d" % number, str(number))
                await store.seal_stream(STREAM)
                await asyncio.wait(tasks)
            assert sorted(map(int, parts[0] + parts[1])) == list(range(200))
            assert all(parts)

    run(main())


def test_a_reader_that_a_cancelled_task_was_opening_is_closed(tmp_path: Path) -> None:
    """It would hold segments that no task reads, until its lease is over."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            group = await store.create_reader_group("g", [STREAM])
            inner: Any = group._inner
            gate = Gate(inner.reader, holds_result=True)
            inner.reader = gate
            task = asyncio.ensure_future(_awaited(group.reader("r")))
            await gate.reached()
            await cancelled(task)
            gate.may_go.set()
            while await group.readers():
                await asyncio.sleep(0.001)

    run(main())


async def _awaited(opening: Any) -> Any:  # noqa: ANN401 - what is opened
    return await opening


def test_an_owner_that_ends_is_followed_by_the_next_one(tmp_path: Path) -> None:
    """Another process takes the folder over; readers and writers of this loop go on."""

    async def main() -> None:
        owner = await asyncio.to_thread(penstock.connect, tmp_path)
        async with aio.connect(tmp_path) as store:
            await store.create_stream(STREAM)
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader, store.writer(STREAM, "w") as writer:
                await writer.write_event(b"1")
                assert (await reader.read_next_event()).event == b"1"  # type: ignore[union-attr]
                task = asyncio.ensure_future(reader.read_next_event())
                await settle(20)
                await asyncio.to_thread(owner.close)
                await (await writer.write_event(b"2"))
                assert (await task).event == b"2"  # type: ignore[union-attr]
            assert await all_events(store) == [b"1", b"2"]

    run(main())


def test_a_group_that_is_reset_ends_its_readers(tmp_path: Path) -> None:
    """The error says so, also to a task that has events at hand."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            await write(store, numbered(10))
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                assert await reader.read_next_event() is not None
                await group.reset("head")
                for call in (reader.read_next_event, partial(anext, aiter(reader))):
                    with pytest.raises(ReaderOffline):
                        await call()

    run(main())
