"""Transactions: open, prepared, committed, and what a crash left of a commit."""

from penstock.stream.transaction._commit import finish_commits, recover_commits
from penstock.stream.transaction._prepared import (
    PreparedTransaction,
    check_timestamp,
    drop_prepared,
    expire_prepared,
    leases_left,
)
from penstock.stream.transaction._transaction import (
    EndedTransaction,
    Status,
    Transaction,
    TransactionalWriter,
    TransactionLogs,
    as_event,
    check_ids,
)

__all__ = [
    "EndedTransaction",
    "PreparedTransaction",
    "Status",
    "Transaction",
    "TransactionLogs",
    "TransactionalWriter",
    "as_event",
    "check_ids",
    "check_timestamp",
    "drop_prepared",
    "expire_prepared",
    "finish_commits",
    "leases_left",
    "recover_commits",
]
