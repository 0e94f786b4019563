"""Power loss at every point of a history, in every state it may leave: what was acknowledged is there, and no more.

A history does everything plogs can do, in a journal so small that it turns several times. It notes, before and after
each call, what a crash may leave of every plog. The checkpoint, which runs in the background, is done either at once
or as late as possible, so that both ends of the race are seen, and every run is the same.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import NoSuchPlog, PlogCorrupt
from penstock.plog import FilePlogs, PlogId
from penstock.plog._block import PLOG_BLOCK_HEADER_SIZE
from penstock.plog._journal_file import RECORD_HEADER_SIZE
from penstock.testing import MemoryDisk, RecordingDisk, SeededRandom
from penstock.testing._operations import Note
from tests.sampling import EXPLORES, crash_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.plog import PendingAppend
    from penstock.plog._journal import Ticket
    from penstock.ports import Disk
    from penstock.testing import CrashState

    Expected = Mapping[PlogId, "Fate"]

A, B, C, D, E, F, NEW = (PlogId("local", "main", letter * 32) for letter in "abcdef0")
JOURNAL_SIZE: Final = 2048
DIRECT_SIZE_MIN: Final = 300


def open_on(disk: Disk, *, open_files_max: int = 256) -> FilePlogs:
    return FilePlogs(
        disk,
        random=SeededRandom(1),
        journal_size=JOURNAL_SIZE,
        direct_size_min=DIRECT_SIZE_MIN,
        open_files_max=open_files_max,
    )


@dataclass(frozen=True)
class Fate:
    """What a plog may be after a crash: which blocks were submitted, and how much of it is certain."""

    blocks: tuple[bytes, ...] = ()
    acked: int = 0
    seals: frozenset[int | None] = frozenset([None])
    exists: frozenset[bool] = frozenset([True])

    @property
    def being_created(self) -> bool:
        return not self.acked and self.seals == frozenset([None]) and self.exists == frozenset([True, False])

    @property
    def submitted(self) -> bytes:
        return b"".join(self.blocks)

    def lost_block(self, length: int) -> bytes:
        """The first block that is not there if the plog is this long; any block if all are."""
        end = 0
        for block in self.blocks:
            if end >= length:
                return block
            end += len(block)
        return b"one block more"


class Scribe:
    """Does things to plogs, and notes on the disk what may be left of them from then on."""

    def __init__(self, disk: RecordingDisk, *, open_files_max: int) -> None:
        self.disk, self.open_files_max = disk, open_files_max
        self.fates: dict[PlogId, Fate] = {}
        self.pending: list[tuple[PlogId, int, PendingAppend]] = []
        self.unsynced: dict[PlogId, Fate] = {}
        self.count = 0
        disk.note({})
        self.plogs = open_on(disk, open_files_max=open_files_max)

    def set(self, plog_id: PlogId, fate: Fate) -> None:
        self.fates[plog_id] = fate
        self.disk.note(dict(self.fates))

    def create(self, plog_id: PlogId, *, size: int = 4000) -> None:
        self.set(plog_id, Fate(exists=frozenset([True, False])))
        self.plogs.create(plog_id=plog_id, size=size)
        self.set(plog_id, Fate())

    def submit_create(self, plog_id: PlogId, *, size: int = 4000) -> None:
        """Create without waiting; the plog is certain to be there with its first append, or after :meth:`behind`."""
        self.set(plog_id, Fate(exists=frozenset([True, False])))
        self.plogs.submit_create(plog_id, size)
        self.unsynced[plog_id] = Fate()

    def submit_seal(self, plog_id: PlogId, offset: int) -> None:
        """Seal without waiting; that is certain after :meth:`behind`."""
        fate = self.fates[plog_id]
        self.set(plog_id, replace(fate, seals=frozenset([None, offset])))
        assert self.plogs.submit_seal(plog_id, offset)[0] == offset
        self.unsynced[plog_id] = replace(fate, seals=frozenset([offset]))

    def behind(self, plog_id: PlogId) -> None:
        """Append so little that it is in the journal, behind all that was not waited for."""
        assert self.plogs.keeps_order(plog_id, 10)
        self.append(plog_id, 10)
        self.fates |= self.unsynced
        self.unsynced = {}
        self.disk.note(dict(self.fates))

    def submit(self, plog_id: PlogId, size: int) -> None:
        fate = self.fates[plog_id]
        self.count += 1
        block = (f"<{plog_id.uid[0]} {self.count}>".encode() * size)[:size]
        after = replace(fate, blocks=(*fate.blocks, block))
        self.set(plog_id, after)
        self.pending.append((plog_id, len(after.submitted), self.plogs.submit(plog_id, len(fate.submitted), block)))

    def collect(self) -> None:
        for plog_id, end, pending in self.pending:
            assert pending.result() == end
            self.set(plog_id, replace(self.fates[plog_id], acked=end, exists=frozenset([True])))
        self.pending = []

    def append(self, plog_id: PlogId, *sizes: int) -> None:
        for size in sizes:
            self.submit(plog_id, size)
            self.collect()

    def fill_journal(self, plog_id: PlogId) -> None:
        """Append until the next record, however small, makes the journal turn."""
        while (room := self.journal_room()) >= RECORD_HEADER_SIZE:
            largest = room - RECORD_HEADER_SIZE - PLOG_BLOCK_HEADER_SIZE
            self.append(plog_id, largest if largest <= 290 else min(largest - 100, 290))

    def journal_room(self) -> int:
        return JOURNAL_SIZE - self.plogs._journal._place

    def seal(self, plog_id: PlogId, offset: int) -> None:
        fate = self.fates[plog_id]
        length = min(offset, fate.acked)
        self.set(plog_id, replace(fate, seals=frozenset([None, length])))
        assert self.plogs.seal(plog_id, offset) == length
        self.set(plog_id, replace(fate, seals=frozenset([length])))

    def delete(self, plog_id: PlogId) -> None:
        self.set(plog_id, replace(self.fates[plog_id], exists=frozenset([True, False])))
        self.plogs.delete(plog_id)
        self.set(plog_id, Fate(exists=frozenset([False])))

    def reopen(self) -> None:
        self.plogs.close()
        self.plogs = open_on(self.disk, open_files_max=self.open_files_max)

    @contextlib.contextmanager
    def crowd(self, plog_id: PlogId, *sizes: int) -> Iterator[None]:
        """Let others submit appends between the record of the next change and its sync: all are one group then."""
        journal = self.plogs._journal
        wait = journal.wait

        def wait_in_a_crowd(ticket: Ticket) -> None:
            journal.wait = wait  # type: ignore[method-assign]
            for size in sizes:
                self.submit(plog_id, size)
            wait(ticket)

        journal.wait = wait_in_a_crowd  # type: ignore[method-assign]
        yield
        self.collect()


def groups_and_large_appends(do: Scribe) -> None:
    """Small appends in groups, torn at sectors; large ones; small ones behind large ones that wait."""
    do.create(A)
    do.create(B)
    do.append(A, 10, 200)
    for plog_id, size in ((A, 150), (B, 150), (A, 150), (B, 20)):
        do.submit(plog_id, size)
    do.collect()
    do.append(B, 700)
    for plog_id, size in ((B, 30), (A, 310), (A, 15), (B, 40)):
        do.submit(plog_id, size)
    do.collect()
    do.append(A, 25)


def seals_and_deletions(do: Scribe) -> None:
    """Seals in the middle of a block and at the end, of empty plogs too; deletions; the same id again."""
    do.create(A)
    do.append(A, 100, 350, 50)
    do.seal(A, 120)
    do.create(B)
    do.seal(B, 0)
    do.create(C)
    do.append(C, 40, 300)
    do.delete(C)
    do.delete(B)
    do.create(C, size=2000)
    do.append(C, 40, 30, 400)
    do.seal(C, 1 << 40)
    do.delete(A)


def turns(do: Scribe) -> None:
    """The journal is full again and again, with changes of every kind at the turn."""
    do.create(B, size=20_000)
    do.fill_journal(B)
    do.create(A)
    do.append(A, 400)
    do.fill_journal(B)
    do.append(A, 20, 30)
    do.fill_journal(B)
    do.seal(A, 410)
    do.fill_journal(B)
    for plog_id, size in ((B, 150), (B, 290), (B, 290), (B, 20), (B, 290), (B, 290), (B, 290), (B, 290), (B, 20)):
        do.submit(plog_id, size)
    do.collect()
    do.fill_journal(B)
    do.append(B, 10)


def deletions_at_the_turn(do: Scribe) -> None:
    """The record of a deletion opens a generation, while the checkpoint of the one before looks at the same plog."""
    do.create(B, size=20_000)
    for plog_id in (A, C):
        do.create(plog_id)
        do.append(plog_id, 20, 350, 10)
        do.fill_journal(B)
        do.delete(plog_id)
        do.append(B, 30)
    do.create(A)
    do.append(A, 310, 5)
    do.fill_journal(B)
    do.append(B, 5)
    do.fill_journal(B)
    do.delete(A)
    do.create(A)
    do.append(A, 320)


def reopenings(do: Scribe) -> None:
    """Closing, opening and going on, with and without anything in the journal."""
    do.create(A)
    do.append(A, 100)
    do.reopen()
    do.append(A, 400)
    do.reopen()
    do.append(A, 30)
    do.create(B)
    do.append(B, 500)
    do.reopen()
    for plog_id, size in ((A, 290), (B, 200), (A, 150)):
        do.submit(plog_id, size)
    do.collect()
    do.reopen()
    for plog_id, size in ((B, 20), (A, 450), (A, 20)):
        do.submit(plog_id, size)
    do.collect()
    do.seal(B, 400)
    do.delete(A)
    do.reopen()


def changes_that_nobody_waits_for(do: Scribe) -> None:
    """Plogs are created and sealed without waiting, before small and large appends, and where the journal turns."""
    do.create(B, size=20_000)
    for large, small in ((A, C), (D, E)):
        do.submit_create(large)
        do.append(large, 400)
        do.unsynced.clear()
        do.append(large, 20)
        do.submit_create(small)
        do.behind(B)
        do.append(small, 30)
        do.submit_seal(large, 420)
        do.append(small, 310)
        do.behind(B)
        do.fill_journal(B)
    do.submit_seal(C, 340)
    do.submit_create(F)
    do.append(F, 350)
    do.submit_seal(F, 350)
    del do.unsynced[C]
    do.append(B, 290, 290)


def turns_within_a_group(do: Scribe) -> None:
    """One group is longer than the journal: a change is durable, checkpointed and void before it is acknowledged."""
    do.create(B, size=20_000)
    with do.crowd(B, *[280] * 9):
        do.create(A)
    do.append(A, 20, 340)
    with do.crowd(B, *[280] * 9):
        do.seal(A, 300)
    do.create(C)
    do.append(C, 30)
    with do.crowd(B, *[280] * 9):
        do.delete(A)
    with do.crowd(B, *[280] * 5):
        do.delete(C)
    do.append(B, *[280] * 9)


def evictions(do: Scribe) -> None:
    """Files are closed and plogs forgotten and read again, while the journal still has records of theirs."""
    do.create(B, size=20_000)
    for plog_id, other in ((A, D), (C, E)):
        do.create(plog_id)
        do.append(plog_id, 5)
        do.fill_journal(B)
        if plog_id == A:
            do.append(A, 20)
        else:
            do.seal(C, 5)
        do.plogs.views(plog_id, 0, 1)
        do.create(other)
        do.append(other, 10)
        do.append(B, 10)
        do.delete(other)
        if plog_id == A:
            do.append(A, 310)
            do.seal(A, 330)
        else:
            do.delete(C)
        do.fill_journal(B)
        do.append(B, 10)
    do.fill_journal(B)
    do.append(B, 10)


class AtOnce:
    """A thread that has run when it has started."""

    def __init__(self, *, target: Callable[..., None], args: tuple[object, ...] = (), name: str = "") -> None:
        self.task: Callable[[], None] | None = lambda: target(*args)
        self.name = name

    def run(self) -> None:
        if self.task is not None:
            task, self.task = self.task, None
            task()

    def start(self) -> None:
        self.run()

    def join(self) -> None:
        assert self.task is None


class AtLast(AtOnce):
    """A thread that does nothing until somebody waits for it."""

    def start(self) -> None:
        pass

    def join(self) -> None:
        self.run()


@dataclass(frozen=True)
class Case:
    """A history, when its checkpoints run, and how many files may be open."""

    history: Callable[[Scribe], None]
    thread: type[AtOnce]
    open_files_max: int = 256

    def __str__(self) -> str:
        return f"{self.history.__name__} {self.thread.__name__} {self.open_files_max}"


CASES: Final = [
    *(
        Case(history, thread)
        for history in (
            groups_and_large_appends,
            seals_and_deletions,
            turns,
            deletions_at_the_turn,
            changes_that_nobody_waits_for,
            turns_within_a_group,
            reopenings,
        )
        for thread in (AtOnce, AtLast)
    ),
    Case(evictions, AtOnce, open_files_max=1),
    Case(reopenings, AtOnce, open_files_max=1),
]


RECOVERY_CASES: Final = [case for case in CASES if case.thread is AtLast or case.history is evictions]


@pytest.fixture(params=CASES, ids=str)
def history(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[RecordingDisk], None]:
    """A function that lets a history happen on a disk."""
    case: Case = request.param
    monkeypatch.setattr(threading, "Thread", case.thread)
    return lambda disk: case.history(Scribe(disk, open_files_max=case.open_files_max))


def record(history: Callable[[RecordingDisk], None]) -> RecordingDisk:
    disk = RecordingDisk()
    history(disk)
    return disk


def all_states(disk: RecordingDisk, *, power_set_max: int = 5 if EXPLORES else 3) -> Iterator[CrashState]:
    """Return every state of each point that is tried: those of the sample, and every eighth one."""
    for point in sorted({*crash_points(disk), *disk.crash_points()[::8]}):
        yield from disk.crash_states(point, power_set_max=power_set_max)


def expected(state: CrashState) -> Expected:
    fates = state.notes[-1] if state.notes else {}
    assert isinstance(fates, dict)
    return fates


def check(plogs: FilePlogs, fates: Expected) -> dict[PlogId, bytes]:
    """Compare with what may be there; return what is."""
    contents = {}
    for plog_id, fate in fates.items():
        try:
            info = plogs.info(plog_id)
        except NoSuchPlog:
            assert False in fate.exists, f"{plog_id} is gone"
            continue
        except PlogCorrupt:
            # A head that is there in part, or stale, may be a damaged plog's: the file is left for its owner to delete.
            assert fate.being_created, f"{plog_id} is damaged"
            plogs.delete(plog_id)
            continue
        assert True in fate.exists, f"{plog_id} is there"
        content = bytes(plogs.read(plog_id, 0, info.length))
        assert content == fate.submitted[: info.length], f"{plog_id} holds something else"
        if info.sealed:
            assert info.length in fate.seals, f"{plog_id} is sealed at {info.length}"
        else:
            assert None in fate.seals, f"{plog_id} is not sealed"
            assert info.length >= fate.acked, f"{plog_id} ends at {info.length}, {fate.acked} were acknowledged"
        contents[plog_id] = content
    return contents


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for name in disk.names():
        source, target = disk.open(name), copy.create(name)
        target.reserve(source.size())
        target.pwritev([source.view(0, source.size())], 0)
    return copy


def contents_of(plogs: FilePlogs, plog_ids: Expected) -> dict[PlogId, bytes]:
    contents = {}
    for plog_id in plog_ids:
        try:
            contents[plog_id] = bytes(plogs.read(plog_id, 0, plogs.info(plog_id).length))
        except NoSuchPlog:
            continue
    return contents


def put_in_place_of_lost_ones(plogs: FilePlogs, fates: Expected, contents: dict[PlogId, bytes]) -> Iterator[PlogId]:
    """Append to one plog after another a block of the size of the one that was lost there, and of other bytes."""
    for plog_id in list(contents):
        if not plogs.info(plog_id).sealed:
            length = len(contents[plog_id])
            block = bytes(byte ^ 0xFF for byte in fates[plog_id].lost_block(length))
            assert plogs.append(plog_id, length, block) == length + len(block)
            contents[plog_id] += block
            yield plog_id


def check_goes_on(disk: MemoryDisk, plogs: FilePlogs, fates: Expected, contents: dict[PlogId, bytes]) -> None:
    """The recovered store takes appends, which are there after the next end, and nothing lost comes back with them."""
    for number, _ in enumerate(put_in_place_of_lost_ones(plogs, fates, contents)):
        if number < 2:  # of the records in a torn group, those behind the first may come back
            assert contents_of(open_on(copy_of(disk)), fates) == contents, "after an append and kill -9"
    plogs.create(plog_id=NEW, size=1000)
    plogs.append(NEW, 0, b"new")
    contents[NEW] = b"new"
    plogs.close()
    with open_on(disk) as reopened:
        assert contents_of(reopened, {**fates, NEW: Fate()}) == contents, "after appends and closing"


def test_no_power_loss_takes_what_was_acknowledged_or_adds_what_was_not_written(
    history: Callable[[RecordingDisk], None],
) -> None:
    """This is what durable means; every state of a crash point is tried, and each store goes on after."""
    disk = record(history)
    count = 0
    for state in all_states(disk):
        count += 1
        try:
            fates = expected(state)
            plogs = open_on(state.disk)
            check_goes_on(state.disk, plogs, fates, check(plogs, fates))
        except Exception as error:
            raise AssertionError(f"{state.describe}: {error!r}") from error
    assert count > 100


@pytest.mark.parametrize("history", RECOVERY_CASES, ids=str, indirect=True)
def test_power_loss_while_recovering_from_a_power_loss_takes_nothing_more(
    history: Callable[[RecordingDisk], None],
) -> None:
    """Power comes back in bursts: recovery is itself a history of writes, with crash points of its own."""
    disk = record(history)
    seen: set[tuple[str, ...]] = set()
    count = 0
    for state in all_states(disk):
        recovery = RecordingDisk(copy_of(state.disk))
        open_on(recovery)
        shape = tuple(str(operation).rsplit(" ", 1)[0] for operation in recovery._record.operations)
        if shape in seen:  # the same calls on the same files, only at other places in them
            continue
        seen.add(shape)
        for again in all_states(recovery, power_set_max=2):
            count += 1
            try:
                with open_on(again.disk) as plogs:
                    check(plogs, expected(state))
            except Exception as error:
                raise AssertionError(f"{state.describe}, then {again.describe}: {error!r}") from error
    assert count > 100


class Killed(BaseException):
    """The process is gone, what it wrote is in the system's memory."""


class Killing:
    """The lock of a record, which ends the process at whatever it does after so many operations."""

    def __init__(self, disk: RecordingDisk, count: int) -> None:
        self.record, self.lock, self.count = disk._record, disk._record.lock, count

    def __enter__(self) -> None:
        if sum(not isinstance(operation, Note) for operation in self.record.operations) >= self.count:
            raise Killed
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    def locked(self) -> bool:
        return self.lock.locked()


def record_until_killed(history: Callable[[RecordingDisk], None], *, count: int) -> RecordingDisk:
    disk = RecordingDisk()
    lock = disk._record.lock
    disk._record.lock = Killing(disk, count)  # type: ignore[assignment]
    with contextlib.suppress(Killed):
        history(disk)
    disk._record.lock = lock
    disk.close()
    return disk


def last_note(disk: RecordingDisk) -> Expected:
    notes = [operation.payload for operation in disk._record.operations if isinstance(operation, Note)]
    fates = notes[-1] if notes else {}
    assert isinstance(fates, dict)
    return fates


def seen_by_a_reader(plogs: FilePlogs, fates: Expected) -> dict[PlogId, Fate]:
    """What the plogs are now is certain from now on, because somebody has looked."""
    found = dict(fates)
    for plog_id, content in check(plogs, fates).items():
        info = plogs.info(plog_id)
        seals = frozenset([info.length if info.sealed else None])
        found[plog_id] = Fate((content,) if content else (), info.length, seals)
    gone = {plog_id for plog_id, fate in fates.items() if not fate.being_created} - set(contents_of(plogs, fates))
    return {**found, **{plog_id: Fate(exists=frozenset([False])) for plog_id in gone}}


def test_power_loss_after_a_killed_process_takes_nothing_that_its_successor_showed(
    history: Callable[[RecordingDisk], None],
) -> None:
    """What the first process wrote and did not sync is read well by the second, and is still not on the disk."""
    operations = [operation for operation in record(history)._record.operations if not isinstance(operation, Note)]
    count, step = 0, 1 if EXPLORES else 4
    for kill_point, operation in list(enumerate(operations, start=1))[::step]:
        disk = record_until_killed(history, count=kill_point)
        plogs = open_on(disk)
        fates = seen_by_a_reader(plogs, last_note(disk))
        for plog_id, fate in fates.items():
            if False not in fate.exists and None in fate.seals:
                plogs.append(plog_id, fate.acked, b"successor")
                fates[plog_id] = replace(fate, blocks=(*fate.blocks, b"successor"), acked=fate.acked + 9)
        for state in disk.crash_states(disk.crash_points()[-1], power_set_max=4 if EXPLORES else 3):
            count += 1
            try:
                with open_on(state.disk) as recovered:
                    check(recovered, fates)
            except Exception as error:
                raise AssertionError(f"killed after {operation}, {state.describe}: {error!r}") from error
    assert count > len(operations) // step
