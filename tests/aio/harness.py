"""What the tests of penstock.aio share."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import penstock
from penstock import aio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

T = TypeVar("T")

STREAM: Final = "plant/readings"
KINDS: Final = ("memory", "folder", "remote")
SECONDS_MAX: Final = 30


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test in an event loop of its own; one that hangs fails."""
    return asyncio.run(_in_time(main), debug=False)


async def _in_time(main: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(SECONDS_MAX):
        return await main


@asynccontextmanager
async def opened(kind: str, tmp_path: Path) -> AsyncIterator[aio.AsyncStore]:
    """A store with a stream: in memory, in a folder, or in a folder that this process has open already."""
    if kind == "memory":
        async with aio.connect("memory:") as store:
            await store.create_stream(STREAM)
            yield store
        return
    owner = await asyncio.to_thread(penstock.connect, tmp_path) if kind == "remote" else None
    try:
        async with aio.connect(tmp_path) as store:
            await store.create_stream(STREAM, exist_ok=True)
            yield store
    finally:
        if owner is not None:
            await asyncio.to_thread(owner.close)


async def all_events(store: aio.AsyncStore) -> list[bytes]:
    return [event async for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


class Gate:
    """Holds back a call in its thread until the test lets it go on: before it begins, or before it returns."""

    def __init__(self, call: Callable[..., Any], *, holds_result: bool = False) -> None:
        self._call, self._holds_result = call, holds_result
        self.has_come, self.may_go = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the call takes them
        result = self._call(*args, **options) if self._holds_result else None
        self.has_come.set()
        assert self.may_go.wait(SECONDS_MAX), "the test forgot it"
        return result if self._holds_result else self._call(*args, **options)

    async def reached(self) -> None:
        """Wait until the call is held back."""
        assert await asyncio.to_thread(self.has_come.wait, SECONDS_MAX)


async def settle(times: int = 5) -> None:
    """Let other tasks run as far as they can without waiting."""
    for _ in range(times):
        await asyncio.sleep(0)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
