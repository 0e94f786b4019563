"""The connections of the Flight port: what each has cost so far, and which of them have to go.

gRPC reads what a client sends before anybody is asked, and pyarrow lets nobody set its limits. But its sockets are
files of this process, and of each the kernel says how many bytes have come. What has come and was not given to the
service is what gRPC keeps in memory. Here that is decided upon; :mod:`penstock.server._watch` looks and closes.

Who has called nothing that was let in is a stranger, whatever else was sent. Strangers have little time, and one
allowance for all of them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.server._limits import Limits

__all__ = ["Account", "Flow", "Line", "to_close"]

_CALL_BYTES: Final = 1 << 10  # headers of a call, and what a message has besides its content: seldom as many
_FRAMES: Final = 32  # of so many bytes in either direction one is for frames: in truth one of some hundreds


class Account:
    """What the service was given of a connection since it was last asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._bytes = 0

    def add(self, size: int) -> None:
        """Note a message that was let in."""
        with self._lock:
            self._calls += 1
            self._bytes += size

    def take(self) -> tuple[int, int]:
        """Return how many messages there were, and their bytes; count anew."""
        with self._lock:
            found, self._calls, self._bytes = (self._calls, self._bytes), 0, 0
        return found


class Flow(NamedTuple):
    """How many bytes came in over a connection, and how many of ours the other side has."""

    received: int
    acked: int


_NOTHING: Final = Flow(0, 0)


@dataclass(slots=True, eq=False)
class Line:
    """One connection."""

    peer: str
    since: float
    last: float | None = None  # when something went over it that was let in, or an answer was read; None of a stranger
    kept: int = 0  # bytes that came, and were not given to the service
    flow: Flow = _NOTHING

    def note(self, flow: Flow, calls: int, size: int, now: float) -> None:
        """Take in what happened since the last time; what is kept is never too low by more than frames and headers."""
        came, read = flow.received - self.flow.received, flow.acked - self.flow.acked
        given = size + size // _FRAMES + calls * _CALL_BYTES + read // _FRAMES
        self.kept, self.flow = max(0, self.kept + came - given), flow
        if calls or (read and self.last is not None):
            self.last = now


def to_close(lines: Collection[Line], limits: Limits, now: float) -> Iterator[tuple[Line, str]]:
    """Return the connections that have to go, and why."""
    strangers = [line for line in lines if line.last is None]
    for line in lines:
        if line.last is not None:
            if line.kept > limits.max_inflight_bytes + limits.max_message_bytes:
                yield line, "more was sent than a client may have under way"
            elif now - line.last > limits.idle_timeout_s:
                yield line, "it was silent for too long"
        elif line.kept > limits.max_message_bytes:
            yield line, "a message that is too large"
        elif now - line.since > limits.header_timeout_s:
            yield line, "it said nothing useful in time"
    yield from _too_many(lines, len(lines) - limits.max_connections)
    yield from _too_much(strangers, limits.max_inflight_bytes)


def _too_many(lines: Collection[Line], surplus: float) -> Iterator[tuple[Line, str]]:
    """Return strangers, who have been here for longest; and if there are too many others, who came last."""
    if surplus > 0:
        for line in sorted(lines, key=_leaves_sooner)[: int(surplus)]:
            yield line, "there are too many"


def _leaves_sooner(line: Line) -> tuple[bool, float]:
    is_known = line.last is not None
    return is_known, -line.since if is_known else line.since


def _too_much(strangers: list[Line], limit: float) -> Iterator[tuple[Line, str]]:
    """Return those who have sent most, until the rest of them have sent little enough together."""
    total = sum(line.kept for line in strangers)
    for line in sorted(strangers, key=lambda line: -line.kept):
        if total <= limit:
            return
        total -= line.kept
        yield line, "strangers have sent too much"
