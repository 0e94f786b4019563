"""Seed D, promise by promise and in its own order: repository streams.

Each promise has one small test here, on repositories in memory and bundles in files; docs/seeds.md says which. The
storage kinds, damage, races and streams over the wire are tested in depth in tests/repo.
"""

from __future__ import annotations

import hashlib
import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.errors import BadRecord, UnavailableRepresentation
from penstock.repo import (
    INVENTORIES,
    REVISIONS,
    TEXTS,
    TOPOLOGICAL,
    UNORDERED,
    AdaptedStream,
    AncestryOf,
    Between,
    Bundle,
    ContentFactory,
    Everything,
    Record,
    Repository,
    RepositoryStream,
    Revisions,
)
from penstock.repo._stream_blocks import StreamBlocks
from penstock.repo.kinds import KINDS, encode
from tests.repo.streams import Items, contents, history, keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock import Store
    from penstock.repo import Factory


@pytest.fixture
def store() -> Iterator[Store]:
    with penstock.connect("memory:") as opened:
        yield opened


@pytest.fixture
def repository(store: Store) -> Repository:
    opened = Repository.open(store, "code/source", create=True)
    opened.insert_stream(history(12))
    return opened


@pytest.fixture
def target(store: Store) -> Repository:
    return Repository.open(store, "code/target", create=True)


def factories_of(stream: RepositoryStream) -> list[Factory]:
    return [factory for record in stream.iter_contents() for factory in record.entries]


def test_one_interface_pulls_data_and_inserts_it(repository: Repository, target: Repository, tmp_path: Path) -> None:
    """Neither side knows the format of the other: a repository, a bundle and a coerced stream are inserted alike."""
    everything = repository.get_repository_stream(Everything())
    Bundle.write(tmp_path / "bundle", repository.get_repository_stream(Everything()))
    with Bundle.open(tmp_path / "bundle") as bundle:
        for stream in (everything, bundle.get_repository_stream(Everything()), AdaptedStream(history(12), "mpdiff")):
            target.insert_stream(stream)
    assert contents(target.get_repository_stream(Everything())) == contents(history(12))


def test_only_what_is_new_is_fetched(repository: Repository, target: Repository) -> None:
    """The source is asked once, for what lies between."""
    target.insert_stream(history(8))
    result = target.insert_stream(repository.get_repository_stream(Between([b"r11"], [b"r7"])))
    assert (result.added, result.existing, result.missing) == (12, 0, ())


def test_stream_is_made_while_it_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is read when the stream comes to its items, and not before: memory does not grow with the stream."""
    writer = Repository.open(store, "code/source", create=True)
    for number in range(6):
        writer.insert_stream(history(2, start=2 * number))
    reads: dict[int, None] = {}
    read = StreamBlocks.read_block

    def noted(self: StreamBlocks, address: int, *, table_only: bool) -> bytes:
        reads[address] = None
        return read(self, address, table_only=table_only)

    opened = Repository.open(store, "code/source")
    blocks = opened._index.addresses()
    opened._blocks.clear()  # which were read when it was opened
    monkeypatch.setattr(StreamBlocks, "read_block", noted)
    blocks_read = [
        (len(reads), factory.get_bytes_as(factory.storage_kind))[0]
        for record in opened.get_repository_stream(Everything()).iter_contents()
        for factory in record.entries
    ]
    assert (blocks_read[0], blocks_read[len(blocks_read) // 2], list(reads)) == (1, len(blocks) // 2 + 1, blocks)


def test_bundle_is_a_frozen_repository(repository: Repository, tmp_path: Path) -> None:
    """It is made without knowing who will read it, and has the same interface."""
    Bundle.write(tmp_path / "bundle", repository.get_repository_stream(Everything()))
    with Bundle.open(tmp_path / "bundle") as bundle:
        for ordering in (UNORDERED, TOPOLOGICAL):
            frozen = bundle.get_repository_stream(AncestryOf([b"r5"]), ordering)
            assert contents(frozen) == contents(repository.get_repository_stream(AncestryOf([b"r5"]), ordering))


def test_data_is_converted_on_its_way(repository: Repository, target: Repository) -> None:
    """The seed says that it is likely possible: another inventory format is a decorated stream of whole inventories."""

    def converted() -> Iterator[Record]:
        for record in repository.get_repository_stream(Everything(), TOPOLOGICAL, True).iter_contents():
            entries = (
                ContentFactory(factory.key, factory.parents, factory.get_bytes_as("fulltext").upper())
                for factory in record.entries
            )
            yield Record(record.key_prefix, entries)

    target.insert_stream(RepositoryStream(converted()))
    key = (INVENTORIES, b"r11")
    assert target.text(key) == repository.text(key).upper()


def test_insert_reads_forward_only(target: Repository) -> None:
    """A delta comes before its basis, and of an item that has gone by, or was asked for, nothing can be had again."""
    first, second = b"one\ntwo\n", b"one\ntwo\nthree\n"
    items = Items().add((TEXTS, b"f", b"r2"), ((TEXTS, b"f", b"r1"),), second, "knit-delta", first)
    items.add((TEXTS, b"f", b"r1"), (), first)
    current: list[OnceFactory] = []

    class OnceFactory(ContentFactory):
        def get_bytes_as(self, storage_kind: str) -> bytes:
            assert current == [self], "it has gone by, or its bytes were had already"
            current.clear()
            return super().get_bytes_as(storage_kind)

    def once(factory: Factory) -> Iterator[Factory]:
        data = factory.get_bytes_as(factory.storage_kind)
        current[:] = [
            OnceFactory(
                factory.key,
                factory.parents,
                data,
                storage_kind=factory.storage_kind,
                sha1=factory.sha1,
                compressor_data=factory.compressor_data,
            )
        ]
        yield current[0]
        current.clear()

    records = (Record(prefix, once(factory)) for prefix, factory in items.factories)
    result = target.insert_stream(RepositoryStream(records))
    assert (result.added, next(records, None)) == (2, None)
    assert target.text((TEXTS, b"f", b"r2")) == second


def test_bundle_and_repository_are_stacked(repository: Repository, target: Repository, tmp_path: Path) -> None:
    """Changes in a file, on top of what one has, are read as one repository, item by item."""
    target.insert_stream(history(8))
    Bundle.write(tmp_path / "changes", repository.get_repository_stream(Between([b"r11"], [b"r7"])))
    with Bundle.open(tmp_path / "changes") as changes:
        both = changes.stacked_on(target)
        assert both.text((INVENTORIES, b"r9")) == repository.text((INVENTORIES, b"r9"))
        assert contents(both.get_repository_stream(Everything(), UNORDERED, True)) == contents(history(12))


def test_search_selects_the_revisions(repository: Repository) -> None:
    """The first of the three parameters."""
    for search, expected in (
        (Revisions([b"r3"]), {3}),
        (AncestryOf([b"r3"]), {0, 1, 2, 3}),
        (Between([b"r5"], [b"r3"]), {4, 5}),
        (Everything(), set(range(12))),
    ):
        found = keys(repository.get_repository_stream(search))
        assert {key for key in found if key[0] == REVISIONS} == {(REVISIONS, b"r%d" % number) for number in expected}
        assert len(found) == 3 * len(expected), "with their inventories and texts"


def test_ordering_is_unordered_or_topological(repository: Repository, target: Repository) -> None:
    """The second parameter: parents first for those who cannot insert at once, as it is stored for the others."""
    target.insert_stream(RepositoryStream(reversed(list(history(6).iter_contents()))))
    found = keys(target.get_repository_stream(Everything(), TOPOLOGICAL))
    for key in found:
        assert all(found.index(parent) < found.index(key) for parent in target.parents(key))
    assert sorted(keys(target.get_repository_stream(Everything(), UNORDERED))) == sorted(found)
    with pytest.raises(penstock.errors.BadArgument, match="use UNORDERED or TOPOLOGICAL"):
        repository.get_repository_stream(Everything(), "random")  # type: ignore[arg-type]


def test_unordered_stream_is_read_as_it_is_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best order of I/O: from front to back, and no block twice, however the history is entangled."""
    writer = Repository.open(store, "code/source", create=True)
    for number in range(12):
        writer.insert_stream(history(1, start=number))
    addresses = []
    read = StreamBlocks.read_block

    def noted(self: StreamBlocks, address: int, *, table_only: bool) -> bytes:
        addresses.append(address)
        return read(self, address, table_only=table_only)

    opened = Repository.open(store, "code/source")
    opened._blocks.clear()  # which were read when it was opened
    monkeypatch.setattr(StreamBlocks, "read_block", noted)
    for factory in factories_of(opened.get_repository_stream(Everything(), UNORDERED)):
        factory.get_bytes_as(factory.storage_kind)
    firsts = list(dict.fromkeys(addresses))
    assert firsts == opened._index.addresses()
    assert len(addresses) <= 2 * len(firsts), "its table, and its body"


def test_complete_inventory_has_no_deltas(repository: Repository) -> None:
    """The third parameter: with it, each inventory can be made from the stream alone; without, it may be a delta."""
    kinds = {}
    for complete in (False, True):
        stream = repository.get_repository_stream(Revisions([b"r11"]), UNORDERED, complete)
        (kinds[complete],) = (
            next(record.entries).storage_kind
            for record in stream.iter_contents()
            if record.key_prefix == (INVENTORIES,)
        )
    assert kinds == {False: "knit-delta", True: "fulltext"}


def test_check_consumes_the_stream(repository: Repository) -> None:
    """It is checked by being read to its end, past what is wrong and what is missing, so it cannot be read again."""
    check = repository.get_repository_stream(Everything()).check()
    assert (check.items, check.is_good) == (36, True)
    bad, lost = (TEXTS, b"f", b"bad"), (TEXTS, b"f", b"lost")
    items = Items().add((TEXTS, b"f", b"r2"), (lost,), b"two\n", "knit-delta", b"one\n")
    items.factories.append((bad[:-1], ContentFactory(bad[-1:], (), b"text", sha1="0" * 40)))
    items.factories += history(2).factories
    records = items.iter_contents()
    stream = RepositoryStream(records)
    check = stream.check()
    assert (check.items, check.unresolved, check.missing, check.is_good) == (7, 1, (lost,), False)
    assert [error.key for error in check.errors if isinstance(error, BadRecord)] == [bad]
    assert next(records, None) is None, "it was read to its end"
    with pytest.raises(penstock.errors.BadArgument, match="read already"):
        stream.iter_contents()


def test_the_pseudocode_runs_as_it_is_printed(repository: Repository) -> None:
    """Word by word, with a search of ours."""
    search = AncestryOf([b"r11"])
    out = io.StringIO()
    with redirect_stdout(out):
        stream = repository.get_repository_stream(search, UNORDERED, False)
        for record in stream.iter_contents():
            for factory in record.entries:
                compression = factory.storage_kind
                print(  # noqa: T201
                    "Object %s, compression type %s, %d bytes long."  # noqa: UP031
                    % (record.key_prefix + factory.key, compression, len(factory.get_bytes_as(compression)))
                )
    lines = out.getvalue().splitlines()
    assert len(lines) == 36
    assert "Object (b'revisions', b'r0'), compression type fulltext, 10 bytes long." in lines


def test_key_prefix_is_prepended_to_key_and_parents(repository: Repository) -> None:
    """A record has one key or more, which have it in common; together they are the keys of the repository."""
    for record in repository.get_repository_stream(Everything()).iter_contents():
        factories = list(record.entries)
        assert factories
        for factory in factories:
            key = record.key_prefix + factory.key
            assert repository.parents(key) == tuple(record.key_prefix + parent for parent in factory.parents)


def test_item_is_had_in_its_own_kind_or_as_a_full_text(repository: Repository) -> None:
    """The bytes come as they are compressed, and any other representation by an adapter."""
    stream = repository.get_repository_stream(Revisions([b"r11"]))
    factory = next(factory for factory in factories_of(stream) if factory.storage_kind == "knit-delta")
    assert len(factory.get_bytes_as("knit-delta")) < len(factory.get_bytes_as("fulltext"))
    with pytest.raises(UnavailableRepresentation):
        factory.get_bytes_as("mpdiff")
    adapted = AdaptedStream(repository.get_repository_stream(Revisions([b"r11"])), "mpdiff", get_text=repository.text)
    assert {item.storage_kind for record in adapted.iter_contents() for item in record.entries} == {"mpdiff"}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_factory_has_all_attributes_of_the_seed(target: Repository, kind: str) -> None:
    """Of each of the six kinds: key, parents, storage_kind and compressor_data, and the sha1 of the full text."""
    first, second = b"one\n", b"one\ntwo"
    key, parent = (TEXTS, b"f", b"r2"), (TEXTS, b"f", b"r1")
    items = Items().add(parent, (), first).add(key, (parent,), second, kind, first)
    _, compressor_data = encode(kind, second, key=key, parents=(parent,), get_text=lambda _: first)
    factory = items.factories[1][1]
    assert (factory.key, factory.parents, factory.storage_kind) == ((b"r2",), ((b"r1",),), kind)
    assert (factory.sha1, factory.compressor_data) == (
        hashlib.sha1(second, usedforsecurity=False).hexdigest(),
        compressor_data,
    )
    target.insert_stream(items)
    assert target.sha1(key) == factory.sha1
