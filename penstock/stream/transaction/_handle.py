"""Transactions of this process as their users see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import forks
from penstock.store import OpenTransaction, Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from penstock.stream.format import GivenHeaders
    from penstock.stream.transaction._prepared import EndedTransaction, PreparedTransaction, Status
    from penstock.stream.transaction._transaction import LocalTransaction
    from penstock.stream.write import EventOutputStream

__all__ = ["BegunTransaction", "TransactionById"]


class TransactionById(Transaction):
    """A transaction that was found by its id. :class:`penstock.Transaction` describes the methods."""

    def __init__(self, transaction: LocalTransaction | PreparedTransaction | EndedTransaction) -> None:
        forks.guard(self)
        self._transaction = transaction

    @property
    def id(self) -> str:
        return self._transaction.id

    @property
    def status(self) -> Status:
        return self._transaction.status

    def ping(self) -> None:
        self._transaction.ping()

    def write_event(
        self, event: object, key: str | bytes | None = None, *, headers: GivenHeaders | None = None
    ) -> None:
        self._transaction.write_event(event, key, headers=headers)

    def write_batch(
        self,
        events: Iterable[object],
        keys: Iterable[str | bytes | None] | str | bytes | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
        *,
        position: float | None = None,
    ) -> None:
        self._transaction.write_batch(events, keys, headers, position=position)

    def begin_write_event(
        self,
        key: str | bytes | None = None,
        *,
        headers: GivenHeaders | None = None,
        position: float | None = None,
    ) -> EventOutputStream:
        return self._transaction.begin_write_event(key, headers=headers, position=position)

    def prepare(self) -> None:
        self._transaction.prepare()

    def commit(self, timestamp: int | None = None) -> None:
        self._transaction.commit(timestamp)

    def abort(self) -> None:
        self._transaction.abort()


class BegunTransaction(TransactionById, OpenTransaction):
    """A transaction that this process has begun. :class:`penstock.OpenTransaction` describes the methods."""

    def __init__(self, transaction: LocalTransaction) -> None:
        super().__init__(transaction)
        self._begun = transaction

    def __enter__(self) -> Self:
        return self

    @forks.silent_in_child
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._begun.end_block(error)
