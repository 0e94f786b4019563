"""Prepared transactions: they outlive who wrote them, and are committed together, under a number.

A prepared transaction is a record in the catalog, and logs all of whose bytes are durable. Nothing else knows of it, so
any process that has its id may commit or abort it, also after the store was opened again; when its time is up, upkeep
aborts it. The catalog's lock is held by whoever ends one.

Committing several is one record: it names them, the logs that the segments take over, and the number. So after a crash
the number is there if and only if the events are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NoReturn

from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    NoSuchTransaction,
    NotPrepared,
    PenstockError,
    StreamCorrupt,
    TooManyPrepared,
    TransactionEnded,
    TransactionPrepared,
)
from penstock.model import check_time
from penstock.ports import uninterrupted
from penstock.stream.format import Committing, Prepared, PreparedPart, Unprepared
from penstock.stream.transaction._commit import LOGS_MAX, TransactionPart, commit_logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.stream.engine import StreamStore
    from penstock.stream.transaction._transaction import Status

__all__ = [
    "LEASE_MAX_S",
    "PREPARED_MAX",
    "PreparedTransaction",
    "abort_prepared",
    "check_timestamp",
    "commit_prepared",
    "drop_prepared",
    "expire_prepared",
    "leases_left",
    "note_time",
    "record_prepared",
]

_logger: Final = logging.getLogger("penstock.stream")
PREPARED_MAX: Final = 10_000  # transactions of a store
LEASE_MAX_S: Final = 24 * 3600.0
_Places = list[tuple[int, int]]
"""Segment and offset of each part of what was committed."""


class PreparedTransaction:
    """A prepared transaction, by whoever has its id: it is committed or aborted, and takes no more events."""

    def __init__(self, store: StreamStore, record: Prepared) -> None:
        self.id: Final = record.transaction
        self.stream: Final = record.stream
        self._store, self._writer_id = store, record.writer

    @property
    def status(self) -> Status:
        """Whether it is prepared, committed or aborted."""
        with self._store.catalog.lock:
            expire_prepared(self._store, [self.id])
            return "prepared" if self.id in self._store.catalog.prepared else self._store.transaction(self.id).status

    def prepare(self) -> None:
        """Do nothing: it is prepared."""
        with self._store.catalog.lock:
            self._check()

    def commit(self, timestamp: int | None = None) -> None:
        """Make all events part of the stream at once; with a ``timestamp`` the writer notes that time behind them."""
        self.commit_placed(timestamp)

    @uninterrupted
    def commit_placed(self, timestamp: int | None) -> _Places:
        """Commit; return where each of its parts is."""
        check_timestamp(timestamp, self._writer_id)
        with self._store.catalog.lock:
            self._check()
            uid = self._store.catalog.stream(self.stream).uid
            places = commit_prepared(self._store, self.stream, [self.id])
        self._store.marks.note_activity(self.stream, uid, self._writer_id)
        note_time(self._store, self.stream, uid, self._writer_id, timestamp)
        return places

    @uninterrupted
    def abort(self) -> None:
        """Drop all of it; aborting again does nothing."""
        with self._store.catalog.lock:
            if self.status == "committed":
                raise TransactionEnded(self.id, reason="it was committed")
            abort_prepared(self._store, [self.id], "it was aborted")

    def _check(self) -> None:
        status = self.status
        if status != "prepared":
            raise TransactionEnded(self.id, reason=f"it was {status}")

    def _refuse(self) -> NoReturn:
        self._check()
        raise TransactionPrepared(self.id)

    def ping(self) -> None:
        """Refuse: its lease does not begin anew."""
        self._refuse()

    def write_event(self, event: object, key: str | bytes | None = None, *, headers: object = None) -> None:
        """Refuse."""
        del event, key, headers
        self._refuse()

    def write_batch(self, events: object, keys: object = None, headers: object = None) -> None:
        """Refuse."""
        del events, keys, headers
        self._refuse()

    def begin_write_event(self, key: str | bytes | None = None, *, headers: object = None) -> NoReturn:
        """Refuse."""
        del key, headers
        self._refuse()


def record_prepared(
    store: StreamStore, *, transaction: str, stream: str, writer: str | None, lease: float, parts: list[TransactionPart]
) -> PreparedTransaction:
    """Note that a transaction is prepared, all of whose bytes are durable; the caller holds the catalog."""
    if len(store.catalog.prepared) >= PREPARED_MAX:
        raise TooManyPrepared(transaction, limit=PREPARED_MAX)
    found = [PreparedPart(part.low, part.high, part.logs, part.size, part.counts) for part in parts]
    record = Prepared(stream, transaction, writer, int((store.clock.now() + lease) * 1000), found)
    store.catalog.commit(record)
    store.leases[transaction] = store.clock.elapsed() + lease
    return PreparedTransaction(store, record)


def leases_left(store: StreamStore) -> dict[str, float]:
    """Return until when, by the clock that nobody can set, the transactions may be prepared that are on record."""
    now, elapsed = store.clock.now(), store.clock.elapsed()
    return {
        one.transaction: elapsed + min(max(one.deadline_ms / 1000 - now, 0.0), LEASE_MAX_S)
        for one in store.catalog.prepared.values()
    }


def expire_prepared(store: StreamStore, ids: Iterable[str]) -> None:
    """Abort those of some transactions whose time is up."""
    with store.catalog.lock:
        now = store.clock.elapsed()
        late = [one for one in ids if one in store.catalog.prepared and now > store.leases[one]]
        abort_prepared(store, late, "it was prepared, and nobody committed it within its lease")


def abort_prepared(store: StreamStore, ids: Iterable[str], why: str) -> None:
    """Abort those of some transactions that are prepared."""
    with store.catalog.lock:
        records = [store.catalog.prepared[one] for one in ids if one in store.catalog.prepared]
        if records:
            store.catalog.commit(Unprepared([one.transaction for one in records]))
            drop_prepared(store, records, why)


def drop_prepared(store: StreamStore, records: Sequence[Prepared], why: str) -> None:
    """Clear away what is left of transactions that the catalog does not know any more."""
    for one in records:
        store.end_prepared(one.transaction, "aborted", why)
    store.drop_logs([log for one in records for part in one.parts for log in part.logs])


def commit_prepared(
    store: StreamStore,
    stream: str,
    ids: Sequence[str],
    *,
    writer: str | None = None,
    number: int | None = None,
    time: int | None = None,
) -> _Places:
    """Commit prepared transactions as one, all or none; others of the same writer are aborted if there is a number.

    The caller holds the catalog. Return where each part of each of them is.
    """
    expire_prepared(store, ids)
    records = [_prepared(store, stream, one) for one in ids]
    parts = [
        TransactionPart(part.low, part.high, part.logs, part.size, part.counts) for one in records for part in one.parts
    ]
    _check_logs(store, stream, parts)
    left = [] if number is None else _left_by(store, stream, writer, ids)
    before = [Unprepared([one.transaction for one in left])] if left else []
    name = ids[0] if ids else store.new_transaction_id()
    batch = (None, None, None) if number is None else (writer, number, time)
    commit = Committing(stream, name, [], [], not ids, list(ids), *batch)
    try:
        return commit_logs(store, commit, parts, *before)
    except CommitUnfinished:
        store.wake_upkeep()  # which is going to finish it
        raise
    finally:  # what is on record has come about, however this ended
        for one in ids:
            if one not in store.catalog.prepared:
                store.end_prepared(one, "committed", "it was committed")
        gone = [one for one in left if one.transaction not in store.catalog.prepared]
        drop_prepared(store, gone, f"others of {writer} were committed as number {number}")


def _prepared(store: StreamStore, stream: str, transaction: str) -> Prepared:
    """Return the record of a transaction; ``NotPrepared`` if it is not, or of another stream."""
    record = store.catalog.prepared.get(transaction)
    if record is None:
        raise NotPrepared(transaction, reason=_state_of(store, transaction))
    if record.stream != stream:
        raise NotPrepared(transaction, reason=f"it is none of stream {stream!r}")
    return record


def _state_of(store: StreamStore, transaction: str) -> str:
    """Return what a transaction is that is not prepared; one that is open is not asked, because it may wait for us."""
    if transaction in store.transactions:
        return "it is open"
    try:
        return f"it was {store.transaction(transaction).status}"
    except NoSuchTransaction:
        return "there is none of this id"


def _check_logs(store: StreamStore, stream: str, parts: Sequence[TransactionPart]) -> None:
    """Refuse more logs than one commit can take over; and see that all of them are there."""
    logs = [log for part in parts for log in part.logs]
    if len(logs) > LOGS_MAX:
        raise BadArgument(
            f"these transactions have {len(logs)} logs, and at most {LOGS_MAX} are committed at once: each has one for "
            "every segment that it writes to, and two more for a large event; use fewer partitions, or fewer segments"
        )
    gone = set(logs) - {log.name for log in store.existing_logs(logs)}
    if gone:
        raise StreamCorrupt(f"stream {stream}", offset=None, reason=f"a prepared transaction has lost {min(gone)}")


def _left_by(store: StreamStore, stream: str, writer: str | None, ids: Sequence[str]) -> list[Prepared]:
    """Return what other prepared transactions a writer has: those of attempts that failed."""
    mine, chosen = (stream, writer), set(ids)
    records = store.catalog.prepared.values()
    return [one for one in records if (one.stream, one.writer) == mine and one.transaction not in chosen]


def check_timestamp(timestamp: object, writer_id: str | None) -> None:
    """Refuse a time that cannot be, or that nobody would keep."""
    if timestamp is None:
        return
    check_time("timestamp", timestamp)
    if writer_id is None:
        raise BadArgument("time is kept under the writer's id: open the transactional writer with one")


def note_time(store: StreamStore, stream: str, uid: int, writer_id: str | None, time: int | None) -> None:
    """Note a time behind a commit; if that fails it is committed all the same, and time waits for the next."""
    if time is None or writer_id is None:
        return
    try:
        store.marks.note_behind(stream, uid, writer_id, time)
    except PenstockError as error:
        _logger.warning("the time of a commit to stream %s was not noted: %s", stream, error)
