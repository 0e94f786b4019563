"""Deadlines of requests to another process: the timeout of the call that makes them, and a moment more.

The deadline belongs to the thread. So every request that a reader makes on its way to the next event keeps to the
timeout of that read, and no function in between has to pass it on.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from penstock.ports import interruption_point, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ANSWER_SLACK_S", "DeadlineExceeded", "limit", "run_locked", "time_left", "within"]

T = TypeVar("T")

_INTERRUPTIBLE_EVERY_S: Final = 0.05
_LONG_S: Final = 1e6  # longer timeouts count as none: neither locks nor gRPC take every number
ANSWER_SLACK_S: Final = 1.0  # a call that may not wait at all still gets an answer, if the other process is there


class DeadlineExceeded(Exception):
    """No answer came in time; it is unknown whether the request was done, and the next call asks again."""


class _Deadline(threading.local):
    until: float | None = None


_deadline: Final = _Deadline()


@contextmanager
def within(until: float | None) -> Iterator[None]:
    """Set the deadline of this thread's requests, by the monotonic clock; None for no deadline."""
    before, now = _deadline.until, time.monotonic()
    _deadline.until = None if until is None or until - now > _LONG_S else max(until, now)
    try:
        yield
    finally:
        _deadline.until = before


def limit() -> float:
    """Return the time, by the monotonic clock, by which an answer must be there."""
    until = _deadline.until
    return math.inf if until is None else until + ANSWER_SLACK_S


def time_left() -> float | None:
    """Return the seconds that an answer may take; None for no limit."""
    until = limit()
    return None if until == math.inf else max(until - time.monotonic(), 0.0)


class _Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...


@uninterrupted
def run_locked(lock: _Lock, step: Callable[[], T], until: float | None = None) -> T:
    """Run a step while holding a lock whose present holder may be waiting for another process.

    ``DeadlineExceeded`` if the lock is not free by ``until``, or by this thread's deadline. Ctrl-C ends the wait.
    """
    until = limit() if until is None else until
    is_main = threading.current_thread() is threading.main_thread()  # others would only wake up, and there may be many
    longest_s = _INTERRUPTIBLE_EVERY_S if is_main else threading.TIMEOUT_MAX
    while not lock.acquire(timeout=min(max(until - time.monotonic(), 0.0), longest_s)):
        interruption_point()
        if time.monotonic() >= until:
            raise DeadlineExceeded
    try:
        return step()
    finally:
        lock.release()
