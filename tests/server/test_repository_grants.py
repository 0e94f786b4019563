"""Repositories on a server with users: every operation needs its grant, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import NotPermitted
from penstock.repo import TEXTS, Everything, Ref, Repository, copy_revisions
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users
from tests.repo.streams import history, keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.client import RemoteStore

NAME = "code/project"
GRANTS = {"none": (), "reader": ("read",), "consumer": ("consume",), "writer": ("write",), "both": ("read", "write")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    users = Users.open(tmp_path / "data" / USERS_FILE)
    users.add("root", "secret")
    users.grant("root", "admin", "*")
    for name, permissions in GRANTS.items():
        users.add(name, "secret")
        users.grant(name, "admin", "elsewhere/*")
        for permission in permissions:
            users.grant(name, permission, NAME)  # type: ignore[arg-type]
    with Server(Config(store=str(tmp_path / "data"), port=0, http_port=0)) as server:
        with penstock.connect(server.address, user="root", password="secret") as store:
            repository = Repository.open(store, NAME, create=True)
            repository.insert_stream(history(3))
            repository.set_refs({b"refs/heads/main": Ref(b"r2")})
            Repository.open(store, "code/secret", create=True).insert_stream(history(1))
        yield server


@pytest.mark.parametrize("user", GRANTS)
def test_each_operation_needs_its_grant(server: Server, user: str) -> None:
    """A user reads with read or consume, changes with write as well, creates as an administrator; no key leaks."""
    may_read, may_write = user in {"reader", "consumer", "both"}, user == "both"
    store: RemoteStore = penstock.connect(server.address, user=user, password="secret")  # type: ignore[assignment]
    with store:
        own = Repository.open(store, "elsewhere/own", create=True)
        own.insert_stream(history(4))
        own.set_refs({b"refs/heads/main": Ref(b"r3")})
        for name in ("code/secret", *([] if may_read else [NAME])):
            arguments = {"ids": [], "known": [], "ordering": "unordered", "complete_inventory": False}
            for call in (
                lambda name=name: Repository.open(store, name),
                lambda name=name: Repository.open(store, name, create=True),
                lambda name=name, arguments=arguments: list(store.repository_blocks(name, "everything", **arguments)),
            ):
                with pytest.raises(NotPermitted):
                    call()
        with pytest.raises(NotPermitted, match="code/new"):
            Repository.open(store, "code/new", create=True)
        if not may_read:
            return
        repository = Repository.open(store, NAME, create=True)
        assert repository.text((TEXTS, b"file-0", b"r0"))
        assert len(keys(repository.get_repository_stream(Everything()))) == 10
        assert repository.check().is_good
        copy_revisions(repository, Repository.open(store, "elsewhere/copy", create=True))
        if may_write:
            assert copy_revisions(own, repository).revisions == 1, "a push needs no administrator"
            assert repository.refs() == own.refs()
            return
        for change in (
            lambda: repository.insert_stream(history(1, start=3)),
            lambda: repository.set_refs({b"refs/heads/main": Ref(b"r1")}),
            lambda: copy_revisions(own, repository),
        ):
            with pytest.raises(NotPermitted, match=f"user {user} may not write to code/project"):
                change()
        assert len(keys(Repository.open(store, NAME).get_repository_stream(Everything()))) == 10
