"""How many bytes are under way to clients, in all and to one user: clients that do not read must not fill memory."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["DeliveryBudget", "HeldBytes"]


class HeldBytes:
    """Bytes of the budget that a user holds, until all who share them have released them."""

    def __init__(self, budget: DeliveryBudget, user: str | None, size: int) -> None:
        self._budget, self.user, self.size = budget, user, size
        self._holders = 1

    def share(self) -> HeldBytes:
        """Return it, to be released once more."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Let go of it; the last who does gives the bytes back."""
        self._holders -= 1
        if not self._holders:
            self._budget.give(self)


class DeliveryBudget:
    """A number of bytes, of which one user gets a share. A user who holds nothing gets what it asks for.

    On a server without users there is one user, who gets all of them. All calls come from one event loop.
    """

    def __init__(self, total: int, *, user_share: float) -> None:
        self._total, self._of_user = total, int(total * user_share)
        self._users: dict[str | None, int] = {}
        self._waiting: dict[str | None, deque[_Waiting]] = {}  # by user: however many wait, others pay nothing for them
        self.used = 0

    async def hold(self, user: str | None, size: int) -> HeldBytes:
        """Return bytes for a user, as soon as there are so many."""
        held = HeldBytes(self, user, size)
        if user not in self._waiting and self._fits(held):
            self._take(held)
            return held
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append((held, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                held.release()
            raise
        return held

    @asynccontextmanager
    async def held(self, user: str | None, size: int) -> AsyncIterator[None]:
        """Hold bytes for a user during the block."""
        held = await self.hold(user, size)
        try:
            yield
        finally:
            held.release()

    def give(self, held: HeldBytes) -> None:
        """Take back what was held, and grant it to those who wait."""
        self.used -= held.size
        self._users[held.user] -= held.size
        if not self._users[held.user]:
            del self._users[held.user]
        for user in list(self._waiting):
            self._grant(user)

    def _grant(self, user: str | None) -> None:
        """Grant a user what fits, in order."""
        waiting = self._waiting[user]
        while waiting and (waiting[0][1].cancelled() or self._fits(waiting[0][0])):
            held, granted = waiting.popleft()
            if not granted.cancelled():
                self._take(held)
                granted.set_result(None)
        if not waiting:
            del self._waiting[user]

    def _take(self, held: HeldBytes) -> None:
        self.used += held.size
        self._users[held.user] = self._users.get(held.user, 0) + held.size

    def _fits(self, held: HeldBytes) -> bool:
        used, of_user = self._users.get(held.user, 0), self._total if held.user is None else self._of_user
        return not used or (used + held.size <= of_user and self.used + held.size <= self._total)


_Waiting = tuple[HeldBytes, "asyncio.Future[None]"]
