"""Many threads: they share syncs, they never see what is not durable, and none waits for ever."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import sys
import threading
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import DiskFailed, PlogSealed, ReadOutOfRange, StoreClosed, WrongOffset
from penstock.plog import FilePlogs, PlogId, PlogInfo
from penstock.testing import MemoryDisk
from penstock.testing._memory import MemoryFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.plog import PendingAppend, Plogs
    from penstock.plog._journal import Ticket
    from penstock.ports import Bytes

LONG: Final = 20.0  # seconds after which a thread that should be done is taken for stuck
MOMENT: Final = 0.05  # seconds in which a thread that must wait is watched waiting
DIRECT: Final = 1 << 12


class Task(threading.Thread):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.value: object = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.value = self.call()
        except BaseException as error:  # noqa: BLE001 - handed to who asks for the outcome
            self.error = error

    def outcome(self) -> object:
        self.join(LONG)
        assert not self.is_alive(), "stuck"
        if self.error is not None:
            raise self.error
        return self.value


class HeldFile(MemoryFile):
    """A file whose syncs its disk may hold."""

    __slots__ = ("disk", "name")

    def __init__(self, disk: HeldDisk, name: str, file: MemoryFile) -> None:
        super().__init__(file._content())
        self.disk, self.name = disk, name

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        size = super().pwritev(parts, offset)
        self.disk.writes.append((self.name, offset, offset + size))
        return size

    def datasync(self) -> None:
        self.disk.sync_file(self.name)


class HeldDisk(MemoryDisk):
    """A disk as slow as a test wants: a sync ends when the gate is open, and fails if there is an error to raise."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.syncing = threading.Semaphore(0)
        self.errors: list[BaseException] = []
        self.syncs: Counter[str] = Counter()
        self.writes: list[tuple[str, int, int]] = []

    def create(self, name: str) -> HeldFile:
        return HeldFile(self, name, super().create(name))

    def open(self, name: str) -> HeldFile:
        return HeldFile(self, name, super().open(name))

    def hold(self) -> None:
        self.syncing = threading.Semaphore(0)
        self.gate.clear()

    def sync_file(self, name: str) -> None:
        self.syncs[name] += 1
        self.syncing.release()
        assert self.gate.wait(LONG)
        if self.errors:
            raise self.errors.pop()

    def wait_for_sync(self) -> None:
        """Return once somebody waits for the disk."""
        assert self.syncing.acquire(timeout=LONG)


@pytest.fixture
def disk() -> Iterator[HeldDisk]:
    disk = HeldDisk()
    yield disk
    disk.gate.set()


@pytest.fixture
def held(disk: HeldDisk) -> FilePlogs:
    """Plogs on a disk that can be held."""
    return FilePlogs(disk, journal_size=1 << 16, direct_size_min=DIRECT)


def content(plogs: Plogs, plog_id: PlogId) -> bytes:
    return bytes(plogs.read(plog_id, 0, plogs.info(plog_id).length))


def in_threads(calls: Sequence[Callable[[], object]]) -> list[object]:
    tasks = [Task(call) for call in calls]
    return [task.outcome() for task in tasks]


def append_all(plogs: Plogs, plog_id: PlogId, blocks: Sequence[bytes]) -> None:
    offset = 0
    for block in blocks:
        offset = plogs.append(plog_id, offset, block)


# Nothing lost


@pytest.mark.parametrize("journal_size", [4096, 1 << 20], ids=["turning journal", "large journal"])
def test_many_threads_fill_many_plogs(open_store: Callable[..., Plogs], journal_size: int) -> None:
    """Every log has a writer of its own; all go through one journal."""
    plogs = open_store(journal_size=journal_size, open_files_max=4)
    blocks = {
        plogs.create(size=1 << 16): [bytes([thread, number]) * (number * 37 % 400 + 1) for number in range(60)]
        for thread in range(8)
    }
    in_threads([lambda plog_id=plog_id: append_all(plogs, plog_id, blocks[plog_id]) for plog_id in blocks])  # type: ignore[misc]
    expected = {plog_id: b"".join(parts) for plog_id, parts in blocks.items()}
    assert {plog_id: content(plogs, plog_id) for plog_id in blocks} == expected
    plogs = open_store()
    assert {plog_id: content(plogs, plog_id) for plog_id in blocks} == expected


def test_many_threads_fill_one_plog(open_store: Callable[..., Plogs]) -> None:
    """An append at the right offset is taken, any other is refused with the right one; nothing is lost or doubled."""
    plogs = open_store()
    plog_id = plogs.create(size=1 << 16)
    offsets: dict[bytes, int] = {}

    def insist(thread: int) -> None:
        offset = 0
        for number in range(40):
            block = bytes([thread, number]) * (20 if number % 9 else 300)
            while True:
                try:
                    pending = plogs.submit(plog_id, offset, block)
                except WrongOffset as error:
                    offset = error.expected
                else:
                    offsets[block] = offset
                    offset = pending.result()
                    break

    in_threads([lambda thread=thread: insist(thread) for thread in range(6)])  # type: ignore[misc]
    assert len(offsets) == 6 * 40
    for block, offset in offsets.items():
        assert bytes(plogs.read(plog_id, offset, len(block))) == block
    assert plogs.info(plog_id).length == sum(map(len, offsets))


def test_creating_one_id_succeeds_once(open_store: Callable[..., Plogs]) -> None:
    """Two owners of one log both create its next plog: one of them must learn that it is not alone."""
    plogs = open_store()
    for _ in range(20):
        plog_id, barrier = plogs.new_id(), threading.Barrier(4)

        def create(plog_id: PlogId = plog_id, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(LONG)
            plogs.create(plog_id=plog_id, size=10)

        tasks = [Task(create) for _ in range(4)]
        for task in tasks:
            task.join(LONG)
        assert Counter(type(task.error).__name__ for task in tasks) == {"NoneType": 1, "PlogExists": 3}


def test_seal_among_appends_ends_at_what_was_acknowledged(open_store: Callable[..., Plogs]) -> None:
    """A fence falls between two appends: those before it are in the length, those behind it are refused."""
    plogs = open_store()
    for round_number in range(10):
        plog_id, acked = plogs.create(size=1 << 16), [0]

        def write(plog_id: PlogId = plog_id, acked: list[int] = acked) -> None:
            for number in itertools.count():
                acked.append(plogs.append(plog_id, acked[-1], bytes(600 if number % 5 == 4 else 50)))

        writer = Task(write)
        while plogs.info(plog_id).length < 100 * round_number:
            pass
        length = plogs.seal(plog_id, 1 << 40)
        with pytest.raises(PlogSealed) as caught:
            writer.outcome()
        assert caught.value.sealed_offset == length == acked[-1]


# Sharing syncs


def test_threads_that_wait_together_share_one_sync(held: FilePlogs) -> None:
    """A thousand logs cost one sync, not a thousand."""
    plog_ids = [held.create(size=1000) for _ in range(16)]
    barrier = threading.Barrier(16)

    def write(plog_id: PlogId) -> None:
        for number in range(10):
            pending = held.submit(plog_id, 8 * number, b"8 bytes.")
            barrier.wait(LONG)  # all have submitted
            pending.result()
            barrier.wait(LONG)  # all are done

    before = held.syncs.count
    in_threads([lambda plog_id=plog_id: write(plog_id) for plog_id in plog_ids])  # type: ignore[misc]
    assert held.syncs.count - before == 10
    assert all(content(held, plog_id) == b"8 bytes." * 10 for plog_id in plog_ids)


def test_appends_that_come_during_a_sync_share_the_next(held: FilePlogs, disk: HeldDisk) -> None:
    """The slower the disk, the larger the groups: that is what keeps many writers quick."""
    plog_ids = [held.create(size=1000) for _ in range(50)]
    syncs = disk.syncs.total()
    disk.hold()
    leader = Task(lambda: held.append(plog_ids[0], 0, b"first"))
    disk.wait_for_sync()
    pending = [held.submit(plog_id, 0, b"second") for plog_id in plog_ids[1:]]
    disk.gate.set()
    assert leader.outcome() == 5
    assert in_threads([append.result for append in pending]) == [6] * 49
    assert disk.syncs.total() - syncs == 2


def test_large_appends_to_one_plog_share_a_sync(held: FilePlogs, disk: HeldDisk) -> None:
    """The file's sync covers everything written to it before."""
    plog_id = held.create(size=20 * DIRECT)
    syncs = disk.syncs.total()
    pending = [held.submit(plog_id, number * DIRECT, bytes(DIRECT)) for number in range(5)]
    assert pending[-1].result() == 5 * DIRECT
    assert [append.result() for append in pending] == [DIRECT * number for number in range(1, 6)]
    assert disk.syncs.total() - syncs == 1


# Nothing shown too early


@pytest.mark.parametrize("size", [10, DIRECT], ids=["journaled", "direct"])
def test_readers_do_not_see_what_is_not_durable(held: FilePlogs, disk: HeldDisk, size: int) -> None:
    """What a reader has acted upon must not be gone after a power loss."""
    plog_id = held.create(size=1 << 16)
    held.append(plog_id, 0, b"before")
    disk.hold()
    writer = Task(lambda: held.append(plog_id, 6, b"x" * size))
    disk.wait_for_sync()
    assert held.info(plog_id) == PlogInfo(6, sealed=False, size=1 << 16)
    with pytest.raises(ReadOutOfRange) as caught:
        held.read(plog_id, 0, 7)
    assert caught.value.length == 6
    assert content(held, plog_id) == b"before"
    disk.gate.set()
    assert writer.outcome() == 6 + size
    assert content(held, plog_id) == b"before" + b"x" * size


def test_nothing_is_held_up_by_a_slow_sync_but_who_waits_for_it(held: FilePlogs, disk: HeldDisk) -> None:
    """Reads, refusals and new submissions to the same plog go on."""
    plog_id, other = held.create(size=1000), held.create(size=1000)
    held.append(other, 0, b"other")
    disk.hold()
    writer = Task(lambda: held.append(plog_id, 0, b"data"))
    disk.wait_for_sync()
    assert content(held, other) == b"other"
    with pytest.raises(WrongOffset):
        held.submit(plog_id, 0, b"data")
    pending = held.submit(plog_id, 4, b"more")
    disk.gate.set()
    assert (writer.outcome(), pending.result()) == (4, 8)


@pytest.mark.parametrize("operation", ["create", "seal", "delete"])
def test_change_is_not_done_before_it_is_durable(held: FilePlogs, disk: HeldDisk, operation: str) -> None:
    """A caller that learns that a plog is there, sealed or gone records it elsewhere."""
    plog_id = held.create(size=1000)
    held.append(plog_id, 0, b"data")
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: held.create(size=1000),
        "seal": lambda: held.seal(plog_id, 4),
        "delete": lambda: held.delete(plog_id),
    }
    disk.hold()
    task = Task(calls[operation])
    disk.wait_for_sync()
    task.join(MOMENT)
    assert task.is_alive()
    disk.gate.set()
    task.outcome()


def test_second_seal_waits_for_the_first_to_be_durable(held: FilePlogs, disk: HeldDisk) -> None:
    """Its caller is told that the plog is sealed, too, and a power loss now would unseal it."""
    plog_id = held.create(size=1000)
    held.append(plog_id, 0, b"data")
    disk.hold()
    first = Task(lambda: held.seal(plog_id, 4))
    disk.wait_for_sync()
    second = Task(lambda: held.seal(plog_id, 4))
    second.join(MOMENT)
    assert second.is_alive()
    disk.gate.set()
    assert (first.outcome(), second.outcome()) == (4, 4)


def test_readers_see_a_prefix_while_it_is_written(open_store: Callable[..., Plogs]) -> None:
    """A follower reads what the writer has acknowledged, and never a hole or a half block."""
    plogs = open_store(open_files_max=1)
    plog_id, other = plogs.create(size=1 << 16), plogs.create(size=1000)
    blocks = [bytes([number % 251]) * (number * 31 % 700 + 1) for number in range(120)]
    data = b"".join(blocks)
    plogs.append(other, 0, b"other")

    def follow() -> int:
        length = 0
        while length < len(data):
            seen = plogs.info(plog_id).length
            assert seen >= length
            assert bytes(plogs.read(plog_id, length, seen - length)) == data[length:seen]
            assert content(plogs, other) == b"other"
            length = seen
        return length

    readers = [Task(follow) for _ in range(3)]
    append_all(plogs, plog_id, blocks)
    assert [reader.outcome() for reader in readers] == [len(data)] * 3


# No thread waits for ever


def test_refused_append_does_not_hold_up_the_others(held: FilePlogs) -> None:
    """One writer's mistake is its own."""
    plog_ids = [held.create(size=100) for _ in range(8)]
    barrier = threading.Barrier(8)

    def write(number: int, plog_id: PlogId) -> int:
        barrier.wait(LONG)
        return held.append(plog_id, number % 2, b"data")

    tasks = [Task(lambda n=number, p=plog_id: write(n, p)) for number, plog_id in enumerate(plog_ids)]  # type: ignore[misc]
    for task in tasks[::2]:
        assert task.outcome() == 4
    for task in tasks[1::2]:
        with pytest.raises(WrongOffset):
            task.outcome()


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, os.strerror(errno.EIO)), KeyboardInterrupt(), MemoryError()], ids=repr
)
def test_failed_sync_is_told_to_everybody_who_waits(held: FilePlogs, disk: HeldDisk, error: BaseException) -> None:
    """Whatever ends the one thread that syncs for all, the others must not wait for it."""
    plog_ids = [held.create(size=100) for _ in range(5)]
    disk.hold()
    disk.errors.append(error)
    leader = Task(lambda: held.append(plog_ids[0], 0, b"first"))
    disk.wait_for_sync()
    followers = [Task(lambda p=plog_id: held.append(p, 0, b"second")) for plog_id in plog_ids[1:]]  # type: ignore[misc]
    disk.gate.set()
    with pytest.raises((DiskFailed, type(error))):
        leader.outcome()
    for follower in followers:
        with pytest.raises(DiskFailed) as caught:
            follower.outcome()
        assert caught.value.stopped
    with pytest.raises(DiskFailed):
        held.append(plog_ids[0], 5, b"third")
    assert [held.info(plog_id).length for plog_id in plog_ids] == [0] * 5


@pytest.fixture
def interrupted() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C, which is one for Python as usual; further ones do nothing."""
    event = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        if not event.is_set():
            event.set()
            raise KeyboardInterrupt

    usual = signal.signal(signal.SIGINT, interrupt)
    yield event
    signal.signal(signal.SIGINT, usual)


def test_interrupted_thread_does_not_take_the_lead_with_it(
    held: FilePlogs, disk: HeldDisk, interrupted: threading.Event
) -> None:
    """Ctrl-C in a notebook ends one call, once it is durable; the next one must not hang."""
    plog_ids = [held.create(size=100) for _ in range(3)]
    disk.hold()
    leader = Task(lambda: held.append(plog_ids[0], 0, b"data"))
    disk.wait_for_sync()
    main = threading.get_ident()

    def interrupt_when_waiting() -> None:
        while not any(ticket.gates for ticket in held._journal._pending):
            pass
        signal.pthread_kill(main, signal.SIGINT)
        assert not interrupted.is_set()
        disk.gate.set()

    interrupter = Task(interrupt_when_waiting)
    with pytest.raises(KeyboardInterrupt):
        held.append(plog_ids[1], 0, b"data")
    interrupter.outcome()
    assert interrupted.is_set()
    assert leader.outcome() == 4
    assert Task(lambda: held.append(plog_ids[2], 0, b"data")).outcome() == 4
    assert held.append(plog_ids[1], 4, b"more") == 8


def test_append_that_is_done_while_its_thread_is_about_to_wait(
    held: FilePlogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that synced it has opened all gates by then, and no thread would open one that came later."""
    first, second = held.create(size=100), held.create(size=100)
    pending, turn_of = held.submit(first, 0, b"data"), held._journal._turn_of

    def late_turn_of(ticket: Ticket, gate: threading.Lock, *, timed_out: bool) -> float | None:
        monkeypatch.undo()
        assert held.append(second, 0, b"leads") == 5
        return turn_of(ticket, gate, timed_out=timed_out)

    monkeypatch.setattr(held._journal, "_turn_of", late_turn_of)
    assert Task(pending.result).outcome() == 4


@pytest.fixture
def hasty_switches() -> Iterator[None]:
    """Let Python change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


class Interrupter:
    """Interrupts one thread at its n-th step; a step is what it does to a lock of the journal, or to the disk."""

    def __init__(self, step: int) -> None:
        self.step, self.steps, self.victim = step, 0, -1

    def count(self) -> None:
        if threading.get_ident() == self.victim:
            self.steps += 1
            if self.steps == self.step:
                raise KeyboardInterrupt

    def lock(self) -> InterruptedLock:
        return InterruptedLock(self)


class InterruptedLock:
    """A lock at which the interrupter strikes where Python looks for signals: before it is taken and after."""

    def __init__(self, interrupter: Interrupter) -> None:
        self.interrupter, self.lock = interrupter, threading.Lock()

    def acquire(self, timeout: float = -1) -> bool:
        self.interrupter.count()
        taken = self.lock.acquire(timeout=timeout)
        self.interrupter.count()
        return taken

    def release(self) -> None:
        self.lock.release()
        self.interrupter.count()

    def __enter__(self) -> None:
        self.interrupter.count()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def interrupted_appends(monkeypatch: pytest.MonkeyPatch, step: int) -> bool:
    """Let four threads append, and interrupt one of them at its n-th step; return whether it came so far."""
    interrupter, barrier = Interrupter(step), threading.Barrier(4)
    names = SimpleNamespace(Lock=interrupter.lock, Thread=threading.Thread)
    monkeypatch.setattr("penstock.plog._journal.threading", names)
    disk = HeldDisk()
    plogs = FilePlogs(disk, journal_size=1 << 16, direct_size_min=DIRECT)
    plog_ids = [plogs.create(size=1000) for _ in range(4)]
    monkeypatch.setattr(disk, "sync_file", lambda _: interrupter.count())

    def write(plog_id: PlogId) -> None:
        barrier.wait(LONG)
        if plog_id is plog_ids[0]:
            interrupter.victim = threading.get_ident()
        append_all(plogs, plog_id, [b"data"] * 6)

    victim, *others = [Task(lambda p=plog_id: write(p)) for plog_id in plog_ids]  # type: ignore[misc]
    victim.join(LONG)
    interrupter.victim = -1  # the system may give its number to another thread
    for task in others:
        with suppress(DiskFailed):  # an interrupt of who leads stops the store: the others are told, and that is all
            task.outcome()
    with suppress(DiskFailed):
        Task(plogs.close).outcome()
    assert plogs._journal.stopped is not None or [task.error for task in others] == [None] * 3
    assert isinstance(victim.error, KeyboardInterrupt | None)
    return victim.error is not None


@pytest.mark.usefixtures("hasty_switches")
def test_interrupt_at_any_step_leaves_no_thread_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a debugger or a real-time signal raises is not held back; it may hit who leads, or who is about to."""
    struck = [step for step in range(1, 60) if interrupted_appends(monkeypatch, step)]
    assert len(struck) > 20, struck


@pytest.mark.usefixtures("hasty_switches")
@pytest.mark.parametrize("seed", range(3))
def test_whoever_waits_for_whatever_gets_it(open_store: Callable[..., Plogs], seed: int) -> None:
    """Threads submit without waiting, wait for appends of others or for one append together, and seal in between."""
    plogs = open_store(open_files_max=3)
    under_way: list[tuple[PendingAppend, int]] = []
    expected: dict[PlogId, bytes] = {}

    def work(number: int) -> None:
        dice, plog_id, data = random.Random(seed * 100 + number), plogs.create(size=1 << 16), b""
        for _ in range(60):
            block = bytes([dice.randrange(256)]) * dice.choice((1, 50, 300, 600))
            under_way.append((plogs.submit(plog_id, len(data), block), len(data) + len(block)))
            data += block
            if dice.random() < 0.5:
                pending, end = dice.choice(under_way)
                assert pending.result() == end
            if dice.random() < 0.1:
                assert plogs.seal(plog_id, len(data)) == len(data)
                expected[plog_id] = data
                plog_id, data = plogs.create(size=1 << 16), b""
        expected[plog_id] = data

    in_threads([lambda number=number: work(number) for number in range(6)])  # type: ignore[misc]
    assert in_threads([pending.result for pending, _ in under_way[-20:]]) == [end for _, end in under_way[-20:]]
    plogs = open_store()
    assert {plog_id: content(plogs, plog_id) for plog_id in expected} == expected


def test_error_of_a_stopped_store_does_not_grow(held: FilePlogs, disk: HeldDisk) -> None:
    """A service that tries again for days would keep every frame that ever raised it, and the data in them."""
    plog_id = held.create(size=100)
    disk.errors.append(OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(DiskFailed):
        held.append(plog_id, 0, b"data")
    lengths = []
    for _ in range(3):
        with pytest.raises(DiskFailed) as caught:
            held.append(plog_id, 4, b"more")
        lengths.append(len(caught.traceback))
    assert lengths == [lengths[0]] * 3


def test_seal_and_delete_do_not_wait_for_an_append_that_a_stopped_store_refused(
    held: FilePlogs, disk: HeldDisk
) -> None:
    """After a failed sync everything says so, and nothing hangs."""
    plog_id, other = held.create(size=100), held.create(size=100)
    held.append(plog_id, 0, b"data")
    disk.errors.append(OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(DiskFailed):
        held.append(other, 0, b"data")
    with pytest.raises(DiskFailed):
        held.append(plog_id, 4, b"more")
    for call in (lambda: held.seal(plog_id, 4), lambda: held.delete(plog_id)):
        with pytest.raises(DiskFailed):
            Task(call).outcome()
    assert content(held, plog_id) == b"data"


# Closing


def test_close_waits_for_the_sync_of_another_thread(held: FilePlogs, disk: HeldDisk) -> None:
    """Two threads that write the journal at once would write over each other; after closing, none writes at all."""
    plog_ids = [held.create(size=100) for _ in range(3)]
    disk.hold()
    leader = Task(lambda: held.append(plog_ids[0], 0, b"first"))
    disk.wait_for_sync()
    waiting = Task(lambda: held.append(plog_ids[1], 0, b"second"))
    pending = held.submit(plog_ids[2], 0, b"third")
    closing = Task(held.close)
    assert not disk.syncing.acquire(timeout=MOMENT), "a second thread leads"
    disk.gate.set()
    closing.outcome()
    assert leader.outcome() == 5
    try:
        assert waiting.outcome() == 6
        acked = [b"first", b"second", b"third"]
    except StoreClosed:
        acked = [b"first", b"", b"third"]
    assert pending.result() == 5
    with FilePlogs(disk, journal_size=1 << 16, direct_size_min=DIRECT) as plogs:
        assert [content(plogs, plog_id) for plog_id in plog_ids] == acked


@pytest.mark.parametrize("size", [10, 600], ids=["journaled", "direct"])
def test_close_among_appends_loses_none_that_was_acknowledged(open_store: Callable[..., Plogs], size: int) -> None:
    """A program ends while its threads still write: each append is durable or refused, with an error of ours."""
    for _ in range(5):
        plogs = open_store()
        plog_ids = [plogs.create(size=1 << 20) for _ in range(4)]
        acked = dict.fromkeys(plog_ids, 0)
        ready = threading.Barrier(5)

        def write(
            plog_id: PlogId, plogs: Plogs = plogs, acked: dict[PlogId, int] = acked,
            ready: threading.Barrier = ready,
        ) -> None:  # fmt: skip
            while True:
                acked[plog_id] = plogs.append(plog_id, acked[plog_id], bytes(size))
                if acked[plog_id] == 3 * size:
                    ready.wait(LONG)

        writers = [Task(lambda p=plog_id: write(p)) for plog_id in plog_ids]  # type: ignore[misc]
        ready.wait(LONG)
        plogs.close()
        for writer in writers:
            with pytest.raises(StoreClosed):
                writer.outcome()
        plogs = open_store()
        for plog_id in plog_ids:
            assert acked[plog_id] <= plogs.info(plog_id).length <= acked[plog_id] + size
