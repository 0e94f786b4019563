"""Locks whose holder may wait for the disk, or for another process."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.deadlines import DeadlineExceeded, run_locked


class Counted:
    """A lock that counts how often it is asked for."""

    def __init__(self) -> None:
        self._lock, self.asked = threading.Lock(), 0
        self.is_asked = threading.Event()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self.asked += 1
        self.is_asked.set()
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()


def test_a_thread_that_waits_for_a_lock_sleeps() -> None:
    """Hundreds of them that wake up twenty times a second each take all processors from the one that works."""
    lock = Counted()
    lock.acquire()
    lock.asked = 0
    lock.is_asked.clear()
    with ThreadPoolExecutor(1) as another:
        waiting = another.submit(run_locked, lock, lambda: "done")
        assert lock.is_asked.wait(30)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        lock.release()
        assert waiting.result(30) == "done"
    assert lock.asked == 1


def test_a_lock_is_not_waited_for_longer_than_told() -> None:
    """Neither in the main thread, which looks for Ctrl-C meanwhile, nor in another one."""
    lock = threading.Lock()

    def wait() -> int:
        return run_locked(lock, int, time.monotonic() + 0.1)

    with lock, ThreadPoolExecutor(1) as another:
        with pytest.raises(DeadlineExceeded):
            wait()
        with pytest.raises(DeadlineExceeded):
            another.submit(wait).result(30)
