"""Jobs that take longer than the lease of a reader: each is handled once, by one worker."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penstock.client import RemoteStore
from penstock.patterns import WorkQueue
from penstock.stream.read import READER_LEASE_S
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock import EventRead, Store
    from penstock.patterns import Worker

STREAM = "office/films"
JOBS = [b"%d" % number for number in range(4)]


@pytest.fixture
def clock() -> ManualClock:
    """A clock that only jobs move."""
    return ManualClock()


@pytest.fixture
def store(empty_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr("penstock.client._membership._REPORT_EVERY_S", 0.0)
    empty_store.create_stream(STREAM, segments=2)
    with empty_store.writer(STREAM) as writer:
        writer.write_batch(JOBS, [job.decode() for job in JOBS])
    return empty_store


class Office:
    """Two workers; while one of them has a job, minutes pass, and the other works, too."""

    def __init__(self, store: Store, clock: ManualClock, first: Worker, second: Worker) -> None:
        self._store, self._clock = store, clock
        self._others = {first: second, second: first}
        self._busy: set[Worker] = set()
        self.handled = Counter[bytes]()

    def step(self, worker: Worker, outcome: Callable[[EventRead], None]) -> str | None:
        """Let a worker handle a job; the other one finds it silent, if it did not stay alive."""

        def handle(job: EventRead) -> None:
            self.handled[job.event] += 1
            self._busy.add(worker)
            for _ in range(6):
                self._clock.advance(READER_LEASE_S)
                if isinstance(self._store, RemoteStore):
                    self._store.report()  # which a thread of the client does every few seconds
                if self._others[worker] not in self._busy:
                    self.step(self._others[worker], outcome)
            self._busy.remove(worker)
            outcome(job)

        return worker.step(handle, timeout=0)

    def run(self, outcome: Callable[[EventRead], None]) -> None:
        """Let both work until there is nothing to do."""
        rests = 0
        for _ in range(40):
            steps = [self.step(worker, outcome) for worker in self._others]
            rests = 0 if any(steps) else rests + 1
            if rests == 4:  # a segment may be on its way from one to the other
                break


def succeed(job: EventRead) -> None:
    """Nothing."""


def fail(job: EventRead) -> None:
    raise ValueError("the film is damaged")


def test_jobs_that_take_minutes_are_done_once(store: Store, clock: ManualClock) -> None:
    """If another worker took over the job meanwhile, its outcome would count for nothing, again and again."""
    queue = WorkQueue(store, STREAM, group="cut", retry_delay_s=0)
    with queue.worker("w1") as first, queue.worker("w2") as second:
        office = Office(store, clock, first, second)
        office.run(succeed)
        assert sorted(store.reader_group("cut").readers()) == ["w1", "w2"]
    assert office.handled == Counter(JOBS)
    assert store.reader_group("cut").lag().events == 0


def test_jobs_that_fail_after_minutes_are_set_aside_once(store: Store, clock: ManualClock) -> None:
    """Each attempt counts, also one that took long; and nobody wants to look at two dead letters for one job."""
    queue = WorkQueue(store, STREAM, group="cut", attempts=2, retry_delay_s=0)
    with queue.worker("w1") as first, queue.worker("w2") as second:
        office = Office(store, clock, first, second)
        office.run(fail)
    assert office.handled == Counter(JOBS * 2)
    dead = [row["event"] for batch in store.read(queue.dead_letters) for row in batch.to_pylist()]
    assert sorted(dead) == JOBS
