"""Single events of a transaction of a client, which are sent together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.client import _transaction
from penstock.errors import NoSuchTransaction, TransactionEnded
from penstock.server._users import USERS_FILE, Users
from penstock.wire.operations import transactions
from tests.server.owned import STREAM, as_user, events_in, new_folder

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.client import RemoteStore
    from penstock.server import Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a stream, and a user who may write to it."""
    return new_folder(tmp_path, anna="write")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, no event is sent because the last message was long ago."""
    monkeypatch.setattr(_transaction, "_SEND_EVERY_S", 3600.0)


def messages_of(store: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many events each message has, as they are sent."""
    found: list[int] = []
    call = store.connection.call

    def count(operation: Any) -> Any:  # noqa: ANN401 - any operation
        if isinstance(operation, transactions.WriteEvents):
            found.append(len(operation.events))
        return call(operation)

    monkeypatch.setattr(store.connection, "call", count)
    return found


@pytest.mark.usefixtures("patient")
def test_events_of_a_transaction_share_messages(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for each would take a hundred times as long; the first one says at once whether it can be written."""
    events = [b"%d" % number for number in range(30_000)]
    with as_user(server, "anna") as store:
        messages = messages_of(store, monkeypatch)
        with store.transactional_writer(STREAM) as writer, writer.begin() as transaction:
            for event in events:
                transaction.write_event(event)
        assert messages == [1, 10_000, 10_000, 9_999]
    assert events_in(folder) == events


def test_an_event_that_comes_late_is_sent_at_once(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write renews the lease of a transaction: one that waited here for company would not."""
    monkeypatch.setattr(_transaction, "_SEND_EVERY_S", 0.0)
    with as_user(server, "anna") as store:
        messages = messages_of(store, monkeypatch)
        with store.transactional_writer(STREAM) as writer, writer.begin() as transaction:
            for _ in range(3):
                transaction.write_event(b"event")
            assert messages == [1, 1, 1]


@pytest.mark.usefixtures("patient")
def test_a_transaction_is_not_committed_without_events_that_were_refused_together(server: Server, folder: Path) -> None:
    """Its writer was told nothing about most of them."""
    with as_user(server, "anna") as store, store.transactional_writer(STREAM) as writer:
        transaction = writer.begin()
        transaction.write_event(b"first")
        for _ in range(9):
            transaction.write_event(b"buffered")
        users = Users.open(folder / USERS_FILE)
        users.revoke("anna", "write", STREAM)
        with pytest.raises(NoSuchTransaction):  # as far as a user without permissions may know
            transaction.commit()
        users.grant("anna", "write", STREAM)
        with pytest.raises(TransactionEnded, match="could not be sent"):
            transaction.commit()
        transaction.abort()
    assert events_in(folder) == []
