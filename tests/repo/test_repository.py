"""A repository on a stream: what goes in comes out, by any search and in both orders."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import threading
import tracemalloc
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

import penstock
from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    BadRecord,
    ContentConflict,
    MissingBasis,
    NoSuchKey,
    NoSuchTransaction,
    NotARepository,
    NotPermitted,
    PenstockError,
    RepositoryError,
    UnavailableRepresentation,
)
from penstock.repo import (
    INVENTORIES,
    REVISIONS,
    SIGNATURES,
    TEXTS,
    TOPOLOGICAL,
    UNORDERED,
    AbsentFactory,
    AdaptedStream,
    AncestryOf,
    Between,
    Bundle,
    ContentFactory,
    Everything,
    InsertResult,
    Ref,
    Repository,
    RepositoryPart,
    Revisions,
    StreamCheck,
    key_name,
)
from penstock.repo import _buffer as item_buffers
from penstock.repo import _held as held_deltas
from penstock.repo import _items as item_caches
from penstock.repo import _keys as repository_keys
from penstock.repo import _packer as packing
from penstock.repo._block import Item, encode_block
from penstock.testing import ManualClock
from tests.repo.streams import Items, contents, everything, history, inventory, keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from penstock import Store
    from penstock.repo import Key, Record, Search
    from penstock.store import Transaction, TransactionalWriter

NAME = "code/history"


@pytest.fixture
def repo(store: Store) -> Repository:
    return Repository.open(store, NAME, create=True)


def merge_history() -> Items:
    """Two branches from one root, merged, with a revision behind the merge."""
    items = Items()
    for revision, parents in {
        b"root": (),
        b"left": (b"root",),
        b"right": (b"root",),
        b"merge": (b"left", b"right"),
        b"tip": (b"merge",),
    }.items():
        items.add((REVISIONS, revision), tuple((REVISIONS, parent) for parent in parents), revision)
        items.add((TEXTS, b"f", revision), tuple((TEXTS, b"f", parent) for parent in parents), b"text of " + revision)
    return items


def test_what_goes_in_comes_out(repo: Repository) -> None:
    """The main job: texts, inventories and revisions, whole, whatever form they are stored in."""
    items = history(30)
    assert repo.insert_stream(items) == InsertResult(added=90, existing=0)
    for ordering in (UNORDERED, TOPOLOGICAL):
        assert contents(repo.get_repository_stream(Everything(), ordering)) == contents(items)
    assert repo.text((TEXTS, b"file-1", b"r7")) == contents(items)[TEXTS, b"file-1", b"r7"]
    assert repo.parents((TEXTS, b"file-1", b"r7")) == ((TEXTS, b"file-1", b"r4"),)
    assert list(repo.revisions()) == [b"r%d" % number for number in range(30)]
    assert repo.check() == StreamCheck(90, missing=(), errors=())


def test_the_pseudocode_of_the_specification_runs(repo: Repository) -> None:
    """Each item tells its kind, and returns its bytes in that kind."""
    repo.insert_stream(history(5))
    stream = repo.get_repository_stream(Everything(), UNORDERED, False)
    seen = {}
    for record in stream.iter_contents():
        for factory in record.entries:
            compression = factory.storage_kind
            seen[record.key_prefix + factory.key] = (compression, len(factory.get_bytes_as(compression)))
            assert factory.sha1 is not None
            assert len(factory.sha1) == 40
            assert isinstance(factory.parents, tuple)
            assert (factory.compressor_data is None) == (compression == "fulltext")
    assert seen[INVENTORIES, b"r4"][0] == "knit-delta"
    assert seen[INVENTORIES, b"r4"][1] < len(inventory(4, 3)) // 2
    assert seen[TEXTS, b"file-1", b"r4"][0] == "fulltext"


def test_complete_inventories_are_full_texts(repo: Repository) -> None:
    """Another inventory format is made from whole ones: deltas cannot be converted."""
    repo.insert_stream(history(10))
    search = Revisions([b"r8", b"r9"])
    kinds = {}
    for complete in (False, True):
        stream = repo.get_repository_stream(search, UNORDERED, complete)
        found = [(record, factory) for record in stream.iter_contents() for factory in record.entries]
        kinds[complete] = {f.storage_kind for record, f in found if record.key_prefix == (INVENTORIES,)}
    assert kinds == {False: {"knit-delta"}, True: {"fulltext"}}


def test_a_stream_is_read_once(repo: Repository) -> None:
    """A second reader would otherwise find an empty stream, and take it for an empty repository."""
    stream = repo.get_repository_stream(Everything())
    list(stream.iter_contents())
    with pytest.raises(BadArgument, match="read already"):
        stream.iter_contents()


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (Everything(), {b"root", b"left", b"right", b"merge", b"tip"}),
        (Revisions([b"left", b"tip"]), {b"left", b"tip"}),
        (AncestryOf([b"left"]), {b"root", b"left"}),
        (AncestryOf([b"merge"]), {b"root", b"left", b"right", b"merge"}),
        (Between([b"tip"], [b"left"]), {b"right", b"merge", b"tip"}),
        (Between([b"tip"], [b"merge"]), {b"tip"}),
        (Between([b"left"], [b"tip"]), set()),
        (Between([b"left", b"right"], [b"unknown"]), {b"root", b"left", b"right"}),
    ],
    ids=lambda value: str(value) if not isinstance(value, set) else "",
)
def test_a_search_finds_its_revisions(repo: Repository, search: Search, found: set[bytes]) -> None:
    """The stream has the texts of these revisions, and of no others, so that a pull moves what is new only."""
    repo.insert_stream(merge_history())
    stream = keys(repo.get_repository_stream(search, TOPOLOGICAL))
    assert {key[-1] for key in stream if key[0] == REVISIONS} == found
    assert {key[-1] for key in stream if key[0] == TEXTS} == found


def test_parents_come_first_in_a_topological_stream(repo: Repository) -> None:
    """Inserters that cannot hold a delta rely on it, also where the history was inserted the other way round."""
    items = merge_history()
    items.factories.reverse()
    repo.insert_stream(items)
    order = keys(repo.get_repository_stream(Everything(), TOPOLOGICAL))
    for place, key in enumerate(order):
        assert all(order.index(parent) < place for parent in repo.parents(key))
    assert max(order.index(key) for key in order if key[0] == TEXTS) < min(
        order.index(key) for key in order if key[0] == REVISIONS
    )


def test_a_revision_that_is_not_there_is_absent(repo: Repository) -> None:
    """The client learns which revision it has asked for in vain, and the stream goes on."""
    repo.insert_stream(history(2))
    stream = repo.get_repository_stream(Revisions([b"r1", b"gone"]))
    absent = [(record, f) for record in stream.iter_contents() for f in record.entries if f.storage_kind == "absent"]
    [(record, factory)] = absent
    assert record.key_prefix + factory.key == (REVISIONS, b"gone")
    with pytest.raises(UnavailableRepresentation):
        factory.get_bytes_as("fulltext")
    assert repo.get_repository_stream(Revisions([b"gone"])).check().missing == ((REVISIONS, b"gone"),)


def test_what_is_held_for_a_basis_is_limited(repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas whose basis never comes could fill the memory, by their bytes, their names or their compressor data."""
    monkeypatch.setattr(held_deltas, "HELD_SIZE_MAX", 1 << 20)
    record = b"version r1 0 " + b"0" * 40 + b"\nend r1\n"

    def deltas(name: bytes, compressor_data: dict[str, Any], sha1: str | None = None) -> Items:
        items = Items()
        for number in range(20):
            factory = ContentFactory(
                (b"%d" % number, b"r1"),
                ((b"r0",), (name,)),
                record,
                storage_kind="knit-delta",
                compressor_data=compressor_data,
                sha1=sha1,
            )
            items.factories.append(((TEXTS, b"f"), factory))
        return items

    noeol: dict[str, Any] = {"noeol": False}
    inserts: list[Callable[[Items], object]] = [
        repo.insert_stream,
        lambda items: Bundle.write(tmp_path / "bundle", items),
        lambda items: list(AdaptedStream(items, "fulltext").iter_contents()),
    ]
    for insert in inserts:
        with pytest.raises(RepositoryError, match="more than 1 MiB of deltas before their bases"):
            insert(deltas(b"n" * 60_000, noeol))
        with pytest.raises(BadRecord, match="compressor data"):
            insert(deltas(b"n", noeol | {"more": b"x" * (32 << 20)}))
    with pytest.raises(BadRecord, match="40 hexadecimal digits"):
        repo.insert_stream(deltas(b"n", noeol, sha1="abc"))
    assert repo.insert_stream(deltas(b"n", noeol)).missing == ((TEXTS, b"f", b"r0"),)


def test_a_delta_before_its_basis_is_held(repo: Repository) -> None:
    """An unordered stream may bring the delta first; it is inserted as soon as its basis has come."""
    key, base, second = (TEXTS, b"f", b"r3"), (TEXTS, b"f", b"r1"), (TEXTS, b"f", b"r2")
    items = Items()
    items.add(key, (second,), b"a\nB\nC\n", "knit-delta", b"a\nB\nc\n")
    items.add(second, (base,), b"a\nB\nc\n", "mpdiff", b"a\nb\nc\n")
    items.add(base, (), b"a\nb\nc\n", "knit-annotated-ft")
    assert repo.insert_stream(items).added == 3
    assert repo.text(key) == b"a\nB\nC\n"
    assert repo.check().is_good


def test_missing_bases_are_named_and_nothing_is_inserted(repo: Repository) -> None:
    """The caller asks the source for exactly these, and inserts again."""
    items = history(3)
    items.add((TEXTS, b"f", b"r9"), ((TEXTS, b"f", b"r8"),), b"b\n", "knit-delta", b"a\n")
    items.add((TEXTS, b"f", b"r10"), ((TEXTS, b"f", b"r9"),), b"c\n", "knit-delta", b"b\n")
    result = repo.insert_stream(items)
    assert (result.added, result.missing) == (0, ((TEXTS, b"f", b"r8"),))
    assert contents(everything(repo)) == {}
    items.add((TEXTS, b"f", b"r8"), (), b"a\n")
    assert repo.insert_stream(items).missing == ()
    assert repo.text((TEXTS, b"f", b"r10")) == b"c\n"


def test_ghost_parents_are_kept(repo: Repository) -> None:
    """Histories have gaps; a parent that is not there is still named."""
    repo.insert_stream(Items().add((TEXTS, b"f", b"r2"), ((TEXTS, b"f", b"ghost"),), b"text"))
    assert repo.parents((TEXTS, b"f", b"r2")) == ((TEXTS, b"f", b"ghost"),)
    assert repo.check().is_good


def test_the_same_item_again_is_skipped(repo: Repository) -> None:
    """A push that is repeated adds nothing."""
    repo.insert_stream(history(4))
    result = repo.insert_stream(history(6))
    assert (result.added, result.existing) == (6, 12)


def test_other_content_under_a_key_is_refused(repo: Repository) -> None:
    """A key stands for one content for ever; the rest of the stream is not inserted, either."""
    repo.insert_stream(history(4))
    items = Items().add((TEXTS, b"new", b"r9"), (), b"new").add((TEXTS, b"file-1", b"r1"), (), b"forged")
    with pytest.raises(ContentConflict) as caught:
        repo.insert_stream(items)
    assert caught.value.key == (TEXTS, b"file-1", b"r1")
    assert (TEXTS, b"new", b"r9") not in repo


def test_twice_in_one_stream_with_other_content_is_refused(repo: Repository) -> None:
    """The first one is not stored yet, and counts nevertheless."""
    key = (TEXTS, b"f", b"r1")
    with pytest.raises(ContentConflict):
        repo.insert_stream(Items().add(key, (), b"one").add(key, (), b"two"))
    with pytest.raises(BadRecord, match="other parents"):
        repo.insert_stream(Items().add(key, (), b"one").add(key, ((TEXTS, b"f", b"r0"),), b"one"))


class One:
    """A stream of one item."""

    def __init__(self, prefix: Key, factory: object) -> None:
        self._record = penstock.repo.Record(prefix, iter([factory]))  # type: ignore[list-item]

    def iter_contents(self) -> Iterator[penstock.repo.Record]:
        return iter([self._record])


SHA1 = "da39a3ee5e6b4b0d3255bfef95601890afd80709"  # of nothing


@pytest.mark.parametrize(
    ("prefix", "factory", "error"),
    [
        ((TEXTS, b"f"), ContentFactory((b"r1",), (), b"x", sha1=SHA1), BadRecord),
        ((TEXTS, b"f"), ContentFactory((b"r1",), (), b"x", sha1="nonsense"), BadRecord),
        ((TEXTS, b"f"), ContentFactory((b"r1",), (), b"x", storage_kind="rot13"), BadRecord),
        ((TEXTS, b"f"), ContentFactory((b"r1",), (), "x"), BadRecord),  # type: ignore[arg-type]
        ((TEXTS, b"f"), ContentFactory((b"r1",), ((b"r1",),), b"x"), BadArgument),
        ((TEXTS, b"f"), ContentFactory((b"r1",), "r0", b"x"), BadArgument),  # type: ignore[arg-type]
        ((TEXTS, b"f"), ContentFactory(("r1",), (), b"x"), BadArgument),  # type: ignore[arg-type]
        ((TEXTS, b"f"), ContentFactory((b"",), (), b"x"), BadArgument),
        ((), ContentFactory((), (), b"x"), BadArgument),
        ((TEXTS, b"f"), ContentFactory((b"x" * 100_000,), (), b"x"), BadArgument),
    ],
)
def test_invalid_items_leave_nothing_behind(
    repo: Repository, prefix: Key, factory: ContentFactory, error: type[Exception]
) -> None:
    """What comes from elsewhere is not believed."""
    with pytest.raises(error):
        repo.insert_stream(One(prefix, factory))
    assert contents(everything(repo)) == {}


@pytest.mark.parametrize("path", [b"../a", b"a/..", b"/a", b"a//b", b"", b"./a", b"a\\x00b", b"a\0b", b"\\x2e\\x2e/a"])
def test_path_that_leaves_its_folder_is_not_inserted(repo: Repository, path: bytes) -> None:
    """A program that writes files by these paths must not find out only when it reads: whole, as delta, without end."""
    first, second = (INVENTORIES, b"r1"), (INVENTORIES, b"r2")
    good = b"".join(b"100644 r1 f%d f%d\n" % (number, number) for number in range(9))
    bad = b"100644 r2 id %b\n" % path
    for items in (
        Items().add(first, (), bad),
        Items().add(first, (), bad[:-1]),
        Items().add(first, (), good).add(second, (first,), good + bad),
        Items().add(second, (first,), good + bad, "knit-delta", good).add(first, (), good),
        Items().add(first, (), good).add(second, (first,), good + bad, "mpdiff", good),
    ):
        with pytest.raises(BadRecord, match="invalid record of inventories@r"):
            repo.insert_stream(items)
    assert contents(everything(repo)) == {}


def test_inventory_has_a_limit_of_its_own(store: Store, repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made whole from small deltas for every revision of a stream, also from forged ones."""
    repo.insert_stream(history(4))
    key = (INVENTORIES, b"r3")
    assert repo.stored(key)[0] == "knit-delta"
    monkeypatch.setattr(repository_keys, "INVENTORY_SIZE_MAX", len(repo.text(key)) - 1)
    with pytest.raises(BadRecord, match="and at most"):
        repo.insert_stream(history(1, start=4))
    with pytest.raises(BadRecord, match="and at most"):
        Repository.open(store, NAME).text(key)


def test_cyclic_parents_are_refused(repo: Repository) -> None:
    """A walk along the parents would never end."""
    items = Items()
    items.add((REVISIONS, b"a"), ((REVISIONS, b"b"),), b"a").add((REVISIONS, b"b"), ((REVISIONS, b"a"),), b"b")
    with pytest.raises(BadRecord, match="its own ancestor"):
        repo.insert_stream(items)
    assert list(repo.revisions()) == []


def test_a_circle_is_refused_that_a_missing_parent_would_close(store: Store, repo: Repository) -> None:
    """Each insert is a line of parents by itself; together they are a circle. Ghosts outlive the process."""
    repo.insert_stream(Items().add((REVISIONS, b"a"), ((REVISIONS, b"b"),), b"a"))
    repo.insert_stream(Items().add((REVISIONS, b"c"), ((REVISIONS, b"a"),), b"c"))
    repo.insert_stream(history(400))  # an index is written
    again = Repository.open(store, NAME)
    with pytest.raises(BadRecord, match="its own ancestor"):
        again.insert_stream(Items().add((REVISIONS, b"b"), ((REVISIONS, b"c"),), b"b"))
    again.insert_stream(Items().add((REVISIONS, b"b"), ((REVISIONS, b"r1"),), b"b"))
    assert again.check().is_good


def test_a_large_text_comes_back(repo: Repository) -> None:
    """A text above a megabyte is a large event, also if it is one line."""
    text = os.urandom(3 << 20)
    key = (TEXTS, b"film", b"r1")
    repo.insert_stream(Items().add(key, (), text).add((TEXTS, b"small", b"r1"), (), b"small"))
    assert repo.text(key) == text
    assert repo.text((TEXTS, b"small", b"r1")) == b"small"


def test_a_topological_stream_takes_little_memory(store: Store, repo: Repository) -> None:
    """All blocks are known before the first text is read: those that were unpacked since count, too."""
    items = Items()
    for number in range(120):
        items.add((TEXTS, b"file-%d" % number, b"r1"), (), b"%03d\n" % number * (1 << 18))
    repo.insert_stream(items)
    stream = Repository.open(store, NAME).get_repository_stream(Everything(), TOPOLOGICAL)
    tracemalloc.start()
    try:
        size = sum(
            len(factory.get_bytes_as("fulltext")) for record in stream.iter_contents() for factory in record.entries
        )
        assert size == 120 << 20
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


def traced_peak(work: Callable[[], object]) -> int:
    """Return how many bytes Python had in memory at the most while it worked, beside what it had before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_topological_stream_has_no_keys_in_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history of a million items can be put in order: some numbers of each are in memory, and the keys of a few."""
    monkeypatch.setattr(item_caches, "_BLOCKS_MAX", 1)
    repo = Repository.open(store, NAME, create=True)
    texts = Items()
    for number in range(5_000):
        texts.add((TEXTS, b"a folder/and a file in it %d" % (number // 40), b"%040d" % number), (), b"%d" % number)
    repo.insert_stream(texts)

    def peak(ordering: Literal["unordered", "topological"]) -> int:
        stream = repo.get_repository_stream(Everything(), ordering)
        return traced_peak(lambda: sum(1 for record in stream.iter_contents() for _ in record.entries))

    peak(TOPOLOGICAL)  # what is imported and kept at first does not count
    assert peak(TOPOLOGICAL) - peak(UNORDERED) < 100 * 5_000


def test_an_insert_waits_in_a_file_to_be_sorted(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a gigabyte is sorted at a time, and is not in memory meanwhile; deltas are made whole from there."""
    repo, other = (Repository.open(store, name, create=True) for name in (NAME, "code/other"))
    items = history(100)
    other.insert_stream(items)
    monkeypatch.setattr(item_buffers, "_MEMORY_MAX", 1 << 10)
    monkeypatch.setattr(packing, "_RECENT_SIZE_MAX", 1)
    repo.insert_stream(items)
    assert keys(everything(repo)) == keys(everything(other))
    assert contents(everything(repo)) == contents(everything(other)) == contents(items)
    large = Items()
    for number in range(24):
        large.add((TEXTS, b"large", b"r%d" % number), (), os.urandom(1 << 20))
    assert traced_peak(lambda: Bundle.write(tmp_path / "large", large)) < 12 << 20


def test_versions_that_come_far_apart_are_stored_together(store: Store, repo: Repository) -> None:
    """A file that changes seldom is stored once, however much of other files lies between its versions."""
    text = os.urandom(200_000)
    items = Items()
    for number in range(2):
        items.add((TEXTS, b"seldom", b"r%d" % number), (), text + b"%d" % number)
        if not number:
            items.add((TEXTS, b"often", b"r1"), (), bytes(140_000_000))
    repo.insert_stream(items)
    assert store.stream(NAME).size_bytes < 1.5 * len(text)


def test_an_absent_item_is_missing(repo: Repository) -> None:
    """Nothing is inserted of a stream that says itself that something is not there."""
    assert repo.insert_stream(One((TEXTS, b"f"), AbsentFactory((b"r1",)))).missing == ((TEXTS, b"f", b"r1"),)


def test_what_is_not_there_is_named(repo: Repository, store: Store) -> None:
    """The error says which key, or which stream, was wrong."""
    with pytest.raises(NoSuchKey, match="texts/f@r1"):
        repo.text((TEXTS, b"f", b"r1"))
    store.create_stream("code/other")
    with pytest.raises(NotARepository, match="code/other"):
        Repository.open(store, "code/other")
    with pytest.raises(NotARepository):
        Repository.open(store, "code/other", create=True)


def test_wrong_arguments_are_named(repo: Repository) -> None:
    """A value of a wrong type is an error of the call, not one from inside of it, and nothing is stored."""
    calls: list[tuple[Callable[..., object], object, str]] = [
        (repo.insert_stream, None, "invalid stream None: use an object with a method iter_contents"),
        (repo.insert_stream, [7], "use an object with a method iter_contents"),
        (repo.set_refs, {b"refs/heads/main": b"r1"}, "invalid ref b'r1': use a value of type Ref"),
        (Bundle.open, None, "invalid path None: use a str or a Path"),
        (Bundle.open, b"x.bundle", "invalid path b'x.bundle': use a str or a Path"),
    ]
    for call, argument, message in calls:
        with pytest.raises(BadArgument, match=message):
            call(argument)
    assert list(everything(repo).iter_contents()) == []


def test_a_repository_is_opened_by_its_index(tmp_path: Path) -> None:
    """Opening reads the index and what came since, not the history: few events, whatever is stored."""
    with penstock.connect(tmp_path / "s", exclusive=True) as store:
        repo = Repository.open(store, NAME, create=True)
        inserted = Items()
        for start in range(0, 1200, 400):
            items = history(400, start=start)
            repo.insert_stream(items)
            inserted.factories += items.factories
        repo.insert_stream(history(3, start=1200))
        inserted.factories += history(3, start=1200).factories
    with penstock.connect(tmp_path / "s", exclusive=True) as store:
        counts = []
        read = store.read

        def counted(*args: object, **options: object) -> Iterator[pa.RecordBatch]:
            for batch in read(*args, **options):  # type: ignore[arg-type]
                counts.append(batch.num_rows)
                yield batch

        store.read = counted  # type: ignore[method-assign]
        repo = Repository.open(store, NAME)
        assert sum(counts) == 5, "the index, and three blocks of the last insert with its record"
        assert contents(everything(repo)) == contents(inserted)


def test_no_byte_on_the_disk_is_changed_unnoticed(tmp_path: Path) -> None:
    """A damaged repository is an error of its store or of a check; never another text, and never all good."""
    with penstock.connect(tmp_path / "good", exclusive=True) as store:
        repo = Repository.open(store, NAME, create=True)
        repo.insert_stream(history(4))
        repo.insert_stream(history(2, start=4))
        stored = contents(everything(repo))
    (plog,) = (path for path in tmp_path.glob("good/plogs/*.plog") if b"PRI\x01" in path.read_bytes())
    data = plog.read_bytes()
    start, end = data.index(b"PRB\x01"), data.rindex(b"PRI\x01")
    for place in range(start, end, (end - start) // 20):
        folder = tmp_path / str(place)
        shutil.copytree(tmp_path / "good", folder, ignore=shutil.ignore_patterns("LOCK"))
        (folder / "plogs" / plog.name).write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        with suppress(PenstockError), penstock.connect(folder, exclusive=True) as store:
            repo = Repository.open(store, NAME)
            assert not repo.check().is_good, place
            assert contents(everything(repo)).items() <= stored.items()


def test_clock_that_is_set_back_does_no_harm() -> None:
    """The order of a repository is that of its stream, not that of any clock; times of revisions may be any."""
    clock = ManualClock()
    with open_store("memory:", clock=clock) as store:
        repo = Repository.open(store, NAME, create=True)
        inserted = Items()
        for start, step_s in enumerate((0.0, -1e6, 5e9, -4e9, -1e9, 0.0)):
            clock.set_forward(step_s)
            items = history(70, start=70 * start)
            repo.insert_stream(items)
            inserted.factories += items.factories
            repo.set_refs({b"refs/heads/main": Ref(b"r%d" % (70 * start))})
        again = Repository.open(store, NAME)
        assert again.refs() == {b"refs/heads/main": Ref(b"r350")}
        assert contents(again.get_repository_stream(AncestryOf([b"r419"]))) == contents(inserted)
        assert again.check().is_good


def test_no_index_is_written_that_is_not_found_again(store: Store) -> None:
    """A user who may write and not consume would add a whole index with each push, and no reader would use it."""

    class Restricted:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def register_consumer(self, *_: object) -> None:
            raise NotPermitted("anna", act="consume", advice="grant it")

    Repository.open(store, NAME, create=True)
    restricted = cast("Store", Restricted())
    Repository.open(restricted, NAME).insert_stream(history(400))
    size = store.stream(NAME).size_bytes
    for number in range(400, 404):
        Repository.open(restricted, NAME).insert_stream(history(1, start=number))
    assert store.stream(NAME).size_bytes < size + 4_000
    Repository.open(store, NAME).insert_stream(history(1, start=404))
    assert store.stream(NAME).size_bytes > size + 10_000, "a user who may consume writes it"
    assert Repository.open(store, NAME).check().items == 405 * 3


def test_small_inserts_take_little_space(store: Store, repo: Repository) -> None:
    """A revision that changes one line of a long file is stored as the change, also when it comes alone."""
    text = os.urandom(50_000).hex().encode()
    lines = [text[n : n + 80] + b"\n" for n in range(0, len(text), 80)]
    before: tuple[Key, ...] = ()
    for number in range(30):
        lines[number] = b"changed\n"
        key = (TEXTS, b"f", b"r%d" % number)
        repo.insert_stream(Items().add(key, before, b"".join(lines)))
        before = (key,)
    assert store.stream(NAME).size_bytes < 5 * len(text) / 2
    assert Repository.open(store, NAME).text((TEXTS, b"f", b"r29")) == b"".join(lines)


def test_two_inserters_at_once_agree(store: Store) -> None:
    """Items that both bring are stored once; of two contents for one key, one inserter is refused and none is mixed."""
    first, second = (Repository.open(store, NAME, create=True) for _ in range(2))
    started, errors = threading.Barrier(2), []

    class Late(Items):
        def iter_contents(self) -> Iterator[penstock.repo.Record]:
            started.wait(10)  # both have looked before either inserts
            return super().iter_contents()

    def insert(repo: Repository, name: bytes) -> None:
        items = Late(history(3).factories)
        items.add((TEXTS, b"shared", b"r1"), (), b"by " + name).add((TEXTS, b"own", name), (), name)
        try:
            repo.insert_stream(items)
        except ContentConflict as error:
            errors.append((name, error))

    threads = [threading.Thread(target=insert, args=pair) for pair in ((first, b"first"), (second, b"second"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [(loser, error)] = errors
    assert error.key == (TEXTS, b"shared", b"r1")
    winner = b"second" if loser == b"first" else b"first"
    for repo in (first, second, Repository.open(store, NAME)):
        repo.refresh()
        assert repo.text((TEXTS, b"shared", b"r1")) == b"by " + winner
        assert (TEXTS, b"own", loser) not in repo
        assert repo.check().is_good


@dataclass
class Overtaken:
    """A stream of one item that is overtaken by another insert, after it was compared with what is stored."""

    items: Items
    overtake: Callable[[], object]

    def iter_contents(self) -> Iterator[Record]:
        yield from self.items.iter_contents()
        self.overtake()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (((REVISIONS, b"a"), ((REVISIONS, b"x"),)), ((REVISIONS, b"a"), ((REVISIONS, b"y"),))),
        (((REVISIONS, b"a"), ((REVISIONS, b"b"),)), ((REVISIONS, b"b"), ((REVISIONS, b"a"),))),
    ],
    ids=["other parents", "a circle"],
)
def test_two_inserters_at_once_cannot_contradict_each_other(
    store: Store, repo: Repository, first: tuple[Key, tuple[Key, ...]], second: tuple[Key, tuple[Key, ...]]
) -> None:
    """What is refused one after the other is refused at once, too: nobody could take a circle out again."""
    other = Repository.open(store, NAME)
    overtake = partial(other.insert_stream, Items().add(*first, b"text"))
    with pytest.raises(BadRecord):
        repo.insert_stream(Overtaken(Items().add(*second, b"text"), overtake))
    for reader in (repo, other, Repository.open(store, NAME)):
        reader.refresh()
        assert reader.check() == StreamCheck(1, (), ())
        assert reader.parents(first[0]) == first[1]


def test_a_void_insert_is_reported_whoever_reads_it_first(store: Store, repo: Repository) -> None:
    """Threads share a repository: what one of them finds void must not be acknowledged by the other."""

    class RefreshedStore:
        """A store on which another thread sees an insert before the one that has made it."""

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        @contextmanager
        def transactional_writer(self, stream: str) -> Iterator[TransactionalWriter]:
            with store.transactional_writer(stream) as writer:
                yield writer
            shared.refresh()

    shared = Repository.open(cast("Store", RefreshedStore()), NAME)
    overtake = partial(repo.insert_stream, Items().add((TEXTS, b"f", b"r"), (), b"one"))
    with pytest.raises(ContentConflict):
        shared.insert_stream(Overtaken(Items().add((TEXTS, b"f", b"r"), (), b"two"), overtake))
    assert shared.text((TEXTS, b"f", b"r")) == b"one"


@pytest.mark.parametrize("is_committed", [True, False])
def test_insert_survives_a_lost_transaction(store: Store, is_committed: bool) -> None:
    """The process that owned the store ends, as an import beside this one: the items are here, and each counts once."""
    attempts = []

    class Losing:
        """A store that loses the first transaction: before its events are written, or behind the commit."""

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        @contextmanager
        def transactional_writer(self, stream: str) -> Iterator[object]:
            attempts.append(stream)
            with store.transactional_writer(stream) as writer:
                yield writer if is_committed or len(attempts) > 1 else Aborting(writer)
            if len(attempts) == 1:
                raise NoSuchTransaction("lost")

    @dataclass
    class Aborting:
        writer: TransactionalWriter

        def begin(self) -> Transaction:
            transaction = self.writer.begin()
            transaction.abort()
            return transaction

    Repository.open(store, NAME, create=True)
    repo = Repository.open(cast("Store", Losing()), NAME)
    assert repo.insert_stream(history(5)).added == 15
    assert len(attempts) == (1 if is_committed else 2)
    assert contents(everything(Repository.open(store, NAME))) == contents(history(5))
    assert repo.check() == StreamCheck(15, (), ())


def test_events_of_others_are_passed_over(store: Store, repo: Repository) -> None:
    """An event that somebody writes to the stream by mistake, and nobody can take out again, is not its end."""
    repo.insert_stream(history(2))
    sha1 = hashlib.sha1(usedforsecurity=False).digest()
    stray = encode_block([Item((TEXTS, b"f", b"stray"), (), sha1, "fulltext", b"")])
    with store.writer(NAME) as writer:
        for event in (b"hello", b"", stray):
            writer.write_event(event)
    repo.insert_stream(history(2, start=2))
    for reader in (repo, Repository.open(store, NAME)):
        assert reader.check() == StreamCheck(12, (), (), foreign_events=3), "its user is told that they are there"
        assert (TEXTS, b"f", b"stray") not in reader


def test_a_repository_that_was_created_anew_is_opened_again(store: Store, repo: Repository) -> None:
    """Items of the old one do not count as stored in the new one: an insert would be acknowledged, and lost."""
    repo.insert_stream(history(2))
    store.seal_stream(NAME)
    store.delete_stream(NAME)
    Repository.open(store, NAME, create=True).insert_stream(history(2, text=b"LINE\n" * 20))
    for call in (repo.refresh, lambda: repo.insert_stream(history(2)), repo.check):
        with pytest.raises(RepositoryError, match="open it again"):
            call()


def test_a_stack_is_asked_from_the_top(store: Store, repo: Repository) -> None:
    """What is not in the upper repository comes from the one below, and streams have both."""
    repo.insert_stream(history(3))
    upper = Repository.open(store, "code/upper", create=True).stacked_on(repo)
    more = history(2, start=3)
    assert upper.insert_stream(more).added == 6
    assert upper.text((TEXTS, b"file-0", b"r0")) == repo.text((TEXTS, b"file-0", b"r0"))
    assert contents(everything(upper)) == contents(history(5))
    alone = Repository.open(store, "code/upper")
    assert contents(everything(alone)) == contents(more), "no delta crosses a store"


def test_parts_have_each_item_once(repo: Repository) -> None:
    """Parallel readers share a repository; a part travels to another process, and is read there."""
    repo.insert_stream(history(20))
    repo.insert_stream(history(25))
    parts = pickle.loads(pickle.dumps(repo.parts(count=3)))
    assert [type(part) for part in parts] == [RepositoryPart] * 3
    found = [(key, factory.get_bytes_as("fulltext")) for part in parts for key, factory in repo.items_in(part)]
    assert len(found) == 75
    assert dict(found) == contents(history(25))
    few = [key for part in repo.parts([b"r24"]) for key, _ in repo.items_in(part)]
    assert {(REVISIONS, b"r24"), (INVENTORIES, b"r24"), (TEXTS, b"file-0", b"r24")} <= set(few)
    assert (REVISIONS, b"r1") not in few


def test_revisions_may_be_named_with_spaces(repo: Repository) -> None:
    """A knit has words only for names; such inventories are stored whole."""
    items = Items()
    items.add((INVENTORIES, b"r 1"), (), inventory(1, 3)).add(
        (INVENTORIES, b"r 2"), ((INVENTORIES, b"r 1"),), inventory(2, 3)
    )
    repo.insert_stream(items)
    assert repo.text((INVENTORIES, b"r 2")) == inventory(2, 3)


def test_signatures_are_items_as_others_are(repo: Repository) -> None:
    """They belong to a revision, and travel with it."""
    key = SIGNATURES, b"r1"
    repo.insert_stream(history(2).add(key, (), b"signed"))
    assert contents(repo.get_repository_stream(Revisions([b"r1"])))[key] == b"signed"
    assert key_name(key) == "signatures@r1"


def test_annotate_names_the_revision_of_each_line(repo: Repository) -> None:
    """Line provenance, through a merge."""
    texts = {b"r1": b"one\ntwo\n", b"r2": b"one\nTWO\n", b"r3": b"zero\none\ntwo\n", b"r4": b"zero\none\nTWO\nend"}
    parents = {b"r1": (), b"r2": (b"r1",), b"r3": (b"r1",), b"r4": (b"r2", b"r3")}
    items = Items()
    for revision, text in texts.items():
        items.add((TEXTS, b"f", revision), tuple((TEXTS, b"f", parent) for parent in parents[revision]), text)
    repo.insert_stream(items)
    assert repo.annotate((TEXTS, b"f", b"r4")) == [
        (b"r3", b"zero\n"),
        (b"r1", b"one\n"),
        (b"r2", b"TWO\n"),
        (b"r4", b"end"),
    ]


def test_a_delta_asks_for_what_is_missing() -> None:
    """An item from elsewhere is a delta only; its full text needs a basis."""
    factory = ContentFactory((b"r2",), ((b"r1",),), b"", storage_kind="knit-delta")
    with pytest.raises(UnavailableRepresentation, match="knit-delta"):
        factory.get_bytes_as("fulltext")
    assert issubclass(MissingBasis, penstock.errors.RepositoryError)
