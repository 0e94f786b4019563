"""When a client tries something again."""

from __future__ import annotations

import time

import pytest

from penstock.deadlines import DeadlineExceeded, within
from penstock.retry import ATTEMPTS_MAX, Retry


def test_attempts_in_a_row_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts connections and loses each of them must not keep a caller for ever."""
    monkeypatch.setattr("penstock.retry.PAUSE_MAX_S", 0.0)
    retry, error = Retry(), ConnectionError("lost")
    for _ in range(ATTEMPTS_MAX - 1):
        retry.after(error)
    with pytest.raises(ConnectionError) as raised:
        retry.after(error)
    assert raised.value is error


def test_progress_begins_the_count_again() -> None:
    """A long read may lose its connection many times, as long as it gets further each time."""
    retry, error = Retry(attempts_max=2), ConnectionError("lost")
    for _ in range(10):
        retry.after(error)
        retry.progress()
    retry.after(error)
    with pytest.raises(ConnectionError):
        retry.after(error)


def test_nothing_is_tried_after_the_time_is_over() -> None:
    """Patience is a time where each attempt is short."""
    begun = time.monotonic()
    with pytest.raises(ConnectionError):
        Retry(until=begun - 1.0).after(ConnectionError("lost"))
    Retry(until=begun + 3600.0).after(ConnectionError("lost"))


def test_the_error_that_is_raised_may_say_more_and_is_made_only_then() -> None:
    """Finding out why a server cannot be reached takes a connection of its own."""
    made = []

    def give_up() -> Exception:
        made.append("made")
        return LookupError("no server")

    retry = Retry(attempts_max=2)
    retry.after(ConnectionError("lost"), give_up)
    assert not made
    with pytest.raises(LookupError) as raised:
        retry.after(ConnectionError("lost again"), give_up)
    assert str(raised.value.__cause__) == "lost again"


def test_the_time_limit_of_the_caller_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read with a timeout returns then, whatever the connection does."""
    monkeypatch.setattr("penstock.deadlines.ANSWER_SLACK_S", 0.0)
    with within(time.monotonic() - 1.0), pytest.raises(DeadlineExceeded):
        Retry().after(ConnectionError("lost"))
