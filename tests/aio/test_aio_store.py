"""The asynchronous store: the same methods, errors and results, in the loop that it belongs to."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import ReaderGroup, Store, StreamConfig, StreamWriter, Transaction, TransactionalWriter, aio
from penstock.aio._acks import AsyncAck
from penstock.aio._threads import Threads
from penstock.cpo import open_cpo
from penstock.errors import (
    BadArgument,
    DiskFailed,
    NoSuchStream,
    NotAuthenticated,
    PenstockError,
    StoreClosed,
    StoreLocked,
    StoreUnreachable,
    StreamExists,
    WriterFailed,
    WrongEventLoop,
)
from penstock.testing import Fault, FaultyDisk, MemoryDisk
from tests.aio.harness import KINDS, STREAM, Gate, all_events, cancelled, opened, run
from tests.server.owned import new_folder, serving
from tests.stream.large_harness import store_and_manager

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

PAIRS = [
    (Store, aio.AsyncStore),
    (ReaderGroup, aio.AsyncReaderGroup),
    (StreamWriter, aio.AsyncStreamWriter),
    (penstock.Reader, aio.AsyncReader),
    (TransactionalWriter, aio.AsyncTransactionalWriter),
    (Transaction, aio.AsyncTransaction),
]


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_method_is_there_with_the_same_parameters(blocking: type, asynchronous: type) -> None:
    """A user who knows one of the two knows the other; a method that is added to one of them must not be forgotten."""
    attributes = {"reader_id", "stream", "writer_id"}  # of instances
    assert public(asynchronous) | attributes == public(blocking) | attributes
    for name in public(asynchronous) - attributes:
        method = getattr(asynchronous, name)
        assert inspect.getdoc(method), name
        if inspect.isfunction(getattr(blocking, name)):
            expected = inspect.signature(getattr(blocking, name)).parameters
            assert inspect.signature(method).parameters == expected, name


def test_connect_has_the_parameters_of_the_blocking_one() -> None:
    """Every kind of store can be opened, with every option that it has."""
    assert inspect.signature(aio.connect).parameters == inspect.signature(penstock.connect).parameters


@pytest.mark.parametrize("kind", KINDS)
def test_streams_are_made_listed_scaled_and_deleted(kind: str, tmp_path: Path) -> None:
    """The methods of a store that only run in a thread work for every kind of store, with all kinds of arguments."""

    async def main() -> None:
        async with opened(kind, tmp_path) as store:
            with pytest.raises(StreamExists):
                await store.create_stream(STREAM)
            info = await store.scale_stream(STREAM, seal=[0], ranges=[(0.0, 0.5), (0.5, 1.0)])
            assert [segment.segment_id for segment in info.segments] == [1, 2]
            assert len(await store.stream_segments(STREAM)) == 3
            await store.update_stream(STREAM, StreamConfig(tags=("new",)))
            assert (await store.stream(STREAM)).config.tags == ("new",)
            assert [found.name for found in await store.streams()] == [STREAM]
            assert await store.head(STREAM) != await store.tail(STREAM)
            await store.register_consumer(STREAM, "archive")
            assert list(await store.consumers(STREAM)) == ["archive"]
            await store.seal_stream(STREAM)
            await store.delete_stream(STREAM)
            with pytest.raises(NoSuchStream):
                await store.stream(STREAM)

    run(main())


def test_a_server_that_authenticates_is_a_store_like_any_other(tmp_path: Path) -> None:
    """The arguments of connect reach the server; wrong ones are the same errors as without asyncio."""
    folder = new_folder(tmp_path, ann="write")

    async def main(address: str) -> None:
        with pytest.raises(NotAuthenticated):
            await aio.connect(address, user="ann", password="wrong")
        async with aio.connect(address, user="ann", password="secret") as store, store.writer(STREAM) as writer:
            pointer = await (await writer.write_event(b"1"))
            assert pointer is not None

    with serving(folder) as server:
        run(main(server.address))


@pytest.mark.parametrize(
    ("address", "options", "error"),
    [
        (":memory:", {}, BadArgument),
        ("memory:", {"user": "ann"}, BadArgument),
        ("penstock://127.0.0.1:1", {}, StoreUnreachable),
    ],
)
def test_what_cannot_be_opened_is_the_same_error(address: str, options: dict[str, Any], error: type) -> None:
    """Errors are part of the interface."""

    async def main() -> None:
        with pytest.raises(error):
            await aio.connect(address, **options)

    run(main())


def test_a_bounded_read_returns_batches_from_one_position_to_another(tmp_path: Path) -> None:
    """Batches are how a task reads much; the end is fixed, so that the loop ends."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            await (await writer.write_batch([b"1", b"2"]))
            middle = await store.tail(STREAM)
            await (await writer.write_batch([b"3", b"4"]))
            batches = [batch async for batch in store.read(STREAM, start=middle)]
            assert [event for batch in batches for event in batch["event"].to_pylist()] == [b"3", b"4"]
            [part] = await store.segment_ranges(STREAM)
            assert sum([batch.num_rows async for batch in store.read_range(part)]) == 4
            with pytest.raises(NoSuchStream):
                await anext(store.read("plant/other"))

    run(main())


def test_a_batch_that_a_cancelled_task_did_not_get_comes_next(tmp_path: Path) -> None:
    """A read with a timeout around each batch would skip events otherwise."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            for event in (b"1", b"2"):  # in two segments: two batches
                async with store.writer(STREAM) as writer:
                    await (await writer.write_event(event))
                last = (await store.stream(STREAM)).segments[0].segment_id
                await store.scale_stream(STREAM, seal=[last], ranges=[(0.0, 1.0)])
            batches = store.read(STREAM)
            gate = Gate(batches._next, holds_result=True)
            batches._next = gate  # type: ignore[method-assign]
            task = asyncio.ensure_future(anext(batches))
            await gate.reached()
            task.cancel()
            gate.may_go.set()
            await asyncio.wait({task})
            found = [batch async for batch in batches]
            assert [event for batch in found for event in batch["event"].to_pylist()] == [b"1", b"2"]

    run(main())


@pytest.mark.parametrize("loop_ends", [False, True])
def test_a_store_that_a_cancelled_task_was_opening_is_closed_again(
    loop_ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else this process would own the folder for as long as it lives, without a handle to close."""
    gate = Gate(penstock.connect, holds_result=True)
    monkeypatch.setattr(penstock, "connect", gate)

    async def main() -> None:
        task = asyncio.ensure_future(_awaited(aio.connect(tmp_path)))
        await gate.reached()
        await cancelled(task)
        monkeypatch.undo()
        if not loop_ends:
            gate.may_go.set()
            await asyncio.to_thread(_wait_until_free, tmp_path)

    run(main())
    gate.may_go.set()
    _wait_until_free(tmp_path)


def _wait_until_free(folder: Path) -> None:
    """Return when no process owns a folder: it is closed in a thread."""
    for _ in range(10_000):
        with suppress(StoreLocked), penstock.connect(folder, exclusive=True):
            return
        time.sleep(0.001)
    raise AssertionError("the store was not closed")


async def _awaited(opening: Any) -> Any:  # noqa: ANN401 - what is opened
    return await opening


def test_a_handle_is_refused_in_another_loop(tmp_path: Path) -> None:
    """A future of one loop never wakes a task of another: without an error the task would wait for ever."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                batches, ack = store.read(STREAM), await writer.write_event(b"1")
                undone = AsyncAck(Future[None](), writer._flushes)  # the other may be done by now
                calls = [
                    partial(store.stream, STREAM),
                    partial(writer.write_event, b"2"),
                    partial(writer.write_batch, [b"2"]),
                    partial(writer.note_time, 1),
                    partial(reader.read_next_event, timeout=0),
                    partial(anext, batches),
                    partial(_awaited, undone),
                    writer.close,
                    reader.close,
                    store.close,
                ]
                assert await asyncio.to_thread(lambda: [_error_in_a_loop(call) for call in calls]) == len(calls) * [
                    WrongEventLoop
                ]
                with pytest.raises(WrongEventLoop):
                    await asyncio.to_thread(aiter, reader)
            await ack
            assert await all_events(store) == [b"1"]

    run(main())


def _error_in_a_loop(call: Any) -> type[BaseException] | None:  # noqa: ANN401 - a method
    async def main() -> None:
        await call()

    try:
        asyncio.run(main())
    except BaseException as error:  # noqa: BLE001 - compared by the test
        return type(error)
    return None


def test_a_handle_is_refused_in_the_next_loop_of_the_same_thread() -> None:
    """Two calls of ``asyncio.run`` with a store in a global variable are a mistake that everybody makes once."""
    store = asyncio.run(_awaited(aio.connect("memory:")))
    with pytest.raises(WrongEventLoop, match="AsyncStore belongs to another event loop"):
        asyncio.run(store.create_stream(STREAM))
    store._inner.close()


def test_loops_in_several_threads_have_stores_of_their_own(tmp_path: Path) -> None:
    """A program with a loop in each thread opens a folder once in each of them."""
    count = 4

    async def main(number: int) -> None:
        async with aio.connect(tmp_path) as store:
            await store.create_stream(STREAM, exist_ok=True)
            async with store.writer(STREAM) as writer:
                await (await writer.write_event(str(number).encode()))

    threads = [threading.Thread(target=lambda number=number: run(main(number))) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with penstock.connect(tmp_path) as store:
        events = [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
    assert sorted(events) == [b"0", b"1", b"2", b"3"]


def test_a_closed_store_refuses_and_its_handles_close_in_peace(tmp_path: Path) -> None:
    """The blocks of an ``async with`` end in any order after an error, and must not hide it."""

    async def main() -> None:
        async with (
            opened("folder", tmp_path) as store,
            store.writer(STREAM) as writer,
            store.transactional_writer(STREAM) as transactions,
        ):
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                await store.close()
                await store.close()
                for call in (store.streams(), writer.write_event(b"1"), reader.read_next_event(), group.lag()):
                    with pytest.raises(StoreClosed):
                        await call
                with pytest.raises(StoreClosed):
                    await transactions.begin()
                with pytest.raises(StoreClosed):
                    await anext(store.read(STREAM))

    run(main())


def test_a_store_is_closed_when_the_task_in_its_block_is_cancelled(tmp_path: Path) -> None:
    """A service that ends cancels its tasks: what was written is durable, and the folder is free."""

    async def use(is_open: asyncio.Event) -> None:
        async with opened("folder", tmp_path) as store, store.writer(STREAM) as writer:
            await writer.write_event(b"1")
            is_open.set()
            await asyncio.Event().wait()

    async def main() -> None:
        is_open = asyncio.Event()
        task = asyncio.ensure_future(use(is_open))
        await is_open.wait()
        await cancelled(task)
        async with aio.connect(tmp_path, exclusive=True) as store:
            assert await all_events(store) == [b"1"]

    run(main())


def test_calls_of_many_tasks_share_a_bounded_number_of_threads(tmp_path: Path) -> None:
    """A thousand requests of a service must not be a thousand threads."""

    async def main() -> None:
        async with opened("folder", tmp_path) as store:
            before = threading.active_count()
            found = await asyncio.gather(*(store.stream(STREAM) for _ in range(500)))
            assert {info.name for info in found} == {STREAM}
            assert threading.active_count() - before <= 32

    run(main())


SCRIPT = """
import asyncio, os, sys, warnings
from penstock import aio
from penstock.errors import ForkedHandle
warnings.simplefilter("ignore", DeprecationWarning)

async def main():
    async with aio.connect(sys.argv[1]) as store:
        await store.create_stream("plant/readings")
        async with store.writer("plant/readings") as writer:
            ack = await writer.write_event(b"1")
            if not (pid := os.fork()):
                for use in (lambda: store.streams(), lambda: writer.write_event(b"2"), lambda: writer.stream):
                    try:
                        use()
                    except ForkedHandle:
                        continue
                    os._exit(1)
                try:
                    store.close().send(None)  # does nothing
                except StopIteration:
                    os._exit(0)
                os._exit(2)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), await ack is not None)

asyncio.run(main())
"""


def test_a_forked_child_cannot_use_the_handles(tmp_path: Path) -> None:
    """The threads of the store are not in the child: a call there would hang."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("0 True\n", "")


INTERRUPTED = """
import asyncio, os, signal, sys
from penstock import aio

async def main():
    async with aio.connect(sys.argv[1]) as store:
        await store.create_stream("plant/readings", exist_ok=True)
        group = await store.create_reader_group("g", ["plant/readings"], exist_ok=True)
        async with store.writer("plant/readings") as writer, group.reader("r") as reader:
            for number in range(1000):
                await writer.write_event(b"%d" % number)
            async for read in reader:
                if read.event == b"500":
                    os.kill(os.getpid(), signal.SIGINT)
                    await reader.read_next_event()  # not lost: it is returned again to the next reader
                    await asyncio.sleep(60)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_closes_everything_and_loses_nothing(tmp_path: Path) -> None:
    """Every program in a terminal ends so."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")
    with penstock.connect(tmp_path, exclusive=True) as store, store.reader_group("g").reader("r") as reader:
        assert reader.read_next_event(timeout=10).event in {b"500", b"501"}  # type: ignore[union-attr]


def test_it_works_with_uvloop(tmp_path: Path) -> None:
    """Web servers use it where it is installed; its loop is not one of asyncio's classes."""
    uvloop: Any = pytest.importorskip("uvloop")

    async def main() -> None:
        async with opened("remote", tmp_path) as store, store.writer(STREAM) as writer:
            group = await store.create_reader_group("g", [STREAM])
            async with group.reader("r") as reader:
                task = asyncio.ensure_future(reader.read_next_event())
                acks = [await writer.write_event(b"%d" % number) for number in range(2000)]
                assert None not in [await ack for ack in acks]
                first = await task
                found = [(await anext(aiter(reader))).event for _ in range(1999)]
                assert [first and first.event, *found] == [b"%d" % number for number in range(2000)]
                assert await asyncio.to_thread(_error_in_a_loop, partial(writer.write_event, b"x")) == WrongEventLoop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_what_is_not_open_yet_says_how_to_open_it() -> None:
    """Without ``await`` is the first mistake that everybody makes."""

    async def main() -> None:
        async with aio.connect("memory:") as store:
            await store.create_stream(STREAM)
            with pytest.raises(AttributeError, match="use it in 'async with', or await it"):
                await store.writer(STREAM).write_event(b"")  # type: ignore[attr-defined]
            with pytest.raises(TypeError, match="use 'async with'"), store.writer(STREAM):  # type: ignore[attr-defined]
                pass

    run(main())


def test_a_disk_that_fails_is_the_error_of_all_tasks_that_wait() -> None:
    """No task may take an event for durable that is not, nor wait for it for ever."""
    disk = FaultyDisk(MemoryDisk())

    async def main(engine: Engine) -> None:
        store = aio.AsyncStore(engine, Threads())
        await store.create_stream(STREAM)
        writer = await store.writer(STREAM)
        await (await writer.write_event(b"1"))
        disk.fail(Fault.EIO, on="datasync", call=None)
        acks = [await writer.write_event(b"2") for _ in range(3)]
        found = await asyncio.gather(*acks, return_exceptions=True)
        assert {type(error) for error in found} == {DiskFailed}
        with pytest.raises(WriterFailed):
            await writer.write_event(b"3")
        assert await all_events(store) == [b"1"]
        ends_well.append(True)

    ends_well: list[bool] = []
    with open_cpo("memory:") as cpo, suppress(PenstockError), store_and_manager(disk, cpo) as (engine, _):
        run(main(engine))
    assert ends_well
