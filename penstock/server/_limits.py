"""What clients may cost: how large a message is, how long a client may be silent, how much there is of a kind."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.server._config import Config

__all__ = ["QUOTAS", "UNLIMITED", "IdleFrameLimit", "IdleFrames", "Limits", "MessageLimit", "QuotaKind", "QuotaUse"]


class QuotaKind(NamedTuple):
    """A kind of thing that is limited: the setting, and what they are called in a refusal.

    Those that are brief end soon by themselves: a client that is refused one tries again by itself.
    """

    setting: str
    things: str
    is_brief: bool = False


QUOTAS: Final = {
    "clients": QuotaKind("max_connections", "clients", is_brief=True),
    "calls": QuotaKind("max_calls", "calls under way", is_brief=True),
    "reads": QuotaKind("max_reads", "reads under way", is_brief=True),
    "searches": QuotaKind("max_searches", "streams of repositories being sent", is_brief=True),
    "handles": QuotaKind("max_handles", "open writers and readers"),
    "uploads": QuotaKind("max_uploads", "large events being written"),
    "watches": QuotaKind("max_watches", "segments that are watched"),
    "transactions": QuotaKind("max_transactions", "open transactions"),
    "prepared": QuotaKind("max_prepared", "prepared transactions"),
    "streams": QuotaKind("max_streams", "streams"),
    "segments": QuotaKind("max_segments", "segments"),
    "groups": QuotaKind("max_groups", "reader groups"),
    "consumers": QuotaKind("max_consumers", "consumers"),
}


class QuotaUse(NamedTuple):
    """How much of a kind there is and may be, and how often the limit was reached."""

    kind: str
    limit: float
    used: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings of those names."""

    max_connections: float = math.inf
    max_message_bytes: float = math.inf
    max_inflight_bytes: float = math.inf
    idle_timeout_s: float = math.inf
    header_timeout_s: float = math.inf
    max_user_share: float = 0.5
    max_calls: float = math.inf
    max_reads: float = math.inf
    max_searches: float = math.inf
    max_handles: float = math.inf
    max_uploads: float = math.inf
    max_watches: float = math.inf
    max_transactions: float = math.inf
    max_prepared: float = math.inf
    max_streams: float = math.inf
    max_segments: float = math.inf
    max_groups: float = math.inf
    max_consumers: float = math.inf

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Return those of a server."""
        return cls(**{name: getattr(config, name) for name in cls.__slots__})

    def share_of_user(self, limit: float) -> float:
        """Return how much of a limit one user may have: something, however small it is."""
        return limit if limit == math.inf else max(1, int(limit * self.max_user_share))


UNLIMITED: Final = Limits()
"""For processes of the same user on the same machine, which could have it all in other ways."""


class MessageLimit:
    """The size that a message may have, the largest that was taken, and how many were refused."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.largest = self.refused = 0

    def check(self, size: int) -> None:
        """Refuse a message that is too large."""
        if size > self._limit:
            with self._lock:
                self.refused += 1
            raise BadArgument(
                f"a message of {size} bytes: this server takes at most {self._limit}, its max_message_bytes"
            )
        if size > self.largest:
            with self._lock:
                self.largest = max(self.largest, size)


class IdleFrameLimit:
    """How many frames without content a connection may send, the most that one had, and how many had too many.

    Each keeps the server busy, and a client has no use for many of them: some at once are permitted, and then some in
    a second.
    """

    def __init__(self, kind: str, *, at_once: int, per_s: int) -> None:
        self._kind, self.at_once, self.per_s = kind, at_once, per_s
        self.largest = self.refused = 0

    def use(self) -> QuotaUse:
        """Return the use of the connection that had the most of them."""
        return QuotaUse(self._kind, self.at_once, self.largest, self.refused)


class IdleFrames:
    """The frames without content that one connection has sent of late."""

    def __init__(self, limit: IdleFrameLimit) -> None:
        self._limit = limit
        self._level, self._at = 0.0, time.monotonic()

    def are_too_many(self, frames: int) -> bool:
        """Count some more frames, or fewer where frames with content excuse them; return whether it is a flood."""
        now = time.monotonic()
        self._level = max(0.0, self._level + frames - self._limit.per_s * (now - self._at))
        self._at = now
        is_flood = self._level > self._limit.at_once
        self._limit.refused += is_flood
        self._limit.largest = max(self._limit.largest, min(int(self._level), self._limit.at_once))
        return is_flood
