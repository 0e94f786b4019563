"""Quotas: how much of each kind of thing there may be, in all and for one user.

One class counts them all. Things that are open are taken and given back (:meth:`Quota.take`). Things that the catalog
records are counted there at the moment when another one is recorded (:class:`StoredQuotas`), so the counts survive a
restart, and nothing has to be given back. A store that has more than a limit allows is served all the same; only new
things are refused.

One user gets a share of each limit, so that there is something left for others. A server without users has one user,
who gets all of it.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from pyarrow import flight

from penstock.errors import LimitReached
from penstock.server._limits import QUOTAS, QuotaUse
from penstock.stream.format import ConsumerMoved, GroupCreated, Prepared, StreamCreated, StreamScaled
from penstock.wire import BUSY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.server._limits import Limits, QuotaKind
    from penstock.server._ports import CountedStore
    from penstock.stream import LocalTransaction
    from penstock.stream.format import Record

__all__ = ["Quota", "Quotas", "StoredQuotas"]

Users = Counter[str | None]
"""How many things each user has; None for those without a user."""


class Quota:
    """The limit of one kind of thing, and how many of them there are."""

    def __init__(self, kind: QuotaKind, limits: Limits) -> None:
        self._kind, self.limit = kind, getattr(limits, kind.setting)
        self.limit_of_user: Final = limits.share_of_user(self.limit)
        self._lock = threading.Lock()
        self._users = Users()
        self._total = 0
        self.refused = 0

    @property
    def used(self) -> int:
        """The number of things that are taken."""
        return self._total

    def take(self, user: str | None) -> None:
        """Take one for a user; refuse one that is too many."""
        with self._lock:
            self.check(user, self._users, self._total)
            self._total += 1
            self._users[user] += 1

    def give(self, user: str | None) -> None:
        """Release one thing that a user had taken."""
        with self._lock:
            assert self._users[user] > 0, "what is given back was taken"
            self._total -= 1
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]

    def check(self, user: str | None, users: Mapping[str | None, int], total: int, more: int = 1) -> None:
        """Refuse ``more`` things where there are so many already."""
        kind = self._kind
        if total + more > self.limit:
            reason = f"the server has {total} {kind.things}, and its limit is {self.limit}"
        elif user is not None and users.get(user, 0) + more > self.limit_of_user:
            reason = f"user {user!r} has {users.get(user, 0)} {kind.things}, and the limit of one user is "
            reason += f"{self.limit_of_user}, its share of {self.limit}"
        else:
            return
        self.refused += 1
        if kind.is_brief:
            text = f"{reason} ({kind.setting}): try again later"
            raise flight.FlightUnavailableError(text, extra_info=BUSY)
        raise LimitReached(reason, setting=kind.setting)


class Quotas:
    """The quotas of a server, by kind."""

    def __init__(self, limits: Limits) -> None:
        self._quotas = {name: Quota(kind, limits) for name, kind in QUOTAS.items()}

    def __getitem__(self, kind: str) -> Quota:
        return self._quotas[kind]

    def items(self) -> Iterator[tuple[str, Quota]]:
        """Return all of them, with their kinds."""
        yield from self._quotas.items()


class StoredQuotas:
    """Checks what is recorded in the catalog of a store, and the transactions that are begun."""

    def __init__(self, store: CountedStore, quotas: Quotas) -> None:
        self._store, self._catalog, self._quotas = store, store.catalog, quotas
        self._counts: Final[dict[str, Callable[[], Users]]] = {
            "streams": self._streams,
            "segments": self._segments,
            "groups": lambda: Users(state.owner for state in self._catalog.groups.values()),
            "consumers": self._consumers,
            "prepared": lambda: Users(record.owner for record in self._catalog.prepared.values()),
            "transactions": self._transactions,
        }
        with self._catalog.lock:
            self._catalog.admit, store.transactions.admit = self._check_record, self._check_transaction

    def uses(self) -> list[QuotaUse]:
        """Return how many there are of each kind, of those that are open, too."""
        with self._catalog.lock:
            stored = {kind: count().total() for kind, count in self._counts.items()}
        return [
            QuotaUse(kind, quota.limit, stored.get(kind, quota.used), quota.refused)
            for kind, quota in self._quotas.items()
        ]

    def _check(self, kind: str, user: str | None, more: int = 1) -> None:
        users = self._counts[kind]()
        self._quotas[kind].check(user, users, users.total(), more)

    def _check_record(self, record: Record) -> None:
        match record:
            case StreamCreated():
                self._check("streams", record.owner)
                self._check("segments", record.owner, record.segments)
            case StreamScaled():
                self._check("segments", self._catalog.streams[record.stream].owner, len(record.ranges))
            case GroupCreated():
                self._check("groups", record.owner)
            case ConsumerMoved() if record.cut is not None:
                if record.consumer not in self._catalog.streams[record.stream].consumers:
                    self._check("consumers", record.owner)
            case Prepared():
                self._check("prepared", record.owner)

    def _check_transaction(self, transaction: LocalTransaction) -> None:
        self._check("transactions", transaction.owner)

    def _streams(self) -> Users:
        return Users(state.owner for state in self._catalog.streams.values())

    def _segments(self) -> Users:
        users = Users()
        for state in self._catalog.streams.values():
            users[state.owner] += len(state.segments)
        return users

    def _consumers(self) -> Users:
        streams = self._catalog.streams.values()
        return Users(consumer.owner for state in streams for consumer in state.consumers.values())

    def _transactions(self) -> Users:
        prepared = self._catalog.prepared
        return Users(
            transaction.owner
            for transaction in self._store.transactions.open.values()
            if transaction.id not in prepared
        )
