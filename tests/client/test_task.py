"""Tasks that the listening thread leaves to the pump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client._task import Task

if TYPE_CHECKING:
    import pytest


def test_a_task_is_done_once(caplog: pytest.LogCaptureFixture) -> None:
    """The pump comes again to what says so; a notification is acted on once."""
    done: list[int] = []
    assert not Task(lambda: done.append(1)).pump()
    assert (done, caplog.text) == ([1], "")


def test_a_task_that_fails_is_logged_and_the_pump_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """The pump flushes all writers of the store: one bad notification must not end it."""

    def fail() -> None:
        raise ValueError("of a notification")

    assert not Task(fail).pump()
    assert "a notification of the server could not be handled" in caplog.text
    assert "ValueError: of a notification" in caplog.text
