"""Until when what is asked of another process may take: as long as the call that asks for it, and a moment more.

The deadline belongs to the thread. So whatever a reader asks on its way to the next event keeps to the time that the
reader was given, and nobody in between has to hand it on.
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

__all__ = ["ANSWER_SLACK_S", "TimeIsOver", "do_held", "limit", "time_left", "within"]

T = TypeVar("T")

_INTERRUPTIBLE_EVERY_S: Final = 0.05
_LONG_S: Final = 1e6  # what is longer is never: neither locks nor gRPC take any figure
ANSWER_SLACK_S: Final = 1.0  # who may not wait at all is still answered, unless nobody is there


class TimeIsOver(Exception):
    """There was no answer in time; whether what was asked for is done is not known, and asked again the next time."""


class _Deadline(threading.local):
    until: float | None = None


_deadline: Final = _Deadline()


@contextmanager
def within(until: float | None) -> Iterator[None]:
    """Let everything that this thread asks for be over at a time of the monotonic clock; None is never."""
    before, now = _deadline.until, time.monotonic()
    _deadline.until = None if until is None or until - now > _LONG_S else max(until, now)
    try:
        yield
    finally:
        _deadline.until = before


def limit() -> float:
    """Return until when an answer may take, by the monotonic clock."""
    until = _deadline.until
    return math.inf if until is None else until + ANSWER_SLACK_S


def time_left() -> float | None:
    """Return how long an answer may take; None is for ever."""
    until = limit()
    return None if until == math.inf else max(until - time.monotonic(), 0.0)


class _Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...


@uninterrupted
def do_held(lock: _Lock, step: Callable[[], T], until: float | None = None) -> T:
    """Do something while holding a lock that somebody may have who waits for another process.

    ``TimeIsOver`` if that takes longer than ``until``, or than this thread may ask. Who waits can be interrupted.
    """
    until = limit() if until is None else until
    while not lock.acquire(timeout=min(max(until - time.monotonic(), 0.0), _INTERRUPTIBLE_EVERY_S)):
        interruption_point()
        if time.monotonic() >= until:
            raise TimeIsOver
    try:
        return step()
    finally:
        lock.release()
