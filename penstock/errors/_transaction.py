"""Errors of transactions."""

from __future__ import annotations

from penstock.errors._stream import StreamError

__all__ = [
    "CommitUnfinished",
    "NoSuchTransaction",
    "NotPrepared",
    "TooManyPrepared",
    "TransactionEnded",
    "TransactionPrepared",
]


class NoSuchTransaction(StreamError):
    """The store knows no transaction with this id."""

    def __init__(self, transaction: str) -> None:
        super().__init__(
            f"no transaction {transaction!r}: it was never begun, or ended long ago, or when its store was closed"
        )
        self.transaction = transaction


class TransactionEnded(StreamError):
    """The transaction was committed or aborted before, or its lease expired."""

    def __init__(self, transaction: str, *, reason: str) -> None:
        super().__init__(f"transaction {transaction} has ended: {reason}; begin another one")
        self.transaction, self.reason = transaction, reason


class TransactionPrepared(TransactionEnded):
    """The transaction is prepared: it takes no more events."""

    def __init__(self, transaction: str) -> None:
        StreamError.__init__(
            self, f"transaction {transaction} is prepared, and takes no more events: commit it, or abort it"
        )
        self.transaction, self.reason = transaction, "it is prepared"


class NotPrepared(StreamError):
    """A transaction to be committed together with others is not prepared; none of them was committed."""

    def __init__(self, transaction: str, *, reason: str) -> None:
        super().__init__(f"nothing was committed, because transaction {transaction} is not prepared: {reason}")
        self.transaction, self.reason = transaction, reason


class TooManyPrepared(StreamError):
    """The store has as many prepared transactions as it may; this transaction is still open."""

    def __init__(self, transaction: str, *, limit: int) -> None:
        super().__init__(
            f"transaction {transaction} cannot be prepared, the store has {limit} prepared transactions: "
            "commit or abort some of them first"
        )
        self.transaction, self.limit = transaction, limit


class CommitUnfinished(StreamError):
    """The commit is recorded, but the disk refused the rest of it; the store finishes it as soon as it can."""

    def __init__(self, transaction: str, *, cause: BaseException) -> None:
        advice = "its events appear once the disk accepts writes again; do not write it again"
        super().__init__(f"transaction {transaction} is committed, but not finished ({cause}): {advice}")
        self.transaction, self.cause = transaction, cause
