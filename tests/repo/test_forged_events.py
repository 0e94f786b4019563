"""Events that a hostile writer adds to the stream of a repository: nothing that was stored before is lost by them."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.errors import BadRecord, ContentConflict, RepositoryError
from penstock.model import StreamCut
from penstock.repo import REFS, REVISIONS, TEXTS, TOPOLOGICAL, Everything, Ref, Repository, copy_revisions
from penstock.repo._block import Item, encode_block
from penstock.repo._events import IndexPart, InsertRecord, encode_index_event, encode_insert_record
from penstock.repo._index import Index
from tests.repo.streams import Items, contents, everything, history, keys

if TYPE_CHECKING:
    from penstock import Store
    from penstock.repo import Key

NAME = "code/history"
LIE = -7  # the base of an insert that says falsely that it was compared with everything


@pytest.fixture
def repo(store: Store) -> Repository:
    repository = Repository.open(store, NAME, create=True)
    repository.insert_stream(history(4).add((REVISIONS, b"late"), ((REVISIONS, b"ghost"),), b"x"))
    repository.set_refs({b"refs/heads/main": Ref(b"r3")})
    return repository


def item(key: Key, parents: tuple[Key, ...] = (), text: bytes = b"x", kind: str = "fulltext") -> Item:
    return Item(key, parents, hashlib.sha1(text, usedforsecurity=False).digest(), kind, text)


def record(blocks: int = 1, items: int = 1, base: int = LIE, ghosts: tuple[Key, ...] = ()) -> InsertRecord:
    return InsertRecord(b"id", base, blocks, items, list(ghosts))


def write(store: Store, *events: bytes | InsertRecord) -> None:
    """Add plain events, a lie about the base of an insert made such that it could be true."""
    with store.writer(NAME) as writer:
        for event in events:
            data = event if isinstance(event, bytes) else encode_insert_record(event)
            if isinstance(event, InsertRecord) and event.base == LIE:
                data = encode_insert_record(replace(event, base=store.tail(NAME).offsets[0]))
            writer.write_event(data)
            writer.flush()


HEAD = struct.pack(">4sIIQQII", b"PRB\x01", 0xFFFF_FFFF, 1 << 20, 10, 10, 0, 0)
TEXT = item((TEXTS, b"new", b"r1"))


HOSTILE: dict[str, list[bytes | InsertRecord]] = {
    "magic only": [b"PRB\x01"],
    "zeros": [b"PRB\x01" + bytes(100)],
    "other version": [b"PRB\x02 of another version"],
    "empty record": [b"PRI\x01"],
    "large record": [b"PRI\x01" + bytes(2 << 20)],
    "large head": [HEAD + bytes(2 << 20)],
    "damaged body, bad record": [encode_block([TEXT])[:-1] + b"?", b"PRI\x01\xc0"],
    "empty ghost": [encode_block([TEXT]), record(ghosts=((),))],
    "ghost of nothing": [encode_block([TEXT]), record(ghosts=((b"revisions", b""),))],
    "more blocks": [encode_block([TEXT]), record(blocks=7)],
    "negative blocks": [encode_block([TEXT]), record(blocks=-1)],
    "more items": [encode_block([TEXT]), record(items=2)],
    "base ahead": [encode_block([TEXT]), record(base=1 << 40)],
    "one block damaged": [encode_block([TEXT]), b"PRB\x01", record(blocks=2)],
    "long key": [encode_block([item((TEXTS, b"f", b"x" * 100_000))]), record()],
    "own parent": [encode_block([item((REVISIONS, b"r1x"), ((REVISIONS, b"r1x"),))]), record()],
    "absent": [encode_block([item((TEXTS, b"new", b"r1"), kind="absent")]), record()],
    "unknown kind": [encode_block([item((TEXTS, b"new", b"r1"), kind="rot13")]), record()],
    "wrong sha1": [encode_block([replace(TEXT, sha1=bytes(20))]), record()],
    "negative depth": [encode_block([TEXT], basis=[((TEXTS, b"f", b"r0"), b"x")], depth=-1), record()],
    "deep": [encode_block([TEXT], basis=[((TEXTS, b"f", b"r0"), b"x")], depth=99), record()],
    "circle of its own": [
        encode_block([item((REVISIONS, b"a"), ((REVISIONS, b"b"),)), item((REVISIONS, b"b"), ((REVISIONS, b"a"),))]),
        record(items=2),
    ],
    "circle": [encode_block([item((REVISIONS, b"ghost"), ((REVISIONS, b"late"),))]), record()],
}


@pytest.mark.parametrize("events", HOSTILE.values(), ids=HOSTILE)
def test_event_that_no_repository_writes_is_passed_over(
    store: Store, repo: Repository, events: list[bytes | InsertRecord]
) -> None:
    """A writer cannot take back an event, so one bad event must not be the end of a repository for all."""
    before = contents(everything(repo))
    write(store, *events)
    assert repo.insert_stream(history(2, start=4)).added == 6
    more = before | contents(history(2, start=4))
    for reader in (repo, Repository.open(store, NAME)):
        for ordering in ("unordered", TOPOLOGICAL):
            assert contents(reader.get_repository_stream(Everything(), ordering)) == more
        found = reader.check()
        assert (found.items + found.name_lists, found.missing) == (len(more), ())
        assert found.errors, "a check names it"
    copy = Repository.open(store, "code/copy", create=True)
    assert copy_revisions(repo, copy).revisions == 4
    assert copy.check().is_good


def test_circle_of_several_inserts_does_not_end_streams(store: Store, repo: Repository) -> None:
    """Their records hide which parents are missing; everything else is streamed parents first, and a check names it."""
    a, b = (REVISIONS, b"a"), (REVISIONS, b"b")
    before = contents(everything(repo))
    write(store, encode_block([item(a, (b,))]), record(), encode_block([item(b, (a,))]), record())
    for reader in (repo, Repository.open(store, NAME)):
        found = keys(reader.get_repository_stream(Everything(), TOPOLOGICAL))
        assert sorted(found) == sorted([*before, a, b])
        assert found.index((REVISIONS, b"r0")) < found.index((REVISIONS, b"r3"))
        (error,) = reader.check().errors
        assert "its own ancestor" in str(error)


def test_stored_item_stays_what_it_was_when_another_is_forged(store: Store, repo: Repository) -> None:
    """The first one counts, whatever a later event says; and a check names the contradiction."""
    key = (TEXTS, b"file-0", b"r0")
    before = contents(everything(repo))
    write(store, encode_block([item(key, text=b"forged")]), record())
    for reader in (repo, Repository.open(store, NAME)):
        reader.refresh()
        assert contents(everything(reader)) == before
        (error,) = reader.check().errors
        assert isinstance(error, ContentConflict)
        with pytest.raises(ContentConflict):
            reader.insert_stream(Items().add(key, (), b"forged"))


def test_text_that_is_not_what_its_sha1_says_is_named(store: Store, repo: Repository) -> None:
    """The text of a block that builds on another is not at hand; all others are read and checked nevertheless."""
    wrong = Item((TEXTS, b"new", b"r1"), (), bytes(20), "fulltext", b"text")
    basis = (TEXTS, b"file-0", b"r0")
    write(store, encode_block([wrong], basis=[(basis, repo.text(basis))], depth=1), record())
    found = repo.check()
    (error,) = found.errors
    assert str(error).startswith("invalid record of texts/new@r1: its sha1 is 372ea08cab33e71c02c651dbc83a474d32c676ea")
    assert (found.items, found.name_lists) == (13, 1)


def test_names_that_are_none_do_not_hide_the_others(store: Store, repo: Repository) -> None:
    """The last list of names that can be read counts; by an insert, a bad one is refused."""
    with pytest.raises(BadRecord, match="no list of names"):
        repo.insert_stream(Items().add((REFS, b"1"), (), b"nonsense"))
    write(store, encode_block([item((REFS, b"1"), text=b"nonsense")]), record())
    repo.refresh()
    assert repo.refs() == {b"refs/heads/main": Ref(b"r3")}
    assert not repo.check().is_good
    repo.set_refs({b"refs/heads/main": Ref(b"r2"), b"refs/tags/v1": Ref(b"r1", b"gone")})
    copy = Repository.open(store, "code/copy", create=True)
    copy_revisions(repo, copy)
    assert copy.refs() == repo.refs() == {b"refs/heads/main": Ref(b"r2"), b"refs/tags/v1": Ref(b"r1", b"gone")}


@pytest.mark.parametrize("end", [0, 1 << 40])
def test_index_that_lists_something_else_is_named(store: Store, repo: Repository, end: int) -> None:
    """A repository that seems empty is not all good: a check reads the stream, and not what the index says of it."""
    at = store.tail(NAME).offsets[0]
    with store.writer(NAME) as writer, writer.begin_write_event() as file:
        file.write(encode_index_event(Index(), start=0, end=end or at, last_insert=0, ghosts=[], earlier=[]))
    store.register_consumer(NAME, "penstock.repository", StreamCut.of(NAME, {0: file.pointer.offset}))
    opened = Repository.open(store, NAME)
    is_empty, found = not contents(everything(opened)), opened.check()
    assert is_empty == (end == 0), "one that cannot be right is not used"
    assert (found.items, found.is_good) == (13, end != 0)


def test_insert_may_have_many_missing_parents(store: Store) -> None:
    """Changes without what they build on name one for each text; the record of the insert is a large event then."""
    repository = Repository.open(store, NAME, create=True)
    items = Items()
    for number in range(9_000):
        key = (TEXTS, b"file-%d" % number)
        items.add((*key, b"r1"), ((*key, b"r0" * 60),), b"text")
    assert repository.insert_stream(items).added == 9_000
    assert repository.check().is_good
    assert len(Repository.open(store, NAME)._ghosts) == 9_000


def table_of(count: int) -> bytes:
    """Return a block of so many items: a few kilobytes, and some hundred bytes of memory for each."""
    return encode_block([item((TEXTS, b"f", b"%d" % number), text=b"") for number in range(count)])


@pytest.mark.parametrize("ending", [[], [record(blocks=12, items=24_000)]], ids=["no record", "record"])
def test_blocks_of_an_insert_are_not_held_in_memory(
    store: Store, repo: Repository, ending: list[InsertRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer could add kilobytes to a stream that take gigabytes of its readers, and of the server."""
    monkeypatch.setattr("penstock.repo._items._BLOCKS_SIZE_MAX", 1 << 20)
    write(store, *[table_of(2_000)] * 12, *ending)
    tracemalloc.start()
    try:
        opened = Repository.open(store, NAME)
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
    assert opened.text((TEXTS, b"file-0", b"r0")) == repo.text((TEXTS, b"file-0", b"r0"))


def test_a_block_has_a_limited_number_of_items(store: Store, repo: Repository) -> None:
    """Its table is in memory as a whole, and compresses to next to nothing."""
    before = contents(everything(repo))
    write(store, table_of(10_001), record(items=10_001))
    assert contents(everything(Repository.open(store, NAME))) == before


@pytest.mark.parametrize("kind", ["rows", "others", "length"])
def test_an_index_that_is_larger_than_its_stream_is_not_read(store: Store, repo: Repository, kind: str) -> None:
    """A few kilobytes can be compressed gigabytes, and name others a million times: the server would open it, too."""
    before = contents(everything(repo))
    tail = store.tail(NAME).offsets[0]
    rows = Index(np.zeros((4, 1 << 22 if kind == "rows" else 0), np.uint64))
    others = [IndexPart(0, 0, 0)] * (1_000_000 if kind == "others" else 0)
    event = encode_index_event(rows, start=0, end=tail, last_insert=-1, ghosts=[], earlier=others)
    with store.writer(NAME) as writer, writer.begin_write_event() as file:
        file.write(event)
        file.write(bytes(48 << 20 if kind == "length" else 0))
    store.register_consumer(NAME, "penstock.repository", StreamCut.of(NAME, {0: file.pointer.offset}))
    tracemalloc.start()
    try:
        opened = Repository.open(store, NAME)
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert contents(everything(opened)) == before


def test_a_repository_with_more_items_than_permitted_is_refused(store: Store, repo: Repository) -> None:
    """Its index takes memory for each, and a server has users who may make one with any number."""
    count = len(contents(everything(repo)))
    with pytest.raises(RepositoryError, match=f"more than {count - 1} items"):
        Repository.open(store, NAME, items_max=count - 1)
    assert Repository.open(store, NAME, items_max=count).check().is_good
