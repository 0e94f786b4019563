"""The limits of a plog server, and the byte budget that all its connections share."""

from __future__ import annotations

import threading
from dataclasses import dataclass

__all__ = ["PlogServerLimits", "RequestBudget"]


@dataclass(frozen=True, slots=True)
class PlogServerLimits:
    """How much a server takes at once; a client that wants more waits, or is refused."""

    connections_max: int = 256  # each may have received a part of the largest message
    connection_size_max: int = 16 << 20  # bytes of requests of one connection that are not answered
    total_size_max: int = 256 << 20  # and of all connections
    hello_s_max: float = 5.0  # for the handshake and the first message
    send_s_max: float = 10.0  # for a client to take an answer
    company_s_max: float = 0.0015  # that the sync of large appends waits for the next append
    partitions_max: int = 100


class RequestBudget:
    """Bytes that connections hold; one that wants more than is left waits, and the peer with it."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._waiting = 0
        self._closed = False

    def take(self, size: int, *, waits: bool) -> bool:
        """Take so many bytes, if there are as many, or once there are; return whether they are taken."""
        with self._lock:
            if self._left < size:
                if not waits:
                    return False
                self._waiting += 1
                self._freed.wait_for(lambda: self._left >= size or self._closed)
                self._waiting -= 1
            self._left -= size
            return True

    def free(self, size: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._left += size
            if self._waiting:
                self._freed.notify_all()

    def close(self) -> None:
        """Let those that wait go on: their connections end."""
        with self._freed:
            self._closed = True
            self._freed.notify_all()
