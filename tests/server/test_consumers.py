"""Reader groups and consumers: who may use them, and whose they are. With them goes what retention deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.cli.tail import _follow
from penstock.embedded import open_store
from penstock.errors import GroupExists, NoSuchGroup, NoSuchReader, NotPermitted, PenstockError, ReaderOffline
from penstock.model import ByConsumption, StreamConfig
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users
from penstock.wire.operations import OPERATIONS, groups, readers
from tests.server.owned import STREAM, as_user, new_folder, serving
from tests.server.samples import legal_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock import Store

SECRET: Final = "plans/secret"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a stream that is kept by consumption, and users of all kinds."""
    config = StreamConfig(retention=ByConsumption())
    folder = new_folder(tmp_path, config, anna="consume", berta="consume", reader="read", boss="admin")
    with open_store(folder) as store:
        with store.writer(STREAM) as writer:
            writer.write_batch([b"a", b"b"])
        store.create_stream(SECRET)
    return folder


CHANGES: Final[dict[str, Callable[[Store], Any]]] = {
    "register": lambda store: store.register_consumer(STREAM, "report", "tail"),
    "unregister": lambda store: store.unregister_consumer(STREAM, "report"),
    "join": lambda store: store.reader_group("alarms").reader("other"),
    "reader_offline": lambda store: store.reader_group("alarms").reader_offline("one"),
    "checkpoint": lambda store: store.reader_group("alarms").checkpoint("noon", timeout=0),
    "reset": lambda store: store.reader_group("alarms").reset("tail"),
    "delete": lambda store: store.reader_group("alarms").delete(),
}


@pytest.mark.parametrize("change", [*CHANGES, "create"])
def test_a_user_who_may_only_read_changes_nothing_that_retention_goes_by(server: Server, change: str) -> None:
    """With retention by consumption, moving a group or a consumer to the tail deletes what others have not read."""
    changes = CHANGES | {"create": lambda store: store.create_reader_group("new", [STREAM], start="tail")}
    with as_user(server, "anna") as mine, as_user(server, "reader") as store:
        mine.register_consumer(STREAM, "report", "head")
        mine.create_reader_group("alarms", [STREAM])
        with pytest.raises(NotPermitted, match=r"may not use reader groups and consumers of plant/readings.*consume"):
            changes[change](store)
        assert mine.consumers(STREAM) == {"report": mine.head(STREAM)}
        assert mine.reader_group("alarms").position == (mine.head(STREAM),)
        assert mine.reader_groups() == ["alarms"]


def test_a_user_who_may_read_reads_and_follows_and_looks_at_groups(server: Server) -> None:
    """As before: none of that changes anything."""
    with as_user(server, "anna") as mine, as_user(server, "reader") as store:
        mine.create_reader_group("alarms", [STREAM])
        assert next(_follow(store, store.head(STREAM)))["event"].to_pylist() == [b"a", b"b"]
        assert sum(len(batch) for batch in store.read(STREAM)) == 2
        assert store.reader_group("alarms").lag().events == 2
        assert store.reader_groups() == ["alarms"]
        assert store.consumers(STREAM) == {}


@pytest.mark.parametrize("change", CHANGES)
def test_groups_and_consumers_are_not_for_other_users(server: Server, change: str) -> None:
    """Another would read what was for its readers, or have retention delete it before they do."""
    with as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        mine.register_consumer(STREAM, "report", "head")
        with mine.create_reader_group("alarms", [STREAM]).reader("one") as reader:
            with pytest.raises(NotPermitted, match="which belongs to another user"):
                CHANGES[change](theirs)
            assert reader.read_batch()["event"].to_pylist() == [b"a", b"b"]  # type: ignore[index]
        assert mine.consumers(STREAM) == {"report": mine.head(STREAM)}
        assert theirs.reader_group("alarms").lag().events == 0, "to look at it is permitted"


@pytest.mark.parametrize("change", CHANGES)
def test_an_administrator_may_change_those_of_others_which_is_logged(
    server: Server, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """To end what its user has left behind; the log says who did what, and to whom."""
    with as_user(server, "anna") as mine, as_user(server, "boss") as boss:
        mine.register_consumer(STREAM, "report", "head")
        with mine.create_reader_group("alarms", [STREAM]).reader("one"), caplog.at_level("INFO", "penstock.server"):
            try:
                CHANGES[change](boss)
            except NotPermitted:
                raise
            except PenstockError:
                pass  # a checkpoint that no reader comes to in no time
    [said] = [record for record in caplog.records if "of another user" in record.message]
    subject = {"consumer": "report"} if "register" in change else {"group": "alarms"}
    assert ({"user": "boss", "owner": "anna"} | subject).items() <= vars(said).items()
    assert said.operation  # type: ignore[attr-defined]


def test_they_stay_their_users_after_a_restart_and_a_change_by_an_administrator(folder: Path) -> None:
    """Also from a snapshot of the catalog, which is written in place of old records."""
    with serving(folder) as server, as_user(server, "anna") as mine, as_user(server, "boss") as boss:
        mine.create_reader_group("alarms", [STREAM])
        boss.reader_group("alarms").reset("tail")
        mine.register_consumer(STREAM, "report", "head")
        boss.register_consumer(STREAM, "report", "tail", lease_s=3600)
    for _ in range(2):
        with serving(folder) as server, as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
            for change in ("register", "unregister", "join", "reset", "delete"):
                with pytest.raises(NotPermitted):
                    CHANGES[change](theirs)
            mine.reader_group("alarms").reader("one").close()
            mine.register_consumer(STREAM, "report", "head")
        with open_store(folder) as engine:
            engine.catalog._snapshot_at = 0
            engine.update_stream(STREAM, StreamConfig(retention=ByConsumption()))


def test_those_of_the_folder_belong_to_the_first_user_who_reads_with_them(folder: Path) -> None:
    """A folder has one user without a name, who may do everything; so do stores from before there were owners."""
    with penstock.connect(folder) as near:
        near.create_reader_group("alarms", [STREAM])
        near.register_consumer(STREAM, "report")
    with serving(folder) as server, as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        mine.reader_group("alarms").reader("one").close()
        mine.register_consumer(STREAM, "report")
        for change in ("register", "join", "reset"):
            with pytest.raises(NotPermitted):
                CHANGES[change](theirs)
        with penstock.connect(folder) as near:
            for change in ("register", "join", "reset"):
                CHANGES[change](near)
        with pytest.raises(NotPermitted):
            CHANGES["register"](theirs)


@pytest.mark.parametrize("change", ["unregister", "reader_offline", "checkpoint", "reset", "delete"])
def test_those_without_an_owner_are_changed_by_administrators_alone(folder: Path, change: str) -> None:
    """No user has claimed them yet, and with retention by consumption their removal deletes events."""
    with penstock.connect(folder) as near:
        near.create_reader_group("alarms", [STREAM])
        near.register_consumer(STREAM, "report")
    with serving(folder) as server, as_user(server, "anna") as store, as_user(server, "boss") as boss:
        with pytest.raises(NotPermitted, match=r"belongs to no user: (open a reader of|register) it first"):
            CHANGES[change](store)
        assert store.reader_group("alarms").position == (store.head(STREAM),)
        assert store.consumers(STREAM) == {"report": store.head(STREAM)}
        try:
            CHANGES[change](boss)
        except NoSuchReader:
            assert change == "reader_offline"


def test_a_consumer_that_is_not_there_is_unregistered_without_an_error(server: Server) -> None:
    """A program that cleans up may come twice."""
    with as_user(server, "anna") as store:
        store.unregister_consumer(STREAM, "report")


REFUSED: Final[dict[str, readers.OpenReader]] = {
    "name": readers.OpenReader("alarms", "a b"),
    "epoch": readers.OpenReader("alarms", "one", 7),
    "handles": readers.OpenReader("alarms", "one"),
}


@pytest.mark.parametrize("cause", REFUSED)
def test_a_reader_that_is_refused_takes_no_group_over(folder: Path, cause: str) -> None:
    """The users whose group it is would be kept out by a user who has never read with it."""
    with penstock.connect(folder) as near:
        near.create_reader_group("alarms", [STREAM])
    with (
        Server(Config(store=str(folder), port=0, http_port=0, max_handles=2)) as server,
        as_user(server, "anna") as mine,
        as_user(server, "berta") as theirs,
    ):
        if cause == "handles":  # the only one of this user
            theirs.create_reader_group("own", [STREAM]).reader("one")
        with pytest.raises(PenstockError):
            theirs.connection.call(REFUSED[cause])
        assert mine.reader_group("alarms").readers() == []
        mine.reader_group("alarms").reader("one").close()


@pytest.mark.parametrize("has_users", [True, False])
def test_a_group_that_is_deleted_is_not_finished(folder: Path, has_users: bool) -> None:
    """Its readers learn why they end, with users and without, from the same answer."""
    config = Config(store=str(folder), port=0, http_port=0)
    if not has_users:
        (folder / USERS_FILE).unlink()
        config = Config(store=str(folder), port=0, http_port=0, anonymous=True)
    with Server(config) as server:
        store: Any = as_user(server, "anna") if has_users else penstock.connect(server.address)
        with store:
            group = store.create_reader_group("alarms", [STREAM])
            reader = group.reader("one")
            group.delete()
            with pytest.raises(NoSuchGroup):
                store.connection.call(readers.IsGroupFinished("alarms"))
            with pytest.raises(ReaderOffline, match="deleted"):
                reader.read_next_event(timeout=0)


def test_a_reader_leaves_from_where_it_was_while_its_user_could_consume(server: Server, folder: Path) -> None:
    """Otherwise a user whose permission was revoked would still move the group to the tail, and delete events."""
    with as_user(server, "anna") as mine, as_user(server, "boss") as boss:
        mine.create_reader_group("alarms", [STREAM])
        number = mine.connection.call(readers.OpenReader("alarms", "one"))[0]
        mine.connection.call(readers.Sync(number, [], None, False))
        Users.open(folder / USERS_FILE).revoke("anna", "consume", STREAM)
        mine.connection.call(readers.Leave(number, [(STREAM, 0, boss.tail(STREAM).offsets[0])]))
        assert boss.reader_group("alarms").readers() == []
        assert boss.reader_group("alarms").position == (boss.head(STREAM),)


def test_a_name_is_free_again_when_the_consumer_or_group_is_gone(server: Server) -> None:
    """It has no owner then."""
    with as_user(server, "anna") as mine, as_user(server, "berta") as theirs:
        for store in (mine, theirs):
            store.register_consumer(STREAM, "report")
            store.unregister_consumer(STREAM, "report")
            store.create_reader_group("alarms", [STREAM]).delete()


OF_GROUPS: Final = [name for name, kind in OPERATIONS.items() if kind.about == "group"]


@pytest.mark.parametrize("operation", OF_GROUPS)
@pytest.mark.parametrize("streams", [[SECRET], [STREAM, SECRET], []])
def test_a_group_of_hidden_streams_is_as_one_that_is_not_there(
    folder: Path, operation: str, streams: list[str]
) -> None:
    """Neither its name nor its streams are told, whatever is asked; one without streams belongs to no user."""
    with penstock.connect(folder) as near:
        near.create_stream("gone/gone")
        near.create_reader_group("plans", streams or ["gone/gone"])
        near.seal_stream("gone/gone")
        near.delete_stream("gone/gone")
    with serving(folder) as server, as_user(server, "boss") as store:
        assert store.reader_groups() == []
        told = []
        for group in ("plans", "other"):
            with pytest.raises(NoSuchGroup) as refusal:
                store.connection.call(legal_call(OPERATIONS[operation], group))
            told.append(str(refusal.value).replace(group, "GROUP"))
        assert told[0] == told[1]


def test_a_group_whose_streams_are_gone_can_be_deleted_by_its_user(folder: Path) -> None:
    """Only a user who may administer all streams could do it otherwise."""
    with serving(folder) as server, as_user(server, "anna") as mine:
        mine.create_reader_group("alarms", [STREAM])
        with penstock.connect(folder) as near:
            near.seal_stream(STREAM)
            near.delete_stream(STREAM)
        assert mine.reader_groups() == ["alarms"]
        mine.reader_group("alarms").delete()
        assert mine.reader_groups() == []


def test_a_name_that_is_taken_tells_no_stream(folder: Path) -> None:
    """Names of groups are of the whole store, so that one is taken cannot be hidden from a user who wants it."""
    with penstock.connect(folder) as near:
        near.create_reader_group("plans", [SECRET])
    with serving(folder) as server, as_user(server, "anna") as store:
        for exist_ok in (False, True):
            with pytest.raises(GroupExists) as refusal:
                store.connection.call(groups.CreateGroup("plans", [STREAM], None, None, exist_ok))
            assert "plans/secret" not in str(refusal.value)
