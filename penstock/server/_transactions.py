"""Transactions of clients: the store has them, the clients send what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.model import EventPointer
    from penstock.server._session import Session
    from penstock.stream import EventOutputStream
    from penstock.stream._prepared import PreparedTransaction
    from penstock.stream._transaction import EndedTransaction, Transaction

__all__ = [
    "abort",
    "begin",
    "begin_event",
    "close",
    "commit",
    "drop_event",
    "end_event",
    "status",
    "write",
    "write_chunk",
]


class _Event:
    """An event of a transaction that a client is sending."""

    def __init__(self, output: EventOutputStream) -> None:
        self.output = output

    def abandon(self) -> None:
        """Drop it: the client is gone."""
        self.output.abort()


def begin(session: Session, stream: str, writer_id: str | None, lease: float) -> str:
    """Begin a transaction; return its id."""
    return session.store.transactional_writer(stream, writer_id).begin(lease).id


def close(session: Session, stream: str, writer_id: str) -> None:
    """Give no more time under the id of a transactional writer."""
    session.store.transactional_writer(stream, writer_id).close()


def status(session: Session, transaction: str) -> str:
    """Return whether it is open, committed or aborted."""
    return session.store.transaction(transaction).status


def write(session: Session, transaction: str, events: list[bytes], keys: list[Any]) -> None:
    """Add events."""
    one = _open(session, transaction)
    for event, key in zip(events, keys, strict=True):
        one.write_event(event, key)


def begin_event(session: Session, transaction: str, key: str | bytes | None) -> int:
    """Begin an event of any size; return its number."""
    return session.keep(_Event(_open(session, transaction).begin_write_event(key)))


def write_chunk(session: Session, transaction: str, number: int, data: bytes) -> None:
    """Take bytes of an event."""
    del transaction
    session.get(number, _Event).output.write(data)


def end_event(session: Session, transaction: str, number: int) -> None:
    """Make an event part of the transaction."""
    del transaction
    session.get(number, _Event).output.close()


def drop_event(session: Session, transaction: str, number: int) -> None:
    """Drop an event."""
    del transaction
    session.get(number, _Event).output.abort()
    session.drop(number)


def commit(session: Session, transaction: str, timestamp: int | None, events: list[int]) -> list[EventPointer]:
    """Commit; return where those events are whose clients want to know."""
    _open(session, transaction).commit(timestamp)
    found = [session.get(number, _Event).output.pointer for number in events]
    for number in events:
        session.drop(number)
    return found


def abort(session: Session, transaction: str, events: list[int]) -> None:
    """Abort, and forget those events that were to be told of."""
    _open(session, transaction).abort()
    for number in events:
        session.drop(number)


def _open(session: Session, transaction: str) -> Transaction | PreparedTransaction | EndedTransaction:
    return session.store.transaction(transaction)
