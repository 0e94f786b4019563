"""Writer ids belong to the users who made them: neither their numbers nor their time are for others."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.client import _shared_appends
from penstock.embedded import open_store
from penstock.errors import BadArgument, NotPermitted, PenstockError
from penstock.server._users import USERS_FILE, Users
from penstock.stream.format import StreamBlockHeader
from penstock.stream.segment import writer_hash
from penstock.wire import SmallBlock, unpack_error
from penstock.wire.operations import transactions, writers
from tests.server.owned import STREAM, as_user, events_in, new_folder, serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock import Store
    from penstock.client import RemoteStore
    from penstock.server import Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a stream, two users who may write to it, and one who may administer it."""
    return new_folder(tmp_path, anna="write", berta="write", boss="admin")


def write_numbered(store: Store, writer_id: str, numbers: range) -> None:
    with store.writer(STREAM, writer_id) as writer:
        for number in numbers:
            writer.write_event(b"%d" % number, number=number)
        writer.flush()


def test_a_writer_without_an_id_cannot_carry_the_hash_of_another(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers would hide the events of the other: ten were acknowledged, and none of them stored."""
    with monkeypatch.context() as patched, as_user(server, "berta") as store:
        patched.setattr("penstock.client._writer.anonymous_hash", lambda _: writer_hash("boiler"))
        with pytest.raises(PenstockError, match="under its own identity"), store.writer(STREAM) as writer:
            writer.write_batch([b"x"] * 100).result()
    with as_user(server, "anna") as store:
        write_numbered(store, "boiler", range(10))
    assert events_in(folder) == [b"%d" % number for number in range(10)]


USES: Final[dict[str, Callable[[RemoteStore, int], Any]]] = {
    "writer": lambda store, _: store.writer(STREAM, "boiler"),
    "transactions": lambda store, _: store.transactional_writer(STREAM, "boiler"),
    "begin": lambda store, uid: store.connection.call(transactions.BeginTransaction(STREAM, uid, "boiler", 30.0)),
    "commit_all": lambda store, uid: store.connection.call(
        transactions.CommitAll(STREAM, uid, "boiler", [], 9, 1_700_000_000_000)
    ),
    "last_number": lambda store, uid: store.connection.call(transactions.LastNumber(STREAM, uid, "boiler")),
    "close": lambda store, uid: store.connection.call(transactions.CloseTransactions(STREAM, uid, "boiler")),
}


@pytest.mark.parametrize("use", USES)
def test_an_id_is_not_for_other_users(server: Server, folder: Path, use: str) -> None:
    """Another would fence its writer, use up its numbers, abort its transactions or note its time."""
    with as_user(server, "anna") as mine, as_user(server, "berta") as theirs, mine.writer(STREAM, "boiler") as writer:
        writer.write_event(b"0", number=0).result()
        uid = theirs.connection.call(transactions.OpenTransactions(STREAM, None))
        with pytest.raises(NotPermitted, match="writer id boiler of plant/readings, which belongs to another user"):
            USES[use](theirs, uid)
        writer.write_event(b"1", number=1).result()
    assert events_in(folder) == [b"0", b"1"]


def test_an_id_belongs_to_its_user_after_a_restart(folder: Path) -> None:
    """And from a snapshot of the catalog, which is written in place of old records."""
    with serving(folder) as server, as_user(server, "anna") as store:
        write_numbered(store, "boiler", range(3))
    with open_store(folder) as engine:
        engine.catalog._snapshot_at = 0
        engine.create_stream("plant/more")
    with serving(folder) as server:
        with as_user(server, "berta") as theirs, pytest.raises(NotPermitted):
            theirs.writer(STREAM, "boiler")
        with as_user(server, "anna") as store:
            write_numbered(store, "boiler", range(5))
    assert events_in(folder) == [b"%d" % number for number in range(5)]


def test_an_administrator_may_use_the_id_of_another_and_it_stays_theirs(
    server: Server, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To end a writer that hangs, or to go on with its work; the log says so."""
    with as_user(server, "anna") as store:
        write_numbered(store, "boiler", range(3))
    with caplog.at_level("INFO", "penstock.server"), as_user(server, "boss") as store:
        write_numbered(store, "boiler", range(5))
    [said] = [record for record in caplog.records if "writer id of another user" in record.message]
    assert {"user": "boss", "owner": "anna", "writer": "boiler"}.items() <= vars(said).items()
    with as_user(server, "anna") as store:
        write_numbered(store, "boiler", range(7))
    assert events_in(folder) == [b"%d" % number for number in range(7)]


def test_an_id_that_was_used_in_the_folder_belongs_to_the_first_user_who_opens_it(folder: Path) -> None:
    """A program that moves from the folder to the server goes on with its numbers; the folder has one user."""
    with penstock.connect(folder) as store:
        write_numbered(store, "boiler", range(3))
    with serving(folder) as server:
        with as_user(server, "anna") as mine:
            write_numbered(mine, "boiler", range(5))
        with as_user(server, "berta") as theirs, pytest.raises(NotPermitted):
            theirs.writer(STREAM, "boiler")
        with penstock.connect(folder) as store:
            write_numbered(store, "boiler", range(6))
    assert events_in(folder) == [b"%d" % number for number in range(6)]


def test_a_user_who_makes_up_ids_pushes_out_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of others, nor their numbers: what they send again would be stored twice. Open ones go last."""
    monkeypatch.setattr("penstock.stream.engine._writer_ids.OWNED_IDS_MAX", 5)
    monkeypatch.setattr("penstock.stream.segment._writer_table.ENTRIES_MAX", 5)
    monkeypatch.setattr("penstock.stream.catalog._stream_state.BATCH_WRITERS_MAX", 5)
    with serving(folder) as server, as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        write_numbered(mine, "boiler", range(3))
        mine.transactional_writer(STREAM, "boiler").commit_all([], number=7)
        with ExitStack() as writers:
            opened = writers.enter_context(theirs.writer(STREAM, "opened"))
            opened.write_event(b"opened", number=0).result()
            for number in range(12):
                with theirs.writer(STREAM, f"made-up-{number}") as writer:
                    writer.write_event(b"x", number=0).result()
                theirs.transactional_writer(STREAM, f"made-up-{number}").commit_all([], number=1)
            with pytest.raises(NotPermitted):
                mine.writer(STREAM, "opened")
        write_numbered(mine, "boiler", range(5))
        assert mine.transactional_writer(STREAM, "boiler").last_number == 7
        assert theirs.transactional_writer(STREAM, "made-up-0").last_number is None
    assert [event for event in events_in(folder) if event not in (b"x", b"opened")] == [
        b"%d" % number for number in range(5)
    ]
    with serving(folder) as server, as_user(server, "berta") as theirs, pytest.raises(NotPermitted):
        theirs.writer(STREAM, "boiler")


def test_an_id_that_is_no_name_has_no_owner(server: Server) -> None:
    """What cannot be opened is not recorded either."""
    with as_user(server, "anna") as store:
        uid = store.connection.call(transactions.OpenTransactions(STREAM, None))
        for call in (
            writers.OpenWriter(STREAM, "a b", "token", False, None),
            transactions.OpenTransactions(STREAM, "a b"),
            transactions.BeginTransaction(STREAM, uid, "a b", 30.0),
        ):
            with pytest.raises(BadArgument):
                store.connection.call(call)


def test_a_user_who_makes_up_ids_doubles_nothing_of_others_when_segments_are_merged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each id has an entry in each segment, and the merged one has places for a few: they were those of berta alone."""
    monkeypatch.setattr("penstock.stream.segment._writer_table.ENTRIES_MAX", 20)

    def write_keyed(store: Store, writer_id: str) -> None:
        with store.writer(STREAM, writer_id) as writer:
            for number in range(40):
                writer.write_event(b"%s %d" % (writer_id.encode(), number), key=str(number), number=number)

    with serving(folder) as server, as_user(server, "boss") as boss:
        boss.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)])
        with as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
            write_keyed(mine, "boiler")
            for number in range(12):
                write_keyed(theirs, f"made-up-{number}")
            boss.scale_stream(STREAM, [1, 2, 3, 4], [(0.0, 1.0)])
            write_keyed(mine, "boiler")
    with serving(folder) as server, as_user(server, "anna") as mine:
        write_keyed(mine, "boiler")
    events = [event for event in events_in(folder) if event.startswith(b"boiler")]
    assert sorted(events) == sorted(b"boiler %d" % number for number in range(40))


def test_blocks_that_are_sent_together_are_checked_writer_by_writer(server: Server, folder: Path) -> None:
    """The stream that writers share is no way to the writers of another user, nor around a permission that is gone."""
    with ExitStack() as stack:
        mine, theirs = (stack.enter_context(as_user(server, user)) for user in ("anna", "berta"))
        victim, writer = stack.enter_context(theirs.writer(STREAM, "boiler")), mine.writer(STREAM, "mine")
        victim.write_event(b"victim").result()
        writer.write_event(b"first").result()
        [host] = theirs.hosts.values()
        channel, number = mine.connection.channel, host.number
        header = StreamBlockHeader(count=1, writer=writer_hash("boiler"), last_number=2, flush_last=0).pack()
        block = SmallBlock.pack(0, 0, header, [bytes([0, 0, 0, 1]), b"x"])
        _, error = channel.appends.exchange(number, [block])
        assert error is not None
        assert isinstance(unpack_error(error), BadArgument)
        stream = _shared_appends.FlightStream(channel.client, theirs.connection.channel.id)
        shared = _shared_appends.SharedAppends(lambda _: stream)
        _, error = shared.exchange(number, [block])
        assert error is not None
        assert isinstance(unpack_error(error), NotPermitted)
        shared.close()
        Users.open(folder / USERS_FILE).revoke("anna", "write", STREAM)
        with pytest.raises(NotPermitted):
            writer.write_event(b"second").result()
        with pytest.raises(PenstockError):
            writer.close()
        victim.write_event(b"last").result()
    assert events_in(folder) == [b"victim", b"first", b"last"]
