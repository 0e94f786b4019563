"""The transactions of a store: the open and prepared ones, and the outcomes of the last ones.

A prepared transaction is a record in the catalog, and logs all of whose bytes are durable. Nothing else knows of it, so
any process that has its id may commit or abort it, also after the store was opened again; when its time is up,
maintenance aborts it. The thread that ends one holds the catalog's lock.

Committing several is one record: it names them, the logs that the segments take over, and the number. So after a crash
the number is there if and only if the events are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.errors import (
    BadArgument,
    CommitUnfinished,
    NoSuchTransaction,
    NotPrepared,
    PenstockError,
    StreamCorrupt,
    TooManyPrepared,
)
from penstock.model import check_kind
from penstock.stream.format import Committing, Prepared, PreparedPart, Unprepared
from penstock.stream.transaction._commits import LOGS_MAX
from penstock.stream.transaction._prepared import LEASE_MAX_S, EndedTransaction, PreparedTransaction
from penstock.stream.transaction._roll import TransactionPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.ports import Clock, Random
    from penstock.stream.catalog import Catalog
    from penstock.stream.segment import Logs
    from penstock.stream.time import WriterMarks
    from penstock.stream.transaction._commits import Commits
    from penstock.stream.transaction._prepared import Parts, Status
    from penstock.stream.transaction._transaction import LocalTransaction

__all__ = ["PREPARED_MAX", "Transactions"]

_logger: Final = logging.getLogger("penstock.stream")
_ABORTED_MAX: Final = 10_000  # transactions whose end is remembered
PREPARED_MAX: Final = 10_000  # transactions of a store


class Transactions:
    """The transactions of a store, and the parts of the store that they use. ``wake`` starts maintenance."""

    def __init__(
        self,
        catalog: Catalog,
        commits: Commits,
        logs: Logs,
        marks: WriterMarks,
        *,
        clock: Clock,
        random: Random,
        wake: Callable[[], None],
    ) -> None:
        self.catalog, self.commits, self.logs, self.marks, self.clock = catalog, commits, logs, marks, clock
        self.wake: Final = wake
        self.admit: Callable[[LocalTransaction], object] = lambda _: None  # raises why one cannot be begun
        self._random = random
        self.open: Final[dict[str, LocalTransaction]] = {}
        self._aborted: dict[str, str] = {}  # why, by id
        self._leases: Final = self._leases_left()  # of prepared transactions

    def new_id(self) -> str:
        """Return an id that no transaction has had."""
        return self._random.token(16).hex()

    def add(self, transaction: LocalTransaction) -> None:
        """Add a transaction that was begun."""
        with self.catalog.lock:
            self.catalog.check_open()
            self.admit(transaction)
            self.open[transaction.id] = transaction
        self.wake()

    def forget(self, transaction: str, why_aborted: str | None) -> None:
        """Remove a transaction that has ended; keep its outcome."""
        with self.catalog.lock:
            self.open.pop(transaction, None)
            if why_aborted is not None:
                self._note_aborted(transaction, why_aborted)

    def get(self, transaction: str) -> LocalTransaction | PreparedTransaction | EndedTransaction:
        """Return a transaction; one that has ended knows its outcome."""
        check_kind("transaction", transaction, str)
        with self.catalog.lock:
            if transaction in self.open:
                return self.open[transaction]
            if transaction in self.catalog.committed or transaction in self.catalog.commits:
                return EndedTransaction(transaction, "committed")
            if transaction in self.catalog.prepared:
                return PreparedTransaction(self, self.catalog.prepared[transaction])
            if transaction in self._aborted:
                return EndedTransaction(transaction, "aborted", self._aborted[transaction])
            raise NoSuchTransaction(transaction)

    def _end_prepared(self, transaction: str, status: Status, why: str) -> None:
        """Note the outcome of a prepared transaction; the caller holds the catalog."""
        known = self.open.pop(transaction, None)
        self._leases.pop(transaction, None)
        if known is not None:
            known.note_end(status, why)
        if status == "aborted":
            self._note_aborted(transaction, why)

    def _note_aborted(self, transaction: str, why: str) -> None:
        self._aborted[transaction] = why
        if len(self._aborted) > _ABORTED_MAX:
            del self._aborted[next(iter(self._aborted))]

    def prepare(
        self,
        *,
        transaction: str,
        stream: str,
        writer: str | None,
        owner: str | None,
        lease: float,
        parts: list[TransactionPart],
    ) -> PreparedTransaction:
        """Record a transaction as prepared, all of whose bytes are durable; the caller holds the catalog."""
        if len(self.catalog.prepared) >= PREPARED_MAX:
            raise TooManyPrepared(transaction, limit=PREPARED_MAX)
        found = [PreparedPart(part.low, part.high, part.logs, part.size, part.counts) for part in parts]
        record = Prepared(stream, transaction, writer, int((self.clock.now() + lease) * 1000), found, owner)
        self.catalog.commit(record)
        self._leases[transaction] = self.clock.elapsed() + lease
        return PreparedTransaction(self, record)

    def _leases_left(self) -> dict[str, float]:
        """Return when the leases of the recorded prepared transactions expire, by the monotonic clock."""
        now, elapsed = self.clock.now(), self.clock.elapsed()
        return {
            record.transaction: elapsed + min(max(record.deadline_ms / 1000 - now, 0.0), LEASE_MAX_S)
            for record in self.catalog.prepared.values()
        }

    def expire_prepared(self, ids: Iterable[str]) -> None:
        """Abort prepared transactions whose lease has expired."""
        with self.catalog.lock:
            now = self.clock.elapsed()
            late = [
                transaction
                for transaction in ids
                if transaction in self.catalog.prepared and now > self._leases[transaction]
            ]
            self.abort_prepared(late, "it was prepared, and its lease expired")

    def abort_prepared(self, ids: Iterable[str], why: str) -> None:
        """Abort transactions, if they are prepared."""
        with self.catalog.lock:
            records = [
                self.catalog.prepared[transaction] for transaction in ids if transaction in self.catalog.prepared
            ]
            if records:
                self.catalog.commit(Unprepared([record.transaction for record in records]))
                self.drop_prepared(records, why)

    def drop_prepared(self, records: Sequence[Prepared], why: str) -> None:
        """Delete the logs of transactions that the catalog has removed, and note their outcome."""
        for record in records:
            self._end_prepared(record.transaction, "aborted", why)
        self.logs.drop([log for record in records for part in record.parts for log in part.logs])

    def commit_prepared(
        self,
        stream: str,
        ids: Sequence[str],
        *,
        writer: str | None = None,
        number: int | None = None,
        time: int | None = None,
    ) -> Parts:
        """Commit prepared transactions as one, all or none; others of the same writer are aborted if there is a number.

        The caller holds the catalog. Return where each part of each of them is.
        """
        self.expire_prepared(ids)
        records = [self._prepared(stream, transaction) for transaction in ids]
        parts = [
            TransactionPart(part.low, part.high, part.logs, part.size, part.counts)
            for record in records
            for part in record.parts
        ]
        self._check_logs(stream, parts)
        left = [] if number is None else self._left_by(stream, writer, ids)
        before = [Unprepared([record.transaction for record in left])] if left else []
        name = ids[0] if ids else self.new_id()
        batch = (None, None, None) if number is None else (writer, number, time)
        commit = Committing(stream, name, [], [], not ids, list(ids), *batch)
        try:
            return self.commits.take_over(commit, parts, *before)
        except CommitUnfinished:
            self.wake()  # maintenance finishes the commit
            raise
        finally:  # a commit that is on record holds, even if this raised
            for transaction in ids:
                if transaction not in self.catalog.prepared:
                    self._end_prepared(transaction, "committed", "it was committed")
            gone = [record for record in left if record.transaction not in self.catalog.prepared]
            self.drop_prepared(gone, f"others of {writer} were committed as number {number}")

    def _prepared(self, stream: str, transaction: str) -> Prepared:
        """Return the record of a prepared transaction; ``NotPrepared`` if there is none in this stream."""
        record = self.catalog.prepared.get(transaction)
        if record is None:
            raise NotPrepared(transaction, reason=self._state_of(transaction))
        if record.stream != stream:
            raise NotPrepared(transaction, reason="it belongs to another stream")
        return record

    def _state_of(self, transaction: str) -> str:
        """Return the state of a transaction that is not prepared, without its lock: its thread may wait for ours."""
        if transaction in self.open:
            return "it is open"
        try:
            return f"it was {self.get(transaction).status}"
        except NoSuchTransaction:
            return "no transaction has this id"

    def _check_logs(self, stream: str, parts: Sequence[TransactionPart]) -> None:
        """Refuse more logs than one commit can take over, and logs that are missing."""
        logs = [log for part in parts for log in part.logs]
        if len(logs) > LOGS_MAX:
            raise BadArgument(
                f"these transactions have {len(logs)} logs, and at most {LOGS_MAX} are committed at once: each has one "
                "for every segment that it writes to, and two more for a large event; use fewer partitions, or fewer "
                "segments"
            )
        gone = set(logs) - {log.name for log in self.logs.existing(logs)}
        if gone:
            raise StreamCorrupt(f"stream {stream}", offset=None, reason=f"a prepared transaction has lost {min(gone)}")

    def _left_by(self, stream: str, writer: str | None, ids: Sequence[str]) -> list[Prepared]:
        """Return the other prepared transactions of a writer, which failed attempts left."""
        mine, chosen = (stream, writer), set(ids)
        records = self.catalog.prepared.values()
        return [
            record for record in records if (record.stream, record.writer) == mine and record.transaction not in chosen
        ]

    def note_time(self, stream: str, uid: int, writer_id: str | None, time: int | None) -> None:
        """Note a time behind a commit; if that fails, the commit holds, and time waits for the next note."""
        if time is None or writer_id is None:
            return
        try:
            self.marks.note_behind(stream, uid, writer_id, time)
        except PenstockError as error:
            _logger.warning("the time of a commit to stream %s was not noted: %s", stream, error)
