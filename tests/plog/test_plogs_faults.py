"""A disk that refuses: every call of a history fails once, in every way; each time there is one clear error.

A write that was refused has not happened, and the store goes on. A sync that failed stops the store, because nobody
knows what it saved; opening it again brings back what was acknowledged. The histories run on a recording disk, so
that a power loss after the fault is tried as well.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pytest

from penstock.errors import DiskFailed, DiskFull, NoSuchPlog, PenstockError, PlogCorrupt
from penstock.plog import FilePlogs, PlogId
from penstock.testing import Fault, FaultyDisk, MemoryDisk, RecordingDisk, SeededRandom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.plog import PendingAppend
    from penstock.ports import Disk
    from penstock.testing._faulty import Call

A, B, C = (PlogId("local", "main", letter * 32) for letter in "abc")
JOURNAL_SIZE: Final = 2048
DIRECT_SIZE_MIN: Final = 300

NextCut: TypeAlias = (
    tuple[Literal["create", "delete"], PlogId]
    | tuple[Literal["append", "seal"], PlogId, int]
    | tuple[Literal["group"], PlogId, int, PlogId, int]
    | tuple[Literal["reopen"]]
)

HISTORY: Final[list[NextCut]] = [
    ("create", A),
    ("append", A, 100),
    ("create", B),
    ("group", A, 50, B, 200),
    ("append", B, 400),
    ("append", B, 290),
    ("append", A, 290),
    ("append", A, 20),
    ("seal", A, 120),
    ("create", C),
    ("append", C, 310),
    ("append", C, 10),
    ("append", B, 250),
    ("delete", C),
    ("create", C),
    ("group", B, 20, C, 30),
    ("reopen",),
    ("append", C, 350),
    ("append", B, 40),
    ("delete", A),
    ("seal", B, 10_000),
    ("append", C, 5),
]
CALLS: Final[tuple[Call, ...]] = (
    "create", "open", "remove", "rename", "sync", "pwritev", "datasync", "reserve", "truncate",
)  # fmt: skip


@dataclass
class Fate:
    """What a plog may be: everything submitted to it, how much of that is certain, and whether it is there."""

    data: bytes = b""
    acked: int = 0
    seals: set[int | None] = field(default_factory=lambda: {None})
    exists: set[bool] = field(default_factory=lambda: {True})


class Driver:
    """Does one step after another whatever happens, and keeps book of what was promised."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.fates: dict[PlogId, Fate] = {}
        self.errors: list[PenstockError] = []
        self.count = 0
        self.plogs: FilePlogs | None = None
        self.open()

    @property
    def stopped(self) -> bool:
        return any(isinstance(error, DiskFailed) and error.stopped for error in self.errors)

    def open(self) -> None:
        for _ in range(2):  # the fault comes once
            if self.plogs is None:
                with self.noted():
                    self.plogs = open_on(self.disk)
        assert self.plogs is not None, "opening again fails as well"

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except PenstockError as error:
            self.errors.append(error)

    def attempt(self, call: Callable[[], object], *, expect_stop: bool = True) -> PenstockError | None:
        """Make a call that changes something; return its error, which after a stop it must have."""
        was_stopped, count = self.stopped, len(self.errors)
        with self.noted():
            call()
        error = self.errors[-1] if len(self.errors) > count else None
        if was_stopped and expect_stop:
            assert isinstance(error, DiskFailed), f"{error!r} from a store that has stopped"
            assert error.stopped
        return error

    def do(self, step: NextCut) -> None:
        match step:
            case ("create", plog_id):
                self.create(plog_id)
            case ("append", plog_id, size):
                self.append([(plog_id, size)])
            case ("group", first, first_size, second, second_size):
                self.append([(first, first_size), (second, second_size)])
            case ("seal", plog_id, offset):
                self.seal(plog_id, offset)
            case ("delete", plog_id):
                self.delete(plog_id)
            case _:
                self.reopen()
        self.check_readers()

    def usable(self, plog_id: PlogId) -> FilePlogs | None:
        """The store, unless an error before has left nothing to do this step to."""
        fate = self.fates.get(plog_id)
        certain = fate is not None and fate.exists == {True} and fate.seals == {None} and fate.acked == len(fate.data)
        return self.plogs if certain else None

    def create(self, plog_id: PlogId) -> None:
        plogs = self.plogs
        assert plogs is not None
        if True in self.fates.get(plog_id, Fate(exists={False})).exists:
            return
        self.fates[plog_id] = Fate(exists={True, False})
        error = self.attempt(lambda: plogs.create(plog_id=plog_id, size=3000))
        if error is not None and not self.stopped:  # refused: as if it had not been tried
            error = self.attempt(lambda: plogs.create(plog_id=plog_id, size=3000))
            assert error is None, "the second try is refused as well"
        if error is None:
            self.fates[plog_id] = Fate()

    def append(self, blocks: list[tuple[PlogId, int]]) -> None:
        pending: list[tuple[Fate, int, PendingAppend]] = []
        for plog_id, size in blocks:
            plogs = self.usable(plog_id)
            if plogs is not None:
                self.submit(plogs, plog_id, size, pending)
        for fate, end, append in pending:
            error = self.attempt(append.result, expect_stop=False)
            if error is None:
                fate.acked = max(fate.acked, end)
            else:
                assert isinstance(error, DiskFailed), repr(error)
                assert error.stopped, "a refusal comes at once"

    def submit(
        self, plogs: FilePlogs, plog_id: PlogId, size: int, pending: list[tuple[Fate, int, PendingAppend]]
    ) -> None:
        fate = self.fates[plog_id]
        self.count += 1
        block = (f"<{plog_id.uid[0]} {self.count}>".encode() * size)[:size]
        submitted: list[PendingAppend] = []
        for _ in range(2):
            if not submitted and not self.stopped:
                assert plogs.info(plog_id).length == fate.acked, "refused, and yet longer"
                self.attempt(lambda: submitted.append(plogs.submit(plog_id, len(fate.data), block)))
        assert submitted or self.stopped, "the second try is refused as well"
        fate.data += block
        pending += [(fate, len(fate.data), append) for append in submitted]

    def seal(self, plog_id: PlogId, offset: int) -> None:
        plogs, fate = self.usable(plog_id), self.fates.get(plog_id)
        if plogs is None or fate is None:
            return
        length = min(offset, fate.acked)
        fate.seals = {None, length}
        error = self.attempt(lambda: plogs.seal(plog_id, offset))
        if error is not None and not self.stopped:
            assert plogs.info(plog_id).sealed is False, "refused, and yet sealed"
            error = self.attempt(lambda: plogs.seal(plog_id, offset))
            assert error is None, "the second try is refused as well"
        if error is None:
            fate.seals = {length}

    def delete(self, plog_id: PlogId) -> None:
        plogs, fate = self.plogs, self.fates.get(plog_id)
        if plogs is None or fate is None or fate.exists != {True}:
            return
        fate.exists = {True, False}
        error = self.attempt(lambda: plogs.delete(plog_id))
        if error is not None and not self.stopped:
            with contextlib.suppress(NoSuchPlog):  # it may be gone all the same
                plogs.delete(plog_id)
            error = None
        if error is None:
            self.fates[plog_id] = Fate(exists={False})

    def reopen(self) -> None:
        assert self.plogs is not None
        was_stopped = self.stopped
        error = self.attempt(self.plogs.close)
        assert error is None or was_stopped or isinstance(error, DiskFailed), repr(error)
        self.errors.clear()
        self.plogs = None
        self.open()
        self.errors.clear()

    def check_readers(self) -> None:
        """Whatever happened, what was acknowledged can be read, at the second try if the first hits the fault."""
        assert self.plogs is not None
        try:
            check(self.plogs, self.fates)
        except (DiskFull, DiskFailed):
            check(self.plogs, self.fates)


def check(plogs: FilePlogs, fates: dict[PlogId, Fate]) -> None:
    for plog_id, fate in fates.items():
        try:
            info = plogs.info(plog_id)
            content = bytes(plogs.read(plog_id, 0, info.length))
        except NoSuchPlog:
            assert False in fate.exists, f"{plog_id} is gone"
            continue
        except PlogCorrupt:  # a creation that was never acknowledged may leave a head that cannot be read
            assert fate == Fate(exists={True, False}), f"{plog_id} is damaged"
            continue
        assert True in fate.exists, f"{plog_id} is there"
        assert content == fate.data[: info.length], f"{plog_id} holds something else"
        if info.sealed:
            assert info.length in fate.seals, f"{plog_id} is sealed at {info.length}"
        else:
            assert None in fate.seals, f"{plog_id} is not sealed"
            assert info.length >= fate.acked, f"{plog_id} ends at {info.length}, {fate.acked} were acknowledged"


def open_on(disk: Disk) -> FilePlogs:
    return FilePlogs(disk, random=SeededRandom(1), journal_size=JOURNAL_SIZE, direct_size_min=DIRECT_SIZE_MIN)


class AtOnce:
    """A thread that has run when it has started: the order of calls is the same in every run."""

    def __init__(self, *, target: Callable[..., None], args: tuple[object, ...] = (), name: str = "") -> None:
        self.target, self.args, self.name = target, args, name

    def start(self) -> None:
        self.target(*self.args)

    def join(self) -> None:
        pass


@pytest.fixture(autouse=True)
def checkpoints_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", AtOnce)


def run(disk: FaultyDisk, *, until_stopped: bool = False) -> Driver:
    driver = Driver(disk)
    for step in HISTORY:
        if not (until_stopped and driver.stopped):
            driver.do(step)
    return driver


def calls_of_a_sound_run() -> dict[str, int]:
    disk = FaultyDisk(MemoryDisk())
    driver = run(disk)
    assert not driver.errors
    return dict(disk.calls)


def check_afterwards(recording: RecordingDisk, driver: Driver) -> None:
    """Lose the power in every way; then end the process instead, and open the folder again."""
    for state in recording.crash_states(recording.crash_points()[-1], power_set_max=3):
        try:
            with open_on(state.disk) as plogs:
                check(plogs, driver.fates)
        except Exception as error:
            raise AssertionError(f"{state.describe}: {error!r}") from error
    assert driver.plogs is not None
    driver.disk.heal()
    with contextlib.suppress(PenstockError):
        driver.plogs.close()
    with open_on(recording) as plogs:
        check(plogs, driver.fates)


FAULTS: Final = [(call, fault) for call in CALLS for fault in Fault]


@pytest.mark.parametrize(("call", "fault"), FAULTS, ids=[f"{call} {fault.name}" for call, fault in FAULTS])
def test_any_failed_call_is_one_clear_error_and_loses_nothing(call: Call, fault: Fault) -> None:
    """Disks fail at the worst moment, so every moment is tried."""
    for number in range(1, calls_of_a_sound_run().get(call, 0) + 1):
        recording = RecordingDisk()
        disk = FaultyDisk(recording)
        disk.fail(fault, on=call, call=number)
        try:
            # Names that a failed sync gave up stay uncertain whatever is done later: no store can go on after that.
            check_afterwards(recording, run(disk, until_stopped=call == "sync"))
        except Exception as error:
            raise AssertionError(f"{fault.name} at {call} number {number}: {error!r}") from error


@pytest.mark.parametrize("size", [1, 7, 100])
def test_short_writes_are_not_noticed(size: int) -> None:
    """The system may take any part of a write, and says so without an error."""
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    disk.shorten(size, call=None)
    driver = run(disk)
    assert not driver.errors
    check_afterwards(recording, driver)


def test_short_write_before_an_error_is_no_write() -> None:
    """This is how a disk that is just full answers: a part goes in, the rest does not."""
    for number in range(1, calls_of_a_sound_run()["pwritev"] + 1):
        recording = RecordingDisk()
        disk = FaultyDisk(recording)
        disk.shorten(10, call=number)
        disk.fail(Fault.ENOSPC, on="pwritev", call=number + 1)
        try:
            check_afterwards(recording, run(disk))
        except Exception as error:
            raise AssertionError(f"at write number {number}: {error!r}") from error


# One by one


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(RecordingDisk())


@pytest.fixture
def plogs(disk: FaultyDisk) -> FilePlogs:
    return open_on(disk)


def content(plogs: FilePlogs, plog_id: PlogId) -> bytes:
    return bytes(plogs.read(plog_id, 0, plogs.info(plog_id).length))


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_full_disk_is_not_filled_by_a_store_that_could_not_be_created(call: int) -> None:
    """A journal without a store would take the space that the user needs to free."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    disk.fail(Fault.ENOSPC, on="pwritev", call=call)
    with pytest.raises(DiskFull):
        FilePlogs(disk, journal_size=JOURNAL_SIZE, direct_size_min=DIRECT_SIZE_MIN)
    assert list(memory.names()) == []
    FilePlogs(memory, journal_size=JOURNAL_SIZE, direct_size_min=DIRECT_SIZE_MIN).close()


def test_full_disk_refuses_new_plogs_and_lets_the_others_go_on(disk: FaultyDisk, plogs: FilePlogs) -> None:
    """Room is allocated when a plog is created, so that is where a full disk shows."""
    plogs.create(plog_id=A, size=1000)
    disk.fail(Fault.ENOSPC, on="reserve", call=None)
    for _ in range(3):
        with pytest.raises(DiskFull, match="b" * 32):
            plogs.create(plog_id=B, size=1000)
        with pytest.raises(NoSuchPlog):
            plogs.info(B)
    assert plogs.append(A, 0, b"small") == 5
    assert plogs.append(A, 5, bytes(500)) == 505
    disk.heal()
    plogs.create(plog_id=B, size=1000)
    assert plogs.append(B, 0, b"data") == 4


@pytest.mark.parametrize("size", [200, 500], ids=["small", "large"])
def test_full_disk_refuses_what_goes_past_the_room_of_a_plog(disk: FaultyDisk, plogs: FilePlogs, size: int) -> None:
    """Many small blocks need more room for headers than was allocated: nothing of a refused one is kept."""
    plogs.create(plog_id=A, size=3000)
    offset = 0
    while offset < 3000 - size:
        offset = plogs.append(A, offset, b"x" * min(20, 3000 - size - offset))
    disk.fail(Fault.ENOSPC, on="reserve", call=None)
    disk.fail(Fault.ENOSPC, on="pwritev", call=None, name="a" * 32 + ".plog")
    for _ in range(3):
        with pytest.raises(DiskFull, match="a" * 32) as caught:
            plogs.append(A, offset, b"y" * size)
        assert "free some space" in str(caught.value)
        assert plogs.info(A).length == offset
    disk.heal()
    assert plogs.append(A, offset, b"z" * size) == 3000
    assert content(plogs, A) == b"x" * offset + b"z" * size


@pytest.mark.parametrize("size", [10, 400], ids=["journaled", "direct"])
def test_failed_sync_stops_the_store_for_good(disk: FaultyDisk, plogs: FilePlogs, size: int) -> None:
    """The system may have dropped what it could not write and report success the next time: a second try is a lie."""
    plogs.create(plog_id=A, size=2000)
    plogs.create(plog_id=B, size=2000)
    plogs.append(A, 0, b"kept")
    disk.fail(Fault.EIO, on="datasync")
    with pytest.raises(DiskFailed, match="takes no more writes") as caught:
        plogs.append(A, 4, bytes(size))
    assert caught.value.stopped
    syncs = disk.calls["datasync"]
    for call in (
        lambda: plogs.append(B, 0, b"data"),
        lambda: plogs.append(B, 0, bytes(400)),
        lambda: plogs.create(size=100),
        lambda: plogs.seal(B, 0),
        lambda: plogs.delete(B),
        plogs.close,
    ):
        with pytest.raises(DiskFailed) as again:
            call()
        assert again.value.stopped
    assert disk.calls["datasync"] == syncs, "synced again"
    with open_on(disk) as reopened:
        assert content(reopened, A)[:4] == b"kept"
        assert reopened.append(B, 0, b"data") == 4


def test_stopped_store_can_still_be_read(disk: FaultyDisk, plogs: FilePlogs) -> None:
    """Readers get what was acknowledged while somebody looks for a new disk."""
    plogs.create(plog_id=A, size=2000)
    plogs.append(A, 0, b"kept")
    disk.fail(Fault.EIO, on="datasync")
    with pytest.raises(DiskFailed):
        plogs.append(A, 4, b"lost")
    assert content(plogs, A) == b"kept"
    assert plogs.info(A).length == 4


def test_refused_write_stops_nothing(disk: FaultyDisk, plogs: FilePlogs) -> None:
    """An error before the sync is known to have changed nothing."""
    plogs.create(plog_id=A, size=2000)
    disk.fail(Fault.EIO, on="pwritev", name="a" * 32 + ".plog")
    with pytest.raises(DiskFailed, match="nothing was written") as caught:
        plogs.append(A, 0, bytes(400))
    assert not caught.value.stopped
    assert plogs.append(A, 0, b"data") == 4


def test_failed_checkpoint_stops_the_store(disk: FaultyDisk, plogs: FilePlogs) -> None:
    """If the journal went round over records that are in no file yet, they would be lost."""
    plogs.create(plog_id=A, size=20_000)
    disk.fail(Fault.EIO, on="datasync", name="a" * 32 + ".plog")
    acked = [0]
    with pytest.raises(DiskFailed) as caught:
        acked.extend(plogs.append(A, 200 * number, bytes(200)) for number in range(50))
    assert caught.value.stopped
    with contextlib.suppress(DiskFailed):
        plogs.close()
    with open_on(disk) as reopened:
        assert reopened.info(A).length >= acked[-1] > 0
