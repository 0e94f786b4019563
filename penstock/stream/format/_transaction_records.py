"""Catalog records about transactions: prepared, committing, committed."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "NO_SEGMENT",
    "Committed",
    "Committing",
    "CopiedPart",
    "LoggedPart",
    "Prepared",
    "PreparedPart",
    "TransactionRecord",
    "Uncommitted",
    "Unprepared",
]

NO_SEGMENT: Final = -1


class CopiedPart(msgspec.Struct, array_like=True, frozen=True):
    """A block of a transaction, and a place in its segment behind which it is going to be."""

    segment: int
    start: int
    block: bytes


class LoggedPart(msgspec.Struct, array_like=True, frozen=True):
    """Logs of a transaction that a segment is going to take over, in this order; ``counts`` are the events of each."""

    segment: int
    logs: list[str]
    counts: list[int]


class PreparedPart(msgspec.Struct, array_like=True, frozen=True):
    """What a prepared transaction has for one key range: logs, in order, all of whose bytes are durable.

    ``counts`` are the events of each log.
    """

    low: float
    high: float
    logs: list[str]
    size: int
    counts: list[int]


class Prepared(msgspec.Struct, tag="prepared", array_like=True, frozen=True):
    """A transaction outlives its writer: its logs are kept until it is committed or aborted, or its time is up."""

    stream: str
    transaction: str
    writer: str | None
    deadline_ms: int
    parts: list[PreparedPart]


class Unprepared(msgspec.Struct, tag="unprepared", array_like=True, frozen=True):
    """Prepared transactions were aborted."""

    transactions: list[str]


class Committing(msgspec.Struct, tag="committing", array_like=True, frozen=True):
    """A transaction is being committed: a process that finds this record has to finish the commit.

    ``implicit`` is that of a large event by itself, whose end is not remembered. ``together`` are the prepared
    transactions that it is made of, and ``number`` is the one under which ``writer`` commits them, if any, with the
    ``time`` that it notes behind them.
    """

    stream: str
    transaction: str
    copied: list[CopiedPart]
    logged: list[LoggedPart]
    implicit: bool = False
    together: list[str] = []
    writer: str | None = None
    number: int | None = None
    time: int | None = None


class Committed(msgspec.Struct, tag="committed", array_like=True, frozen=True):
    """The transaction is part of its stream.

    One that is a single block was said to be so while the block was still under way: it is only if the ``segment``
    goes up to ``end``.
    """

    stream: str
    transaction: str
    segment: int = NO_SEGMENT
    end: int = 0
    implicit: bool = False


class Uncommitted(msgspec.Struct, tag="uncommitted", array_like=True, frozen=True):
    """The transaction is not part of its stream after all: a crash came before its block was durable."""

    stream: str
    transaction: str


TransactionRecord = Prepared | Unprepared | Committing | Committed | Uncommitted
