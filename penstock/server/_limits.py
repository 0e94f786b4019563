"""The limits of one client: how much it has under way, how large a message is, how long it may be silent.

Each call that is under way has a thread, and gRPC has no limit for them, so they are counted here.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyarrow import flight

from penstock.errors import BadArgument
from penstock.wire import BUSY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server._config import Config

__all__ = ["UNLIMITED", "Calls", "Limits", "share_of_user"]

_CALLS_LEAST: Final = 100
_CONNECTIONS_FULL: Final = 4  # so many connections may have as many calls under way as one may
_USER_SHARE: Final = 0.5  # of clients and calls, so that one user does not keep all others out


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings of those names."""

    max_connections: float = math.inf
    max_message_bytes: float = math.inf
    max_inflight_bytes: float = math.inf
    idle_timeout_s: float = math.inf
    header_timeout_s: float = math.inf

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Return those of a server."""
        return cls(**{name: getattr(config, name) for name in cls.__slots__})

    @property
    def calls_of_one_max(self) -> float:
        """How many calls of one connection may be under way: each open writer has one, and each waits in a thread."""
        return max(_CALLS_LEAST, self.max_connections)

    @property
    def calls_max(self) -> float:
        """How many calls may be under way in all."""
        return _CONNECTIONS_FULL * self.calls_of_one_max

    @property
    def calls_of_user_max(self) -> float:
        """How many calls of one user may be under way."""
        return self.calls_max * _USER_SHARE

    def check_message(self, size: int) -> None:
        """Refuse a message that is too large."""
        if size > self.max_message_bytes:
            raise BadArgument(
                f"a message of {size} bytes: this server takes at most {self.max_message_bytes}, its max_message_bytes"
            )


def share_of_user(clients: int) -> int:
    """Return how many clients one user may have, of so many in all."""
    return max(1, int(clients * _USER_SHARE))


UNLIMITED: Final = Limits()
"""For processes of the same user on the same machine, which could have it all in other ways."""


class Calls:
    """The number of calls in all, by connection and by user; above the limits calls are refused, to be tried again."""

    def __init__(self, limits: Limits) -> None:
        self._max, self._of_one_max = limits.calls_max, limits.calls_of_one_max
        self._of_user_max = limits.calls_of_user_max
        self._lock = threading.Lock()
        self._by_peer: Counter[str] = Counter()
        self._by_user: Counter[str] = Counter()
        self._total = 0

    @contextmanager
    def one(self, peer: str, user: str | None = None) -> Iterator[None]:
        """Count a call of a peer while it is under way; without users there is no limit of one user."""
        with self._lock:
            self._check(peer, user)
            self._total += 1
            _add(self._by_peer, peer, 1)
            _add(self._by_user, user, 1)
        try:
            yield
        finally:
            with self._lock:
                self._total -= 1
                _add(self._by_peer, peer, -1)
                _add(self._by_user, user, -1)

    def _check(self, peer: str, user: str | None) -> None:
        if self._total >= self._max or self._by_peer[peer] >= self._of_one_max:
            raise _busy("the server has as many calls under way as it may have")
        if user is not None and self._by_user[user] >= self._of_user_max:
            raise _busy(f"user {user!r} has as many calls under way as one user may have")


def _busy(why: str) -> flight.FlightUnavailableError:
    return flight.FlightUnavailableError(f"{why}: try again later", extra_info=BUSY)


def _add(counts: Counter[str], name: str | None, number: int) -> None:
    """Change a count, and remove it at zero."""
    if name is not None:
        counts[name] += number
        if not counts[name]:
            del counts[name]
