"""Prepared and ended transactions, and what all kinds of transactions share: status, leases, timestamps.

A prepared transaction is one as seen by a process that has its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NoReturn

from penstock.errors import BadArgument, TransactionEnded, TransactionPrepared
from penstock.model import check_time
from penstock.ports import uninterrupted

if TYPE_CHECKING:
    from penstock.stream.format import Prepared
    from penstock.stream.transaction._transactions import Transactions

__all__ = [
    "LEASE_MAX_S",
    "EndedTransaction",
    "Parts",
    "PreparedTransaction",
    "Status",
    "check_lease",
    "check_timestamp",
]

LEASE_MAX_S: Final = 24 * 3600.0
Status = Literal["open", "prepared", "committed", "aborted"]
Parts = list[tuple[int, int]]
"""Segment and offset of each part of what was committed."""


def check_timestamp(timestamp: object, writer_id: str | None) -> None:
    """Refuse an invalid timestamp, or one without a writer id to keep it under."""
    if timestamp is None:
        return
    check_time("timestamp", timestamp)
    if writer_id is None:
        raise BadArgument("a timestamp needs a writer_id: open the transactional writer with one")


def check_lease(lease: object) -> None:
    """Refuse an invalid lease."""
    if not isinstance(lease, int | float) or not 0 < lease <= LEASE_MAX_S:
        raise BadArgument(f"invalid lease {lease!r}: use a number of seconds above 0, up to {LEASE_MAX_S:g}")


class _NotOpen:
    """A transaction that takes no more events: calls that would write, or renew its lease, are refused."""

    def _refuse(self) -> NoReturn:
        raise NotImplementedError

    def ping(self) -> None:
        """Refuse: the lease is not renewed."""
        self._refuse()

    def write_event(self, event: object, key: str | bytes | None = None, *, headers: object = None) -> None:
        """Refuse: no event can be added."""
        del event, key, headers
        self._refuse()

    def write_batch(
        self, events: object, keys: object = None, headers: object = None, *, position: float | None = None
    ) -> None:
        """Refuse: no event can be added."""
        del events, keys, headers, position
        self._refuse()

    def begin_write_event(
        self, key: str | bytes | None = None, *, headers: object = None, position: float | None = None
    ) -> NoReturn:
        """Refuse: no event can be added."""
        del key, headers, position
        self._refuse()


class EndedTransaction(_NotOpen):
    """A transaction of which only the outcome is known: every call but ``abort`` of an aborted one is refused."""

    def __init__(self, transaction: str, status: Status, why: str | None = None) -> None:
        self.id: Final = transaction
        self.status: Final = status
        self._why = why or f"it was {status}"

    def _refuse(self) -> NoReturn:
        raise TransactionEnded(self.id, reason=self._why)

    def prepare(self) -> None:
        """Refuse: the outcome is final."""
        self._refuse()

    def commit(self, timestamp: int | None = None) -> None:
        """Refuse: the outcome is final."""
        del timestamp
        self._refuse()

    def abort(self) -> None:
        """Refuse, unless it was aborted."""
        if self.status != "aborted":
            self._refuse()


class PreparedTransaction(_NotOpen):
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
