"""Prepared transactions through every crash point, and with every call of the disk failing: the batch is there once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import CommitUnfinished, NoSuchTransaction, PenstockError
from penstock.stream.segment import Logs
from penstock.testing import Fault, FaultyDisk, MemoryDisk, RecordingDisk
from tests.log.harness import Published, RecordedOracle, leftovers
from tests.sampling import crash_states, failing_calls
from tests.stream.harness import STREAM, store_on
from tests.stream.large_harness import SMALL_CHUNK, events_of, make_limits_small, transaction_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cpo import Cpo
    from penstock.stream import Engine
    from penstock.stream.transaction import LocalTransactionalWriter
    from penstock.testing import CrashState
    from penstock.testing._faulty import Call

KEYS: Final = [f"key-{number}" for number in range(5)]

BATCHES: Final = [
    {"small": 30, "spilled": SMALL_CHUNK},
    {"one": 30},
    {"before": 30, "after": SMALL_CHUNK, "large": 150},
    {},
    {"last": 30, "lost": SMALL_CHUNK},
]
"""The tasks of each batch, and how large their events are. The stream is scaled in the third, behind its first task."""


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


@dataclass(frozen=True)
class Prepared:
    """The task of a batch was told that its transaction is prepared."""

    number: int
    task: str
    transaction: str


@dataclass(frozen=True)
class Committed:
    """The driver was told that a batch is there."""

    number: int


@dataclass(frozen=True)
class Aborted:
    """A transaction was aborted after it was prepared."""

    transaction: str


@dataclass(frozen=True)
class Created:
    """The stream is there."""


def events_for(number: int, task: str) -> list[bytes]:
    size = BATCHES[number][task]
    return [f"{number}:{task}:{turn}:{key}:".encode().ljust(size, b".") for turn in range(2) for key in KEYS]


def run_task(writer: LocalTransactionalWriter, number: int, task: str) -> str:
    """Do what a task does; return the id of its transaction."""
    transaction = writer.begin()
    transaction.write_batch(events_for(number, task), keys=KEYS * 2)
    transaction.prepare()
    return transaction.id


class Life:
    """A query that writes its batches; what of it fails is told to ``fail``, and the next batch is tried."""

    def __init__(self, store: Engine, note: Callable[[object], None], fail: Callable[[PenstockError], None]) -> None:
        self._store, self._note, self._fail = store, note, fail

    def run(self) -> None:
        """Live through all of it."""
        try:
            self._store.create_stream(STREAM, 2)
            self._note(Created())
            writer = self._store.transactional_writer(STREAM, "query")
        except PenstockError as error:
            self._fail(error)
            return
        for number in range(len(BATCHES)):
            try:
                self._run_batch(writer, number)
            except PenstockError as error:
                self._fail(error)
                return  # a query does not go on without its batch

    def _run_batch(self, writer: LocalTransactionalWriter, number: int) -> None:
        tasks = BATCHES[number]
        if number == 1:
            run_task(writer, 0, "small")  # an attempt that failed, and is aborted with the next number
            self._abort(writer, run_task(writer, 0, "spilled"))
        ids = []
        for task in tasks:
            ids.append(run_task(writer, number, task))
            self._note(Prepared(number, task, ids[-1]))
            if task == "before":
                current = [one.segment_id for one in self._store.stream(STREAM).segments]
                self._store.scale_stream(STREAM, current, [(0.0, 0.3), (0.3, 1.0)])
        if "lost" in tasks:
            return  # the owner is killed before the driver commits
        try:
            assert writer.commit_all(ids, number)
        except CommitUnfinished:
            self._note(Committed(number))  # it is on record, and has to take effect
            raise
        self._note(Committed(number))

    def _abort(self, writer: LocalTransactionalWriter, transaction: str) -> None:
        writer.get(transaction).abort()
        self._note(Aborted(transaction))


def check(store: Engine, notes: Sequence[object], where: str) -> None:
    """See that every batch is there wholly or not at all, with its number; and that the query can go on."""
    if not any(info.name == STREAM for info in store.streams()):
        assert Created() not in notes, where
        return
    writer = store.transactional_writer(STREAM, "query")
    last = check_events(store, where)
    for note in notes:
        if isinstance(note, Committed):
            assert note.number <= last, f"lost batch {note.number}: {where}"
        if isinstance(note, Prepared):
            check_prepared(writer, note, last, where)
        if isinstance(note, Aborted):
            assert note.transaction not in store.catalog.prepared, f"{note} came back: {where}"
    for record in store.catalog.prepared.values():
        logs = [log for part in record.parts for log in part.logs]
        assert len(store._logs.existing(logs)) == len(logs), f"{record.transaction} has lost its logs: {where}"
    run_again(store, writer, notes, last, where)


def check_events(store: Engine, where: str) -> int:
    """See that what is there are the batches up to the last number; return that."""
    number = store.transactional_writer(STREAM, "query").last_number
    last = -1 if number is None else number
    found = events_of(store)
    expected = [event for one in range(last + 1) for task in BATCHES[one] for event in events_for(one, task)]
    assert sorted(found) == sorted(expected), f"number {last} and what is there differ: {where}"
    for key in KEYS:
        mine = [event for event in found if f":{key}:".encode() in event]
        assert mine == [event for event in expected if f":{key}:".encode() in event], f"out of order: {where}"
    return last


def check_prepared(writer: LocalTransactionalWriter, note: Prepared, last: int, where: str) -> None:
    """A transaction that was reported as prepared stays so, until its batch is committed."""
    status = None
    with suppress(NoSuchTransaction):
        status = writer.get(note.transaction).status
    assert status == ("committed" if note.number <= last else "prepared"), f"{note} is {status}: {where}"


def run_again(store: Engine, writer: LocalTransactionalWriter, notes: Sequence[object], last: int, where: str) -> None:
    """Run all batches again, as a driver does that knows nothing; those whose tasks were prepared need not write."""
    known = {(one.number, one.task): one.transaction for one in notes if isinstance(one, Prepared)}
    for number, tasks in enumerate(BATCHES):
        ids = [known.get((number, task)) for task in tasks]
        again = [one or run_task(writer, number, task) for one, task in zip(ids, tasks, strict=True)]
        assert writer.commit_all(again, number) is (number > last), f"batch {number}: {where}"
    assert check_events(store, where) == len(BATCHES) - 1
    assert not store.catalog.prepared, where
    assert not transaction_logs(store._manager), where


# Crashes


def open_after(state: CrashState, cpo: Cpo, before: Sequence[object] = ()) -> None:
    """Recover from one crash, look, go on; and see that nothing is left over."""
    notes = [*before, *state.notes]
    published = [note.plog_id for note in notes if isinstance(note, Published)]
    partition = "begun" if published else f"new-{hash(state.describe)}"
    if published:
        newest = cpo.metadata_plog(partition)
        cpo.set_metadata_plog(partition, published[-1], expected=newest.version if newest else 0)
    with store_on(state.disk, cpo, partition, seed=2) as store:
        manager = store._manager
        check(store, notes, state.describe)
    if published:
        assert not leftovers(manager, state.disk), state.describe


def fail_the_test(error: PenstockError) -> None:
    raise error


def test_a_crash_at_any_point_leaves_whole_batches_with_their_numbers() -> None:
    """Over prepare and commit_all: never half, never lost once it was said, and run again each is there once."""
    disk = RecordingDisk()
    with open_cpo("memory:") as cpo, store_on(disk, RecordedOracle(cpo, disk), "begun", seed=1) as store:  # type: ignore[arg-type]
        Life(store, disk.note, fail_the_test).run()
    points = disk.crash_points()
    assert len(points) > 500, "the history has become too short to prove anything"
    with open_cpo("memory:") as cpo:
        for state in crash_states(disk):
            open_after(state, cpo)


class Stop(Exception):
    """The process ends here."""


def test_a_crash_while_a_batch_is_finished_is_recovered_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is on record and nothing of it is done; the next process finishes it, or is killed meanwhile."""
    disk = RecordingDisk()

    def splice_never(_: Engine, plan: object, labels: object) -> None:
        raise Stop(plan)

    with open_cpo("memory:") as cpo, store_on(disk, RecordedOracle(cpo, disk), "begun", seed=1) as store:  # type: ignore[arg-type]
        with monkeypatch.context() as inner:
            inner.setattr(Logs, "splice", splice_never)
            with pytest.raises(Stop):
                Life(store, disk.note, fail_the_test).run()
        first = next(disk.crash_states(len(disk.crash_points()) - 1, power_set_max=1))
    second = RecordingDisk(first.disk)
    with open_cpo("memory:") as cpo:
        [published] = [note.plog_id for note in first.notes if isinstance(note, Published)][-1:]
        cpo.set_metadata_plog("begun", published, expected=0)
        with store_on(second, RecordedOracle(cpo, second), "begun", seed=3) as store:  # type: ignore[arg-type]
            assert check_events(store, "after the first crash") == 0
    with open_cpo("memory:") as cpo:
        points = second.crash_points()
        assert len(points) > 30
        for state in crash_states(second):
            open_after(state, cpo, [*first.notes, Committed(0)])


# Faults


def live(disk: FaultyDisk, cpo: Cpo) -> tuple[list[object], list[PenstockError]]:
    """Live through a life on a disk; closing the store may fail, too."""
    notes: list[object] = []
    errors: list[PenstockError] = []
    with suppress(PenstockError), store_on(disk, cpo, "main", seed=1) as store:
        Life(store, notes.append, errors.append).run()
    return notes, errors


def calls_of_a_life(call: Call) -> int:
    disk = FaultyDisk(MemoryDisk())
    with open_cpo("memory:") as cpo:
        assert not live(disk, cpo)[1]
    return disk.calls[call]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("call", ["create", "pwritev", "datasync", "sync", "reserve", "truncate", "remove"])
def test_any_call_may_fail_and_batches_are_whole(call: Call, fault: Fault) -> None:
    """What was said to be prepared or committed is, after the next start; and every batch is there once in the end."""
    for number in failing_calls(calls_of_a_life(call), fault):
        memory = MemoryDisk()
        disk = FaultyDisk(memory)
        disk.fail(fault, on=call, call=number)
        with open_cpo("memory:") as cpo:
            notes, _ = live(disk, cpo)
            with store_on(memory, cpo, "main", seed=2) as store:
                store.create_stream(STREAM, 2, exist_ok=True)
                manager = store._manager
                check(store, notes, f"{call} {number} {fault}")
            begun = Created() in notes  # before that, one plog may be left that is on no record
            assert len(leftovers(manager, memory)) <= int(not begun), f"{call} {number} {fault}"
