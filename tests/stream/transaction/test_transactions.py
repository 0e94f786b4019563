"""Transactions: nothing before the commit, everything at once after, whatever the stream does meanwhile."""

from __future__ import annotations

import queue
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cpo import open_cpo
from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    DiskFull,
    EventAborted,
    NoSuchStream,
    NoSuchTransaction,
    PenstockError,
    StoreClosed,
    StreamSealed,
    TransactionEnded,
)
from penstock.log import PlogSizes
from penstock.stream.format._keys import key_position
from penstock.stream.serializers import StrSerializer
from penstock.stream.transaction import _transaction_logs
from penstock.stream.transaction._commits import LOGS_MAX
from penstock.testing import Fault, FaultyDisk, MemoryDisk
from tests.log.harness import SECONDS_MAX, leftovers, plog_files
from tests.sampling import examples
from tests.server.apart import eventually
from tests.stream.harness import STREAM, inside
from tests.stream.large_harness import (
    SMALL_CHUNK,
    blocks_of,
    events_of,
    make_limits_small,
    pattern,
    settle,
    store_and_manager,
    transaction_logs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.stream import Engine, LocalTransactionalWriter, StreamWriter
    from penstock.stream.transaction import BegunTransaction
    from penstock.testing import ManualClock
    from penstock.testing._faulty import Call

MIB: Final = 1 << 20
TINY: Final = PlogSizes(first=128, largest=256)
KINDS: Final = {"small": 20, "spilled": SMALL_CHUNK, "large": 5 * SMALL_CHUNK}
"""How large the events are: of the second kind eight make a transaction that is not copied, of the third one does."""


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as oracle:
        yield oracle


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


def begin(store: Engine, lease: float = 30.0) -> BegunTransaction:
    return store.transactional_writer(STREAM).begin(lease)


def status_of(transaction: BegunTransaction) -> str:
    return transaction.status


def fill(transaction: BegunTransaction, kind: str, *, count: int = 8, keys: int = 8) -> list[bytes]:
    """Write events of a kind under several keys; return them."""
    events = [b"%d:" % number + bytes(KINDS[kind] - 2) for number in range(count)]
    for number, event in enumerate(events):
        transaction.write_event(event, key=f"key-{number % keys}")
    return events


# All or nothing


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_visible_before_the_commit_and_all_of_it_after(store: Engine, kind: str) -> None:
    """In every segment; that is what a transaction is for."""
    store.create_stream(STREAM, 4)
    with store.writer(STREAM) as writer:
        writer.write_event(b"before", key="key-0").result()
    tail, size = store.tail(STREAM), store.stream(STREAM).size_bytes
    transaction = begin(store)
    events = fill(transaction, kind)
    assert (store.tail(STREAM), store.stream(STREAM).size_bytes) == (tail, size)
    assert events_of(store) == [b"before"]
    transaction.commit()
    assert sorted(events_of(store)) == sorted([b"before", *events])
    assert events_of(store, end=tail) == [b"before"]
    assert sorted(events_of(store, start=tail)) == sorted(events)
    grown = [offset > tail.offsets[segment] for segment, offset in store.tail(STREAM).places]
    assert sum(grown) > 2, "it went to several segments"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_who_asks_where_the_stream_ends_never_sees_half_of_a_transaction(store: Engine, kind: str) -> None:
    """Every transaction adds as much to each segment, so in every tail all segments are as long."""
    store.create_stream(STREAM, 4)
    keys = {int(key_position(f"key-{number}") * 4): f"key-{number}" for number in range(30)}
    assert sorted(keys) == [0, 1, 2, 3]
    halves, looks, ended = [], Counter[int](), threading.Event()

    def look() -> None:
        while not ended.is_set():
            offsets = set(store.tail(STREAM).offsets.values())
            looks[max(offsets)] += 1
            if len(offsets) > 1:
                halves.append(offsets)

    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        try:
            for _ in range(10):
                seen = len(looks)
                with begin(store) as transaction:
                    for _ in range(2):
                        for key in keys.values():
                            transaction.write_event(bytes(KINDS[kind]), key=key)
                eventually(lambda: len(looks) > seen or any(future.done() for future in looking))  # noqa: B023
        finally:
            ended.set()
        for future in looking:
            future.result(SECONDS_MAX)
    assert not halves
    assert len(looks) > 3, "no thread looked while there was something to see"
    assert len(events_of(store)) == 10 * 8


@pytest.mark.usefixtures("small")
def test_transactions_of_many_threads_and_writers_all_get_through(store: Engine) -> None:
    """They wait for each other, but not forever, and each is there once."""
    store.create_stream(STREAM, 3)

    def work(number: int) -> None:
        for turn in range(5):
            kind = list(KINDS.values())[(number + turn) % 3]
            with begin(store) as transaction, store.writer(STREAM) as writer:
                for one in range(6):
                    transaction.write_event(b"t %d %d %d:" % (number, turn, one) + bytes(kind), key=f"key-{one}")
                    writer.write_event(b"w %d %d %d:" % (number, turn, one) + bytes(kind), key=f"key-{one}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    found = Counter(event.split(b":")[0] for event in events_of(store))
    assert found == Counter(
        b"%c %d %d %d" % (who, number, turn, one)
        for who in b"tw"
        for number in range(6)
        for turn in range(5)
        for one in range(6)
    )


@pytest.mark.usefixtures("small")
def test_transactions_of_a_writer_come_in_the_order_of_their_commits(store: Engine) -> None:
    """Whatever their sizes, and in whatever order they were begun; a writer's own events take their places between."""
    store.create_stream(STREAM, 2)
    writer, transactions = store.transactional_writer(STREAM, "w"), {}
    for number, kind in enumerate([*KINDS, *KINDS]):
        transactions[number] = writer.begin()
        for turn in range(8):
            transactions[number].write_event(b"%d %d:" % (number, turn) + bytes(KINDS[kind]), key="key")
    order = [4, 0, 2, 1, 5, 3]
    with store.writer(STREAM) as plain:
        for number in order:
            transactions[number].commit()
            plain.write_event(b"behind %d:" % number, key="key").result()
    found = [event.split(b":")[0] for event in events_of(store)]
    expected = [[*(b"%d %d" % (number, turn) for turn in range(8)), b"behind %d" % number] for number in order]
    assert found == [event for some in expected for event in some]


def test_large_and_small_events_of_a_transaction_keep_their_order(store: Engine) -> None:
    """With real sizes: chunks of a mebibyte, a transaction that fills its memory more than once, and empty events."""
    store.create_stream(STREAM)
    sizes = [0, 10, MIB + 1, 0, 200_000, 200_000, 3 * MIB, MIB, MIB - 1, 5, 2 * MIB, 0]
    events = [pattern(size, number) for number, size in enumerate(sizes)]
    outputs = {}
    with begin(store) as transaction:
        for number, event in enumerate(events):
            if number % 3:
                transaction.write_event(event, key="k")
            else:
                with transaction.begin_write_event("k") as outputs[number]:
                    for start in range(0, len(event), 300_007):
                        outputs[number].write(event[start : start + 300_007])
        assert not events_of(store)
    assert events_of(store) == events
    for number, out in outputs.items():
        assert store.fetch_event(out.pointer) == events[number]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_events_written_as_files_have_a_pointer_once_the_transaction_is_committed(store: Engine, kind: str) -> None:
    """Before that there is no place for them, whatever their size."""
    store.create_stream(STREAM, 3)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"x"] * 10, keys=[f"key-{number}" for number in range(10)])
    written = {}
    with begin(store) as transaction:
        for number in range(9):
            transaction.write_event(b"other", key=f"key-{number}")
            with transaction.begin_write_event(f"key-{number}") as out:
                out.write(b"%d:" % number + bytes(KINDS[kind] - 2))
            written[out] = b"%d:" % number + bytes(KINDS[kind] - 2)
            with pytest.raises(BadArgument, match="no pointer yet: it is closed"):
                _ = out.pointer
    assert all(store.fetch_event(out.pointer) == event for out, event in written.items())


# What it costs


def test_small_transactions_are_one_block_a_segment_and_eat_no_plogs(disk: MemoryDisk, cpo: Cpo) -> None:
    """Two thousand a second of them would otherwise be ten thousand files."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        keys = {int(key_position(f"key-{number}") * 2): f"key-{number}" for number in range(9)}
        for number in range(200):
            with begin(store) as transaction:
                for turn in range(6):
                    transaction.write_event(b"%d %d" % (number, turn), key=keys[turn % 2])
            assert not transaction_logs(manager)
        for segment in (0, 1):
            assert [block.count for block in blocks_of(store, segment)] == [3] * 200
        settle(manager)
        assert len(plog_files(disk)) < 25


@pytest.mark.parametrize("size", [300_000, 20_000_000])
def test_the_commit_of_a_large_transaction_copies_nothing(disk: MemoryDisk, cpo: Cpo, size: int) -> None:
    """The catalog says which logs, the metadata that they were taken over; neither depends on how many bytes."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"before").result()
        transaction = begin(store)
        for _ in range(size // 100_000):
            transaction.write_event(bytes(100_000), key="k")
        settle(manager)
        logs = [manager.log(name) for name in ("catalog", "s0.0")]
        lengths = [log.length for log in logs]
        metadata, plog_id = manager.partition.length, manager.partition.plog_id
        transaction.commit()
        assert logs[0].length - lengths[0] < 400
        assert manager.partition.plog_id == plog_id
        assert manager.partition.length - metadata < 600
        assert logs[1].length - lengths[1] > size
        assert len(events_of(store)) == 1 + size // 100_000


def test_a_transaction_takes_the_memory_of_what_is_copied_at_most(folder: Path) -> None:
    """More than that goes out as it comes."""
    import tracemalloc  # noqa: PLC0415 - it is slow, and only wanted here

    with open_store(folder) as store:
        store.create_stream(STREAM, 2)
        tracemalloc.start()
        try:
            with begin(store) as transaction:
                for number in range(400):
                    transaction.write_event(bytes(100_000), key=f"key-{number}")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert sum(batch.num_rows for batch in store.read(STREAM)) == 400
    assert peak < 5 * MIB


@pytest.mark.usefixtures("small")
def test_a_transaction_has_so_many_logs_at_the_most(
    disk: MemoryDisk, cpo: Cpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking them over is one append, which has a limit; that is said while the transaction can still be committed."""
    monkeypatch.setattr(_transaction_logs, "LOGS_MAX", 6)
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        transaction = begin(store)
        events = fill(transaction, "large", count=3)
        with pytest.raises(BadArgument, match="commit this one, and begin the next"):
            transaction.write_event(bytes(500))
        transaction.commit()
        assert events_of(store) == events
        assert not transaction_logs(manager)


def test_the_logs_of_the_largest_transaction_are_taken_over_in_one_append(disk: MemoryDisk, cpo: Cpo) -> None:
    """Should the limit be raised too far, a commit would be on record that can never be finished."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        log = manager.log("log")
        log.append(b"x")
        name = "t" + "f" * 32 + ".1023"
        manager.log(name).append(b"x")
        length = manager.partition.length
        log.splice(manager.log(name))
        one = manager.partition.length - length
        longest = one + 2 * (560 - len(str(log.tail.plog_id)))  # where cluster and group have the longest names
        assert longest * LOGS_MAX < 2 * MIB


# Ends


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_that_is_aborted_was_never_there_and_its_room_is_freed(
    disk: MemoryDisk, cpo: Cpo, kind: str
) -> None:
    """Aborting again does nothing; everything else is too late."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        transaction = begin(store)
        fill(transaction, kind)
        out = transaction.begin_write_event("key")
        out.write(bytes(500))
        transaction.abort()
        transaction.abort()
        assert transaction.status == "aborted"
        assert not transaction_logs(manager)
        for refused in too_late(transaction):
            with pytest.raises(TransactionEnded, match="it was aborted; begin another one"):
                refused()
        with pytest.raises(TransactionEnded):
            out.write(b"more")
        with pytest.raises(EventAborted, match="it was aborted"):
            out.close()
        out.close()
        assert not transaction_logs(manager)
        assert not events_of(store)
    assert not leftovers(manager, disk)


def too_late(transaction: BegunTransaction) -> list[Callable[[], object]]:
    """Return what cannot be done with a transaction that has ended."""
    return [
        transaction.commit,
        transaction.ping,
        lambda: transaction.write_event(b"late"),
        lambda: transaction.write_event(bytes(500)),
        transaction.begin_write_event,
    ]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_is_committed_once(store: Engine, kind: str) -> None:
    """A second commit would double it, an abort undo what readers have seen."""
    store.create_stream(STREAM, 2)
    transaction = begin(store)
    events = fill(transaction, kind)
    transaction.commit()
    assert transaction.status == "committed"
    for refused in [*too_late(transaction), transaction.abort]:
        with pytest.raises(TransactionEnded, match="it was committed; begin another one"):
            refused()
    assert sorted(events_of(store)) == sorted(events)


def test_a_transaction_may_be_empty(store: Engine) -> None:
    """A caller that collects events need not count them; nothing is written then."""
    store.create_stream(STREAM, 2)
    tail = store.tail(STREAM)
    transaction = begin(store)
    transaction.commit()
    assert transaction.status == "committed"
    with begin(store) as aborted:
        aborted.begin_write_event("k").abort()
    assert store.tail(STREAM) == tail


def test_an_event_may_be_empty(store: Engine) -> None:
    """Zero bytes are an event, in a transaction as elsewhere."""
    store.create_stream(STREAM)
    with begin(store) as transaction:
        transaction.write_event(b"", key="k")
        with transaction.begin_write_event("k") as out:
            out.write(b"")
    assert events_of(store) == [b"", b""]
    assert store.fetch_event(out.pointer) == b""


def test_an_exception_in_the_block_aborts(store: Engine) -> None:
    """And is not hidden; without one the end of the block commits."""
    store.create_stream(STREAM)
    with pytest.raises(ZeroDivisionError), begin(store) as transaction:
        transaction.write_event(b"x" * (1 // int(transaction.status != "open")))
    assert transaction.status == "aborted"
    with begin(store) as transaction:
        transaction.write_event(b"a")
        transaction.abort()
    assert transaction.status == "aborted"
    with begin(store) as transaction:
        transaction.write_event(b"b")
        transaction.commit()
    assert events_of(store) == [b"b"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [0, 10, 500])
def test_an_event_that_is_not_closed_holds_up_the_commit(store: Engine, size: int) -> None:
    """Whether it was to be part of it, only its writer knows; once that is settled the commit goes through."""
    store.create_stream(STREAM)
    transaction = begin(store)
    transaction.write_event(b"a", key="k")
    closed, aborted = transaction.begin_write_event("k"), transaction.begin_write_event("k")
    for out in (closed, aborted):
        out.write(bytes(size))
    with pytest.raises(BadArgument, match="2 events that are not closed"):
        transaction.commit()
    closed.close()
    with pytest.raises(BadArgument, match="1 events that are not closed"):
        transaction.commit()
    aborted.abort()
    transaction.commit()
    assert events_of(store) == [b"a", bytes(size)]


@pytest.mark.usefixtures("small")
def test_events_that_were_aborted_leave_nothing_behind(disk: MemoryDisk, cpo: Cpo) -> None:
    """Their logs are not part of the commit, and go with it."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM)
        for also in (b"", b"small", bytes(500)):
            with begin(store) as transaction:
                out = transaction.begin_write_event("k")
                out.write(bytes(1000))
                out.abort()
                if also:
                    transaction.write_event(also, key="k")
            assert not transaction_logs(manager)
        assert events_of(store) == [b"small", bytes(500)]
    assert not leftovers(manager, disk)


# Leases


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_swept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_without_pings_is_aborted(
    clock: ManualClock, disk: MemoryDisk, cpo: Cpo, kind: str, is_swept: bool
) -> None:
    """Its writer may have died; and one that comes too late is refused, whether maintenance has run or not."""
    with store_and_manager(disk, cpo, clock=clock) as (store, manager):
        store.create_stream(STREAM, 2)
        transaction = begin(store, lease=10.0)
        fill(transaction, kind)
        clock.advance(9.0)
        transaction.ping()
        clock.advance(10.0)
        store.maintain()
        assert status_of(transaction) == "open"
        clock.advance(0.5)
        if is_swept:
            store.maintain()
            assert not transaction_logs(manager)
        for refused in too_late(transaction):
            with pytest.raises(TransactionEnded, match="its lease of 10 s expired"):
                refused()
        assert status_of(transaction) == "aborted"
        assert not transaction_logs(manager)
        transaction.abort()
        assert not events_of(store)
    assert not leftovers(manager, disk)


def test_a_block_whose_transaction_expired_does_not_end_as_if_it_were_committed(
    store: Engine, clock: ManualClock
) -> None:
    """A caller that relies on the end of the block would lose the events silently."""
    store.create_stream(STREAM)
    transaction = begin(store, lease=1.0)
    transaction.write_event(b"x")
    with pytest.raises(TransactionEnded, match="its lease of"), transaction:
        clock.advance(2.0)
    assert not events_of(store)


def test_a_commit_in_time_is_not_undone_by_the_lease(store: Engine, clock: ManualClock) -> None:
    """Once it is committed there is nothing left to expire."""
    store.create_stream(STREAM)
    transaction = begin(store, lease=1.0)
    transaction.write_event(b"x")
    transaction.commit()
    clock.advance(100.0)
    store.maintain()
    assert transaction.status == "committed"
    assert events_of(store) == [b"x"]


@pytest.mark.parametrize("lease", [0, -1.0, float("nan"), float("inf"), 86_401, "10", None])
def test_a_lease_that_cannot_be_is_refused(store: Engine, lease: object) -> None:
    """One that never ends would keep its budget forever."""
    store.create_stream(STREAM)
    with pytest.raises(BadArgument, match="lease"):
        store.transactional_writer(STREAM).begin(lease)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
def test_an_event_that_is_being_written_when_the_lease_ends_says_so(
    disk: MemoryDisk, cpo: Cpo, clock: ManualClock
) -> None:
    """Not that some log is missing; and nothing is left of it."""
    with store_and_manager(disk, cpo, clock=clock) as (store, manager):
        store.create_stream(STREAM)
        transaction = begin(store, lease=10.0)
        outputs = [transaction.begin_write_event("k") for _ in range(4)]
        for out in outputs[::2]:
            out.write(bytes(500))
        clock.advance(11.0)
        store.maintain()
        for out in outputs[:2]:
            with pytest.raises(TransactionEnded, match="its lease of"):
                out.write(bytes(500))
            with pytest.raises(EventAborted, match="its lease of"):
                out.write(bytes(500))
        for out in outputs[2:]:
            with pytest.raises(TransactionEnded, match="its lease of"):
                out.close()
        assert not transaction_logs(manager)
    assert not leftovers(manager, disk)


# Finding them again


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_is_found_by_its_id(disk: MemoryDisk, cpo: Cpo, kind: str) -> None:
    """Another part of a program may have to see it through; after a restart it is still known how it ended."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, 2)
        writer = store.transactional_writer(STREAM)
        committed, aborted, left = writer.begin(), writer.begin(), writer.begin()
        for transaction in (committed, aborted, left):
            fill(transaction, kind)
        assert writer.get(committed.id)._transaction is committed._transaction
        committed.commit()
        aborted.abort()
        for ended, status in ((committed, "committed"), (aborted, "aborted")):
            found = writer.get(ended.id)
            assert (found.id, found.status) == (ended.id, status)
            assert_ended(found.id, store)
        writer.get(aborted.id).abort()
        with pytest.raises(TransactionEnded, match="it was committed"):
            writer.get(committed.id).abort()
        assert len({committed.id, aborted.id, left.id}) == 3
    with store_and_manager(disk, cpo) as (store, _):
        writer = store.transactional_writer(STREAM)
        assert writer.get(committed.id).status == "committed"
        assert_ended(committed.id, store)
        for unknown in (aborted.id, left.id, "0" * 32, "no id at all"):
            with pytest.raises(NoSuchTransaction, match="never begun, or ended long ago, or when its store was closed"):
                writer.get(unknown)


def assert_ended(transaction_id: str, store: Engine) -> None:
    found = store.transactional_writer(STREAM).get(transaction_id)
    for refused in (found.commit, found.ping, lambda: found.write_event(b"x"), found.begin_write_event):
        with pytest.raises(TransactionEnded, match=found.status):
            refused()


def test_the_end_of_a_transaction_is_forgotten_some_time(
    disk: MemoryDisk, cpo: Cpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered has a limit, or a store would grow with every transaction ever made."""
    monkeypatch.setattr("penstock.stream.catalog._catalog_state.COMMITTED_MAX", 5)
    monkeypatch.setattr("penstock.stream.transaction._transactions._ABORTED_MAX", 5)
    ended: dict[str, list[str]] = {"committed": [], "aborted": []}
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        writer = store.transactional_writer(STREAM)
        for number in range(16):
            transaction = writer.begin()
            transaction.write_event(b"x")
            transaction.abort() if number % 2 else transaction.commit()
            ended[transaction.status].append(transaction.id)
        for status, some in ended.items():
            assert [writer.get(one).status for one in some[-5:]] == [status] * 5
            with pytest.raises(NoSuchTransaction):
                writer.get(some[-6])
    with store_and_manager(disk, cpo) as (store, _):
        assert len(store.catalog.committed) == 5


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_a_late_commit_or_abort_never_hits_a_later_transaction(store: Engine, clock: ManualClock, kind: str) -> None:
    """A writer that was taken for dead comes back: what has the same keys now is another's."""
    store.create_stream(STREAM, 2)
    writer = store.transactional_writer(STREAM, "w")
    old = writer.begin(lease=1.0)
    fill(old, kind)
    clock.advance(2.0)
    store.maintain()
    new = writer.begin()
    events = fill(new, kind, count=9)
    for late in (old, writer.get(old.id)):
        with pytest.raises(TransactionEnded):
            late.commit()
        late.abort()
    assert (new.status, events_of(store)) == ("open", [])
    new.commit()
    for late in (old, writer.get(old.id)):
        late.abort()
    assert sorted(events_of(store)) == sorted(events)


# Streams that change meanwhile


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("segments", "ranges"),
    [
        ([0, 1], [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]),
        ([0, 1], [(0.0, 1.0)]),
        ([0, 1], [(0.0, 0.3), (0.3, 1.0)]),
        ([0], [(0.0, 0.1), (0.1, 0.5)]),
        ([1], [(0.5, 1.0)]),
    ],
)
def test_a_transaction_across_a_scale_commits_into_the_segments_of_its_keys(
    disk: MemoryDisk, cpo: Cpo, kind: str, segments: list[int], ranges: list[tuple[float, float]]
) -> None:
    """After a restart, too: its events come behind what was there, before what comes later, under every key."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        keys = [f"key-{number}" for number in range(12)]
        transaction = begin(store)
        events = fill(transaction, kind, count=24, keys=12)
        with store.writer(STREAM) as writer:
            writer.write_batch([b"before %d" % number for number in range(12)], keys=keys).result()
            store.scale_stream(STREAM, segments, ranges)
            writer.write_batch([b"between %d" % number for number in range(12)], keys=keys).result()
            transaction.commit()
            writer.write_batch([b"after %d" % number for number in range(12)], keys=keys).result()
        ranges_now = [(one.low, one.high) for one in store.stream(STREAM).segments]
        assert [pair for pair in ranges if pair in ranges_now] == ranges
        assert not transaction_logs(manager)
    with store_and_manager(disk, cpo) as (store, manager):
        for number in range(12):
            mine = (b"before %d", b"between %d", b"after %d")
            expected = [mine[0] % number, mine[1] % number, events[number], events[number + 12], mine[2] % number]
            assert [event for event in events_of(store) if event in expected] == expected
        assert len(events_of(store)) == 24 + 36
    assert not leftovers(manager, disk)


def test_a_part_that_one_segment_could_take_goes_with_those_that_none_can(disk: MemoryDisk, cpo: Cpo) -> None:
    """Two segments are merged and split elsewhere: the one that could have taken the second half ends, too."""
    with pytest.MonkeyPatch.context() as patch, store_and_manager(disk, cpo) as (store, _):
        make_limits_small(patch)
        store.create_stream(STREAM, 2)
        transaction = begin(store)
        events = fill(transaction, "spilled", count=30, keys=30)
        store.scale_stream(STREAM, [0, 1], [(0.0, 1.0)])
        store.scale_stream(STREAM, [2], [(0.0, 0.3), (0.3, 1.0)])
        transaction.commit()
        assert sorted(events_of(store)) == sorted(events)
        for segment in store.catalog.stream(STREAM).segments.values():
            assert segment.end in (None, store.segments.get(STREAM, segment.segment_id).tail)
    with store_and_manager(disk, cpo) as (store, _):
        assert sorted(events_of(store)) == sorted(events)


KEYS: Final = [f"key-{number}" for number in range(7)]


class ScaledStream:
    """A stream that is scaled while transactions are open, and what should be in it."""

    def __init__(self, store: Engine, data: st.DataObject) -> None:
        self._store, self._data = store, data
        self._open: list[tuple[BegunTransaction, list[bytes]]] = []
        self._numbers = iter(range(10_000))
        self.expected: list[bytes] = []

    def step(self) -> None:
        """Do anything."""
        steps = [
            self.begin,
            self.write,
            self.write,
            self.write,
            self.write_plainly,
            self.commit,
            self.commit_together,
            self.scale,
            self.scale,
        ]
        self._data.draw(st.sampled_from(steps))()

    def begin(self) -> None:
        self._open.append((begin(self._store), []))

    def write(self) -> None:
        """Write events under some keys, one by one or as a batch; under all of them more often than not."""
        if not self._open:
            self.begin()
        transaction, events = self._open[self._data.draw(st.integers(0, len(self._open) - 1))]
        size = self._data.draw(st.sampled_from([0, 30, SMALL_CHUNK, 3 * SMALL_CHUNK]))
        keys = self._data.draw(st.just(KEYS) | st.lists(st.sampled_from(KEYS), min_size=1))
        as_files = self._data.draw(st.booleans())
        if self._data.draw(st.booleans()):
            batch = [self._event(key, size) for key in keys]
            events += batch
            transaction.write_batch(batch, keys)
            return
        for key in keys:
            events.append(self._event(key, size))
            if as_files:
                with transaction.begin_write_event(key) as out:
                    out.write(events[-1])
            else:
                transaction.write_event(events[-1], key=key)

    def _event(self, key: str, size: int) -> bytes:
        return f"{key}:{next(self._numbers)}:".encode() + bytes(size)

    def write_plainly(self) -> None:
        key, size = self._data.draw(st.sampled_from(KEYS)), self._data.draw(st.sampled_from([0, 3 * SMALL_CHUNK]))
        self.expected.append(self._event(key, size))
        with self._store.writer(STREAM, "w") as writer:
            writer.write_event(self.expected[-1], key=key)

    def commit(self) -> None:
        if self._open:
            transaction, events = self._open.pop(self._data.draw(st.integers(0, len(self._open) - 1)))
            if self._data.draw(st.integers(0, 4)):
                transaction.commit()
                self.expected += events
            else:
                transaction.abort()

    def commit_together(self) -> None:
        """Prepare some, whenever they began, and commit them in any order."""
        some = self._data.draw(st.permutations(self._open))[: self._data.draw(st.integers(0, len(self._open)))]
        for transaction, _ in some:
            transaction.prepare()
        self._store.transactional_writer(STREAM).commit_all([transaction.id for transaction, _ in some])
        self._open = [one for one in self._open if one not in some]
        self.expected += [event for _, events in some for event in events]

    def scale(self) -> None:
        """End some neighbours, and cut what they had anew."""
        current = list(self._store.stream(STREAM).segments)
        first = self._data.draw(st.integers(0, len(current) - 1))
        some = current[first : first + self._data.draw(st.integers(1, 3))]
        low, high = some[0].low, some[-1].high
        inner = self._data.draw(st.sets(st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.6, 0.75, 0.9]), max_size=3))
        marks = [low, *sorted(mark for mark in inner if low < mark < high), high]
        self._store.scale_stream(STREAM, [one.segment_id for one in some], list(pairwise(marks)))

    def check(self, store: Engine) -> None:
        """Nothing is lost or doubled, and under each key all is in the order in which it became visible."""
        found = events_of(store)
        assert sorted(found) == sorted(self.expected)
        for key in {event.split(b":")[0] for event in found}:
            mine = [event for event in self.expected if event.startswith(key + b":")]
            assert [event for event in found if event.startswith(key + b":")] == mine
        assert [low for low, _ in _key_space(store)] == [0.0, *(high for _, high in _key_space(store))][:-1]


def _key_space(store: Engine) -> list[tuple[float, float]]:
    return [(one.low, one.high) for one in store.stream(STREAM).segments]


@settings(max_examples=examples(50))
@given(st.data())
def test_transactions_across_any_scales_lose_double_and_reorder_nothing(data: st.DataObject) -> None:
    """Splits, merges and both, between any two steps of any transactions, and a restart at the end."""
    disk = MemoryDisk()
    with pytest.MonkeyPatch.context() as patch, open_cpo("memory:") as cpo:
        make_limits_small(patch)
        with store_and_manager(disk, cpo) as (store, manager):
            store.create_stream(STREAM, data.draw(st.integers(1, 3)))
            stream = ScaledStream(store, data)
            for _ in range(data.draw(st.integers(5, 30))):
                stream.step()
            stream.check(store)
        with store_and_manager(disk, cpo) as (store, manager):
            stream.check(store)
            assert not transaction_logs(manager)
            with store.writer(STREAM) as writer:
                writer.write_batch([b"last"] * 7, keys=KEYS)
            assert len(events_of(store)) == len(stream.expected) + 7
        assert not leftovers(manager, disk)


@pytest.mark.usefixtures("small")
def test_a_commit_goes_through_behind_any_number_of_scales(disk: MemoryDisk, cpo: Cpo) -> None:
    """Each segment inherits what writers wrote from those before it; that must not go as deep as there are scales."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, 2)
        with store.writer(STREAM, "w") as writer:
            writer.write_event(b"first", key="key-0", number=7)
        transaction = begin(store)
        events = fill(transaction, "spilled")
        for number in range(400):
            current = [one.segment_id for one in store.stream(STREAM).segments]
            store.scale_stream(STREAM, current, [(0.0, 0.2 + 0.001 * number), (0.2 + 0.001 * number, 1.0)])
        transaction.commit()
    with store_and_manager(disk, cpo) as (store, _):
        with store.writer(STREAM, "w") as writer:
            assert writer.last_number == 7
            writer.write_event(b"first", key="key-0", number=7)
        assert sorted(events_of(store)) == sorted([b"first", *events])


@pytest.mark.usefixtures("small")
def test_transactions_and_scales_of_several_threads_do_not_disturb_each_other(store: Engine) -> None:
    """Automatic scaling comes when it comes: between any two steps of a commit."""
    store.create_stream(STREAM, 2)
    turns, scaled = queue.SimpleQueue[float | None](), []

    def scale() -> None:
        while (mark := turns.get(timeout=SECONDS_MAX)) is not None:
            current = [one.segment_id for one in store.stream(STREAM).segments]
            with suppress(BadArgument):  # a commit was faster, and scaled in passing
                store.scale_stream(STREAM, current, [(0.0, mark), (mark, 1.0)])
                scaled.append(mark)

    with ThreadPoolExecutor(1) as pool:
        scaling = pool.submit(scale)
        try:
            expected = []
            for number in range(25):
                with begin(store) as transaction:
                    turns.put(0.3 + 0.01 * number)
                    for turn in range(12):
                        expected.append(b"%d %d:" % (number, turn) + bytes(KINDS["spilled"] - 8))
                        transaction.write_event(expected[-1], key=f"key-{turn}")
                    turns.put(0.4 + 0.01 * number)
        finally:
            turns.put(None)
        scaling.result(SECONDS_MAX)
    assert len(scaled) > 5
    found = events_of(store)
    assert sorted(found) == sorted(expected)
    for turn in range(12):
        mine = [int(event.split(b" ")[0]) for event in found if event.split(b":")[0].endswith(b" %d" % turn)]
        assert mine == sorted(mine)


def sealed(store: Engine) -> type[PenstockError]:
    store.seal_stream(STREAM)
    return StreamSealed


def deleted(store: Engine) -> type[PenstockError]:
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    return NoSuchStream


def replaced(store: Engine) -> type[PenstockError]:
    deleted(store)
    store.create_stream(STREAM, 2)
    return NoSuchStream


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("change", [sealed, deleted, replaced])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_takes_no_more_events_takes_no_commit(
    disk: MemoryDisk, cpo: Cpo, kind: str, change: Callable[[Engine], type[PenstockError]]
) -> None:
    """Also if another one has its name by now; the transaction can be aborted, and leaves nothing."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        transaction = begin(store)
        fill(transaction, kind)
        error = change(store)
        for _ in range(2):
            with pytest.raises(error):
                transaction.commit()
        assert transaction.status == "open"
        transaction.abort()
        if change is not deleted:
            assert not events_of(store)
        assert not transaction_logs(manager)
        if change is not replaced:
            with pytest.raises(error):
                begin(store)
    assert not leftovers(manager, disk)


def test_a_truncated_stream_takes_the_commit(store: Engine) -> None:
    """What is truncated away is what was there, not what is to come."""
    store.create_stream(STREAM, 2)
    transaction = begin(store)
    with store.writer(STREAM) as writer:
        writer.write_batch([b"x"] * 20, keys=[f"key-{number}" for number in range(20)]).result()
    transaction.write_event(b"a", key="key-0")
    store.truncate_stream(STREAM, store.tail(STREAM))
    transaction.commit()
    assert events_of(store) == [b"a"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_transactions_that_are_open_when_the_store_is_closed_are_aborted(disk: MemoryDisk, cpo: Cpo, kind: str) -> None:
    """No process could commit them afterwards; no log and no plog of theirs is there when it is opened again."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        transaction = begin(store)
        fill(transaction, kind)
        out = transaction.begin_write_event("k")
        out.write(bytes(1000))
    assert transaction.status == "aborted"
    assert not leftovers(manager, disk)
    for refused in (transaction.commit, transaction.ping, partial(out.write, b"x")):
        with pytest.raises(TransactionEnded, match="its store was closed"):
            refused()
    out.abort()
    with pytest.raises(StoreClosed):
        store.transactional_writer(STREAM)
    with store_and_manager(disk, cpo) as (store, manager):
        assert manager.logs() == ["catalog"]
        assert not events_of(store)


# Threads, and bad input


@pytest.mark.usefixtures("small")
def test_threads_may_share_a_transaction_and_its_large_events(store: Engine) -> None:
    """Each event gets a log of its own, however closely they are begun."""
    store.create_stream(STREAM, 2)
    begun = threading.Barrier(8)
    transaction = begin(store)

    def write(number: int) -> list[bytes]:
        events = []
        for turn in range(6):
            event = b"%d %d:" % (number, turn) * 40
            begun.wait(SECONDS_MAX)
            with transaction.begin_write_event(f"key-{number}") as out:
                for start in range(0, len(event), 50):
                    out.write(event[start : start + 50])
            transaction.write_event(event[:10], key=f"key-{number}")
            transaction.ping()
            events += [event, event[:10]]
        return events

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            written = list(pool.map(write, range(8)))
    finally:
        sys.setswitchinterval(interval)
    transaction.commit()
    found = events_of(store)
    assert sorted(found) == sorted(event for events in written for event in events)
    for number, events in enumerate(written):
        assert [event for event in found if event.startswith(b"%d " % number)] == events


@pytest.mark.parametrize("event", ["text", None, 7, ["x"]])
def test_what_is_no_event_is_refused_and_the_transaction_goes_on(store: Engine, event: object) -> None:
    """A slip of the caller's is no reason to lose the rest."""
    store.create_stream(STREAM)
    with begin(store) as transaction:
        transaction.write_event(b"a", key="k")
        with pytest.raises(BadArgument, match="invalid event"):
            transaction.write_event(event, key="k")
        with pytest.raises(BadArgument, match="invalid routing key"):
            transaction.write_event(b"x", key=7)  # type: ignore[arg-type]
        with pytest.raises(BadArgument, match="invalid routing key"):
            transaction.begin_write_event(7)  # type: ignore[arg-type]
        transaction.write_event(bytearray(b"b"), key="k")
        transaction.write_event(memoryview(b"c"), key=b"k")
    assert events_of(store) == [b"a", b"b", b"c"]


def test_a_transaction_has_a_serializer_if_its_writer_has(store: Engine) -> None:
    """As with other writers; what is written as a file is bytes already."""
    store.create_stream(STREAM)
    with store.transactional_writer(STREAM, "w", StrSerializer()) as writer, writer.begin() as transaction:
        transaction.write_event("grün", key="k")
        transaction.write_event("x" * (MIB + 1), key="k")
        with transaction.begin_write_event("k") as out:
            out.write(b"bytes")
    assert events_of(store) == ["grün".encode(), b"x" * (MIB + 1), b"bytes"]


def test_a_transactional_writer_needs_a_stream_and_a_name_that_can_be(store: Engine) -> None:
    """It says so at once, not at the first commit."""
    with pytest.raises(NoSuchStream):
        store.transactional_writer(STREAM)
    store.create_stream(STREAM)
    with pytest.raises(BadArgument, match="writer"):
        store.transactional_writer(STREAM, "no/name")


def test_events_without_a_key_stay_together(store: Engine) -> None:
    """Their order is that of writing; another transaction's may go elsewhere."""
    store.create_stream(STREAM, 8)
    places = set()
    for _ in range(6):
        tail = store.tail(STREAM)
        with begin(store) as transaction:
            for number in range(20):
                transaction.write_event(b"%d" % number)
        grown = [segment for segment, offset in store.tail(STREAM).places if offset > tail.offsets[segment]]
        assert len(grown) == 1
        assert events_of(store, start=tail) == [b"%d" % number for number in range(20)]
        places.update(grown)
    assert len(places) > 1


# Disks that refuse


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("call", ["create", "reserve"])
def test_a_transaction_that_could_not_be_written_is_aborted(cpo: Cpo, call: Call) -> None:
    """How much of it is in its logs is unknown, so it cannot be tried again; the next one finds all as before."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        transaction = begin(store)
        fill(transaction, "small")
        settle(manager)
        disk.fail(Fault.ENOSPC, on=call, call=None)
        with pytest.raises(DiskFull):
            fill(transaction, "spilled", count=100)
        assert transaction.status == "aborted"
        with pytest.raises(TransactionEnded, match="writing to it failed"):
            transaction.commit()
        disk.heal()
        store.maintain()
        assert not transaction_logs(manager)
        with begin(store) as another:
            events = fill(another, "spilled", count=100)
        assert sorted(events_of(store)) == sorted(events)
    assert not leftovers(manager, memory)


def refuse_from(disk: FaultyDisk, number: int) -> None:
    """Let the disk have no budget for a new file from this one on, until it is healed."""
    for later in range(number, number + 500):  # more than a user tries: a smaller one after each that is refused, too
        disk.fail(Fault.ENOSPC, on="create", call=later)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_scaled", [False, True])
def test_a_commit_that_a_full_disk_interrupts_is_undone_or_finished_and_never_half(
    cpo: Cpo, kind: str, is_scaled: bool
) -> None:
    """Until there is budget again nothing of it is seen. Its status says whether it took effect; a restart agrees."""
    outcomes: list[str] = []
    while "through" not in outcomes:
        outcomes.append(interrupted_commit(cpo, kind, number=len(outcomes) + 1, is_scaled=is_scaled))
    assert "committed" in outcomes


def interrupted_commit(cpo: Cpo, kind: str, *, number: int, is_scaled: bool) -> str:
    """Let a commit find no budget for its so manieth new file, and see that it comes to a good end."""
    memory, partition = MemoryDisk(), f"{kind}-{number}-{is_scaled}"
    disk = FaultyDisk(memory)
    with store_and_manager(disk, cpo, sizes=TINY, partition=partition) as (store, manager):
        store.create_stream(STREAM, 3)
        transaction = begin(store)
        events = fill(transaction, kind, count=16, keys=16)
        if is_scaled:
            store.scale_stream(STREAM, [0, 1, 2], [(0.0, 0.2), (0.2, 0.7), (0.7, 1.0)])
        settle(manager)
        refuse_from(disk, number)
        try:
            transaction.commit()
        except DiskFull:  # events that were not durable yet may be lost: then it is aborted
            assert status_of(transaction) in {"open", "aborted"}
        except CommitUnfinished:
            assert status_of(transaction) == "committed"
            assert not events_of(store)
        outcome = "through" if events_of(store) else status_of(transaction)
        if outcome != "through":
            check_that_nothing_is_seen(store)
        disk.heal()
        if outcome == "aborted":
            with pytest.raises(TransactionEnded, match="writing to it failed"):
                transaction.commit()
            transaction = begin(store)
            events = fill(transaction, kind, count=16, keys=16)
        if outcome in {"open", "aborted"}:
            transaction.commit()
        else:
            with pytest.raises(TransactionEnded, match="commit"):
                transaction.abort()
        store.maintain()
        assert sorted(event for event in events_of(store) if event) == sorted(events)
        assert store.transactional_writer(STREAM).get(transaction.id).status == "committed"
        store.scale_stream(STREAM, [one.segment_id for one in store.stream(STREAM).segments], [(0.0, 1.0)])
    with store_and_manager(memory, cpo, sizes=TINY, partition=partition) as (store, manager):
        assert sorted(event for event in events_of(store) if event) == sorted(events)
        assert not transaction_logs(manager)
    assert not leftovers(manager, memory)
    return outcome


def check_that_nothing_is_seen(store: Engine) -> None:
    """Nothing is seen of the transaction, also if others write to its segments meanwhile."""
    for number in range(16):
        with suppress(PenstockError), store.writer(STREAM) as writer:
            writer.write_event(b"", key=f"key-{number}").result()
    assert not any(events_of(store))


@pytest.mark.parametrize(
    "use",
    [
        lambda begun, _: begun.begin(),
        lambda begun, _: begun.commit_all([]),
        lambda begun, _: begun.last_number,
        lambda _, writer: writer.write_event(b"small", key="a").result(),
        lambda _, writer: writer.write_event(bytes(2 << 20), key="a").result(),
        lambda _, writer: writer.begin_write_event("a").write(bytes(2 << 20)),
    ],
    ids=["begin", "commit_all", "last_number", "a small event", "a large event", "an event as a file"],
)
def test_nothing_of_a_deleted_stream_goes_to_another_of_its_name(
    store: Engine, use: Callable[[LocalTransactionalWriter, StreamWriter], object]
) -> None:
    """A writer was opened for the stream that is gone; what it writes is not for readers of the new one."""
    store.create_stream(STREAM)
    begun, writer = store.transactional_writer(STREAM, "t"), store.writer(STREAM, "w")
    replaced(store)
    with pytest.raises(NoSuchStream):
        use(begun, writer)
    begun.close()
    with suppress(NoSuchStream):
        writer.close()
    assert events_of(store) == []


@pytest.mark.parametrize("prepared", [False, True])
def test_a_clock_that_is_set_forward_ends_no_lease(store: Engine, clock: ManualClock, prepared: bool) -> None:
    """No time has passed: the transaction was pinged a moment ago."""
    store.create_stream(STREAM)
    transaction = store.transactional_writer(STREAM).begin(lease=30)
    transaction.write_event(b"event")
    if prepared:
        transaction.prepare()
    clock.set_forward(3600)
    store.maintain()
    before = transaction.status
    clock.advance(31)
    store.maintain()
    assert (before, transaction.status) == ("prepared" if prepared else "open", "aborted")


@pytest.mark.parametrize("how", ["events", "batches"])
def test_very_small_events_do_not_wait_in_memory_for_long(store: Engine, how: str) -> None:
    """Each takes many times its bytes there; a server has thousands of open transactions."""
    store.create_stream(STREAM)
    with inside(store).transactional_writer(STREAM).begin() as transaction:
        for number in range(20_000 if how == "events" else 2_000):
            if how == "events":
                transaction.write_event(b"%d" % number)
            else:
                transaction.write_batch([b"%d" % number])
            assert transaction._begun._buffer.memory <= 1 << 20
    assert sum(map(len, store.read(STREAM))) == (20_000 if how == "events" else 2_000)
