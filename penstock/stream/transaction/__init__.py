"""Transactions: open, prepared, committed, and what a crash left of a commit."""

from penstock.stream.transaction._buffer import SPILL_SIZE_MAX
from penstock.stream.transaction._commits import Commits
from penstock.stream.transaction._handle import BegunTransaction, TransactionById
from penstock.stream.transaction._prepared import (
    EndedTransaction,
    PreparedTransaction,
    Status,
    check_timestamp,
)
from penstock.stream.transaction._transaction import LocalTransaction, as_event
from penstock.stream.transaction._transaction_logs import TransactionLogs
from penstock.stream.transaction._transactional_writer import LocalTransactionalWriter, check_ids
from penstock.stream.transaction._transactions import Transactions

__all__ = [
    "SPILL_SIZE_MAX",
    "BegunTransaction",
    "Commits",
    "EndedTransaction",
    "LocalTransaction",
    "LocalTransactionalWriter",
    "PreparedTransaction",
    "Status",
    "TransactionById",
    "TransactionLogs",
    "Transactions",
    "as_event",
    "check_ids",
    "check_timestamp",
]
