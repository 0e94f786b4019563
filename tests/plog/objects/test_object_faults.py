"""An object store that fails: what becomes of a request is unknown, and nothing is lost or there twice."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.errors import FormatUnknown, JournalCorrupt, NoSuchPlog, StorageUnavailable, StorageUnusable, StoreFenced
from penstock.plog.objects import ObjectPlogs, ObjectSettings, _closing, _requests
from penstock.testing import FaultyObjects, MemoryObjects, ObjectFault
from tests.plog.conftest import crowded
from tests.plog.objects.test_object_kill import Expected, leftovers, life

if TYPE_CHECKING:
    from penstock.ports import Bytes
    from penstock.testing._faulty_objects import ObjectCall


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat requests at once."""
    monkeypatch.setattr(_requests, "_PAUSE_S", 0.0)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_is_twice_when_requests_fail_by_chance(seed: int) -> None:
    """Time-outs whose put did or did not happen, 503, cut connections and late listings, all the time."""
    bucket, expected = MemoryObjects(), Expected()
    life(FaultyObjects(bucket, chance=0.2, seed=seed, late_names=3), expected)
    with ObjectPlogs(FaultyObjects(bucket, chance=0.2, seed=seed), settings=crowded()) as plogs:
        assert expected.check(plogs) == {
            plog_id: data for plog_id, data in expected.asked.items() if plog_id not in expected.deleted
        }


@pytest.mark.parametrize("fault", ObjectFault)
@pytest.mark.parametrize("prefix", ["journal/", "plogs/", "checkpoint"])
def test_a_request_with_an_unknown_outcome_is_repeated_until_it_is_known(fault: ObjectFault, prefix: str) -> None:
    """The classic: the put was carried out, the answer was lost, and the second attempt finds the object there."""
    bucket = MemoryObjects()
    objects, expected = FaultyObjects(bucket), Expected()
    for call in range(1, 40, 2):
        objects.fail(fault, on="replace" if prefix == "checkpoint" else "put_new", call=call, prefix=prefix)
    life(objects, expected)
    assert objects.calls["put_new"] > 20
    with ObjectPlogs(bucket) as plogs:
        assert set(expected.check(plogs)) == set(expected.asked) - expected.deleted


def test_a_deletion_that_was_cut_is_completed() -> None:
    """Objects of deleted plogs cost money for as long as they are there."""
    bucket, expected = MemoryObjects(), Expected()
    objects = FaultyObjects(bucket)
    for call in range(1, 20, 2):
        objects.fail(ObjectFault.CUT, on="delete", call=call)
    life(objects, expected)
    with ObjectPlogs(bucket) as plogs:
        for plog_id in expected.check(plogs):
            plogs.delete(plog_id)
    assert not list(leftovers(bucket))


def test_a_store_that_is_unavailable_for_too_long_stops_and_recovers_when_it_is_opened_again() -> None:
    """Callers learn it, all of them and at every call, and nothing of what they were told is taken back."""
    bucket = MemoryObjects()
    objects = FaultyObjects(bucket)
    settings = ObjectSettings(group_wait_s=0, unavailable_max_s=0.0)
    plogs = ObjectPlogs(objects, settings=settings)
    plog_id = plogs.create(size=100)
    assert plogs.append(plog_id, 0, b"safe") == 4
    objects.fail(ObjectFault.LOST, on="put_new", call=None, prefix="journal/")
    pending = [plogs.submit(plog_id, 4, b"lost")]
    for ticket in pending:
        with pytest.raises(StorageUnavailable):
            ticket.result()
    for call in (plogs.check_running, plogs.create, lambda: plogs.append(plog_id, 8, b"later"), plogs.close):
        with pytest.raises(StorageUnavailable):
            call()
    with ObjectPlogs(bucket) as again:
        assert bytes(again.read(plog_id, 0, 4)) == b"safe"
        assert again.info(plog_id).length == 4


def test_an_owner_that_was_taken_over_is_told_by_whom() -> None:
    """Its first put fails, for ever, and so does every call after it; readers of the new owner see nothing of it."""
    bucket = MemoryObjects()
    stale = ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0))
    plog_id = stale.create(size=100)
    with ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0)) as owner:
        for _ in range(2):
            with pytest.raises(StoreFenced, match="process"):
                stale.append(plog_id, 0, b"stale")
        for call in (stale.check_running, stale.create, lambda: stale.info(plog_id), lambda: stale.read(plog_id, 0, 0)):
            with pytest.raises(StoreFenced):
                call()
        assert owner.append(plog_id, 0, b"new") == 3
        with pytest.raises(StoreFenced):
            stale.close()
        assert owner.append(plog_id, 3, b"er") == 5


def test_bucket_with_other_objects_is_refused() -> None:
    """A prefix that was typed wrong must not fill somebody's photographs with journals."""
    bucket = MemoryObjects()
    bucket.put_new("photographs/1.jpg", b"")
    with pytest.raises(FormatUnknown, match="other objects"):
        ObjectPlogs(bucket)
    newer = MemoryObjects()
    newer.put_new("store", b"penstock plogs, object format 2\n")
    with pytest.raises(FormatUnknown, match="format 2"):
        ObjectPlogs(newer)


class CarelessObjects(MemoryObjects):
    """A bucket that ignores the conditions of puts."""

    def __init__(self, ignored: str) -> None:
        super().__init__()
        self._ignored = ignored

    def put_new(self, name: str, *parts: Bytes) -> None:
        if self._ignored == "put_new":
            self.delete(name)
        super().put_new(name, *parts)

    def replace(self, name: str, data: Bytes, *, tag: str | None) -> str:
        if self._ignored == "replace":
            tag = self.get(name).tag if self.exists(name) else None
        return super().replace(name, data, tag=tag)


@pytest.mark.parametrize("ignored", ["put_new", "replace"])
def test_bucket_without_conditional_puts_is_refused(ignored: str) -> None:
    """Two owners would overwrite each other, and neither would know."""
    bucket = CarelessObjects(ignored)
    with pytest.raises(StorageUnusable, match="conditional puts"):
        ObjectPlogs(bucket)
    assert list(bucket.names("")) == ["store"]


def test_appends_wait_while_too_many_bytes_are_under_way() -> None:
    """A writer that is quicker than the bucket must not fill the memory."""
    gate = threading.Event()
    bucket = FaultyObjects(MemoryObjects(), delay=lambda call, name: _wait(gate, call, name))
    gate.set()
    with ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0, pending_size_max=1000)) as plogs:
        plog_id = plogs.create(size=10_000)
        gate.clear()
        tickets = [plogs.submit(plog_id, 0, bytes(1200))]
        waiting = threading.Thread(target=lambda: tickets.append(plogs.submit(plog_id, 1200, bytes(1200))))
        waiting.start()
        waiting.join(0.05)
        assert len(tickets) == 1
        gate.set()
        waiting.join()
        assert [ticket.result() for ticket in tickets] == [1200, 2400]


def test_an_append_may_be_acknowledged_before_its_submission_returns() -> None:
    """Another thread puts it, and that thread may be quicker."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ObjectPlogs(MemoryObjects(), settings=ObjectSettings(group_wait_s=0)) as plogs:
            plog_id = plogs.create(size=10_000)
            for offset in range(400):
                assert plogs.append(plog_id, offset, b"x") == offset + 1
            assert plogs.seal(plog_id, 400) == 400
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("bulk", [False, True])
def test_a_store_whose_checkpoint_is_gone_is_damaged_and_not_empty(*, bulk: bool) -> None:
    """It would be taken for a new store, and its journal would be written again from the beginning."""
    bucket = MemoryObjects()
    with ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0, part_size_min=1000)) as plogs:
        plogs.append(plogs.create(size=10_000), 0, bytes(2000 if bulk else 5))
    bucket.delete("checkpoint")
    before = list(bucket.names(""))
    with pytest.raises(JournalCorrupt, match="it is gone"):
        ObjectPlogs(bucket)
    assert list(bucket.names("")) == before


def test_a_process_that_ends_while_it_makes_a_store_leaves_a_new_one() -> None:
    """Its fence is there, and nothing else."""
    bucket = MemoryObjects()
    for _ in range(3):
        objects = FaultyObjects(bucket)
        objects.fail(ObjectFault.LOST, on="replace", call=None, prefix="checkpoint")
        with pytest.raises(StorageUnavailable):
            ObjectPlogs(objects, settings=ObjectSettings(unavailable_max_s=0.0))
    with ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0)) as plogs:
        assert plogs.append(plogs.create(size=10), 0, b"data") == 4


def test_opening_a_store_of_many_plogs_takes_few_requests() -> None:
    """One listing shows that the journal ends where it seems to; no object of a plog is looked at before it is used."""
    bucket = MemoryObjects()
    settings = ObjectSettings(group_wait_s=0, compact_size_min=100)
    with ObjectPlogs(bucket, settings=settings) as plogs:
        plog_ids = [plogs.create(size=1000) for _ in range(300)]
        for plog_id in plog_ids:
            plogs.append(plog_id, 0, bytes(200))
            plogs.seal(plog_id, 200)
        plogs.check_running()
    objects = FaultyObjects(bucket)
    with ObjectPlogs(objects, settings=settings) as plogs:
        assert sum(objects.calls.values()) < 20
        assert objects.calls["names"] == 1
        assert {plogs.info(plog_id).length for plog_id in plog_ids} == {200}
        assert bytes(plogs.read(plog_ids[7], 190, 10)) == bytes(10)


def test_bytes_that_change_after_an_append_was_submitted_do_not_change_it() -> None:
    """A copy loop reuses its buffer; a group waits for others, and would be put with the bytes of the next turn."""
    bucket, buffer = MemoryObjects(), bytearray(b"first")
    with ObjectPlogs(bucket, settings=ObjectSettings(group_wait_s=0.05)) as plogs:
        plog_id = plogs.create(size=100)
        first = plogs.submit(plog_id, 0, memoryview(buffer))
        buffer[:] = b"other"
        plogs.submit(plog_id, 5, buffer)
        buffer[:] = b"wrong"
        assert first.result() == 5
    with ObjectPlogs(bucket) as plogs:
        assert bytes(plogs.read(plog_id, 0, 10)) == b"firstother"


def _wait(gate: threading.Event, call: str, name: str) -> None:
    if call == "put_new" and name.startswith("journal/"):
        assert gate.wait(20)


def test_a_plog_that_is_deleted_while_it_is_read_is_missing_and_not_damaged() -> None:
    """A reader whose stream is truncated goes on; one that is told of damage looks for a backup."""
    bucket = MemoryObjects()

    def delete(call: str, name: str) -> None:
        if call == "get_range" and not is_deleted.is_set():
            is_deleted.set()
            plogs.delete(plog_id)
            bucket.delete(name)  # as the next checkpoint does

    is_deleted = threading.Event()
    is_deleted.set()
    with ObjectPlogs(FaultyObjects(bucket, delay=delete), settings=ObjectSettings(group_wait_s=0)) as plogs:
        plog_id = plogs.create(size=100)
        plogs.append(plog_id, 0, b"data")
        is_deleted.clear()
        with pytest.raises(NoSuchPlog):
            plogs.read(plog_id, 0, 4)


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
@pytest.mark.parametrize("call", ["put_new", "replace"])
def test_closing_does_not_wait_for_a_bucket_that_is_away(
    monkeypatch: pytest.MonkeyPatch, *, call: ObjectCall, hangs: bool
) -> None:
    """A server that is stopped is killed after some seconds; it says before what it knows, and loses nothing."""
    monkeypatch.setattr(_closing, "SILENCE_MAX_S", 0.1)
    monkeypatch.setattr(_closing, "_LOOK_S", 0.01)
    bucket, gate, looks = MemoryObjects(), threading.Event(), threading.Semaphore(0)
    gate.set()

    def delay(made: str, _: str) -> None:
        if made == call:
            assert gate.wait(20)

    objects = FaultyObjects(bucket, delay=delay)
    plogs = ObjectPlogs(objects, settings=ObjectSettings(group_wait_s=0))
    plog_id = plogs.create(size=100)
    is_waiting = plogs._watch._is_waiting

    def counted() -> bool:
        looks.release()
        return is_waiting()

    monkeypatch.setattr(plogs._watch, "_is_waiting", counted)
    plogs.prepare_close()
    for _ in range(20):
        looks.acquire()
    assert plogs.append(plog_id, 0, b"safe") == 4, "a store that waits for nothing is not given up"
    if hangs:
        gate.clear()
    else:
        objects.fail(ObjectFault.LOST, on=call, call=None)
    if call == "put_new":
        with pytest.raises(StorageUnavailable, match="is being closed"):
            plogs.append(plog_id, 4, b"lost")
    with pytest.raises(StorageUnavailable, match="is being closed"):
        plogs.close()
    gate.set()
    with ObjectPlogs(bucket) as again:
        assert bytes(again.read(plog_id, 0, 4)) == b"safe"
