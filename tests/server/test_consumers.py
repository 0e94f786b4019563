"""Reader groups and consumers: who may use them, and whose they are. With them goes what retention deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.cli.tail import _follow
from penstock.embedded import open_store
from penstock.errors import NotPermitted
from penstock.model import ByConsumption, StreamConfig
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock import Store
    from penstock.client import RemoteStore

STREAM: Final = "plant/readings"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a stream that is kept by consumption, and users of all kinds."""
    folder = tmp_path / "data"
    with open_store(folder) as store:
        store.create_stream(STREAM, config=StreamConfig(retention=ByConsumption()))
        with store.writer(STREAM) as writer:
            writer.write_batch([b"a", b"b"])
    users = Users.open(folder / USERS_FILE)
    for name, permission in (("anna", "consume"), ("berta", "consume"), ("reader", "read"), ("boss", "admin")):
        users.add(name, "secret")
        users.grant(name, permission, STREAM)  # type: ignore[arg-type]
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as server:
        yield server


def serving(folder: Path) -> Server:
    return Server(Config(store=str(folder), port=0, http_port=0))


def as_user(server: Server, user: str) -> RemoteStore:
    return penstock.connect(server.address, user=user, password="secret")  # type: ignore[return-value]


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
