"""Operations of transactional writers, and of their transactions."""

from typing import Annotated

from msgspec import Meta

from penstock.wire.operations._arguments import (
    Bytes,
    Columns,
    Headers,
    Ids,
    Key,
    KeyPosition,
    Name,
    Number,
    Numbers,
    Seconds,
    StreamName,
    Time,
)
from penstock.wire.operations._operation import Operation, declare


class _OfTransactionalWriter(Operation):
    stream: StreamName
    uid: Number
    writer_id: Name | None


class _OfTransaction(Operation):
    transaction: Name


class _OfEvent(_OfTransaction):
    event: Number


@declare("transactions.open", "write", repeats=True)
class OpenTransactions(Operation):
    """Open a transactional writer."""

    stream: StreamName
    writer_id: Name | None


@declare("transactions.begin", "write")
class BeginTransaction(_OfTransactionalWriter):
    """Begin a transaction."""

    lease: Seconds


@declare("transactions.close", "write", repeats=True)
class CloseTransactions(Operation):
    """Note no more time under the id of a transactional writer."""

    stream: StreamName
    uid: Number
    writer_id: Name


@declare("transactions.commit_all", "write")
class CommitAll(_OfTransactionalWriter):
    """Commit prepared transactions as one."""

    ids: Ids
    number: Number | None
    timestamp: Time | None

    @property
    def may_repeat(self) -> bool:
        """Whether a number makes sure that they are committed once."""
        return self.number is not None


@declare("transactions.last_number", "write", repeats=True)
class LastNumber(_OfTransactionalWriter):
    """Return the highest number under which a writer has committed transactions together."""


@declare("transaction.status", "write", "transaction", repeats=True)
class Status(_OfTransaction):
    """Return the status of a transaction."""


@declare("transaction.ping", "write", "transaction", repeats=True)
class Ping(_OfTransaction):
    """Let the lease of a transaction begin anew."""


@declare("transaction.write", "write", "transaction")
class WriteEvents(_OfTransaction):
    """Add events, with a key and headers for each."""

    events: Annotated[list[bytes], Meta(description="a list of bytes")]
    keys: Annotated[list[bytes | None], Meta(description="a list of bytes or None")]
    headers: Annotated[list[Headers], Meta(description="a list of headers, pairs of a text and bytes, or None")]


@declare("transaction.batch", "write", "transaction")
class WriteBatch(_OfTransaction):
    """Add a batch: the lengths of the events, their bytes, where their keys belong, keys and headers."""

    words: Bytes
    data: Bytes
    places: Bytes
    flags: Columns
    columns: Bytes


@declare("transaction.event", "write", "transaction")
class BeginEvent(_OfTransaction):
    """Begin a large event."""

    position: KeyPosition
    key: Key
    headers: Headers


@declare("transaction.chunk", "write", "transaction")
class WriteChunk(_OfEvent):
    """Add bytes to a large event."""

    data: Bytes


@declare("transaction.end", "write", "transaction")
class EndEvent(_OfEvent):
    """Make a large event part of the transaction."""


@declare("transaction.drop", "write", "transaction")
class DropEvent(_OfEvent):
    """Drop a large event."""


@declare("transaction.prepare", "write", "transaction", repeats=True)
class Prepare(_OfTransaction):
    """Let a transaction outlive its client and the owner of the store."""


@declare("transaction.commit", "write", "transaction")
class Commit(_OfTransaction):
    """Commit a transaction; return where its large events are."""

    timestamp: Time | None
    events: Numbers


@declare("transaction.abort", "write", "transaction", repeats=True)
class Abort(_OfTransaction):
    """Abort a transaction."""

    events: Numbers
