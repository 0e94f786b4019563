"""The asynchronous plog switch: writes go on in the new plog, and none is acknowledged before it is recorded."""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import DiskFailed, DiskFull, LogFenced, NoSuchLog, PenstockError, PlogSealed
from penstock.log import MetadataManager
from penstock.log._partition import _switch
from penstock.log._records import Incremental
from penstock.plog import FilePlogs
from tests.log.conftest import TINY
from tests.log.harness import SECONDS_MAX, GatedPlogs, content, contents, leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

    from penstock.cpo import Cpo
    from penstock.log import LogPosition, LogStream
    from penstock.log._chain import LogChain
    from penstock.model import PlogId
    from penstock.testing import MemoryDisk

FULL: Final = DiskFull("x")
BROKEN: Final = DiskFailed("x", reason="EIO", stopped=False)


@pytest.fixture
def plogs(disk: MemoryDisk) -> Iterator[GatedPlogs]:
    with GatedPlogs(FilePlogs(disk, journal_size=1 << 16, direct_size_min=1 << 12)) as plogs:
        yield plogs


@pytest.fixture
def manager(plogs: GatedPlogs, cpo: Cpo) -> Iterator[MetadataManager]:
    with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as manager:
        manager.run(_switch(manager.partition, needed=1 << 14))  # so that no test meets a switch of the metadata log
        yield manager
        plogs.heal()


@pytest.fixture
def log(manager: MetadataManager) -> LogStream:
    """A log whose first plog is filled up, and whose next one is there: the next append switches."""
    log = manager.log("log")
    log.append(b"0" * 60)
    settle(manager)
    return log


def settle(manager: MetadataManager) -> None:
    """Wait until nothing runs in the background."""
    assert manager._background is not None
    manager._background.submit(lambda: None).result(SECONDS_MAX)


def active(log: LogStream) -> PlogId:
    return chain_of(log).active


def chain_of(log: LogStream) -> LogChain:
    return log._manager.partition.metadata.logs[log.name]


def outcomes(futures: list[Future[LogPosition]]) -> list[object]:
    """Return each append's position, or the class of the error it ended with."""
    wait(futures, SECONDS_MAX)
    return [future.exception(0) or future.result(0) for future in futures]


def reopened(manager: MetadataManager, cpo: Cpo) -> dict[str, bytes]:
    """Return what the next process finds."""
    manager.close()
    with MetadataManager.open(manager.plogs, cpo, "p0", sizes=TINY) as after:
        return contents(after)


def test_writes_go_on_in_the_new_plog_while_the_switch_is_being_recorded(
    plogs: GatedPlogs, log: LogStream, pool: ThreadPoolExecutor
) -> None:
    """A switch must not stop the writers; but what they wrote counts only once the switch does."""
    old, new = active(log), chain_of(log).next
    record = plogs.gate("append")
    first = pool.submit(log.append, b"1" * 20)
    record.wait_until_reached()
    others = [pool.submit(log.append, b"%d" % number * 20) for number in range(2, 6)]
    plogs.wait_for("result", 1 + 5 + 2)  # the switch asks twice about the last append to the old plog
    assert plogs.info(new).length == 100, "all of them are durable in the new plog"
    assert not any(future.done() for future in [first, *others])
    assert active(log) == old, "a reader that knew more would read what may yet be undone"
    reader = pool.submit(lambda: log.length)
    record.open()
    assert reader.result(SECONDS_MAX) >= 60
    assert {future.result(SECONDS_MAX).offset for future in [first, *others]} == {20, 40, 60, 80, 100}
    assert all(future.result().plog_id == new for future in [first, *others])
    assert content(log)[:80] == b"0" * 60 + b"1" * 20
    assert log.length == 160


def test_only_one_record_is_written_for_a_switch_that_many_wait_for(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, pool: ThreadPoolExecutor
) -> None:
    """The thread that needs it first records it; a second record could not be replayed."""
    record = plogs.gate("append")
    futures = [pool.submit(log.append, b"x" * 10) for _ in range(8)]
    record.wait_until_reached()
    plogs.wait_for("result", 1 + 8)
    record.open()
    wait(futures)
    assert [type(entry) for entry in manager.read_all()].count(Incremental) == 1


@pytest.mark.parametrize("error", [FULL, BROKEN], ids=["refused", "unknown outcome"])
def test_when_the_switch_cannot_be_recorded_everybody_behind_it_gets_the_error(
    plogs: GatedPlogs, log: LogStream, cpo: Cpo, pool: ThreadPoolExecutor, error: PenstockError
) -> None:
    """The seed's own code acknowledged its waiters although the switch had failed: their data were lost."""
    record = plogs.gate("append", error=error)
    futures = [pool.submit(log.append, b"lost" * 5) for _ in range(5)]
    record.wait_until_reached()
    plogs.wait_for("result", 1 + 5)
    record.open()
    assert outcomes(futures) == [error] * 5
    assert content(log) == b"0" * 60
    assert reopened(log._manager, cpo) == {"log": b"0" * 60}


def test_the_log_goes_on_in_a_fresh_plog_after_a_switch_was_refused(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo, disk: MemoryDisk
) -> None:
    """What failed is in the pre-allocated plog already: going on there would bring it back, before the new data."""
    used = chain_of(log).next
    plogs.fail("append", FULL)
    with pytest.raises(DiskFull):
        log.append(b"failed" * 3)
    position = log.append(b"again" * 4)
    assert position.plog_id != used
    log.append(b"more")
    assert content(log) == b"0" * 60 + b"again" * 4 + b"more"
    assert reopened(manager, cpo) == {"log": b"0" * 60 + b"again" * 4 + b"more"}
    assert not leftovers(manager, disk), "the plog with the failed bytes is deleted"


def test_a_partition_that_does_not_know_what_its_metadata_log_holds_stops(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo
) -> None:
    """The record may be there or not; to write another one behind it would be a guess."""
    plogs.fail("append", BROKEN, after=True)
    with pytest.raises(DiskFailed):
        log.append(b"unknown" * 3)
    with pytest.raises(LogFenced):
        log.append(b"after")
    assert reopened(manager, cpo) == {"log": b"0" * 60 + b"unknown" * 3}


def test_waiters_that_come_after_the_switch_has_failed_get_the_error_too(
    plogs: GatedPlogs, log: LogStream, pool: ThreadPoolExecutor
) -> None:
    """They wrote into a plog that is no part of the log: an acknowledgement would be a lie."""
    late = plogs.gate("result", chain_of(log).next)
    late_future = pool.submit(log.append, b"late" * 5)
    late.wait_until_reached()
    plogs.fail("append", FULL)
    with pytest.raises(DiskFull):
        log.append(b"early" * 4)
    late.open()
    assert outcomes([late_future]) == [FULL]
    log.append(b"good")
    assert content(log) == b"0" * 60 + b"good"


def test_a_second_switch_waits_for_the_first(plogs: GatedPlogs, log: LogStream, pool: ThreadPoolExecutor) -> None:
    """With at most one under way, there is never more than one to undo."""
    record = plogs.gate("append")
    first = pool.submit(log.append, b"1" * 200)
    record.wait_until_reached()
    second = pool.submit(log.append, b"2" * 200)
    record_of_second = plogs.gate("append")
    assert not record_of_second.is_reached
    assert not second.done()
    record.open()
    first.result(SECONDS_MAX)
    record_of_second.wait_until_reached()
    assert content_plogs(log) == 2
    record_of_second.open()
    second.result(SECONDS_MAX)
    assert content(log) == b"0" * 60 + b"1" * 200 + b"2" * 200


def content_plogs(log: LogStream) -> int:
    """Return how many plogs the log has, without waiting for the one who records."""
    return len(chain_of(log).sealed) + 1


def test_when_a_switch_fails_that_a_second_one_waited_for_the_log_goes_on(
    plogs: GatedPlogs, log: LogStream, pool: ThreadPoolExecutor
) -> None:
    """The plog in between looks empty while an append to it is under way; using it again would collide for ever."""
    between = chain_of(log).next
    late = plogs.gate("submit", between, is_open=False)
    pending = plogs.gate("result", between)
    first = pool.submit(log.append, b"1" * 200)
    late.wait_until_reached()
    late.open()
    pending.wait_until_reached()
    plogs.fail("append", FULL)
    with pytest.raises(DiskFull):
        log.append(b"2" * 200)
    assert log.append(b"3" * 20).plog_id != between
    pending.open()
    assert outcomes([first]) == [FULL]
    log.append(b"4" * 20)
    assert content(log) == b"0" * 60 + b"3" * 20 + b"4" * 20


@pytest.mark.parametrize("after", [False, True], ids=["not appended", "appended"])
def test_an_append_of_unknown_outcome_is_neither_acknowledged_nor_in_the_way(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo, *, after: bool
) -> None:
    """The seed's own code switched with an empty payload after a time-out, and could acknowledge lost data."""
    old = active(log)
    plogs.fail("submit", BROKEN, plog_id=old, after=after)
    with pytest.raises(PenstockError):
        log.append(b"?" * 4)
    for number in range(20):
        try:
            log.append(b"%d" % (number % 10))
        except LogFenced:
            assert number == 0, "one append may learn of it, the next one goes on"
    held = content(log)
    assert held.startswith(b"0" * 60)
    assert held[60:].replace(b"?" * 4, b"", 1) in {b"01234567890123456789", b"1234567890123456789"}
    assert reopened(manager, cpo) == {"log": held}


def test_a_plog_whose_append_timed_out_is_sealed_before_the_log_goes_on(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo
) -> None:
    """What is still on its way there must be refused when it arrives, not stored behind the log's back."""
    old = active(log)
    plogs.fail("result", BROKEN, plog_id=old)
    with pytest.raises(DiskFailed):
        log.append(b"?" * 2)
    position = log.append(b"next")
    assert position.plog_id != old
    assert plogs.info(old).sealed
    with pytest.raises(PlogSealed):
        plogs.append(old, plogs.info(old).length, b"late")
    held = content(log)
    assert held in {b"0" * 60 + b"next", b"0" * 60 + b"?" * 2 + b"next"}
    assert reopened(manager, cpo) == {"log": held}


def test_an_append_that_is_acknowledged_while_another_one_is_fenced_off_stays(
    plogs: GatedPlogs, manager: MetadataManager, cpo: Cpo, pool: ThreadPoolExecutor
) -> None:
    """The seal cuts off what is not known to be durable; what was acknowledged a moment before must not go with it."""
    log = manager.log("log")
    log.append(b"a")
    settle(manager)
    plogs.fail("result", BROKEN)
    with pytest.raises(DiskFailed):
        log.append(b"b")
    seal = plogs.gate("seal")
    following = pool.submit(log.append, b"d")
    seal.wait_until_reached()
    plogs._plogs.append(active(log), 2, b"c")  # as a waiter of before does, whose result comes only now
    seal.open()
    following.result(SECONDS_MAX)
    assert content(log) == b"abcd"
    assert reopened(manager, cpo) == {"log": b"abcd"}


def test_a_plog_that_another_owner_sealed_fences_every_append_to_it(
    plogs: GatedPlogs, manager: MetadataManager, pool: ThreadPoolExecutor
) -> None:
    """The process that sealed it may own the log now: to go on as if nothing had happened would be a second owner."""
    log = manager.log("log")
    log.append(b"a")
    gate = plogs.gate("submit")
    futures = [pool.submit(log.append, b"b")]
    gate.wait_until_reached()
    plogs._plogs.seal(active(log), 1)
    gate.open()
    assert [type(outcome) for outcome in outcomes(futures)] == [LogFenced]
    assert content(log) == b"a"


def test_a_seal_by_another_owner_during_a_switch_fences_all_waiting_appends(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo, pool: ThreadPoolExecutor
) -> None:
    """The old plog ends elsewhere than this writer believed, so what it put behind is not the log's next byte."""
    seal = plogs.gate("seal")
    futures = [pool.submit(log.append, b"x" * 20) for _ in range(3)]
    seal.wait_until_reached()
    plogs.wait_for("result", 1 + 3)
    waiting = pool.submit(log.append, b"y" * 250)
    plogs._plogs.seal(active(log), 50)
    seal.open()
    assert [type(outcome) for outcome in outcomes([*futures, waiting])][:3] == [LogFenced] * 3
    assert isinstance(waiting.exception(), LogFenced) or waiting.result().plog_id == active(log)
    manager.close()
    with MetadataManager.open(plogs, cpo, "p0", sizes=TINY) as after:
        assert content(after.log("log"))[:50] == b"0" * 50


def test_the_next_plog_is_there_before_it_is_needed(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager
) -> None:
    """Creating it takes several syncs, for which no append should have to wait."""
    for number in range(3):
        assert plogs.info(chain_of(log).next).length == 0
        create = plogs.gate("create")
        log.append(b"%d" % number * 200)
        create.wait_until_reached()
        create.open()
        settle(manager)


def test_a_disk_that_is_too_full_to_pre_allocate_stops_no_append_yet(
    plogs: GatedPlogs, manager: MetadataManager, cpo: Cpo
) -> None:
    """Room is needed only at the switch; by then somebody may have made some."""
    log = manager.log("log")
    plogs.fail("create", FULL, always=True)
    log.append(b"0" * 60)
    settle(manager)
    log.append(b"0" * 4)
    with pytest.raises(DiskFull):
        log.append(b"no room")
    plogs.heal()
    log.append(b"room")
    assert content(log) == b"0" * 64 + b"room"
    assert reopened(manager, cpo) == {"log": b"0" * 64 + b"room"}


def test_a_pre_allocated_plog_that_is_too_small_is_replaced_by_a_larger_one(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo, disk: MemoryDisk
) -> None:
    """One append lies in one plog, whatever its size."""
    assert plogs.info(chain_of(log).next).size == 256
    assert log.append(b"1" * 5000).offset == 5000
    assert log.append(b"2" * 5000).offset == 5000
    assert reopened(manager, cpo) == {"log": b"0" * 60 + b"1" * 5000 + b"2" * 5000}
    assert not leftovers(manager, disk)


def test_a_log_deleted_during_its_switch_gets_no_record_any_more(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo, pool: ThreadPoolExecutor
) -> None:
    """A record about a log that is gone cannot be replayed: the partition could never be opened again."""
    pending = plogs.gate("result", chain_of(log).next)
    sweep = plogs.gate("delete")
    future = pool.submit(log.append, b"x" * 20)
    pending.wait_until_reached()
    manager.delete_log("log")
    pending.open()
    assert [type(outcome) for outcome in outcomes([future])] == [NoSuchLog]
    sweep.open()
    assert reopened(manager, cpo) == {}


def test_a_log_deleted_while_an_append_waits_for_its_turn_is_gone_for_it(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo, pool: ThreadPoolExecutor
) -> None:
    """The append looks up the log's next plog; it must find out, not stumble."""
    record = plogs.gate("append")
    first = pool.submit(log.append, b"1" * 200)
    record.wait_until_reached()
    waiting = [pool.submit(log.append, b"2" * 200) for _ in range(3)]
    deleting = pool.submit(manager.delete_log, "log")
    record.open()
    deleting.result(SECONDS_MAX)
    for outcome in outcomes([first, *waiting]):
        assert not isinstance(outcome, Exception) or isinstance(outcome, NoSuchLog | LogFenced)
    assert reopened(manager, cpo) == {}


def test_a_failed_switch_of_one_log_leaves_the_others_alone(
    plogs: GatedPlogs, log: LogStream, manager: MetadataManager, cpo: Cpo
) -> None:
    """A thousand logs share a partition; what one suffers is its own."""
    other = manager.log("other")
    other.append(b"o" * 60)
    plogs.fail("append", FULL)
    with pytest.raises(DiskFull):
        log.append(b"x" * 20)
    for _ in range(5):
        other.append(b"o" * 60)
    assert reopened(manager, cpo) == {"log": b"0" * 60, "other": b"o" * 360}


ERRORS: Final[list[tuple[str, PenstockError, bool]]] = [
    ("seal", FULL, False),
    ("seal", BROKEN, False),
    ("seal", BROKEN, True),
    ("append", FULL, False),
    ("create", FULL, False),
    ("create", BROKEN, True),
    ("submit", FULL, False),
    ("submit", BROKEN, False),
    ("submit", BROKEN, True),
    ("result", BROKEN, False),
    ("result", BROKEN, True),
    ("delete", BROKEN, False),
]


@pytest.mark.parametrize(("call", "error", "after"), ERRORS, ids=lambda value: str(value)[:8])
def test_whatever_fails_once_no_acknowledged_byte_is_lost_or_doubled_and_order_is_kept(
    plogs: GatedPlogs, manager: MetadataManager, cpo: Cpo, *, call: str, error: PenstockError, after: bool
) -> None:
    """Whichever call fails, at whichever append: what was acknowledged is in the log, once, in order."""
    for skip in range(6):
        log = manager.log(f"log{skip}")
        acknowledged, tried = [], []
        for number in range(12):
            if number == skip:
                plogs.fail(call, error, after=after)
            data = b"<%02d%s>" % (number, b"." * 30)
            tried.append(data)
            try:
                log.append(data)
                acknowledged.append(data)
            except PenstockError:
                continue
        plogs.heal()
        held = content(log)
        pieces = [held[start : start + 34] for start in range(0, len(held), 34)]
        assert pieces == sorted(set(pieces)), "in order, none twice"
        assert set(acknowledged) <= set(pieces) <= set(tried)
        assert len(acknowledged) >= 10, "one failure costs few appends"
    before = contents(manager)
    assert reopened(manager, cpo) == before


def test_threads_that_race_with_failures_never_lose_what_was_acknowledged(
    plogs: GatedPlogs, manager: MetadataManager, cpo: Cpo, pool: ThreadPoolExecutor
) -> None:
    """Failures come while others are at any other point; each thread's own order must hold all the same."""
    log = manager.log("log")

    def write(writer: int) -> list[bytes]:
        acknowledged = []
        for number in range(40):
            if number % 10 == writer:
                call, error, after = ERRORS[(writer * 4 + number // 10) % (len(ERRORS) - 1)]
                plogs.fail(call, error, after=after)
            data = b"<%d:%02d........>" % (writer, number)
            try:
                log.append(data)
                acknowledged.append(data)
            except PenstockError:
                continue
        return acknowledged

    acknowledged = [future.result(SECONDS_MAX) for future in [pool.submit(write, writer) for writer in range(4)]]
    plogs.heal()
    held = content(log)
    pieces = [held[start : start + 14] for start in range(0, len(held), 14)]
    assert len(set(pieces)) == len(pieces), "nothing twice"
    for writer, mine in enumerate(acknowledged):
        found = [piece for piece in pieces if piece.startswith(b"<%d:" % writer)]
        assert found == sorted(found)
        assert set(mine) <= set(found)
        assert mine, "each gets something through"
    assert reopened(manager, cpo) == {"log": held}


def test_a_switch_syncs_what_is_under_way_in_the_old_plog_before_it_seals_it(
    plogs: GatedPlogs, manager: MetadataManager, pool: ThreadPoolExecutor
) -> None:
    """The record says where the old plog ends; a byte that is still on its way would be cut off."""
    log = manager.log("log")
    log.append(b"0" * 20)
    settle(manager)
    slow = plogs.gate("result", active(log))
    first = pool.submit(log.append, b"1" * 20)
    slow.wait_until_reached()
    record = plogs.gate("append", is_open=True)
    second = pool.submit(log.append, b"2" * 100)
    assert second.result(SECONDS_MAX).offset == 100
    assert record.is_reached
    slow.open()
    first.result(SECONDS_MAX)
    assert content(log) == b"0" * 20 + b"1" * 20 + b"2" * 100


def test_a_switch_is_not_recorded_over_an_append_of_unknown_outcome(
    plogs: GatedPlogs, manager: MetadataManager, cpo: Cpo, pool: ThreadPoolExecutor
) -> None:
    """What comes behind the switch comes behind that append; while its end is unknown, so is all that follows."""
    log = manager.log("log")
    log.append(b"0" * 20)
    settle(manager)
    slow = plogs.gate("result", active(log), error=BROKEN, always=True)
    first = pool.submit(log.append, b"1" * 20)
    slow.wait_until_reached()
    second = pool.submit(log.append, b"2" * 100)
    slow.open()
    assert outcomes([first, second]) == [BROKEN, BROKEN]
    plogs.heal()
    log.append(b"3" * 20)
    assert content(log) in {b"0" * 20 + b"3" * 20, b"0" * 20 + b"1" * 20 + b"3" * 20}
    assert reopened(manager, cpo)["log"] == content(log)
