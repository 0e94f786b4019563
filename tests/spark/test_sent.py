"""Rows that a task may have to send again, and the thread that sends them."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock.spark import _sent
from penstock.spark._sent import InBackground, SentRows

SCHEMA = pa.schema([("n", pa.int64())])


def batch_of(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number] * 10, pa.int64())], SCHEMA)


@pytest.mark.parametrize("kept", [0, 250, 1 << 20])
def test_rows_come_back_in_order_from_memory_and_file(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """They are sent again after an outage, perhaps twice, and more rows follow: the order of events is theirs."""
    monkeypatch.setattr(_sent, "_KEPT_MAX", kept)
    rows = SentRows(SCHEMA)
    for number in range(6):
        rows.add(batch_of(number))
        for _ in range(2):
            assert [batch["n"][0].as_py() for batch in rows.batches()] == [*range(number + 1)]
    rows.close()


def test_an_error_of_the_thread_is_raised_and_the_thread_ends() -> None:
    """A task that went on without it would report rows as written that are not."""
    done: list[int] = []

    def send(batch: pa.RecordBatch) -> None:
        number = batch["n"][0].as_py()
        if number == 3:
            raise ConnectionError("gone")
        done.append(number)

    def give(*numbers: int) -> None:
        with InBackground(send) as thread:
            for number in numbers:
                thread.add(batch_of(number))
            thread.finish()

    for numbers in (range(20), (0, 1, 2, 3), (3,)):
        done.clear()
        with pytest.raises(ConnectionError):
            give(*numbers)
        assert 3 not in done
    assert not [each for each in threading.enumerate() if each.name.startswith("penstock-sink")]


def test_no_more_than_a_few_batches_wait_for_the_thread() -> None:
    """Spark may be faster than the store: a task must not gather all its rows in memory."""
    started, begun = threading.Semaphore(0), threading.Semaphore(0)
    given: list[int] = []

    def send(batch: pa.RecordBatch) -> None:
        del batch
        begun.release()
        started.acquire()

    def give(thread: InBackground) -> None:
        for number in range(6):
            thread.add(batch_of(number))
            given.append(number)

    with InBackground(send) as thread:
        giver = threading.Thread(target=give, args=[thread])
        giver.start()
        begun.acquire()
        giver.join(0.2)
        waiting = len(given)
        started.release(6)
        giver.join()
        thread.finish()
    assert waiting <= _sent._AHEAD_MAX
