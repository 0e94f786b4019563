"""Transactions belong to the users who began them: others neither add to them, nor end them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import pytest
from pyarrow import flight

import penstock
from penstock.errors import NotPermitted
from penstock.server import Config, Server
from penstock.server._permissions import check
from penstock.server._users import USERS_FILE, Users
from penstock.stream.time import WriterMarks
from penstock.wire import pack
from penstock.wire.operations import OPERATIONS, transactions, writers
from tests.server.owned import STREAM, as_user, events_in, new_folder
from tests.server.samples import legal_call

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.server._permissions import Principal
    from penstock.server._session import Session
    from penstock.wire.operations import Operation

OF_TRANSACTIONS: Final = [name for name, kind in OPERATIONS.items() if kind.about == "transaction"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a stream, two users who may write to it, and one who may administer it."""
    return new_folder(tmp_path, anna="write", berta="write", boss="admin")


@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize("operation", OF_TRANSACTIONS)
def test_a_transaction_is_not_for_other_users(server: Server, folder: Path, operation: str, is_prepared: bool) -> None:
    """Another would add events to it, drop them, or note time under the writer id of its owner."""
    with as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        transaction = mine.transactional_writer(STREAM, "boiler").begin()
        transaction.write_event(b"mine")
        if is_prepared:
            transaction.prepare()
        with pytest.raises(NotPermitted, match=r"use the transaction .*, which belongs to another user"):
            theirs.connection.call(legal_call(OPERATIONS[operation], transaction.id))
        transaction.commit()
    assert events_in(folder) == [b"mine"]


@pytest.mark.parametrize("number", [None, 1])
@pytest.mark.parametrize("was_there", [False, True])
def test_a_prepared_transaction_is_not_committed_or_aborted_among_those_of_another_user(
    server: Server, folder: Path, number: int | None, was_there: bool
) -> None:
    """The writer id is the other user's own; a number that was there would abort the transaction."""
    with as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        writer = theirs.transactional_writer(STREAM, "query")
        if was_there:
            writer.commit_all([], number=1)
        transaction = mine.transactional_writer(STREAM, "boiler").begin()
        transaction.write_event(b"mine")
        transaction.prepare()
        with pytest.raises(NotPermitted, match="which belongs to another user"):
            writer.commit_all([transaction.id], number)
        assert transaction.status == "prepared"
        transaction.commit()
    assert events_in(folder) == [b"mine"]


def test_a_prepared_transaction_keeps_its_owner_after_a_restart(folder: Path) -> None:
    """It outlives the server, so another user may come before its own does."""
    config = Config(store=str(folder), port=0, http_port=0)
    with Server(config) as server, as_user(server, "anna") as mine:
        transaction = mine.transactional_writer(STREAM).begin()
        transaction.write_event(b"mine")
        transaction.prepare()
    with Server(config) as server, as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        with pytest.raises(NotPermitted):
            theirs.transactional_writer(STREAM).get(transaction.id).abort()
        mine.transactional_writer(STREAM).get(transaction.id).commit()
    assert events_in(folder) == [b"mine"]


@pytest.mark.parametrize("together", [False, True])
def test_an_administrator_may_end_the_transaction_of_another_which_is_logged(
    server: Server, folder: Path, caplog: pytest.LogCaptureFixture, together: bool
) -> None:
    """A user may be gone whose prepared transaction holds the stream's time back."""
    with as_user(server, "anna") as mine, as_user(server, "boss") as boss:
        transaction = mine.transactional_writer(STREAM).begin()
        transaction.write_event(b"mine")
        transaction.prepare()
        with caplog.at_level("INFO", "penstock.server"):
            if together:
                boss.transactional_writer(STREAM).commit_all([transaction.id])
            else:
                boss.connection.call(transactions.Commit(transaction.id, None, []))
    [said] = [record for record in caplog.records if "transaction of another user" in record.message]
    assert {"user": "boss", "owner": "anna", "transaction": transaction.id}.items() <= vars(said).items()
    assert said.operation.startswith("transaction")  # type: ignore[attr-defined]
    assert events_in(folder) == [b"mine"]


def test_a_transaction_of_the_folder_is_for_administrators_and_the_folder_for_everything(
    server: Server, folder: Path
) -> None:
    """The folder has one user, who may do everything; what that user prepared belongs to no user of the server."""
    with penstock.connect(folder) as near, as_user(server, "anna") as mine, as_user(server, "boss") as boss:
        for store in (boss, near):
            transaction = near.transactional_writer(STREAM).begin()
            transaction.write_event(b"near")
            transaction.prepare()
            with pytest.raises(NotPermitted, match="which belongs to no user"):
                mine.transactional_writer(STREAM).commit_all([transaction.id])
            store.transactional_writer(STREAM).commit_all([transaction.id])
        transaction = mine.transactional_writer(STREAM).begin()
        transaction.write_event(b"mine")
        near.transactional_writer(STREAM).get(transaction.id).commit()
    assert events_in(folder) == [b"near", b"near", b"mine"]


def test_a_call_of_another_user_leaves_the_session_to_its_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refused call of an administrator lent its permissions to calls of the session that were under way."""
    refused: list[str] = []

    def noted(session: Session, principal: Principal, call: Operation) -> None:
        try:
            check(session, principal, call)
        except NotPermitted:
            refused.append(session.principal.name)
            raise

    monkeypatch.setattr("penstock.server._service.check", noted)
    with as_user(server, "anna") as mine:
        action = flight.Action("streams", pack([mine.connection.channel.id, [None]]))
        header = b"Basic " + base64.b64encode(b"boss:secret")
        with flight.connect(server.address.replace("penstock", "grpc")) as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", header)])
            with pytest.raises(flight.FlightServerError, match="use the session of another user"):
                list(client.do_action(action, options))
    assert refused == ["anna"]


def test_a_writer_whose_user_may_not_write_any_more_closes_as_if_it_was_lost(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To close it for good ends its hold on the watermark, which is a change of the stream."""
    ended: list[str] = []
    real = WriterMarks.shut_down

    def noted(self: WriterMarks, stream: str, uid: int, writer_id: str) -> None:
        ended.append(writer_id)
        real(self, stream, uid, writer_id)

    monkeypatch.setattr(WriterMarks, "shut_down", noted)
    with as_user(server, "anna") as mine:
        numbers = [mine.connection.call(writers.OpenWriter(STREAM, name, name, True, None))[0] for name in ("a", "b")]
        for number in numbers:
            mine.connection.call(writers.Mark(number, 1_000))
        mine.connection.call(writers.CloseWriter(numbers[0], True))
        Users.open(folder / USERS_FILE).revoke("anna", "write", STREAM)
        mine.connection.call(writers.CloseWriter(numbers[1], True))
    assert ended == ["a"]
