"""The threads of an asynchronous store: every job runs, and nothing of it outlives its task or the store."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from contextlib import AsyncExitStack
from functools import partial

import pytest

from penstock import aio
from penstock.aio._threads import Pool, PooledCall, Threads
from tests.aio.harness import STREAM, run


def test_a_pool_runs_every_job_however_threads_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is added while the last thread decides to end would wait for ever."""
    monkeypatch.setattr("penstock.aio._threads._IDLE_S", 0.0)
    pool = Pool("test", 3)

    async def main() -> list[int]:
        threads = Threads()
        jobs = [PooledCall(threads, partial(int, number), None) for number in range(2000)]
        results = [job.done for job in jobs]
        for job in jobs:
            pool.run(job)
        return [await result for result in results]

    assert run(main()) == list(range(2000))
    assert pool.wait(10)


def test_a_step_that_raises_stop_iteration_is_an_error_of_its_own() -> None:
    """No future takes StopIteration: the task would wait for ever."""

    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await Threads().call(lambda: next(iter(())))

    run(main())


class Step:
    """Returns an object, or raises an error that holds one."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails

    def __call__(self) -> set[int]:
        if self._fails:
            raise ValueError
        return {1}


@pytest.mark.parametrize("fails", [False, True])
def test_a_thread_holds_nothing_of_a_call_whose_task_goes_on(fails: bool) -> None:
    """An Arrow reader whose last reference goes in a thread, while the process ends, aborts the process."""

    async def main() -> int:
        threads, held = Threads(), 0
        for _ in range(300):
            step = Step(fails=fails)
            of_step = weakref.ref(step)
            started = threads.start(step)
            del step
            try:
                of_result = weakref.ref(await started)
            except ValueError:
                of_result = None
            del started
            await asyncio.sleep(0)  # the loop holds a future while it wakes up the task
            held += of_step() is not None or (of_result is not None and of_result() is not None)
        return held

    assert run(main()) == 0


def test_a_store_waits_for_the_calls_that_end_with_it() -> None:
    """A thread that is still inside of Arrow when the process ends aborts the process."""
    closing, ended = threading.Event(), list[int]()

    def call() -> None:
        closing.wait()
        ended.append(sum(range(300_000)))  # takes some milliseconds

    async def main() -> int:
        threads = Threads()
        call_done = threads.start(call)
        await threads.close(closing.set)
        calls = len(ended)
        await call_done
        return calls

    assert run(main()) == 1


def test_a_store_closes_although_a_call_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for a server which does not answer must not keep the process."""
    monkeypatch.setattr("penstock.aio._threads._LAST_CALLS_S", 0.01)
    never = threading.Event()

    async def main() -> None:
        threads = Threads()
        call_done = threads.start(never.wait)
        await threads.close(lambda: None)
        assert not call_done.done()
        never.set()
        await call_done

    run(main())


@pytest.mark.parametrize("kind", ["store", "reader", "busy reader", "transaction", "large event"])
@pytest.mark.parametrize("closes", [True, False])
def test_what_is_left_open_when_a_loop_ends_says_nothing(
    kind: str, closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback at the end of a program looks like a fault, and the program can do nothing about it by then."""
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    stores: list[aio.AsyncStore] = []

    async def hold(is_open: asyncio.Event) -> None:
        for_ever = asyncio.get_running_loop().create_future()
        async with aio.connect("memory:") as store:
            stores.append(store)
            await store.create_stream(STREAM)
            async with AsyncExitStack() as stack:
                if kind.endswith("reader"):
                    group = await store.create_reader_group("group", [STREAM])
                    reader = await stack.enter_async_context(group.reader("reader"))
                    if kind == "busy reader":
                        is_open.set()
                        await anext(aiter(reader))
                elif kind == "transaction":
                    writer = await stack.enter_async_context(store.transactional_writer(STREAM, "tx"))
                    await stack.enter_async_context(writer.begin())
                elif kind == "large event":
                    plain = await stack.enter_async_context(store.writer(STREAM))
                    await stack.enter_async_context(plain.begin_write_event("key"))
                is_open.set()
                await for_ever

    async def main() -> asyncio.Task[None]:
        is_open = asyncio.Event()
        held = asyncio.create_task(hold(is_open))
        await is_open.wait()
        return held

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # asyncio itself says that a task was left
    try:
        held = loop.run_until_complete(asyncio.wait_for(main(), 30))
        if closes:
            loop.close()
        del held
        gc.collect()
        assert said == []
    finally:
        loop.close()
        stores.pop()._inner.close()
