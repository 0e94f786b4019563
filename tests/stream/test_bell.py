"""The bell: no ring is missed, and nobody waits for longer than it was told."""

from __future__ import annotations

import threading
from typing import Final

from penstock.stream.segment._wake_up import Bell

SECONDS_MAX: Final = 20.0


def test_a_ring_wakes_the_one_who_waits() -> None:
    """A tail reader must not find out by looking again and again."""
    bell, woken, ready = Bell(), threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        if bell.wait(None):
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert ready.wait(SECONDS_MAX)
    assert not woken.is_set()
    bell.ring()
    assert woken.wait(SECONDS_MAX)
    thread.join()


def test_a_ring_before_the_wait_is_kept() -> None:
    """What comes between looking and waiting must not be slept through."""
    bell = Bell()
    bell.ring()
    assert bell.wait(None)


def test_many_rings_are_one() -> None:
    """They say that there is something new, not how much."""
    bell = Bell()
    for _ in range(5):
        bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0)


def test_without_a_ring_the_time_runs_out() -> None:
    """A timeout of nothing, or less, is a look."""
    bell = Bell()
    assert not bell.wait(0)
    assert not bell.wait(-5)
    assert not bell.wait(0.001)


def test_no_ring_is_lost_however_many_ring_at_once() -> None:
    """Whatever was counted before a ring must be seen by the one who waits, or an event is never delivered."""
    bell, lock, count, seen = Bell(), threading.Lock(), 0, 0

    def ring() -> None:
        nonlocal count
        for _ in range(2000):
            with lock:
                count += 1
            bell.ring()

    threads = [threading.Thread(target=ring) for _ in range(4)]
    for thread in threads:
        thread.start()
    while seen < 8000:
        assert bell.wait(SECONDS_MAX), "it rang after the last count"
        seen = count
    for thread in threads:
        thread.join()
