"""A segment as readers see it: a wake-up loses no notification, and ends in time."""

from __future__ import annotations

import threading
from typing import Final

from penstock.stream.segment._readable import WakeUp

SECONDS_MAX: Final = 20.0


def test_a_ring_wakes_the_one_who_waits() -> None:
    """A tail reader must not find out by looking again and again."""
    wake_up, woken, ready = WakeUp(), threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        if wake_up.wait(None):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert ready.wait(SECONDS_MAX)
    assert not woken.is_set()
    wake_up.notify()
    assert woken.wait(SECONDS_MAX)
    thread.join()


def test_a_ring_before_the_wait_is_kept() -> None:
    """What comes between looking and waiting must not be slept through."""
    wake_up = WakeUp()
    wake_up.notify()
    assert wake_up.wait(None)


def test_many_rings_are_one() -> None:
    """They say that there is something new, not how much."""
    wake_up = WakeUp()
    for _ in range(5):
        wake_up.notify()
    assert wake_up.wait(0)
    assert not wake_up.wait(0)


def test_without_a_ring_the_time_runs_out() -> None:
    """A timeout of nothing, or less, is a look."""
    wake_up = WakeUp()
    assert not wake_up.wait(0)
    assert not wake_up.wait(-5)
    assert not wake_up.wait(0.001)


def test_no_ring_is_lost_however_many_ring_at_once() -> None:
    """Whatever was counted before a ring must be seen by the one who waits, or an event is never delivered."""
    wake_up, lock, count, seen = WakeUp(), threading.Lock(), 0, 0

    def notify() -> None:
        nonlocal count
        for _ in range(2000):
            with lock:
                count += 1
            wake_up.notify()

    threads = [threading.Thread(target=notify) for _ in range(4)]
    for thread in threads:
        thread.start()
    while seen < 8000:
        assert wake_up.wait(SECONDS_MAX), "it rang after the last count"
        seen = count
    for thread in threads:
        thread.join()
