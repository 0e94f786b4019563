"""Repositories on a server: the server searches, and sends the stream in one round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.client import RemoteStore, ServerFinder
from penstock.embedded import open_store
from penstock.errors import BadArgument, ContentConflict, NotARepository
from penstock.repo import (
    TEXTS,
    TOPOLOGICAL,
    UNORDERED,
    AncestryOf,
    Between,
    Everything,
    Repository,
    Revisions,
)
from penstock.server import FlightService
from tests.repo.streams import Items, contents, history, keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.repo import Search
    from penstock.stream import Engine

NAME = "code/history"


@pytest.fixture
def store() -> Iterator[Engine]:
    with open_store("memory:") as opened:
        yield opened


@pytest.fixture
def remote(store: Engine) -> Iterator[RemoteStore]:
    service = FlightService(store, "grpc://127.0.0.1:0")
    try:
        with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as opened:
            yield opened
    finally:
        service.shutdown()


def test_a_remote_stream_is_that_of_the_store(store: Engine, remote: RemoteStore) -> None:
    """Every search, in both orders, gives what the store itself gives, in the same order."""
    assert Repository.open(remote, NAME, create=True).insert_stream(history(20)).added == 60
    here, there = Repository.open(store, NAME), Repository.open(remote, NAME)
    searches: list[Search] = [Everything(), Revisions([b"r3"]), AncestryOf([b"r5"]), Between([b"r19"], [b"r15"])]
    for search in searches:
        for ordering in (UNORDERED, TOPOLOGICAL):
            for complete in (True, False):
                wanted = here.get_repository_stream(search, ordering, complete)
                assert keys(there.get_repository_stream(search, ordering, complete)) == keys(wanted)
    assert contents(there.get_repository_stream(Everything(), complete_inventory=True)) == contents(history(20))
    assert there.text((TEXTS, b"file-1", b"r7")) == here.text((TEXTS, b"file-1", b"r7"))
    assert there.get_repository_stream(Everything()).check().is_good


def test_a_stream_is_one_round_trip(remote: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a slow line it is the number of questions that counts."""
    repo = Repository.open(remote, NAME, create=True)
    repo.insert_stream(history(200))
    connection = remote.connection
    asked: list[str] = []
    call, get = connection.call, connection.get
    monkeypatch.setattr(connection, "call", lambda what: asked.append(what.operation) or call(what))  # type: ignore[func-returns-value, redundant-expr]
    monkeypatch.setattr(connection, "get", lambda at, what: asked.append(what.operation) or get(at, what))  # type: ignore[func-returns-value, redundant-expr]
    found = keys(repo.get_repository_stream(Between([b"r199"], [b"r150"]), TOPOLOGICAL))
    assert len(found) == 3 * 49
    assert asked == ["repository"]


def test_a_long_request_is_searched_by_the_client(remote: RemoteStore) -> None:
    """A server takes no request of any length; the answer is the same."""
    repo = Repository.open(remote, NAME, create=True)
    repo.insert_stream(history(30))
    ids = [b"r%d" % number for number in range(30)] + [b"unknown" * 20 + b"%d" % number for number in range(100)]
    found = [key for key in keys(repo.get_repository_stream(Revisions(ids))) if b"unknown" not in key[-1]]
    assert len(found) == 90


def test_errors_are_the_same_over_the_wire(store: Engine, remote: RemoteStore) -> None:
    """A program catches the same classes, wherever its store is."""
    store.create_stream("code/other")
    with pytest.raises(NotARepository, match="code/other"):
        Repository.open(remote, "code/other")
    with pytest.raises(NotARepository, match="code/other"):
        list(
            remote.repository_blocks(
                "code/other", "everything", ids=[], known=[], ordering="unordered", complete_inventory=False
            )
        )
    with pytest.raises(BadArgument, match="search"):
        list(
            remote.repository_blocks(
                "code/other", "some", ids=[], known=[], ordering="unordered", complete_inventory=False
            )
        )
    repo = Repository.open(remote, NAME, create=True)
    repo.insert_stream(history(2))
    with pytest.raises(ContentConflict):
        repo.insert_stream(Items().add((TEXTS, b"file-0", b"r0"), (), b"forged"))
