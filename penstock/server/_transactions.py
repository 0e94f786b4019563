"""Transactions of clients: the store has them, the clients send what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import BadArgument
from penstock.server._owners import check_transaction, check_writer_id
from penstock.stream import LocalTransaction, LocalTransactionalWriter
from penstock.stream.format import Attributes, check_columns, unpack_columns, unpack_positions
from penstock.stream.write import EventRows, array_of, check_writer
from penstock.wire.operations import transactions

if TYPE_CHECKING:
    from penstock.model import EventPointer
    from penstock.ports import Bytes
    from penstock.server._session import Session
    from penstock.stream import EventOutputStream
    from penstock.stream.transaction import EndedTransaction, PreparedTransaction

__all__ = [
    "abort",
    "begin",
    "begin_event",
    "close",
    "commit",
    "commit_all",
    "drop_event",
    "end_event",
    "last_number",
    "open_writer",
    "status",
    "write",
    "write_batch",
    "write_chunk",
]


class TransactionEvent:
    """An event of a transaction that a client is sending."""

    def __init__(self, transaction: str, output: EventOutputStream) -> None:
        self.transaction, self.output = transaction, output

    def abandon(self) -> None:
        """Drop it: the client is gone."""
        self.output.abort()


def open_writer(session: Session, stream: str, writer_id: str | None) -> int:
    """Return the number of the stream, which goes with all that its writer asks for: another may get the name."""
    check_writer(writer_id, None)
    check_writer_id(session, stream, writer_id)
    return session.store.catalog.open_stream(stream).uid


def begin(session: Session, stream: str, uid: int, writer_id: str | None, lease: float) -> str:
    """Begin a transaction; return its id."""
    return _writer(session, stream, uid, writer_id).begin(lease).id


def close(session: Session, stream: str, uid: int, writer_id: str) -> None:
    """Close a transactional writer: it notes no more time."""
    _writer(session, stream, uid, writer_id).close()


def commit_all(  # noqa: PLR0917 - as they are sent
    session: Session,
    stream: str,
    uid: int,
    writer_id: str | None,
    ids: list[str],
    number: int | None,
    timestamp: int | None,
) -> bool:
    """Commit prepared transactions of a stream as one; return False if the number was there."""
    writer = _writer(session, stream, uid, writer_id)
    for transaction in ids:
        check_transaction(session, transaction, transactions.CommitAll.operation, stream=stream)
    return writer.commit_all(ids, number, timestamp)


def last_number(session: Session, stream: str, uid: int, writer_id: str | None) -> int | None:
    """Return the highest number under which a writer has committed transactions together."""
    return _writer(session, stream, uid, writer_id).last_number


def _writer(session: Session, stream: str, uid: int, writer_id: str | None) -> LocalTransactionalWriter:
    check_writer(writer_id, None)
    check_writer_id(session, stream, writer_id)
    return LocalTransactionalWriter(session.store.transactions, stream, uid, writer_id, None, owner=session.owner)


def status(session: Session, transaction: str) -> str:
    """Return whether it is open, prepared, committed or aborted."""
    return session.store.transactions.get(transaction).status


def write(session: Session, transaction: str, events: list[bytes], keys: list[Any], headers: list[Any]) -> None:
    """Add events, all of them or none: if one cannot be added, the transaction is aborted."""
    _open(session, transaction).write_batch(events, keys, headers)


def write_batch(  # noqa: PLR0917 - as they are sent
    session: Session, transaction: str, words: Bytes, data: Bytes, places: Bytes, flags: int, columns: Bytes
) -> None:
    """Add events, none of which is looked at: lengths, bytes, where their keys belong, keys and headers."""
    opened = _open(session, transaction)
    if not isinstance(opened, LocalTransaction):
        opened.write_batch([])  # which says why not
        return
    try:
        lengths, positions = np.frombuffer(words, ">u4"), unpack_positions(places)
        check_columns(flags, memoryview(columns), len(lengths))
        keys, headers = unpack_columns(flags, memoryview(columns), len(lengths))
    except (TypeError, ValueError) as error:
        raise BadArgument(f"invalid batch ({error})") from error
    if len(positions) != len(lengths) or int(lengths.sum(dtype=np.int64)) != len(data):
        raise BadArgument("invalid batch: the lengths or the keys do not match the events")
    opened.add_rows(EventRows(array_of(lengths, data), keys, headers), positions)


def begin_event(
    session: Session, transaction: str, position: float, key: bytes | None, headers: list[Any] | None
) -> int:
    """Begin an event of any size, whose key belongs there; return its number."""
    attributes = Attributes.of(key, headers)
    opened = _open(session, transaction)
    output = (
        opened.begin_at(position, attributes) if isinstance(opened, LocalTransaction) else opened.begin_write_event()
    )
    return session.add(TransactionEvent(transaction, output), "uploads")


def write_chunk(session: Session, transaction: str, number: int, data: bytes) -> None:
    """Append bytes to a large event of a transaction."""
    _event(session, transaction, number).output.write(data)


def end_event(session: Session, transaction: str, number: int) -> None:
    """Make an event part of the transaction."""
    _event(session, transaction, number).output.close()
    session.recount(number, "handles")  # its bytes are not in memory any more; its client may want to know its place


def drop_event(session: Session, transaction: str, number: int) -> None:
    """Drop a large event; the rest of the transaction stays."""
    _event(session, transaction, number).output.abort()
    session.drop(number)


def _event(session: Session, transaction: str, number: int) -> TransactionEvent:
    """Return an event of a transaction: what was permitted for that one holds for no other."""
    event: TransactionEvent = session.get(number, TransactionEvent)
    if event.transaction != transaction:
        raise BadArgument(f"{number} is not an event of transaction {transaction}")
    return event


def commit(session: Session, transaction: str, timestamp: int | None, events: list[int]) -> list[EventPointer | None]:
    """Commit; return where those events are whose clients want to know, if they are of this session."""
    found = _events(session, transaction, events)
    _open(session, transaction).commit(timestamp)
    for number in found:
        session.drop(number)
    return [_place_of(found.get(number)) for number in events]


def _place_of(event: TransactionEvent | None) -> EventPointer | None:
    """Return where an event is; None if it was prepared before the owner of the store changed."""
    try:
        return None if event is None else event.output.pointer
    except BadArgument:
        return None


def abort(session: Session, transaction: str, events: list[int]) -> None:
    """Abort, and remove the events whose clients wait for their places."""
    found = _events(session, transaction, events)
    _open(session, transaction).abort()
    for number in found:
        session.drop(number)


def _events(session: Session, transaction: str, numbers: list[int]) -> dict[int, TransactionEvent]:
    """Return the events of a transaction that are open in this session; one that was prepared may have others."""
    return {number: _event(session, transaction, number) for number in numbers if session.has(number)}


def _open(session: Session, transaction: str) -> LocalTransaction | PreparedTransaction | EndedTransaction:
    return session.store.transactions.get(transaction)
