"""What a commit promises: who is told of it finds it again, and damage to one stream is no other's."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.errors import CommitUnfinished, CorruptData, DiskFull, NoSuchTransaction
from penstock.stream.format import Committed, decode_records
from penstock.stream.segment._segment import Segment
from penstock.testing import ManualClock, MemoryDisk
from tests.stream.harness import STREAM
from tests.stream.large_harness import (
    SMALL_CHUNK,
    events_of,
    make_limits_small,
    store_and_manager,
    transaction_logs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.cpo import Cpo
    from penstock.log import PendingLogAppend
    from penstock.stream import Engine
    from penstock.stream.format._block import StreamBlockHeader
    from penstock.stream.segment._segment import PendingBlock
    from penstock.stream.transaction import BegunTransaction

KINDS = {"one block": (1, 20), "two blocks": (2, 20), "logs": (2, 2 * SMALL_CHUNK)}
"""How a transaction is committed: by how many segments it has, and how large its events are."""


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as oracle:
        yield oracle


def begun(store: Engine, size: int, stream: str = STREAM) -> tuple[BegunTransaction, list[bytes]]:
    """Return a transaction with events in all segments, and those."""
    transaction = store.transactional_writer(stream).begin()
    events = [b"%d:" % number + bytes(size) for number in range(8)]
    for number, event in enumerate(events):
        transaction.write_event(event, key=f"key-{number}")
    return transaction, events


def refuse_commits(store: Engine, patch: pytest.MonkeyPatch) -> None:
    """Let there be no budget for the record that a commit is done."""
    log = store.catalog._log
    submit = log.submit

    def refuse(*data: bytes) -> PendingLogAppend:
        if any(isinstance(record, Committed) for record in decode_records(b"".join(data))):
            raise DiskFull("the catalog")
        return submit(*data)

    patch.setattr(log, "submit", refuse)


@pytest.mark.parametrize("kind", ["two blocks", "logs"])
def test_a_commit_does_not_fail_because_of_what_comes_after_it(
    cpo: Cpo, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are there for everybody to read: who is told that it failed writes them again."""
    disk, (segments, size) = MemoryDisk(), KINDS[kind]
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, segments)
        transaction, events = begun(store, size)
        with monkeypatch.context() as patch:
            refuse_commits(store, patch)
            transaction.commit()
            other, more = begun(store, size)
            with pytest.raises(DiskFull):  # not one after another, or all would be unknown after a crash
                other.commit()
            assert other.status == "open"
        assert (transaction.status, sorted(events_of(store))) == ("committed", events)
        assert store.transactional_writer(STREAM).get(transaction.id).status == "committed"
        other.commit()
    with store_and_manager(disk, cpo) as (store, _):
        for one in (transaction, other):
            assert store.transactional_writer(STREAM).get(one.id).status == "committed"
        assert sorted(events_of(store)) == sorted(events + more)


def test_a_commit_of_one_block_is_refused_when_there_is_no_space_for_its_record(
    cpo: Cpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events without a record would be there, after a crash, of a transaction that is on no record."""
    disk = MemoryDisk()
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        transaction, events = begun(store, 20)
        with monkeypatch.context() as patch:
            refuse_commits(store, patch)
            with pytest.raises(DiskFull):
                transaction.commit()
        assert (transaction.status, events_of(store)) == ("open", [])
        transaction.commit()
    with store_and_manager(disk, cpo) as (store, _):
        assert store.transactional_writer(STREAM).get(transaction.id).status == "committed"
        assert events_of(store) == events


@pytest.mark.parametrize("end", [0, 1], ids=["another block is in its place", "the segment is shorter"])
def test_a_commit_whose_block_did_not_survive_was_none(cpo: Cpo, end: int) -> None:
    """Record and block share a sync, and power may go when only the record is there; it must not count later either."""
    disk = MemoryDisk()
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        transaction, events = begun(store, 20)
        transaction.commit()
        end += store.segments.get(STREAM, 0).tail
    with store_and_manager(disk, cpo) as (store, _):
        assert store.transactional_writer(STREAM).get(transaction.id).status == "committed"
        store.catalog.commit(Committed(STREAM, "lost", 0, end))
    for _ in range(2):
        with store_and_manager(disk, cpo) as (store, _):
            writer = store.transactional_writer(STREAM)
            assert writer.get(transaction.id).status == "committed"
            with pytest.raises(NoSuchTransaction):
                writer.get("lost")
            begun(store, 20)[0].commit()
    assert len(events) == 8


@pytest.mark.parametrize("ends", ["empty", "with an event that was aborted"])
def test_a_transaction_without_events_is_found_by_its_id(cpo: Cpo, ends: str) -> None:
    """A process that commits a transaction by its id need not know whether anything was in it."""
    disk = MemoryDisk()
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        transaction = store.transactional_writer(STREAM).begin()
        if ends != "empty":
            out = transaction.begin_write_event()
            out.write(bytes(500))
            out.abort()
        transaction.commit()
        assert store.transactional_writer(STREAM).get(transaction.id).status == "committed"
    with store_and_manager(disk, cpo) as (store, manager):
        assert store.transactional_writer(STREAM).get(transaction.id).status == "committed"
        assert not transaction_logs(manager)


def test_large_events_by_themselves_do_not_drive_transactions_out_of_memory(
    cpo: Cpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids are not known outside, so they are never asked for; those of transactions are, after a restart."""
    monkeypatch.setattr("penstock.stream.catalog._catalog_state.COMMITTED_MAX", 2)
    disk = MemoryDisk()
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        transaction, _ = begun(store, 20)
        transaction.commit()
        with store.writer(STREAM) as writer:
            for _ in range(3):
                writer.write_event(bytes(200), key="k")
    with store_and_manager(disk, cpo) as (store, _):
        assert list(store.catalog.committed) == [transaction.id]


class Stop(Exception):
    """The process ends here."""


def stopped_commit(
    store: Engine, size: int, patch: pytest.MonkeyPatch, error: BaseException | None = None
) -> tuple[BegunTransaction, list[bytes]]:
    """Let a commit come so far that it is on record, and half of it is there if that is possible."""
    error = error or Stop()
    transaction, events = begun(store, size)
    submit_held, calls = Segment.submit_held, []

    def submit_once(segment: Segment, *block: object) -> object:
        calls.append(segment)
        if len(calls) > 1:
            raise error
        return submit_held(segment, *block)  # type: ignore[arg-type]

    def splice_never(*_: object) -> None:
        raise error

    with patch.context() as inner:
        inner.setattr(Segment, "submit_held", submit_once)
        inner.setattr(store._logs, "splice", splice_never)
        with pytest.raises((Stop, CommitUnfinished)):
            transaction.commit()
    return transaction, events


def assert_lives(store: Engine, stream: str) -> None:
    """See that a stream takes events, transactions, scales and cuts."""
    with store.writer(stream, "w") as writer:
        writer.write_event(b"small", key="a")
        writer.write_event(bytes(500), key="a")
    begun(store, 20, stream)[0].commit()
    begun(store, 200, stream)[0].commit()
    store.scale_stream(stream, [one.segment_id for one in store.stream(stream).segments], [(0.0, 0.5), (0.5, 1.0)])
    store.truncate_stream(stream, store.tail(stream))
    store.maintain()


@pytest.mark.parametrize("kind", ["two blocks", "logs"])
@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_stream_whose_commit_is_unfinished_holds_up_no_other(
    cpo: Cpo, kind: str, damaged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lost file must not cost the whole store; when it is back, the commit is finished, with nothing lost."""
    disk = MemoryDisk()
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream("plant/other", 2)
        store.create_stream(STREAM, 2)
        first, before = begun(store, 20)
        first.commit()
        segment = store.segments.get(STREAM, damaged)
        [(plog_id, *_)] = segment.own_log().plogs()
        transaction, events = stopped_commit(store, KINDS[kind][1], monkeypatch)
        assert transaction.status == "committed"
    name = f"{plog_id.uid}.plog"
    disk.rename(name, "elsewhere")
    with store_and_manager(disk, cpo) as (store, _):
        assert_lives(store, "plant/other")
        assert store.transactional_writer(STREAM).get(transaction.id).status == "committed"
        sound = store.segments.get(STREAM, 1 - damaged)
        assert [block.count for block in sound.blocks(0)] == [4]
        with pytest.raises(CorruptData, match="is missing"):
            begun(store, 20)[0].commit()
    disk.rename("elsewhere", name)
    with store_and_manager(disk, cpo) as (store, manager):
        assert sorted(events_of(store)) == sorted(before + events)
        assert_lives(store, STREAM)
        assert not transaction_logs(manager)


@pytest.mark.parametrize("kind", ["large event", "transaction"])
def test_a_commit_on_record_that_the_disk_interrupts_says_that_it_is_committed(
    store: Engine, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that got DiskFull would free some space and write all of it again; it would be there twice."""
    store.create_stream(STREAM)
    if kind == "transaction":
        transaction, events = begun(store, 200)
        commit: Callable[[], object] = transaction.commit
    else:
        events = [bytes(500)]
        out = store.writer(STREAM).begin_write_event()
        out.write(events[0])
        commit = out.close

    def refuse(*_: object) -> None:
        raise DiskFull("a plog")

    with monkeypatch.context() as patch:
        patch.setattr(store._logs, "splice", refuse)
        with pytest.raises(CommitUnfinished, match=r"is committed.* do not write it again") as caught:
            commit()
    assert isinstance(caught.value.cause, DiskFull)
    store.maintain()
    assert sorted(events_of(store)) == events


def test_a_commit_that_is_finished_at_the_third_attempt_is_there_once(
    cpo: Cpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that was appended before another was refused is not appended again, though no caller waited for it."""
    disk, calls = MemoryDisk(), count()
    submit = Segment.submit

    def refuse(*_: object, **__: object) -> PendingBlock:
        raise DiskFull("the segment")

    def refuse_second(segment: Segment, header: StreamBlockHeader, *parts: bytes) -> PendingBlock:
        return refuse() if next(calls) else submit(segment, header, *parts)

    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, 2)
        transaction, events = begun(store, 20)
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "submit_held", refuse)
            with pytest.raises(CommitUnfinished):
                transaction.commit()
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "submit", refuse_second)
            with pytest.raises(DiskFull):
                store.transactions.commits.finish(STREAM)
        store.maintain()
        assert sorted(events_of(store)) == events


def segments_with_times(store: Engine) -> dict[int, list[int]]:
    """Return the timestamps of the events of each segment, in order."""
    found: dict[int, list[int]] = {}
    for batch in store.read(STREAM):
        for segment, time in zip(batch["segment_id"].to_pylist(), batch["timestamp"].to_pylist(), strict=True):
            found.setdefault(segment, []).append(int(time.timestamp() * 1000))
    return found


@pytest.mark.parametrize("kind", ["two blocks", "logs"])
def test_timestamps_do_not_go_back_where_a_full_disk_delays_a_commit(
    cpo: Cpo, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places by time bisect them: events count from when they became part of the stream, not from the first attempt."""
    clock = ManualClock()
    with store_and_manager(MemoryDisk(), cpo, clock=clock) as (store, _):
        store.create_stream(STREAM, 2)
        begun(store, 20)[0].commit()
        clock.advance(10)
        _, events = stopped_commit(store, KINDS[kind][1], monkeypatch, DiskFull("a plog"))
        clock.advance(10)
        with store.writer(STREAM) as writer:  # blocks that come before what is missing of the commit
            for number in range(8):
                writer.write_event(b"meanwhile", key=f"key-{number}").result()
        clock.advance(10)
        store.maintain()
        assert set(events) <= set(events_of(store))
        by_segment = segments_with_times(store)
        assert len(by_segment) == 2
        assert [times == sorted(times) for times in by_segment.values()] == [True, True]
        assert {times[-1] - times[0] for times in by_segment.values()} <= {20_000, 30_000}
        assert max(times[-1] - times[0] for times in by_segment.values()) == 30_000
