"""Threads for calls that may take long, of which one user gets a share: nobody waits for the slow calls of others."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UserThreads"]

T = TypeVar("T")


class UserThreads:
    """A pool of threads for one event loop. On a server without users there is one user, who gets all of them."""

    def __init__(self, threads: int, *, user_share: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, "penstock-futoin-user")
        self._threads, self._threads_of_user = threads, max(1, int(threads * user_share))
        self._shares: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()  # those in use

    async def run(self, user: str | None, call: Callable[..., T], *arguments: object) -> T:
        """Call a function in a thread, as soon as the user has one that is free."""
        share = self._shares.get(user)
        if share is None:
            share = asyncio.Semaphore(self._threads if user is None else self._threads_of_user)
            self._shares[user] = share
        await share.acquire()
        called = self._pool.submit(call, *arguments)
        called.add_done_callback(lambda done: self._release(share, done))  # also if the caller is gone before
        return await asyncio.wrap_future(called)

    def _release(self, share: asyncio.Semaphore, _: Future[T]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(share.release)

    def close(self) -> None:
        """Start no more calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)
