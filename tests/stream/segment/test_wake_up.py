"""Wake-ups: for a thread that waits, and for an event loop that is called back."""

from __future__ import annotations

from penstock.stream.segment import WakeUp


def test_a_notification_is_kept_for_the_next_wait() -> None:
    """What happens between a look and the wait must not be missed."""
    wake_up = WakeUp()
    wake_up.notify()
    wake_up.notify()
    assert wake_up.wait(0)
    assert not wake_up.wait(0)


def test_a_callback_is_called_once_and_at_once_if_a_notification_was_kept() -> None:
    """An event loop must not miss it, either; and many notifications must not flood it."""
    calls: list[int] = []
    wake_up = WakeUp()
    wake_up.call_once(lambda: calls.append(1))
    assert calls == []
    wake_up.notify()
    wake_up.notify()
    assert calls == [1]
    wake_up.call_once(lambda: calls.append(2))
    assert calls == [1, 2]
    assert wake_up.wait(0)


def test_a_callback_can_be_taken_back() -> None:
    """A task that waits no more must not be called."""
    calls: list[int] = []
    wake_up = WakeUp()
    wake_up.call_once(lambda: calls.append(1))
    wake_up.call_once(None)
    wake_up.notify()
    assert calls == []
    assert wake_up.wait(0)
