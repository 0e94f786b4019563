"""Commits and large events through every crash point, and with every call of the disk failing: never half."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import NoSuchTransaction, PenstockError
from penstock.stream.segment import Logs
from penstock.stream.segment._segment import Segment
from penstock.testing import Fault, FaultyDisk, MemoryDisk, RecordingDisk
from tests.log.harness import Published, RecordedOracle, leftovers
from tests.sampling import crash_states, failing_calls
from tests.stream.harness import STREAM, store_on
from tests.stream.large_harness import SMALL_CHUNK, events_of, make_limits_small, transaction_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cpo import Cpo
    from penstock.ports import Bytes
    from penstock.stream import Engine
    from penstock.stream.format._block import StreamBlockHeader
    from penstock.stream.segment._segment import PendingBlock
    from penstock.stream.transaction import BegunTransaction
    from penstock.testing import CrashState
    from penstock.testing._faulty import Call

DIRECT: Final = 300
"""From which size on a block goes into its plog's own file, and not into the journal, where a test says so."""

KEYS: Final = [f"key-{number}" for number in range(5)]


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


@dataclass(frozen=True)
class Begun:
    """A transaction of this name has this id."""

    name: str
    transaction: str


@dataclass(frozen=True)
class Done:
    """A step returned to its caller."""

    name: str


def event_of(group: str, number: int, key: str, size: int) -> bytes:
    return f"{group}:{number}:{key}:".encode().ljust(size, b".")


EVENTS: Final = {
    "single": [event_of("single", number, KEYS[0], 30) for number in range(3)],
    "small": [event_of("small", number, KEYS[number % 5], 30) for number in range(6)],
    "spilled": [event_of("spilled", number, KEYS[number % 5], SMALL_CHUNK) for number in range(8)],
    "mixed": [event_of("mixed", number, KEYS[number % 5], (30, 150, SMALL_CHUNK)[number % 3]) for number in range(9)],
    "scaled": [event_of("scaled", number, KEYS[number % 5], 60) for number in range(10)],
    "later": [event_of("later", number, KEYS[number % 5], 20) for number in range(5)],
    "aborted": [event_of("aborted", number, KEYS[number % 5], SMALL_CHUNK) for number in range(9)],
    "left": [event_of("left", number, KEYS[number % 5], SMALL_CHUNK) for number in range(9)],
}
"""What each transaction writes; the last two are never committed."""

NUMBERED: Final = [
    event_of("numbered", number, KEYS[number % 5], size) for number, size in enumerate((30, 300, 40, 200))
]


class Life:
    """What happens to a store; what of it fails is told to ``fail``."""

    def __init__(self, store: Engine, note: Callable[[object], None], fail: Callable[[PenstockError], None]) -> None:
        self._store, self._note, self._fail = store, note, fail

    def run(self) -> None:
        """Live through all of it."""
        self.create()
        self.commit("single")
        self.commit("small")
        self._step("numbered 0", lambda: self._write(0, 2))
        self.commit("spilled")
        self._step("numbered 2", lambda: self._write(2, 4))
        self.commit("mixed")
        self.commit("scaled")
        self._step("aborted", self._abort)
        self._step("given up", self._give_up)
        self.commit("later")
        self._step("left", lambda: self._begin("left"))

    def create(self) -> None:
        """Let there be a stream."""
        self._step("created", lambda: self._store.create_stream(STREAM, 2))

    def _step(self, name: str, step: Callable[[], object]) -> None:
        try:
            step()
        except PenstockError as error:
            self._fail(error)
        else:
            self._note(Done(name))

    def commit(self, name: str) -> None:
        """Write and commit a transaction, one of them across a scale."""

        def commit() -> None:
            transaction = self._begin(name)
            if name == "scaled":
                self._scale()
            try:
                transaction.commit()
            except PenstockError:
                if transaction.status == "committed":
                    self._note(Done(name))  # it is on record, and has to take effect
                raise

        self._step(name, commit)

    def _begin(self, name: str) -> BegunTransaction:
        transaction = self._store.transactional_writer(STREAM).begin()
        self._note(Begun(name, transaction.id))
        for event in EVENTS[name]:
            key = event.split(b":")[2]
            if len(event) > SMALL_CHUNK:
                with transaction.begin_write_event(key) as out:
                    out.write(event[:70])
                    out.write(event[70:])
            else:
                transaction.write_event(event, key=key)
        return transaction

    def _scale(self) -> None:
        current = [one.segment_id for one in self._store.stream(STREAM).segments]
        self._store.scale_stream(STREAM, current, [(0.0, 0.3), (0.3, 1.0)])

    def _write(self, first: int, last: int) -> None:
        with self._store.writer(STREAM, "w") as writer:
            for number in range(first, last):
                event = NUMBERED[number]
                writer.write_event(event, key=event.split(b":")[2], number=number).result()
                self._note(Done(f"event {number}"))

    def _abort(self) -> None:
        self._begin("aborted").abort()

    def _give_up(self) -> None:
        with self._store.writer(STREAM) as writer:
            out = writer.begin_write_event("key-0")
            out.write(bytes(300))
            out.abort()


def check(store: Engine, notes: list[object], where: str) -> None:
    """See that every transaction is there wholly or not at all, in order, and that nothing was lost or doubled."""
    done = {note.name for note in notes if isinstance(note, Done)}
    if not any(info.name == STREAM for info in store.streams()):
        assert "created" not in done, where
        return
    found = events_of(store)
    check_events(found, done, where)
    for note in notes:
        if isinstance(note, Begun):
            check_status(store, note, found, where)
    check_replay(store, done, where)


def check_events(found: list[bytes], done: set[str], where: str) -> None:
    assert len(set(found)) == len(found), f"doubled: {where}"
    for name, events in EVENTS.items():
        there = [event for event in events if event in found]
        assert there in ([], events), f"half of {name}: {where}"
        assert name in {"aborted", "left"} or name not in done or there, f"lost {name}: {where}"
        assert name not in {"aborted", "left"} or not there, f"{name} came back: {where}"
    for number, event in enumerate(NUMBERED):
        assert f"event {number}" not in done or event in found, f"lost event {number}: {where}"
    for key in KEYS:
        mine = [event.split(b":") for event in found if event.split(b":")[2] == key.encode()]
        for group in {group for group, *_ in mine}:
            numbers = [int(number) for one, number, *_ in mine if one == group]
            assert numbers == sorted(numbers), f"out of order: {where}"
        order = list(dict.fromkeys(group for group, *_ in mine if group != b"numbered"))
        assert order == [name.encode() for name in EVENTS if name.encode() in order], f"out of order: {where}"


def check_status(store: Engine, begun: Begun, found: list[bytes], where: str) -> None:
    """A transaction whose events are there is committed; any other is unknown or aborted."""
    try:
        status = store.transactional_writer(STREAM).get(begun.transaction).status
    except NoSuchTransaction:
        status = None
    assert (status == "committed") == (EVENTS[begun.name][0] in found), f"{begun.name} is {status}: {where}"


def check_replay(store: Engine, done: set[str], where: str) -> None:
    """A source that begins again with its first event changes nothing but what was missing; transactions go on."""
    with store.writer(STREAM, "w") as writer:
        acked = [number for number in range(len(NUMBERED)) if f"event {number}" in done]
        assert not acked or (writer.last_number is not None and writer.last_number >= acked[-1]), where
        for number, event in enumerate(NUMBERED):
            writer.write_event(event, key=event.split(b":")[2], number=number)
    for size in (30, 200):
        with store.transactional_writer(STREAM).begin() as transaction:
            for key in KEYS:
                transaction.write_event(event_of("after", size, key, size), key=key)
    found = events_of(store)
    assert sorted(event for event in found if event.startswith(b"numbered")) == sorted(NUMBERED), where
    assert sum(event.startswith(b"after") for event in found) == 2 * len(KEYS), where


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
        assert not transaction_logs(manager), state.describe
        check(store, notes, state.describe)
    if published:
        assert not leftovers(manager, state.disk), state.describe


def fail_the_test(error: PenstockError) -> None:
    raise error


def test_a_crash_at_any_point_leaves_whole_transactions_and_whole_events() -> None:
    """Copied and spliced, across a scale, aborted, left open, large: what was said holds, the rest never was."""
    disk = RecordingDisk()
    with open_cpo("memory:") as cpo, store_on(disk, RecordedOracle(cpo, disk), "begun", seed=1) as store:  # type: ignore[arg-type]
        Life(store, disk.note, fail_the_test).run()
    points = disk.crash_points()
    with open_cpo("memory:") as cpo:
        for state in crash_states(disk):
            open_after(state, cpo)
    assert len(points) > 800, "the history has become too short to prove anything"


def recorded(cpo: Cpo, disk: RecordingDisk) -> Cpo:
    return RecordedOracle(cpo, disk)  # type: ignore[return-value]


@pytest.mark.parametrize("size", [30, 380], ids=["in the journal", "in the plog's own file"])
def test_a_crash_at_any_point_leaves_no_events_whose_transaction_is_unknown(size: int) -> None:
    """A caller that finds no such transaction writes its events again; plogs are switched all the while."""
    disk, begun = RecordingDisk(), dict[str, bytes]()
    with (
        open_cpo("memory:") as cpo,
        store_on(disk, recorded(cpo, disk), "begun", seed=1, direct_size_min=DIRECT) as store,
    ):
        store.create_stream(STREAM)
        for number in range(20):
            transaction = store.transactional_writer(STREAM).begin()
            for part in range(size // 30):
                transaction.write_event(event_of("one", number, str(part), 26))
            begun[transaction.id] = event_of("one", number, "0", 26)
            transaction.commit()
    points = disk.crash_points()
    with open_cpo("memory:") as cpo:
        for state in crash_states(disk):
            check_known(state, cpo, begun)
    assert len(points) > 250, "the history has become too short to prove anything"


def check_known(state: CrashState, cpo: Cpo, begun: dict[str, bytes]) -> None:
    """See that those transactions are committed whose events are there."""
    published = [note.plog_id for note in state.notes if isinstance(note, Published)]
    if not published:
        return
    newest = cpo.metadata_plog("begun")
    cpo.set_metadata_plog("begun", published[-1], expected=newest.version if newest else 0)
    with store_on(state.disk, cpo, "begun", seed=2, direct_size_min=DIRECT) as store:
        found = set(events_of(store)) if store.streams() else set()
        there = [transaction for transaction, event in begun.items() if event in found]
        assert [one for one in begun if is_committed(store, one)] == there, state.describe


def is_committed(store: Engine, transaction: str) -> bool:
    try:
        return store.transactions.get(transaction).status == "committed"
    except NoSuchTransaction:
        return False


class Stop(Exception):
    """The process ends here."""


def stopped_in_commit(name: str, patch: pytest.MonkeyPatch) -> CrashState:
    """Return the disk after the power went when a commit was on record, and no more than half done."""
    disk, calls = RecordingDisk(), count()
    submit_held = Segment.submit_held

    def submit_once(segment: Segment, header: StreamBlockHeader, *parts: Bytes) -> PendingBlock:
        if next(calls):
            raise Stop
        return submit_held(segment, header, *parts)

    def splice_never(_: Engine, plan: object, labels: object) -> None:
        raise Stop(plan)

    with open_cpo("memory:") as cpo, store_on(disk, RecordedOracle(cpo, disk), "begun", seed=1) as store:  # type: ignore[arg-type]
        life = Life(store, disk.note, fail_the_test)
        life.create()
        with patch.context() as inner:
            inner.setattr(Segment, "submit_held", submit_once)
            inner.setattr(Logs, "splice", splice_never)
            with pytest.raises(Stop):
                life.commit(name)
        return next(disk.crash_states(len(disk.crash_points()) - 1, power_set_max=1))


@pytest.mark.parametrize("name", ["small", "spilled", "scaled"])
def test_a_crash_while_a_commit_is_finished_is_recovered_from(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that crash once crash again, and most often while they recover; the commit takes effect, once."""
    first = stopped_in_commit(name, monkeypatch)
    notes = [*first.notes, Done(name)]
    disk = RecordingDisk(first.disk)
    with open_cpo("memory:") as cpo:
        [published] = [note.plog_id for note in notes if isinstance(note, Published)][-1:]
        cpo.set_metadata_plog("begun", published, expected=0)
        with store_on(disk, RecordedOracle(cpo, disk), "begun", seed=3) as store:  # type: ignore[arg-type]
            check_events(events_of(store), {name}, "after the first crash")
    with open_cpo("memory:") as cpo:
        points = disk.crash_points()
        for state in crash_states(disk):
            open_after(state, cpo, notes)
    assert len(points) > 30


# Faults


def live(disk: FaultyDisk, cpo: Cpo) -> tuple[list[object], list[PenstockError]]:
    """Live through a life on a disk; closing the store may fail, too."""
    notes: list[object] = []
    errors: list[PenstockError] = []
    with suppress(PenstockError), store_on(disk, cpo, "main", seed=1) as store:
        Life(store, notes.append, lambda error: errors.append(see_whole(store, error))).run()
    return notes, errors


def see_whole(store: Engine, error: PenstockError) -> PenstockError:
    """Check that right after an error, too, no reader sees half of anything."""
    with suppress(PenstockError):
        check_events(events_of(store), set(), str(error))
    return error


def calls_of_a_life(call: Call) -> int:
    disk = FaultyDisk(MemoryDisk())
    with open_cpo("memory:") as cpo:
        assert not live(disk, cpo)[1]
    return disk.calls[call]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("call", ["create", "pwritev", "datasync", "sync", "reserve", "truncate", "remove"])
def test_any_call_may_fail_and_transactions_are_whole(call: Call, fault: Fault) -> None:
    """A commit that failed may have taken effect or not, in no segment or in all; what was said to be there is."""
    for number in failing_calls(calls_of_a_life(call), fault):
        memory = MemoryDisk()
        disk = FaultyDisk(memory)
        disk.fail(fault, on=call, call=number)
        with open_cpo("memory:") as cpo:
            notes, _ = live(disk, cpo)
            with store_on(memory, cpo, "main", seed=2) as store:
                store.create_stream(STREAM, 2, exist_ok=True)
                manager = store._manager
                assert not transaction_logs(manager)
                check(store, notes, f"{call} {number} {fault}")
            begun = Done("created") in notes  # before that, one plog may be left that is on no record
            assert len(leftovers(manager, memory)) <= int(not begun), f"{call} {number} {fault}"
