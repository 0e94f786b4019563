"""The connections of the Flight port: what each has cost so far, and which of them have to be closed.

gRPC reads what a client sends before the service is asked, and pyarrow offers no way to set its limits. But its sockets
are files of this process, and the kernel counts the bytes that each has received. The bytes that were received and not
given to the service are those that gRPC holds in memory. This module decides; :mod:`penstock.server._watch` observes
the sockets and closes them.

A client without any call that was accepted is unauthenticated, whatever else it has sent. Unauthenticated clients have
little time, and one byte budget for all of them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.server._limits import Limits

__all__ = ["ByteCounts", "ObservedConnection", "Usage", "to_close"]

_CALL_BYTES: Final = 1 << 10  # of headers and framing in a call: seldom as many
_FRAMES: Final = 32  # of so many bytes in either direction one is for frames: in truth one of some hundreds


class Usage:
    """The messages and bytes that the service was given of a connection since the last :meth:`take`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._bytes = 0

    def add(self, size: int) -> None:
        """Count a message that was accepted."""
        with self._lock:
            self._calls += 1
            self._bytes += size

    def take(self) -> tuple[int, int]:
        """Return the number of messages and of their bytes, and begin to count again."""
        with self._lock:
            found, self._calls, self._bytes = (self._calls, self._bytes), 0, 0
        return found


class ByteCounts(NamedTuple):
    """The bytes that a socket has received, and those it sent that the other side has acknowledged."""

    received: int
    acked: int


_NOTHING: Final = ByteCounts(0, 0)


@dataclass(slots=True, eq=False)
class ObservedConnection:
    """One connection, as it was observed last."""

    peer: str
    since: float
    last: float | None = None  # when a call was accepted, or an answer was read; None while unauthenticated
    kept: int = 0  # bytes that were received, and not given to the service
    counts: ByteCounts = _NOTHING

    def note(self, counts: ByteCounts, calls: int, size: int, now: float) -> None:
        """Take in what happened since the last time; ``kept`` is too low by no more than frames and headers."""
        came, read = counts.received - self.counts.received, counts.acked - self.counts.acked
        given = size + size // _FRAMES + calls * _CALL_BYTES + read // _FRAMES
        self.kept, self.counts = max(0, self.kept + came - given), counts
        if calls or (read and self.last is not None):
            self.last = now


def to_close(
    connections: Collection[ObservedConnection], limits: Limits, now: float
) -> Iterator[tuple[ObservedConnection, str]]:
    """Return the connections that have to be closed, and why."""
    unauthenticated = [connection for connection in connections if connection.last is None]
    for connection in connections:
        if connection.last is not None:
            if connection.kept > limits.max_inflight_bytes + limits.max_message_bytes:
                yield connection, "the client sent more than it may have under way"
            elif now - connection.last > limits.idle_timeout_s:
                yield connection, "it was idle for too long"
        elif connection.kept > limits.max_message_bytes:
            yield connection, "a message that is too large"
        elif now - connection.since > limits.header_timeout_s:
            yield connection, "it sent no accepted call in time"
    yield from _too_many(connections, len(connections) - limits.max_connections)
    yield from _too_much(unauthenticated, limits.max_inflight_bytes)


def _too_many(connections: Collection[ObservedConnection], surplus: float) -> Iterator[tuple[ObservedConnection, str]]:
    """Return the oldest unauthenticated connections; and where others are too many, the newest of those."""
    if surplus > 0:
        for connection in sorted(connections, key=_leaves_sooner)[: int(surplus)]:
            yield connection, "there are too many connections"


def _leaves_sooner(connection: ObservedConnection) -> tuple[bool, float]:
    is_known = connection.last is not None
    return is_known, -connection.since if is_known else connection.since


def _too_much(unauthenticated: list[ObservedConnection], limit: float) -> Iterator[tuple[ObservedConnection, str]]:
    """Return those with most bytes, until the rest of them have few enough together."""
    total = sum(connection.kept for connection in unauthenticated)
    for connection in sorted(unauthenticated, key=lambda connection: -connection.kept):
        if total <= limit:
            return
        total -= connection.kept
        yield connection, "unauthenticated clients have sent too much"
