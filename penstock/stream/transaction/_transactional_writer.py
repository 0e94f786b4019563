"""The transactional writer: it begins transactions, and commits prepared ones together."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock import forks
from penstock.errors import BadArgument, NoSuchStream, StoreClosed, TransactionEnded
from penstock.model import as_list, check_kind, check_whole
from penstock.ports import uninterrupted
from penstock.store import TransactionalWriter
from penstock.stream.transaction._handle import BegunTransaction, TransactionById
from penstock.stream.transaction._prepared import check_lease, check_timestamp
from penstock.stream.transaction._transaction import LocalTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from penstock.stream.catalog import StreamState
    from penstock.stream.format import Prepared
    from penstock.stream.serializers import Serializer
    from penstock.stream.transaction._transactions import Transactions

__all__ = ["LocalTransactionalWriter", "check_ids"]


class LocalTransactionalWriter(forks.Handle, TransactionalWriter):
    """Begins transactions; get one from :meth:`Store.transactional_writer`, which describes its methods.

    It belongs to the stream with this ``uid``: if that is deleted, it refuses another stream of the same name. Its
    transactions belong to ``owner``, a user of the server.
    """

    def __init__(
        self,
        transactions: Transactions,
        stream: str,
        uid: int,
        writer_id: str | None,
        serializer: Serializer[Any] | None,
        *,
        owner: str | None = None,
    ) -> None:
        forks.guard(self)
        self._stream, self._writer_id = stream, writer_id
        self._uid: Final = uid
        self._transactions, self._serializer, self._owner = transactions, serializer, owner
        self._closed = False

    @property
    def stream(self) -> str:
        return self._stream

    @property
    def writer_id(self) -> str | None:
        return self._writer_id

    def begin(self, lease: float = 30.0) -> BegunTransaction:
        check_lease(lease)
        if self._closed:
            raise StoreClosed(f"the transactional writer of stream {self.stream!r}")
        transaction = LocalTransaction(
            self._transactions,
            self.stream,
            self._uid,
            self.writer_id,
            self._serializer,
            lease=float(lease),
            owner=self._owner,
        )
        self._transactions.add(transaction)
        return BegunTransaction(transaction)

    def get(self, transaction: str) -> TransactionById:
        return TransactionById(self._transactions.get(transaction))

    @property
    def last_number(self) -> int | None:
        if self.writer_id is None:
            return None
        with self._transactions.catalog.lock:
            last = self._state().last_batches.get(self.writer_id)
            return None if last is None else last.number

    def _state(self) -> StreamState:
        state = self._transactions.catalog.stream(self.stream)
        if state.uid != self._uid:
            raise NoSuchStream(self.stream)  # the name belongs to another stream now
        return state

    @uninterrupted
    def commit_all(self, ids: Iterable[str], number: int | None = None, timestamp: int | None = None) -> bool:
        ids = check_ids(ids, number, self.writer_id)
        check_timestamp(timestamp, self.writer_id)
        if self._closed:
            raise StoreClosed(f"the transactional writer of stream {self.stream!r}")
        with self._transactions.catalog.lock:
            last = self._state().last_batches.get(self.writer_id or "")
            is_new = number is None or last is None or number > last.number
            left = self._still_open(ids) if is_new and number is not None else []
            if is_new:
                self._transactions.commit_prepared(
                    self.stream, ids, writer=self.writer_id, number=number, time=timestamp
                )
        for transaction in left:
            transaction.abort_if_open(f"others of {self.writer_id} were committed as number {number}")
        if not is_new:
            self._abort_all(ids, f"number {number} of {self.writer_id} was committed before")
        self._transactions.marks.note_activity(self.stream, self._uid, self.writer_id)
        time = timestamp if is_new or last is None else last.time
        self._transactions.note_time(self.stream, self._uid, self.writer_id, time)
        return is_new

    def _still_open(self, ids: Sequence[str]) -> list[LocalTransaction]:
        """Return the other open transactions of this writer id; the caller holds the catalog."""
        mine = (self.stream, self.writer_id)
        known = self._transactions.open.values()
        return [
            transaction
            for transaction in known
            if (transaction.stream, transaction.writer_id) == mine and transaction.id not in ids
        ]

    def _abort_all(self, ids: Iterable[str], why: str) -> None:
        """Abort transactions of this stream that have not ended: the number was committed before."""
        prepared, open_ones = self._transactions.catalog.prepared, self._transactions.open
        with self._transactions.catalog.lock:
            mine = [
                transaction_id
                for transaction_id in ids
                if self._is_mine(prepared.get(transaction_id) or open_ones.get(transaction_id))
            ]
            still_open = [open_ones[transaction_id] for transaction_id in mine if transaction_id not in prepared]
            self._transactions.abort_prepared(mine, why)
        for transaction in still_open:  # each has a lock of its own, which is taken before the catalog's
            with suppress(TransactionEnded):
                transaction.abort()

    def _is_mine(self, found: Prepared | LocalTransaction | None) -> bool:
        return found is not None and found.stream == self.stream

    def close(self) -> None:
        """Begin no more transactions, and note no more time; open transactions end by their lease."""
        self._closed = True
        if self.writer_id is not None:
            self._transactions.marks.shut_down(self.stream, self._uid, self.writer_id)


def check_ids(ids: Iterable[str], number: object, writer_id: str | None) -> list[str]:
    """Return the ids as a list; refuse ids, or a number, that cannot be committed together."""
    found = as_list("ids", ids, "transaction ids, texts")
    for transaction_id in found:
        check_kind("ids", transaction_id, str)
    if len(set(found)) != len(found):
        raise BadArgument("invalid ids: a transaction is listed twice")
    if number is not None:
        check_whole("number", number)
        if writer_id is None:
            raise BadArgument("a number needs a writer_id: open the transactional writer with one")
    return found
