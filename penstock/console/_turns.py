"""Threads that users share: users who have calls waiting take turns, and no user has all threads.

So a user whose calls are many or slow leaves threads to the others, and a user who waits for one is the next to get it
after each of the others had one turn. How many calls of a user wait is not limited here: each is counted for its user
before it comes here, or is one of a connection that makes no other call meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SharedThreads"]

T = TypeVar("T")


class SharedThreads:
    """So many threads, of which one user has ``of_user_max`` at most; for the tasks of one event loop."""

    def __init__(self, name: str, *, threads: int, of_user_max: int) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._free, self._of_user_max = threads, of_user_max
        self._running: Counter[str | None] = Counter()
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}  # in the order of turns; none is empty

    async def run(self, user: str | None, work: Callable[[], T]) -> T:
        """Do something for a user, in a thread, when its turn comes; None is the user of a server without users."""
        await self._take(user)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._give(user)

    def close(self) -> None:
        """End the threads; calls under way come to their end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _take(self, user: str | None) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come already
                self._give(user)
            raise

    def _give(self, user: str | None) -> None:
        self._free += 1
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        self._admit()

    def _admit(self) -> None:
        while self._free:
            user = next((user for user in self._waiting if self._running[user] < self._of_user_max), ...)
            if user is ...:
                return
            turns = self._waiting.pop(user)
            turn = turns.popleft()
            if turns:
                self._waiting[user] = turns  # behind the others
            if not turn.done():  # or its task was cancelled
                self._free -= 1
                self._running[user] += 1
                turn.set_result(None)
