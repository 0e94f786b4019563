"""Acknowledgements: callbacks, waiting, and what they keep in memory."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.stream import Ack
from penstock.stream.write._acks import ArrayRun, ListRun
from tests.stream.write.test_writer import STREAM, all_events

if TYPE_CHECKING:
    from penstock.stream import Engine

SECONDS_MAX = 30.0


def test_a_callback_that_fails_does_not_harm_others(store: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the thread that flushes in the background continues, for all writers."""
    store.create_stream(STREAM)
    done = threading.Event()
    with store.writer(STREAM) as writer, store.writer(STREAM) as other:
        failing = writer.write_event(b"1")
        failing.add_done_callback(lambda _: 1 / 0)
        after = threading.Event()
        writer.write_event(b"2").add_done_callback(lambda _: after.set())
        assert after.wait(SECONDS_MAX)
        other.write_event(b"3").add_done_callback(lambda _: done.set())
        assert done.wait(SECONDS_MAX)
        assert failing.done()
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_write_and_wait(store: Engine) -> None:
    """Callbacks run when no thread holds the writer any more."""
    store.create_stream(STREAM)
    done = threading.Event()
    with store.writer(STREAM) as writer:
        second = writer.write_event(b"second")

        def go_on(_: object) -> None:
            assert second.result(SECONDS_MAX) is not None
            for _ in range(3):
                writer.write_event(bytes(900_000)).result(SECONDS_MAX)
            done.set()

        writer.write_event(b"first").add_done_callback(go_on)
        writer.flush()
        assert done.wait(SECONDS_MAX)
    assert len(all_events(store)) == 5


def test_an_acknowledgement_that_is_kept_does_not_keep_the_events(store: Engine) -> None:
    """Only where they are; a few thousand of them would otherwise hold all that was ever written."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        acks = [writer.write_event(bytes(1000)) for _ in range(100)]
        batch = writer.write_batch([bytes(100_000)] * 5)
        writer.flush()
    gc.collect()
    runs = [ack._run for ack in acks if isinstance(ack, Ack)]
    assert not any(run.events for run in runs if isinstance(run, ListRun))
    assert not any(run.rows for run in batch._runs if isinstance(run, ArrayRun))
    assert acks[99].result() is not None
    assert len(batch.result()) == 5


def test_an_empty_batch_is_done(store: Engine) -> None:
    """There is nothing to wait for."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        ack = writer.write_batch([])
        found: list[object] = []
        ack.add_done_callback(found.append)
        assert ack.done()
        assert found == [ack]
        assert len(ack.result()) == 0


@pytest.mark.parametrize("timeout", [float("inf"), 1e12, -5, 0])
def test_any_time_can_be_waited_for(store: Engine, timeout: float) -> None:
    """Python's locks know a longest time, and no negative one."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        assert writer.write_event(b"event").result(timeout) is not None
    with store.create_reader_group("group", [STREAM]).reader("reader") as reader:
        assert reader.read_next_event(timeout) is not None
