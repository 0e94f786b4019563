"""Waiting for receivers, which run as tasks beside a test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.events.wire import LONG_S

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ended", "until"]


async def until(condition: Callable[[], bool], task: asyncio.Task[None]) -> None:
    """Wait until a condition holds; fail with the task if that ends first."""
    async with asyncio.timeout(LONG_S):
        while not condition():
            if task.done():
                task.result()
            await asyncio.sleep(0.005)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a receiver, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])
