"""How many bytes are under way to clients, in all and to one user: clients that do not read must not fill memory."""

from __future__ import annotations

import asyncio
from collections import Counter
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
        self._users: Counter[str | None] = Counter()
        self._waiting: dict[HeldBytes, asyncio.Future[None]] = {}  # in the order in which they came

    @property
    def used(self) -> int:
        """The number of bytes that are held."""
        return self._users.total()

    async def hold(self, user: str | None, size: int) -> HeldBytes:
        """Return bytes for a user, as soon as there are so many."""
        held = HeldBytes(self, user, size)
        granted = self._waiting[held] = asyncio.get_running_loop().create_future()
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if held in self._waiting:
                del self._waiting[held]
            else:
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
        """Take back what was held."""
        self._users[held.user] -= held.size
        if not self._users[held.user]:
            del self._users[held.user]
        self._grant()

    def _grant(self) -> None:
        """Grant what fits, in order; no user waits for the share of another."""
        for held in [held for held in self._waiting if self._fits(held)]:
            if self._fits(held):  # still, behind those before it
                self._users[held.user] += held.size
                self._waiting.pop(held).set_result(None)

    def _fits(self, held: HeldBytes) -> bool:
        used, of_user = self._users.get(held.user, 0), self._total if held.user is None else self._of_user
        return not used or (used + held.size <= of_user and self.used + held.size <= self._total)
