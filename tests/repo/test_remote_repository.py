"""Repositories on a server: the server searches, and sends the stream in one round trip."""

from __future__ import annotations

import os
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.client import RemoteStore, ServerFinder
from penstock.client._connection import ConnectionLost
from penstock.errors import BadArgument, ContentConflict, NotARepository, ServerBusy, ServerError, StoreUnreachable
from penstock.repo import (
    TEXTS,
    TOPOLOGICAL,
    UNORDERED,
    AncestryOf,
    Between,
    Everything,
    Repository,
    Revisions,
    blocks_of,
)
from penstock.repo._block import Item, encode_block
from penstock.repo._serialised import records_of
from penstock.server import FlightService
from penstock.server._limits import Limits
from penstock.server._repositories import Repositories
from penstock.wire.operations.repositories import GetRepositoryStream
from tests.repo.streams import Items, contents, history, keys
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import Store
    from penstock.model import StreamCut
    from penstock.repo import Search
    from penstock.stream import Engine

NAME = "code/history"


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


def test_a_stream_whose_session_ends_before_it_begins_is_asked_for_again(store: Engine) -> None:
    """A server may start again just before a pull asks it."""
    service = FlightService(store, "grpc://127.0.0.1:0")
    try:
        with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as remote:
            repo = Repository.open(remote, NAME, create=True)
            repo.insert_stream(history(20))
            for session in list(service._sessions.values()):
                session.cut_off()
            assert len(keys(repo.get_repository_stream(Everything()))) == 60
    finally:
        service.shutdown()


def test_a_stream_that_is_lost_in_the_middle_is_an_error(remote: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller has used the first part, and only the caller knows whether a second one would be the same."""
    repo = Repository.open(remote, NAME, create=True)
    repo.insert_stream(history(20))
    get = remote.connection.get

    def cut(channel: Any, call: Any) -> Iterator[Any]:  # noqa: ANN401 - passed on
        yield next(get(channel, call))
        raise ConnectionLost

    monkeypatch.setattr(remote.connection, "get", cut)
    with pytest.raises(StoreUnreachable, match="ask for it again"):
        keys(repo.get_repository_stream(Everything()))


def test_a_large_text_is_sent_in_pieces(store: Engine, remote: RemoteStore) -> None:
    """A server with many clients has a piece of it in memory for each, and the rest where it is stored."""
    large = os.urandom(24 << 20)
    items = history(3).add((TEXTS, b"large", b"r1"), (), large).add((TEXTS, b"small", b"r1"), (), b"small\n")
    repo = Repository.open(remote, NAME, create=True)
    repo.insert_stream(items)
    for ordering in (UNORDERED, TOPOLOGICAL):
        assert contents(repo.get_repository_stream(Everything(), ordering, complete_inventory=True)) == contents(items)
    stream = Repository.open(store, NAME).get_repository_stream(Everything())
    tracemalloc.start()
    try:
        size = sum(map(len, blocks_of(stream)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > len(large) > 4 * peak


@pytest.mark.parametrize("lost", [1, 1 << 20])
def test_a_block_that_is_cut_off_is_the_servers_mistake(lost: int) -> None:
    """The head of a block says how much of it has to come; an end that comes too early is not the end of a text."""
    block = encode_block([Item((TEXTS, b"f", b"r1"), (), bytes(20), "fulltext", os.urandom(3 << 20))])
    pieces = [block[: 1 << 20], block[1 << 20 : -lost]]
    with pytest.raises(ServerError, match=f"{lost:,} bytes of it did not come"):
        list(records_of(pieces))
    with pytest.raises(ServerError, match="more than a block has"):
        list(records_of([block[:12] + b"\x7f" + block[13:]]))


def test_a_long_request_is_searched_by_the_client(remote: RemoteStore) -> None:
    """A server takes no request of any length; the answer is the same."""
    repo = Repository.open(remote, NAME, create=True)
    repo.insert_stream(history(30))
    ids = [b"r%d" % number for number in range(30)] + [b"unknown" * 20 + b"%d" % number for number in range(100)]
    found = [key for key in keys(repo.get_repository_stream(Revisions(ids))) if b"unknown" not in key[-1]]
    assert len(found) == 90


def test_large_repository_that_is_opened_keeps_no_other_waiting(store: Engine) -> None:
    """Without an index a server reads a whole history when it is first asked; others are asked meanwhile."""
    for name in ("code/slow", "code/quick"):
        Repository.open(store, name, create=True).insert_stream(history(2))
    reached, released = threading.Event(), threading.Event()

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def tail(self, stream: str) -> StreamCut:
            if stream == "code/slow":
                reached.set()
                assert released.wait(10)
            return store.tail(stream)

    served = Repositories(cast("Store", Slow()))

    def ask(name: str) -> int:
        call = GetRepositoryStream(name, "everything", [], [], "unordered", complete_inventory=False)
        return sum(1 for _ in served.batches(call, lambda: None))

    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(ask, "code/slow")
        assert reached.wait(10)
        try:
            assert ask("code/quick") > 0
            assert not slow.done()
        finally:
            released.set()
        assert slow.result() > 0


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


def test_streams_of_repositories_wait_for_each_other(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search has found is in memory until it is sent, and a hostile client does not read it."""
    Repository.open(store, NAME, create=True).insert_stream(history(2))
    service = FlightService(store, "grpc://127.0.0.1:0", limits=Limits(max_searches=1))
    arguments: dict[str, Any] = {"ids": [], "known": [], "ordering": UNORDERED, "complete_inventory": False}
    with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as far:
        held = threading.Event()
        batches = Repositories.batches

        def held_batches(*args: Any) -> Iterator[Any]:  # noqa: ANN401 - as they come
            assert held.wait(60)
            return batches(*args)

        monkeypatch.setattr(Repositories, "batches", held_batches)
        with ThreadPoolExecutor() as threads:
            first = threads.submit(lambda: list(far.repository_blocks(NAME, "everything", **arguments)))
            eventually(lambda: service._quotas["searches"].used == 1)
            with monkeypatch.context() as patch:
                patch.setattr("penstock.client._connection._PATIENCE_S", 0.1)
                with pytest.raises(ServerBusy, match="max_searches"):
                    list(far.repository_blocks(NAME, "everything", **arguments))
            threading.Timer(0.2, held.set).start()
            assert list(far.repository_blocks(NAME, "everything", **arguments)) == first.result()
    service.shutdown()


def test_a_repository_is_opened_once_for_all_calls(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index, opening it reads the whole stream: each of many calls would do so by itself."""
    Repository.open(store, NAME, create=True).insert_stream(history(2))
    opened, open_repository = list[str](), Repository.open

    def counted(store: Store, stream: str, *, items_max: int) -> Repository:
        opened.append(stream)
        both.wait(60)
        return open_repository(store, stream, items_max=items_max)

    monkeypatch.setattr(Repository, "open", counted)
    repositories, both = Repositories(store), threading.Event()
    with ThreadPoolExecutor() as threads:
        found = [threads.submit(repositories._repository, NAME) for _ in range(4)]
        threading.Timer(0.2, both.set).start()
        assert len({id(future.result()) for future in found}) == 1
    assert opened == [NAME]


@pytest.mark.parametrize("complete", [True, False])
def test_complete_inventories_are_made_one_at_a_time(
    store: Engine, monkeypatch: pytest.MonkeyPatch, *, complete: bool
) -> None:
    """Each may take 64 MiB, and a few bytes stand for it; streams without them need not wait for each other."""
    Repository.open(store, NAME, create=True).insert_stream(history(2))
    inside, most = threading.Semaphore(0), list[int]()
    working = set[int]()

    def slow_blocks(_: object) -> Iterator[bytes]:
        working.add(threading.get_ident())
        most.append(len(working))
        inside.acquire(timeout=0.05 if complete else 60)
        working.discard(threading.get_ident())
        yield b"block"

    monkeypatch.setattr("penstock.repo.blocks_of", slow_blocks)
    call = GetRepositoryStream(NAME, "everything", ids=[], known=[], ordering=UNORDERED, complete_inventory=complete)
    repositories = Repositories(store)
    with ThreadPoolExecutor(3) as threads:
        streams = [threads.submit(lambda: list(repositories.batches(call, lambda: None))) for _ in range(3)]
        if not complete:
            eventually(lambda: len(working) == 3)
            inside.release(3)
        assert [len(stream.result()) for stream in streams] == [1, 1, 1]
    assert max(most) == (1 if complete else 3)
