"""A prepared transaction, as seen by a process that has its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from penstock.errors import TransactionEnded, TransactionPrepared
from penstock.ports import uninterrupted
from penstock.stream.transaction._status import check_timestamp

if TYPE_CHECKING:
    from penstock.stream.format import Prepared
    from penstock.stream.transaction._status import Parts, Status
    from penstock.stream.transaction._transactions import Transactions

__all__ = ["PreparedTransaction"]


class PreparedTransaction:
    """A prepared transaction: any process that has its id may commit or abort it; it takes no more events."""

    def __init__(self, transactions: Transactions, record: Prepared) -> None:
        self.id: Final = record.transaction
        self.stream: Final = record.stream
        self._transactions, self._writer_id = transactions, record.writer

    @property
    def status(self) -> Status:
        """Whether it is prepared, committed or aborted."""
        with self._transactions.catalog.lock:
            self._transactions.expire_prepared([self.id])
            return (
                "prepared" if self.id in self._transactions.catalog.prepared else self._transactions.get(self.id).status
            )

    def prepare(self) -> None:
        """Do nothing: it is prepared."""
        with self._transactions.catalog.lock:
            self._check()

    def commit(self, timestamp: int | None = None) -> None:
        """Make all events part of the stream at once; the writer notes the ``timestamp``, if any, behind them."""
        self.commit_placed(timestamp)

    @uninterrupted
    def commit_placed(self, timestamp: int | None) -> Parts:
        """Commit; return where each of its parts is."""
        check_timestamp(timestamp, self._writer_id)
        with self._transactions.catalog.lock:
            self._check()
            uid = self._transactions.catalog.stream(self.stream).uid
            places = self._transactions.commit_prepared(self.stream, [self.id])
        self._transactions.marks.note_activity(self.stream, uid, self._writer_id)
        self._transactions.note_time(self.stream, uid, self._writer_id, timestamp)
        return places

    @uninterrupted
    def abort(self) -> None:
        """Drop all of it; aborting again does nothing."""
        with self._transactions.catalog.lock:
            if self.status == "committed":
                raise TransactionEnded(self.id, reason="it was committed")
            self._transactions.abort_prepared([self.id], "it was aborted")

    def _check(self) -> None:
        status = self.status
        if status != "prepared":
            raise TransactionEnded(self.id, reason=f"it was {status}")

    def _refuse(self) -> NoReturn:
        self._check()
        raise TransactionPrepared(self.id)

    def ping(self) -> None:
        """Refuse: the lease of a prepared transaction is not renewed."""
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
