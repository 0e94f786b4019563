"""The asynchronous writer: acknowledgements, back-pressure, order, and tasks that are cancelled at any moment."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import aio
from penstock.client._writer import _RemoteLane
from penstock.errors import BadArgument, StoreClosed, StreamSealed, WriterFenced
from penstock.stream.write import BUFFER_SIZE
from tests.aio.harness import KINDS, STREAM, Gate, all_events, cancelled, opened, run, settle
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", KINDS)
def test_an_awaited_acknowledgement_is_the_pointer_of_a_durable_event(kind: str, tmp_path: Path) -> None:
    """That is what a service waits for before it answers."""

    async def main() -> None:
        async with opened(kind, tmp_path) as store, store.writer(STREAM) as writer:
            ack = await writer.write_event(b"1", "sensor-7", headers={"trace": b"t"})
            pointer = await ack
            assert pointer is not None
            assert (ack.done(), await ack, writer.stream, writer.writer_id) == (True, pointer, STREAM, None)
            assert await store.fetch_event(pointer) == b"1"
            [batch] = [batch async for batch in store.read(STREAM)]
            assert (batch["key"][0].as_py(), batch["headers"][0].as_py()) == (b"sensor-7", [("trace", b"t")])

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_one_task_writes_many_events_before_it_awaits_the_first(kind: str, tmp_path: Path) -> None:
    """Waiting for each event would make a loop as slow as the disk; order is that of the calls."""
    events = [b"%d" % number for number in range(3000)]

    async def main() -> None:
        async with opened(kind, tmp_path) as store, store.writer(STREAM) as writer:
            acks = [await writer.write_event(event, "k") for event in events]
            pointers = [await ack for ack in acks]
            assert [pointer.offset for pointer in pointers if pointer] == sorted({p.offset for p in pointers if p})
            assert await all_events(store) == events

    run(main())


def test_tasks_that_wait_at_the_same_time_share_flushes(tmp_path: Path) -> None:
    """A thread, or a sync, for each of a thousand requests would be the bottleneck of a service."""
    count = 1000

    async def write(writer: aio.AsyncStreamWriter, number: int) -> None:
        assert await (await writer.write_event(b"%d" % number)) is not None

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            flushes: list[int] = []
            ready: Any = writer._flushes._writer
            flush_for = ready.flush_for

            def counted(acks: list[Any]) -> None:
                flushes.append(len(acks))
                flush_for(acks)

            ready.flush_for = counted
            before = threading.active_count()
            await asyncio.gather(*(write(writer, number) for number in range(count)))
            assert threading.active_count() - before <= 2
            assert len(flushes) < 20
            assert await all_events(store) == [b"%d" % number for number in range(count)]

    run(main())


def test_a_full_buffer_holds_back_tasks_in_their_order(tmp_path: Path) -> None:
    """Memory is bounded however quickly tasks write, and no event overtakes one that came first."""
    size, count = BUFFER_SIZE // 10, 40

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            flusher = writer._inner._flusher
            written: list[int] = []

            async def write(number: int) -> None:
                await writer.write_event(b"%03d" % number + bytes(size), "k")
                written.append(number)

            flusher.flush_lock.acquire()  # the disk takes long
            tasks = [asyncio.ensure_future(write(number)) for number in range(count)]
            await settle()
            waiting = len(written)
            assert waiting < 13
            assert flusher.lanes.size < BUFFER_SIZE + size + 1000
            for task in tasks[20:25]:
                task.cancel()
            flusher.flush_lock.release()
            await asyncio.wait(tasks)
            kept = [number for number in range(count) if not 20 <= number < 25]
            assert written == kept
        async with aio.connect(tmp_path) as store:
            assert [int(event[:3]) for event in await all_events(store)] == kept

    run(main())


def test_no_event_overtakes_one_whose_task_waits_for_space(tmp_path: Path) -> None:
    """The buffer may be empty again before the loop gives the waiting task its turn, and another task comes first."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            flusher = writer._inner._flusher
            flusher.flush_lock.acquire()
            for _ in range(12):
                await writer.write_event(bytes(BUFFER_SIZE // 10), "k")
                if flusher.lanes.size > BUFFER_SIZE:
                    break
            first = asyncio.ensure_future(writer.write_event(b"first", "k"))
            await settle()
            assert not first.done()
            flusher.flush()  # the loop does not run meanwhile
            flusher.flush_lock.release()
            await writer.write_event(b"second", "k")
            await first
            await writer.flush()
            assert (await all_events(store))[-2:] == [b"first", b"second"]

    run(main())


def test_a_cancelled_task_passes_its_turn_on(tmp_path: Path) -> None:
    """The tasks behind it would wait for a turn that nobody ends."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            flusher = writer._inner._flusher
            flusher.flush_lock.acquire()
            while flusher.lanes.size <= BUFFER_SIZE:
                await writer.write_event(bytes(100_000))
            first, second = (asyncio.ensure_future(writer.write_event(event)) for event in (b"first", b"second"))
            await settle()
            flusher.flush()
            flusher.flush_lock.release()
            writer._flushes.next_turn()
            first.cancel()
            async with asyncio.timeout(5):
                await asyncio.wait({first})
                await (await second)
            assert first.cancelled()
            assert (await all_events(store))[-1] == b"second"

    run(main())


def test_a_task_that_comes_while_others_are_flushed_gets_the_next_flush(tmp_path: Path) -> None:
    """Its event may not be in the flush that is under way."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            ready: Any = writer._flushes._writer
            gate = ready.flush_for = Gate(ready.flush_for, holds_result=True)
            writer._inner._flusher.flush_lock.acquire()  # the pump does not take the first event before the task waits
            first = asyncio.ensure_future(_awaited(await writer.write_event(b"1")))
            await settle()
            writer._inner._flusher.flush_lock.release()
            await gate.reached()
            writer._inner._flusher.flush_lock.acquire()  # neither the pump nor the first flush takes the second event
            second = asyncio.ensure_future(_awaited(await writer.write_event(b"2")))
            await settle()
            gate.may_go.set()
            assert await first is not None
            await settle()
            writer._inner._flusher.flush_lock.release()
            async with asyncio.timeout(5):
                assert await second is not None

    run(main())


def test_a_task_that_writes_without_end_lets_others_run(tmp_path: Path) -> None:
    """A loop without a wait would stop all other clients of a service."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            ended = False

            async def write() -> None:
                while not ended:
                    await writer.write_event(b"1")

            task = asyncio.ensure_future(write())
            await settle(10)
            ended = True
            await task

    run(main())


def test_a_task_that_is_cancelled_while_it_waits_breaks_nothing(tmp_path: Path) -> None:
    """Clients of a service go away at any moment; the events of the others are written, once and in order."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM, "w1") as writer:
            flusher = writer._inner._flusher
            flusher.flush_lock.acquire()
            acks = [await writer.write_event(b"%d" % number) for number in range(3)]
            tasks = [asyncio.ensure_future(_awaited(ack)) for ack in acks]
            await settle()
            await cancelled(tasks[1])
            flusher.flush_lock.release()
            assert None not in [await tasks[0], await tasks[2], await acks[1]]
            assert await all_events(store) == [b"0", b"1", b"2"]

    run(main())


async def _awaited(ack: aio.AsyncAck[Any]) -> Any:  # noqa: ANN401 - as the acknowledgement says
    return await ack


@pytest.mark.parametrize("seed", range(examples(24)))
def test_events_are_in_order_wherever_tasks_are_cancelled(seed: int, tmp_path: Path) -> None:
    """A cancelled write is written or not; what it must not do is to lose, repeat or swap events of others."""
    dice = random.Random(seed)

    async def write(writer: aio.AsyncStreamWriter, task: int, acked: list[bytes]) -> None:
        for number in range(200):
            event = b"%d %d " % (task, number) + bytes(dice.choice([0, 100, 60_000]))
            ack = await writer.write_event(event, str(task))
            if dice.random() < 0.3:
                await ack
                acked.append(event)

    async def main() -> None:
        acked: list[bytes] = []
        async with opened(KINDS[seed % 3], tmp_path) as store, store.writer(STREAM) as writer:
            tasks = [asyncio.ensure_future(write(writer, task, acked)) for task in range(6)]
            for task in tasks[:3]:
                await settle(dice.randrange(60))
                task.cancel()
            await asyncio.wait(tasks)
            await (await writer.write_event(b"9 0 "))
            events = await all_events(store)
        assert events[-1] == b"9 0 "
        assert set(acked) <= set(events)
        for name in range(6):
            numbers = [int(event.split()[1]) for event in events if event.startswith(b"%d " % name)]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) == 200 or name < 3

    run(main())


def test_batches_have_one_acknowledgement(tmp_path: Path) -> None:
    """A batch is how much is written at once; its pointers are in the order of its events."""

    async def main() -> None:
        async with opened("remote", tmp_path) as store, store.writer(STREAM) as writer:
            pointers = await (await writer.write_batch([b"1", b"2"], keys=["a", None], headers=[None, {"h": b"x"}]))
            assert [await store.fetch_event(pointer) for pointer in pointers] == [b"1", b"2"]
            with pytest.raises(BadArgument):
                await writer.write_batch([b"1"], keys=["a", "b"])
            with pytest.raises(BadArgument):
                await writer.write_batch(b"no list")

    run(main())


@pytest.mark.parametrize("kind", ["folder", "remote"])
def test_numbers_make_writing_again_harmless(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that replays its events under the same numbers writes each of them once, as without asyncio."""
    last_of, callers = _RemoteLane.last_of, set()

    def noted(*args: Any, **options: Any) -> int:  # noqa: ANN401 - as last_of() takes them
        callers.add(threading.current_thread())
        return last_of(*args, **options)

    monkeypatch.setattr(_RemoteLane, "last_of", noted)

    async def main() -> None:
        async with opened(kind, tmp_path) as store:
            for last in (3, 5):
                async with store.writer(STREAM, "w1") as writer:
                    acks = [await writer.write_event(b"%d" % n, number=n) for n in range(last)]
                    found = [await ack for ack in acks]
                    assert len([pointer for pointer in found if pointer is not None]) == (3 if last == 3 else 2)
                    assert writer.last_number == last - 1
                    with pytest.raises(BadArgument):
                        await writer.write_event(b"0", number=0)
            assert await all_events(store) == [b"0", b"1", b"2", b"3", b"4"]
            async with store.writer(STREAM) as writer:
                with pytest.raises(BadArgument, match="writer_id"):
                    await writer.write_event(b"1", number=1)

    run(main())
    assert bool(callers) == (kind == "remote")
    assert threading.main_thread() not in callers  # the loop does not wait for the server


def test_a_large_event_is_durable_when_it_was_written(tmp_path: Path) -> None:
    """It does not fit into the buffer, so it goes out in a thread, at its place between the others."""
    large = bytes(3 << 20)

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            await writer.write_event(b"before")
            ack = await writer.write_event(large)
            assert ack.done()
            await (await writer.write_event(b"behind"))
            pointer = await ack
            assert pointer is not None
            assert await store.fetch_event(pointer) == large
            batches = [batch async for batch in store.read(STREAM, max_event_size=4 << 20)]
            assert [e for b in batches for e in b["event"].to_pylist()] == [b"before", large, b"behind"]

    run(main())


class Upper:
    def serialize(self, value: str) -> bytes:
        return value.upper().encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode().lower()


def test_serializers_work_and_invalid_events_are_refused(tmp_path: Path) -> None:
    """Bad input leaves nothing behind, and the writer works on."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            async with store.writer(STREAM, serializer=Upper()) as writer:
                await writer.write_event("one")
                await writer.write_batch(["two"])
                await writer.write_event("x" * (2 << 20))
            async with store.writer(STREAM) as raw:
                for event in (42, "text", None):
                    with pytest.raises(BadArgument):
                        await raw.write_event(event)
                with pytest.raises(BadArgument):
                    await raw.write_event(b"1", key=42)  # type: ignore[arg-type]
                await raw.write_event(bytearray(b"two"))
            assert await all_events(store) == [b"ONE", b"TWO", None, b"two"]

    run(main())


def test_time_is_noted_behind_the_events(tmp_path: Path) -> None:
    """Watermarks are the promise of writers, also of asynchronous ones."""

    async def main() -> None:
        async with aio.connect(tmp_path, maintenance_interval_s=0.01) as store:
            await store.create_stream(STREAM)
            async with store.writer(STREAM, "w1") as writer:
                await writer.write_event(b"1")
                await writer.note_time(1_700_000_000_000)
                await writer.flush()
                while (mark := await store.watermark(STREAM)) is None:
                    await asyncio.sleep(0.001)
                assert mark.lower == 1_700_000_000_000
                assert await store.watermarks(STREAM) == [mark]
                assert (await store.cut_at_time(STREAM, 1_700_000_000_000)).stream == STREAM
            async with store.writer(STREAM) as writer:
                with pytest.raises(BadArgument):
                    await writer.note_time(1)

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_the_stream_reach_the_tasks_that_wait(kind: str, tmp_path: Path) -> None:
    """A stream that is sealed, a writer that is fenced or closed: the same classes as without asyncio."""

    async def main() -> None:
        async with opened(kind, tmp_path) as store:
            writer, other = await store.writer(STREAM, "w1"), await store.writer(STREAM, "w1")
            with pytest.raises(WriterFenced):
                await (await writer.write_event(b"1"))
            await store.seal_stream(STREAM)
            with pytest.raises(StreamSealed):
                await (await other.write_event(b"1"))
            with pytest.raises(StreamSealed):
                await other.close()
            with pytest.raises(StoreClosed):
                await other.write_event(b"2")
            await other.close()

    run(main())


def test_a_store_that_closes_ends_tasks_that_wait_for_it(tmp_path: Path) -> None:
    """A task that waits for an acknowledgement gets it, or an error; it never waits for ever."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            writer = await store.writer(STREAM)
            flusher = writer._inner._flusher
            flusher.flush_lock.acquire()
            ack = await writer.write_event(b"1")
            waiting = asyncio.ensure_future(_awaited(ack))
            await settle()
            closing = asyncio.ensure_future(store.close())
            await settle()
            flusher.flush_lock.release()
            await closing
            assert await waiting is not None

    run(main())


def test_a_writer_that_was_being_opened_by_a_cancelled_task_is_closed(tmp_path: Path) -> None:
    """A writer that notes time and that no task has would hold back the watermark."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            inner: Any = store._inner
            gate = Gate(inner.writer, holds_result=True)
            closed = asyncio.Event()
            loop = asyncio.get_running_loop()
            inner.writer = gate
            task = asyncio.ensure_future(_opened(store.writer(STREAM, "w1")))
            await gate.reached()
            task.cancel()
            await asyncio.wait({task})
            ends = penstock.StreamWriter.close
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    penstock.StreamWriter, "close", lambda w: (ends(w), loop.call_soon_threadsafe(closed.set))
                )
                gate.may_go.set()
                await closed.wait()

    run(main())


async def _opened(opening: aio._handle.Opening[Any]) -> Any:  # noqa: ANN401 - what is opened
    return await opening


def test_acknowledgements_that_no_task_awaits_do_no_harm(tmp_path: Path) -> None:
    """The loop ends while events are under way; they are durable, since the store was closed."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            for number in range(100):
                await writer.write_event(b"%d" % number)
            ended_with_the_loop = asyncio.ensure_future(_awaited(await writer.write_event(b"last")))
        assert ended_with_the_loop is not None

    run(main())
    with penstock.connect(tmp_path) as store:
        assert sum(batch.num_rows for batch in store.read(STREAM)) == 101


def test_events_are_written_while_the_stream_is_scaled(tmp_path: Path) -> None:
    """Segments end under a writer that tasks use: order by key stays, and no task waits for the change."""

    async def main() -> None:
        async with opened("remote", tmp_path) as store, store.writer(STREAM) as writer:
            acks = []
            for number in range(600):
                acks.append(await writer.write_event(b"%d" % number, "k"))
                if number % 200 == 100:
                    [segment] = (await store.stream(STREAM)).segments
                    await store.scale_stream(STREAM, seal=[segment.segment_id], ranges=[(0.0, 1.0)])
            assert None not in [await ack for ack in acks]
            assert await all_events(store) == [b"%d" % number for number in range(600)]

    run(main())
