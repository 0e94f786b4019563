"""Prepared transactions: they outlive their owner, and are committed together, once, under a number."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    DiskFailed,
    DiskFull,
    NoSuchStream,
    NoSuchTransaction,
    NotPrepared,
    PenstockError,
    StoreClosed,
    StreamCorrupt,
    StreamSealed,
    TooManyPrepared,
    TransactionEnded,
    TransactionPrepared,
)
from penstock.model import StreamConfig
from penstock.stream import PreparedTransaction
from penstock.stream.catalog._catalog_state import CatalogState
from penstock.stream.format import (
    Committing,
    LoggedPart,
    NumberFull,
    Prepared,
    PreparedPart,
    StreamCreated,
    Unprepared,
    decode_records,
    encode_records,
)
from penstock.stream.format._keys import key_position
from penstock.testing import Fault, FaultyDisk, MemoryDisk
from tests.log.harness import SECONDS_MAX, leftovers
from tests.stream.harness import STREAM, embedded_only, inside
from tests.stream.large_harness import (
    SMALL_CHUNK,
    events_of,
    make_limits_small,
    settle,
    store_and_manager,
    transaction_logs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cpo import Cpo
    from penstock.stream import Engine
    from penstock.stream.format import Record
    from penstock.stream.transaction import BegunTransaction, LocalTransactionalWriter
    from penstock.testing import ManualClock

OTHER: Final = "plant/other"
KEYS: Final = [f"key-{number}" for number in range(12)]  # in every quarter of the key space, and more
KINDS: Final = {"small": 20, "spilled": SMALL_CHUNK, "large": 5 * SMALL_CHUNK}
"""How large the events are, as in the tests of transactions."""


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_limits_small(monkeypatch)


@pytest.fixture
def cpo() -> Iterator[Cpo]:
    with open_cpo("memory:") as oracle:
        yield oracle


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def query(store: Engine, writer_id: str | None = "query", stream: str = STREAM) -> LocalTransactionalWriter:
    return store.transactional_writer(stream, writer_id)


def events_for(name: str, kind: str = "small") -> list[bytes]:
    return [f"{name} {key}:".encode() + bytes(KINDS[kind]) for key in KEYS]


def written(writer: LocalTransactionalWriter, name: str, kind: str = "small") -> BegunTransaction:
    """Return an open transaction with an event under each key."""
    transaction = writer.begin()
    transaction.write_batch(events_for(name, kind), keys=KEYS)
    return transaction


def prepared(writer: LocalTransactionalWriter, name: str, kind: str = "small") -> str:
    """Return the id of a prepared transaction with an event under each key."""
    transaction = written(writer, name, kind)
    transaction.prepare()
    return transaction.id


def names_of(store: Engine) -> dict[str, list[str]]:
    """Return the names in the events, by key, in order."""
    found: dict[str, list[str]] = {}
    for event in events_of(store):
        name, key = event.partition(b":")[0].decode().split(" ")
        found.setdefault(key, []).append(name)
    return found


def in_all(*names: str) -> dict[str, list[str]]:
    return {key: list(names) for key in KEYS} if names else {}


def number_of(writer: LocalTransactionalWriter) -> int | None:
    return writer.last_number


def status_of(writer: LocalTransactionalWriter, transaction: str) -> str:
    return writer.get(transaction).status


# One of them


@pytest.mark.parametrize("kind", KINDS)
def test_a_prepared_transaction_is_shown_when_it_is_committed(store: Engine, kind: str) -> None:
    """Not before: preparing promises only that committing will work."""
    store.create_stream(STREAM, 4)
    writer = query(store)
    transaction = written(writer, "a", kind)
    transaction.prepare()
    assert (transaction.status, status_of(writer, transaction.id)) == ("prepared", "prepared")
    assert names_of(store) == {}
    transaction.commit()
    assert (transaction.status, names_of(store)) == ("committed", in_all("a"))
    for again in (transaction.commit, transaction.prepare, transaction.abort):
        with pytest.raises(TransactionEnded, match="committed"):
            again()
    assert not [name for name in inside(store)._manager.logs() if name.startswith("t")]


def test_a_prepared_transaction_takes_no_more_events(store: Engine) -> None:
    """Any process that has its id may end it; what was promised to be durable does not change by itself."""
    store.create_stream(STREAM, 2)
    writer = query(store)
    transaction = written(writer, "a")
    transaction.prepare()
    for one in (transaction, writer.get(transaction.id)):
        one.prepare()
        for refused in (
            lambda one=one: one.write_event(b"b b:"),
            lambda one=one: one.write_event(bytes(500)),
            lambda one=one: one.write_batch([b"b b:"]),
            lambda one=one: one.write_batch([]),
            lambda one=one: one.begin_write_event("k"),
            one.ping,
        ):
            with pytest.raises(TransactionPrepared, match=f"{transaction.id} is prepared, and takes no more events"):
                refused()
    assert issubclass(TransactionPrepared, TransactionEnded)
    writer.get(transaction.id).commit()
    assert (transaction.status, names_of(store)) == ("committed", in_all("a"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_prepared_transaction_may_be_aborted_by_anybody(store: Engine, kind: str) -> None:
    """The driver does for tasks that are gone; nothing is left behind."""
    store.create_stream(STREAM, 2)
    transaction = written(query(store), "a", kind)
    transaction.prepare()
    query(store, "another").get(transaction.id).abort()
    assert transaction.status == "aborted"
    transaction.abort()
    for late in (transaction.commit, transaction.prepare, lambda: transaction.write_event(b"b b:")):
        with pytest.raises(TransactionEnded, match="aborted"):
            late()
    assert names_of(store) == {}
    assert not transaction_logs(inside(store)._manager)


def test_the_end_of_the_block_leaves_a_prepared_transaction_to_others(store: Engine) -> None:
    """A task prepares in its block, and the driver decides; but a task that fails gives up what it prepared."""
    store.create_stream(STREAM)
    writer = query(store)
    with writer.begin() as kept:
        kept.write_event(b"a key-0:")
        kept.prepare()
    assert kept.status == "prepared"
    given_up = writer.begin()
    with pytest.raises(TransactionPrepared), given_up:
        prepare_and_go_on(given_up)
    assert given_up.status == "aborted"


def prepare_and_go_on(transaction: BegunTransaction) -> None:
    transaction.prepare()
    transaction.write_event(b"too late")


def test_events_that_are_not_closed_hold_up_the_preparation(store: Engine) -> None:
    """As they hold up a commit; those that were aborted leave no log behind, and all others know their place."""
    store.create_stream(STREAM, 2)
    transaction = query(store).begin()
    out, dropped = transaction.begin_write_event("a"), transaction.begin_write_event("b")
    out.write(bytes(3 * SMALL_CHUNK))
    dropped.write(bytes(3 * SMALL_CHUNK))
    with pytest.raises(BadArgument, match="2 events that are not closed"):
        transaction.prepare()
    out.close()
    dropped.abort()
    with transaction.begin_write_event("c") as small:
        small.write(b"small")
    transaction.prepare()
    manager = inside(store)._manager
    logs = {log for part in inside(store).catalog.prepared[transaction.id].parts for log in part.logs}
    assert set(transaction_logs(manager)) == logs
    transaction.commit()
    assert store.fetch_event(out.pointer) == bytes(3 * SMALL_CHUNK)
    assert store.fetch_event(small.pointer) == b"small"


def test_a_transaction_without_events_may_be_prepared(store: Engine) -> None:
    """A task without rows is a task all the same."""
    store.create_stream(STREAM)
    writer = query(store)
    empty = writer.begin()
    empty.prepare()
    assert writer.commit_all([empty.id], 0) is True
    assert (empty.status, number_of(writer), names_of(store)) == ("committed", 0, {})
    alone = writer.begin()
    alone.prepare()
    alone.commit()
    assert alone.status == "committed"


def test_a_prepared_transaction_is_aborted_when_its_lease_is_over(store: Engine, clock: ManualClock) -> None:
    """The lease begins with the preparation, for the last time: what drivers that are gone have left goes by itself."""
    store.create_stream(STREAM)
    writer = query(store)
    transaction = writer.begin(lease=10)
    transaction.write_event(b"a key-0:")
    clock.advance(9)
    transaction.prepare()
    late = prepared(writer, "b")
    clock.advance(10)
    store.maintain()
    assert transaction.status == "prepared"
    clock.advance(0.1)
    store.maintain()
    assert len(transaction_logs(inside(store)._manager)) == 1, "maintenance has run, and no caller has asked yet"
    assert (transaction.status, status_of(writer, late)) == ("aborted", "prepared")
    with pytest.raises(TransactionEnded, match="its lease expired"):
        transaction.write_event(b"more")
    clock.advance(30)  # and no maintenance runs
    with pytest.raises(NotPrepared, match=f"{late} is not prepared: it was aborted"):
        writer.commit_all([late])
    assert not transaction_logs(inside(store)._manager)


# Together


@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
def test_transactions_are_committed_together_in_the_order_that_is_asked_for(store: Engine, kind: str) -> None:
    """Whatever their sizes, and in whatever order they were written: nothing before, and everything at once."""
    store.create_stream(STREAM, 4)
    writer = query(store)
    kinds = [*KINDS, *KINDS] if kind == "mixed" else [kind] * 4
    ids = {name: prepared(writer, name, one) for name, one in zip("abcdef", kinds, strict=False)}
    before = store.tail(STREAM)
    order = ["c", "a", "d", "b"]
    assert names_of(store) == {}
    assert writer.commit_all([ids[name] for name in order]) is True
    assert names_of(store) == in_all(*order)
    assert events_of(store, end=before) == []
    assert {status_of(writer, ids[name]) for name in order} == {"committed"}
    rest = [name for name in ids if name not in order]
    assert {status_of(writer, ids[name]) for name in rest} <= {"prepared"}
    assert number_of(writer) is None
    with store.writer(STREAM) as plain:
        plain.write_batch([b"z " + key.encode() + b":" for key in KEYS], keys=KEYS).result()
    assert names_of(store) == in_all(*order, "z")


def test_who_asks_where_the_stream_ends_never_sees_half_of_a_batch(store: Engine) -> None:
    """Every batch adds as much to each segment, so in every tail all segments are as long."""
    store.create_stream(STREAM, 4)
    keys = list({int(key_position(f"key-{number}") * 4): f"key-{number}" for number in range(30)}.values())
    halves, looks, ended = [], Counter[int](), threading.Event()

    def look() -> None:
        while not ended.is_set():
            offsets = set(store.tail(STREAM).offsets.values())
            looks[max(offsets)] += 1
            if len(offsets) > 1:
                halves.append(offsets)

    with ThreadPoolExecutor(1) as pool, query(store) as writer:
        looking = pool.submit(look)
        try:
            for number in range(15):
                ids = []
                for _ in range(2):
                    transaction = writer.begin()
                    transaction.write_batch([b"event"] * 4, keys)
                    transaction.prepare()
                    ids.append(transaction.id)
                assert writer.commit_all(ids, number)
        finally:
            ended.set()
        looking.result(SECONDS_MAX)
    assert not halves
    assert len(looks) > 3, "no thread looked while there was something to see"


def test_a_number_is_committed_once(store: Engine) -> None:
    """A batch that is run again finds itself committed; what it wrote the second time is dropped."""
    store.create_stream(STREAM, 2)
    writer = query(store)
    assert number_of(writer) is None
    first = [prepared(writer, "a"), prepared(writer, "b", "spilled")]
    assert writer.commit_all(first, 5) is True
    assert number_of(writer) == 5
    assert writer.commit_all(first, 5) is False
    for number in (5, 4, 0):
        again, still_open = prepared(writer, "x"), written(writer, "y")
        assert writer.commit_all([again, still_open.id, "unknown"], number) is False
        assert (status_of(writer, again), still_open.status) == ("aborted", "aborted")
    assert not transaction_logs(inside(store)._manager)
    assert (number_of(writer), names_of(store)) == (5, in_all("a", "b"))
    assert writer.commit_all([prepared(writer, "c")], 7) is True
    assert (number_of(writer), names_of(store)) == (7, in_all("a", "b", "c"))


def test_what_attempts_that_failed_have_left_is_aborted_with_the_next_number(store: Engine) -> None:
    """Only what this writer id has in this stream: everything else belongs to somebody who may still come.

    Also what is open: tasks that were killed end nothing, and their leases are long.
    """
    store.create_stream(STREAM, 2)
    store.create_stream(OTHER)
    writer = query(store)
    left = prepared(writer, "left", "spilled")
    still_open = written(writer, "open")
    kept = [
        (query(store, "another"), prepared(query(store, "another"), "a")),
        (query(store, None), prepared(query(store, None), "b")),
        (query(store, "query", OTHER), prepared(query(store, "query", OTHER), "c")),
    ]
    unnumbered = prepared(writer, "u")
    assert writer.commit_all([unnumbered]) is True
    assert (status_of(writer, left), still_open.status) == ("prepared", "open")
    others_open = [written(one, "o") for one, _ in kept]
    assert writer.commit_all([prepared(writer, "w")], 0) is True
    assert (status_of(writer, left), still_open.status) == ("aborted", "aborted")
    assert [status_of(one, transaction) for one, transaction in kept] == ["prepared"] * 3
    assert [one.status for one in others_open] == ["open"] * 3
    assert names_of(store) == in_all("u", "w")
    with pytest.raises(TransactionEnded, match=r"others of query were committed as number 0|aborted"):
        writer.get(left).commit()


def test_numbers_are_those_of_one_writer_id_in_one_stream(store: Engine) -> None:
    """And none of a writer's event numbers, although those have the same name."""
    store.create_stream(STREAM)
    store.create_stream(OTHER)
    with store.writer(STREAM, "query") as plain:
        plain.write_event(b"p key-0:", key="key-0", number=100).result()
    writer = query(store)
    assert number_of(writer) is None
    assert writer.commit_all([], 3) is True
    assert number_of(writer) == 3
    assert [query(store, "another").last_number, query(store, "query", OTHER).last_number] == [None, None]
    assert query(store, None).last_number is None
    with store.writer(STREAM, "query") as plain:
        assert plain.last_number == 100


def test_a_number_without_transactions_is_kept_by_itself(store: Engine) -> None:
    """A batch without rows is a batch: run again, it must be known, and leave what came of it."""
    store.create_stream(STREAM)
    writer = query(store)
    left = prepared(writer, "left")
    assert writer.commit_all([], 1) is True
    assert (number_of(writer), status_of(writer, left)) == (1, "aborted")
    assert writer.commit_all([], 1) is False
    assert writer.commit_all([]) is True
    assert names_of(store) == {}


@pytest.mark.parametrize("bad", ["open", "aborted", "committed", "unknown", "other stream"])
def test_the_first_that_is_not_prepared_is_named_and_nothing_is_committed(store: Engine, bad: str) -> None:
    """A task whose transaction is missing has lost its rows: the batch must not be committed without them."""
    store.create_stream(STREAM, 2)
    store.create_stream(OTHER)
    writer = query(store)
    good, more = prepared(writer, "a"), prepared(writer, "b")
    wrong = "unknown"
    if bad == "other stream":
        wrong = prepared(query(store, "query", OTHER), "c")
    elif bad != "unknown":
        transaction = written(writer, "c")
        wrong = transaction.id
        if bad != "open":
            (transaction.abort if bad == "aborted" else transaction.commit)()
    reason = {"unknown": "no transaction has this id", "other stream": "it belongs to another stream"}.get(bad, bad)
    for number in (None, 0):
        with pytest.raises(NotPrepared, match=f"nothing was committed.*{wrong} is not prepared: .*{reason}"):
            writer.commit_all([good, wrong, "another", more], number)
    assert [status_of(writer, good), status_of(writer, more), number_of(writer)] == ["prepared", "prepared", None]
    shown = in_all("c") if bad == "committed" else {}
    assert names_of(store) == shown
    assert writer.commit_all([good, more], 0)


@pytest.mark.parametrize(
    ("ids", "number", "timestamp", "message"),
    [
        ("abc", None, None, "invalid ids 'abc': use a list of transaction ids"),
        (5, None, None, "invalid ids 5"),
        ([5], None, None, "invalid ids 5: use a value of type str"),
        (["a", "a"], None, None, "a transaction is listed twice"),
        ([], -1, None, "invalid number -1"),
        ([], True, None, "invalid number True"),
        ([], 1.0, None, r"invalid number 1\.0"),
        ([], 1 << 63, None, "invalid number .* to 9,223,372,036,854,775,807"),
        ([], None, "now", "timestamp"),
    ],
)
def test_what_cannot_be_committed_together_is_refused(
    store: Engine, ids: object, number: object, timestamp: object, message: str
) -> None:
    """By name, before anything is done."""
    store.create_stream(STREAM)
    with pytest.raises(BadArgument, match=message):
        query(store).commit_all(ids, number, timestamp)  # type: ignore[arg-type]


def test_numbers_and_times_need_a_writer_id(store: Engine) -> None:
    """They are kept under it; and a writer that is closed commits no more than it begins."""
    store.create_stream(STREAM)
    for args in ({"number": 0}, {"timestamp": 5}):
        with pytest.raises(BadArgument, match="needs a writer_id"):
            query(store, None).commit_all([], **args)
    writer = query(store)
    writer.close()
    with pytest.raises(StoreClosed):
        writer.commit_all([], 0)


def test_a_time_is_noted_behind_what_was_committed_together(store: Engine, clock: ManualClock) -> None:
    """A batch has one time, however many tasks have written it, and if it is tried again, that of the first time."""
    store.create_stream(STREAM, 2)
    writer = query(store)
    ids = [prepared(writer, "a"), prepared(writer, "b")]
    assert writer.commit_all(ids, 0, timestamp=1_000)
    assert not writer.commit_all([], 0, timestamp=9_000)
    alone = prepared(writer, "c")
    for time, count in ((1_000, 2), (2_000, 3)):
        for _ in range(2):
            clock.advance(1)
            store.maintain()
        mark = store.watermark(STREAM)
        assert mark is not None
        assert (mark.lower, len(events_of(store, end=mark.cut))) == (time, count * len(KEYS))
        if status_of(writer, alone) == "prepared":
            writer.get(alone).commit(timestamp=2_000)


# Limits


def test_a_store_keeps_so_many_prepared_transactions(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that prepares and never commits gets an error, and the transaction may be prepared later."""
    monkeypatch.setattr("penstock.stream.transaction._transactions.PREPARED_MAX", 2)
    store.create_stream(STREAM)
    writer = query(store)
    first, _ = prepared(writer, "a"), prepared(writer, "b")
    third = written(writer, "c")
    with pytest.raises(TooManyPrepared, match=f"{third.id} cannot be prepared, the store has 2"):
        third.prepare()
    assert third.status == "open"
    third.write_event(b"d key-0:", key="key-0")
    writer.get(first).abort()
    third.prepare()
    third.commit()
    assert names_of(store) == in_all("c") | {"key-0": ["c", "d"]}


def test_a_commit_takes_so_many_logs_at_the_most(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking them over is one append of metadata; who asks for more is told what to change."""
    monkeypatch.setattr("penstock.stream.transaction._transactions.LOGS_MAX", 7)
    store.create_stream(STREAM, 2)
    writer = query(store)
    ids = [prepared(writer, name) for name in "abcd"]
    with pytest.raises(BadArgument, match=r"have 8 logs, and at most 7 are committed at once.*use fewer partitions"):
        writer.commit_all(ids, 0)
    assert writer.commit_all(ids[:3], 0)
    assert names_of(store) == in_all(*"abc")


def test_a_batch_of_two_hundred_tasks_and_four_segments_is_committed(disk: MemoryDisk, cpo: Cpo) -> None:
    """What Spark does by default; and after a restart, which knows nothing but the records."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, 4)
        ids = [prepared(query(store), f"{number}") for number in range(200)]
    with store_and_manager(disk, cpo) as (store, manager):
        assert len(transaction_logs(manager)) == 800
        assert query(store).commit_all(ids, 0)
        assert names_of(store) == in_all(*map(str, range(200)))
        assert not transaction_logs(manager)
    assert not leftovers(manager, disk)


def test_a_stream_remembers_the_numbers_of_so_many_writers(cpo: Cpo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer that was silent for longest is forgotten, over restarts and snapshots, too."""
    monkeypatch.setattr("penstock.stream.catalog._stream_state.BATCH_WRITERS_MAX", 3)
    disk = MemoryDisk()
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM)
        for number, writer_id in enumerate(["a", "b", "c", "a", "d"]):
            query(store, writer_id).commit_all([], number)
        assert [query(store, writer_id).last_number for writer_id in "abcd"] == [3, None, 2, 4]
        store.catalog._write_snapshot()
    with store_and_manager(disk, cpo) as (store, _):
        assert [query(store, writer_id).last_number for writer_id in "abcd"] == [3, None, 2, 4]
        query(store, "e").commit_all([], 0)
        assert [query(store, writer_id).last_number for writer_id in "acde"] == [3, None, 4, 0]


# Restarts


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_time_of_a_batch_is_noted_later_if_a_crash_comes_before(
    disk: MemoryDisk, cpo: Cpo, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, snapshot: bool
) -> None:
    """By the process that finds the batch: the time is on record with it, and what they say now does not count."""
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        store.create_stream(STREAM)
        monkeypatch.setattr(store.marks, "note_behind", lambda *_: None)
        assert query(store).commit_all([prepared(query(store), "a")], 3, timestamp=1_000)
        if snapshot:
            store.catalog._write_snapshot()
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        assert not query(store).commit_all([prepared(query(store), "a")], 3, timestamp=9_000)
        for _ in range(2):
            clock.advance(1)
            store.maintain()
        mark = store.watermark(STREAM)
        assert mark is not None
        assert mark.lower == 1_000


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_prepared_transactions_survive_the_store(disk: MemoryDisk, cpo: Cpo, kind: str, snapshot: bool) -> None:
    """That is what they are for; others end with it, and the number is there with the events or not at all."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, 4)
        writer = query(store)
        ids = [prepared(writer, name, kind) for name in "abc"]
        left, aborted, still_open = prepared(writer, "left"), prepared(writer, "gone"), written(writer, "open", kind)
        writer.get(aborted).abort()
        if snapshot:
            store.catalog._write_snapshot()
    assert still_open.status == "aborted"
    with store_and_manager(disk, cpo) as (store, manager):
        writer = query(store)
        assert names_of(store) == {}
        assert [status_of(writer, one) for one in (*ids, left)] == ["prepared"] * 4
        assert isinstance(writer.get(ids[0])._transaction, PreparedTransaction)
        for gone in (aborted, still_open.id):
            with pytest.raises(NoSuchTransaction):
                writer.get(gone)
        assert len({name.partition(".")[0] for name in transaction_logs(manager)}) == 4
        assert writer.commit_all(ids, 3)
        if snapshot:
            store.catalog._write_snapshot()
    with store_and_manager(disk, cpo) as (store, manager):
        writer = query(store)
        assert (names_of(store), number_of(writer)) == (in_all("a", "b", "c"), 3)
        assert [status_of(writer, one) for one in ids] == ["committed"] * 3
        assert writer.commit_all(ids, 3) is False
        assert not transaction_logs(manager)
    assert not leftovers(manager, disk)


def test_the_lease_of_a_prepared_transaction_goes_on_while_the_store_is_closed(
    disk: MemoryDisk, cpo: Cpo, clock: ManualClock
) -> None:
    """It is a time of day in the record; or a store that is opened every night would keep it forever."""
    with store_and_manager(disk, cpo, clock=clock) as (store, _):
        store.create_stream(STREAM)
        first, second = prepared(query(store), "a"), prepared(query(store), "b")
    clock.advance(29)
    with store_and_manager(disk, cpo, clock=clock) as (store, manager):
        query(store).get(first).commit()
        clock.advance(2)
        store.maintain()
        with pytest.raises(NotPrepared, match="aborted"):
            query(store).commit_all([second])
        assert not transaction_logs(manager)
        assert names_of(store) == in_all("a")


RECORDS: Final[list[Record]] = [
    Prepared("a/b", "t", "q", 5, [PreparedPart(0.0, 0.5, ["t.0", "t.1"], 100, [7])], "anna"),
    Unprepared(["t"]),
    NumberFull("a/b", "q", 3, 9),
    Committing("a/b", "t", [], [LoggedPart(1, ["t.0"], [7])], False, ["t"], "q", 3, 9),
]
STORED: Final = bytes.fromhex(
    "9497a87072657061726564a3612f62a174a171059195cb0000000000000000cb3fe000000000000092a3742e30a3742e3164"
    "9107a4616e6e6192aa756e707265706172656491a17495ab6e756d6265722d66756c6ca3612f62a17103099aaa636f6d6d697474696e67"
    "a3612f62a1749091930191a3742e309107c291a174a1710309"
)


def test_records_are_read_as_they_were_written() -> None:
    """By every Penstock from here on: stores are older than the programs that open them."""
    assert encode_records(RECORDS) == STORED
    assert decode_records(STORED) == RECORDS


def test_records_of_before_there_were_prepared_transactions_are_understood() -> None:
    """Stores that were written then are opened; what is new in a record has a default."""
    [old] = decode_records(encode_records([Committing(STREAM, "t", [], [])])[:-5].replace(b"\x9a", b"\x95", 1))
    assert old == Committing(STREAM, "t", [], [])
    state = CatalogState()
    state.apply(StreamCreated(STREAM, 0, 1, StreamConfig()))
    state.apply(old)
    assert (state.commits, state.prepared) == ({"t": old}, {})
    timeless = encode_records([NumberFull("a/b", "q", 3)])
    assert decode_records(timeless[:-1].replace(b"\x95", b"\x94", 1)) == [NumberFull("a/b", "q", 3)]
    ownerless = encode_records([Prepared("a/b", "t", "q", 5, [])])
    assert decode_records(ownerless[:-1].replace(b"\x97", b"\x96", 1)) == [Prepared("a/b", "t", "q", 5, [])]


# Streams that change


@pytest.mark.parametrize(
    "scales",
    [
        [([0, 1], [(0.0, 1.0)])],
        [([0], [(0.0, 0.25), (0.25, 0.5)])],
        [([0, 1], [(0.0, 0.3), (0.3, 1.0)])],
        [([0, 1], [(0.0, 1.0)]), ([2], [(0.0, 0.5), (0.5, 1.0)])],
        [([0, 1], [(0.0, 0.3), (0.3, 1.0)]), ([2, 3], [(0.0, 0.6), (0.6, 1.0)]), ([4, 5], [(0.0, 0.5), (0.5, 1.0)])],
    ],
)
def test_a_stream_may_be_scaled_between_the_transactions_that_are_committed_together(
    disk: MemoryDisk, cpo: Cpo, scales: list[tuple[list[int], list[tuple[float, float]]]]
) -> None:
    """Their key ranges overlap; under each key the order is the one asked for, and what comes later comes behind."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        writer, ids = query(store), {}
        for number, scale in enumerate([*scales, None]):
            for kind in KINDS:
                ids[f"{kind}{number}"] = prepared(writer, f"{kind}{number}", kind)
            if scale is not None:
                store.scale_stream(STREAM, *scale)
        ranges = [(one.low, one.high) for one in store.stream(STREAM).segments]
        order = [*sorted(ids, reverse=True)]
        with store.writer(STREAM, "plain") as plain:
            plain.write_batch([b"before " + key.encode() + b":" for key in KEYS], keys=KEYS).result()
            assert writer.commit_all([ids[name] for name in order], 0)
            plain.write_batch([b"after " + key.encode() + b":" for key in KEYS], keys=KEYS).result()
        assert names_of(store) == in_all("before", *order, "after")
        assert [(one.low, one.high) for one in store.stream(STREAM).segments] == ranges
        assert not transaction_logs(manager)
    with store_and_manager(disk, cpo) as (store, manager):
        assert names_of(store) == in_all("before", *order, "after")
        for segment in store.catalog.stream(STREAM).segments.values():
            assert segment.end in (None, store.segments.get(STREAM, segment.segment_id).tail)
    assert not leftovers(manager, disk)


def test_a_group_reads_what_was_committed_in_layers_in_order(store: Engine) -> None:
    """Its readers go from each segment to its successors, through those that were made in passing."""
    store.create_stream(STREAM, 2)
    group = store.create_reader_group("group", [STREAM])
    writer = query(store)
    first = prepared(writer, "a")
    store.scale_stream(STREAM, [0, 1], [(0.0, 0.4), (0.4, 1.0)])
    second = prepared(writer, "b")
    assert writer.commit_all([second, first, prepared(writer, "c")], 0)
    found: dict[str, list[str]] = {}
    with group.reader("reader") as reader:
        for _ in range(3 * len(KEYS)):
            read = reader.read_next_event(timeout=SECONDS_MAX)
            assert read is not None
            name, key = read.event.partition(b":")[0].decode().split(" ")
            found.setdefault(key, []).append(name)
    assert found == in_all("b", "a", "c")


def test_a_sealed_stream_takes_no_commit_of_prepared_transactions(store: Engine) -> None:
    """As none of others; they may be aborted, and a number that was there is still known."""
    store.create_stream(STREAM)
    writer = query(store)
    writer.commit_all([], 1)
    transaction, still_open = prepared(writer, "a"), written(writer, "b")
    store.seal_stream(STREAM)
    for refused in (
        lambda: writer.commit_all([transaction], 2),
        lambda: writer.commit_all([], 2),
        lambda: writer.get(transaction).commit(),
        still_open.prepare,
    ):
        with pytest.raises(StreamSealed):
            refused()
    assert (status_of(writer, transaction), number_of(writer)) == ("prepared", 1)
    assert writer.commit_all([transaction], 1) is False
    assert status_of(writer, transaction) == "aborted"


def test_prepared_transactions_go_with_their_stream(store: Engine, disk: MemoryDisk, cpo: Cpo) -> None:
    """Another of the same name must not get what was meant for the first, nor its numbers."""
    store.create_stream(STREAM, 2)
    store.create_stream(OTHER)
    writer = query(store)
    transaction, kept = written(writer, "a", "spilled"), prepared(query(store, "query", OTHER), "b")
    transaction.prepare()
    writer.commit_all([], 4, None)
    again = prepared(writer, "a")
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    assert len(transaction_logs(inside(store)._manager)) == 1
    store.create_stream(STREAM)
    assert query(store).last_number is None
    for gone in (transaction.id, again):
        assert status_of(query(store), gone) == "aborted"
        with pytest.raises(NotPrepared, match="aborted"):
            query(store).commit_all([gone])
    assert status_of(query(store, "query", OTHER), kept) == "prepared"
    embedded_only(store)
    with pytest.raises(NoSuchStream):
        writer.commit_all([], 5)
    with pytest.raises(NoSuchStream):
        number_of(writer)


def test_threads_that_commit_the_same_batch_commit_it_once(store: Engine) -> None:
    """Two drivers of one query, of which one does not know yet that it was replaced."""
    store.create_stream(STREAM, 2)
    for number in range(10):
        writers = [query(store) for _ in range(4)]
        ids = [[prepared(writer, f"{number}")] for writer in writers]

        def commit(turn: int, number: int = number, writers: list = writers, ids: list = ids) -> bool:  # type: ignore[type-arg]
            try:
                return bool(writers[turn].commit_all(ids[turn], number))
            except NotPrepared:
                return False  # it was aborted with the number that came first

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(commit, range(4))) == 1
    assert names_of(store) == in_all(*map(str, range(10)))
    assert not transaction_logs(inside(store)._manager)


# The disk


def test_a_transaction_whose_logs_are_lost_is_not_committed_without_them(disk: MemoryDisk, cpo: Cpo) -> None:
    """It would look committed, with a hole in it; better to be told."""
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        ids = [prepared(query(store), name) for name in "ab"]
        manager.delete_log(transaction_logs(manager)[0])
        with pytest.raises(StreamCorrupt, match="a prepared transaction has lost"):
            query(store).commit_all(ids, 0)
        assert (names_of(store), query(store).last_number) == ({}, None)


def test_a_commit_that_the_disk_interrupts_is_on_record_with_its_number(cpo: Cpo) -> None:
    """It says so, it is shown once the disk lets it, and the batch is known when it is run again."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    with store_and_manager(disk, cpo) as (store, manager):
        store.create_stream(STREAM, 2)
        writer = query(store)
        ids, left = [prepared(writer, name, "spilled") for name in "ab"], prepared(writer, "left")
        splice = store._logs.splice

        def refuse(plan: object, labels: object) -> None:
            del labels
            raise DiskFull(str(plan))

        store._logs.splice = refuse  # type: ignore[method-assign]
        with pytest.raises(CommitUnfinished, match=f"{ids[0]} is committed"):
            writer.commit_all(ids, 2)
        assert (number_of(writer), names_of(store)) == (2, {})
        assert [status_of(writer, one) for one in (*ids, left)] == ["committed", "committed", "aborted"]
        assert writer.commit_all(ids, 2) is False
        store._logs.splice = splice  # type: ignore[method-assign]
        store.maintain()
        assert names_of(store) == in_all("a", "b")
        assert not transaction_logs(manager)


def test_a_transaction_that_may_be_prepared_keeps_its_logs(
    disk: MemoryDisk, cpo: Cpo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record may be durable although the disk said otherwise; then the next process finds all of it."""
    with store_and_manager(disk, cpo) as (store, _):
        store.create_stream(STREAM, 2)
        transaction = written(query(store), "a")
        submit = store.catalog._log.submit

        class Failing:
            def __init__(self, *data: bytes) -> None:
                self._pending = submit(*data)

            def result(self) -> int:
                self._pending.result()
                raise DiskFailed("catalog", reason="it says so", stopped=False)

        monkeypatch.setattr(store.catalog._log, "submit", Failing)
        with pytest.raises(DiskFailed):
            transaction.prepare()
    assert transaction.status == "aborted"
    with store_and_manager(disk, cpo) as (store, _):
        assert query(store).commit_all([transaction.id], 0)
        assert names_of(store) == in_all("a")


@pytest.mark.parametrize("fault", Fault)
def test_a_record_that_fails_leaves_the_transaction_open_or_to_the_next_start(cpo: Cpo, fault: Fault) -> None:
    """Where it is unknown whether it is prepared, logs stay; the next start keeps or deletes them with certainty."""
    for call in range(1, 6):
        memory = MemoryDisk()
        disk = FaultyDisk(memory)
        with open_cpo("memory:") as oracle:
            known: list[str] = []
            try:
                with store_and_manager(disk, oracle) as (store, manager):
                    store.create_stream(STREAM, 2)
                    transaction = written(query(store), "a", "spilled")
                    settle(manager)
                    disk.fail(fault, on="datasync", call=disk.calls["datasync"] + call)
                    known.append(transaction.id)
                    transaction.prepare()
                    known.append("prepared")
            except PenstockError:
                pass
            with store_and_manager(memory, oracle) as (store, manager):
                there = known[0] in store.catalog.prepared
                assert there or "prepared" not in known
                assert bool(transaction_logs(manager)) == there
                if there:
                    query(store).commit_all(known[:1], 0)
                    assert names_of(store) == in_all("a")
