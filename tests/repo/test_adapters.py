"""Streams in the storage kind that a client asks for."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.errors import BadArgument, BadRecord, MissingBasis, UnavailableRepresentation
from penstock.repo import (
    TOPOLOGICAL,
    UNORDERED,
    AbsentFactory,
    AdaptedStream,
    ContentFactory,
    Everything,
    Record,
    Repository,
    _adapters,
)
from penstock.repo.kinds import KINDS, annotate, decode, encode
from tests.repo.breezy_oracle import BreezyRecord, Version
from tests.repo.streams import contents, history

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.repo import Factory, Key
    from tests.repo.breezy_oracle import Oracle

PREFIX: Final = (b"texts",)
R1: Final = (b"texts", b"a", b"r1")
R2: Final = (b"texts", b"a", b"r2")
R3: Final = (b"texts", b"b", b"r3")  # renamed
R4: Final = (b"texts", b"b", b"r4")
TEXTS: Final[dict[Key, bytes]] = {
    R1: b"alpha\nbeta\ngamma\n",
    R2: b"alpha\nBETA\ngamma",
    R3: b"zero\nalpha\nbeta\ngamma\n",
    R4: b"zero\nalpha\nBETA\ngamma\nomega",
}
PARENTS: Final[dict[Key, tuple[Key, ...]]] = {R1: (), R2: (R1,), R3: (R1,), R4: (R2, R3)}


class Stream:
    """Items of a history, in records of two."""

    def __init__(self, items: Sequence[Factory]) -> None:
        self._items = items

    def iter_contents(self) -> Iterator[Record]:
        for start in range(0, len(self._items), 2):
            yield Record(PREFIX, iter(self._items[start : start + 2]))


def item(key: Key, kind: str) -> ContentFactory:
    """Return a text in the bytes of a kind, or in full if there is no parent to build on."""
    kind = kind if PARENTS[key] else kind.replace("delta", "ft")
    data, compressor_data = encode(kind, TEXTS[key], key=key, parents=PARENTS[key], get_text=TEXTS.__getitem__)
    return ContentFactory(
        key[1:],
        tuple(parent[1:] for parent in PARENTS[key]),
        data,
        storage_kind=kind,
        sha1=hashlib.sha1(TEXTS[key]).hexdigest(),
        compressor_data=compressor_data,
    )


def items_of(stream: AdaptedStream) -> list[tuple[Key, Factory]]:
    return [
        (record.key_prefix + factory.key, factory) for record in stream.iter_contents() for factory in record.entries
    ]


@pytest.mark.parametrize("wanted", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_whole_stream_is_coerced_to_any_kind(kind: str, wanted: str) -> None:
    """A client knows one kind, and need not know which of the others a stream comes in."""
    adapted = items_of(AdaptedStream(Stream([item(key, kind) for key in TEXTS]), wanted))
    assert [key for key, _ in adapted] == list(TEXTS)
    for key, factory in adapted:
        assert factory.storage_kind == (wanted if PARENTS[key] else wanted.replace("delta", "ft"))
        assert factory.sha1 == hashlib.sha1(TEXTS[key]).hexdigest()
        assert factory.get_bytes_as("fulltext") == TEXTS[key]
        text = decode(
            factory.storage_kind,
            factory.get_bytes_as(factory.storage_kind),
            key=key,
            parents=tuple(PREFIX + parent for parent in factory.parents),
            compressor_data=factory.compressor_data,
            get_text=TEXTS.__getitem__,
        )
        assert text == TEXTS[key]


@pytest.mark.parametrize("kind", ["knit-delta", "mpdiff"])
def test_delta_before_its_basis_is_held(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unordered stream may have them in any order, and a client of full texts has nothing to hold them with."""
    monkeypatch.setattr(_adapters, "_MEMORY_MAX", 10)  # all the rest lies in a file
    stream = AdaptedStream(Stream([item(key, kind) for key in (R4, R3, R2, R1)]), "fulltext")
    adapted = items_of(stream)
    assert {key: factory.get_bytes_as("fulltext") for key, factory in adapted} == TEXTS
    assert adapted[0][0] == R1


def test_basis_that_never_comes_is_named_unless_the_store_has_it() -> None:
    """A stream of changes builds on what its receiver has; the error says what to get."""
    changes = [item(R2, "knit-delta"), item(R4, "knit-delta")]
    with pytest.raises(MissingBasis) as error:
        items_of(AdaptedStream(Stream(changes), "fulltext"))
    assert (error.value.key, error.value.basis) == (R2, R1)
    store: dict[Key, bytes] = {R1: TEXTS[R1]}
    with_store = AdaptedStream(Stream(changes), "fulltext", get_text=store.__getitem__)
    assert [factory.get_bytes_as("fulltext") for _, factory in items_of(with_store)] == [TEXTS[R2], TEXTS[R4]]


def test_full_texts_are_compressed_on_the_fly_and_read_once() -> None:
    """The seed: both kinds without extra I/O; so each text is read while it goes by, and never again."""
    reads: list[Key] = []

    class Read(ContentFactory):
        def get_bytes_as(self, storage_kind: str) -> bytes:
            reads.append(self.key)
            return super().get_bytes_as(storage_kind)

    texts = [Read(key[1:], tuple(parent[1:] for parent in PARENTS[key]), TEXTS[key]) for key in TEXTS]
    adapted = items_of(AdaptedStream(Stream(texts), "knit-delta"))
    for key, factory in adapted:
        assert factory.get_bytes_as("fulltext") == TEXTS[key]
        assert factory.get_bytes_as(factory.storage_kind) == item(key, "knit-delta").get_bytes_as(factory.storage_kind)
        with pytest.raises(UnavailableRepresentation):
            factory.get_bytes_as("mpdiff")
    assert [PREFIX + key for key in reads] == list(TEXTS)


def test_items_that_a_client_skips_are_still_there_for_others() -> None:
    """A client that looks for one file goes on to the next record without reading this one."""
    stream = AdaptedStream(Stream([item(key, "knit-delta") for key in TEXTS]), "fulltext")
    last = [list(record.entries) for number, record in enumerate(stream.iter_contents()) if number == 1]
    assert [factory.get_bytes_as("fulltext") for factory in last[0]] == [TEXTS[R3], TEXTS[R4]]


def test_origins_of_lines_go_back_to_the_first_version() -> None:
    """An annotated record that named the parent for every old line would be wrong after two versions."""
    origins: dict[Key, list[bytes]] = {}
    for key, text in TEXTS.items():
        origins[key] = annotate(
            text, key=key, parents=PARENTS[key], get_text=TEXTS.__getitem__, get_annotations=origins.__getitem__
        )
    adapted = items_of(AdaptedStream(Stream([item(key, "fulltext") for key in TEXTS]), "knit-annotated-ft"))
    for key, factory in adapted:
        lines = factory.get_bytes_as("knit-annotated-ft").split(b"\n")[1:-2]
        assert [line.partition(b" ")[0] for line in lines] == origins[key]
    changes = AdaptedStream(
        Stream([item(R3, "fulltext")]),
        "knit-annotated-ft",
        get_text=TEXTS.__getitem__,
        get_annotations=lambda _: [b"r0"] * 3,
    )
    ((_, factory),) = items_of(changes)
    assert b"\nr3 zero\nr0 alpha\n" in factory.get_bytes_as("knit-annotated-ft")


def test_bad_items_and_absent_ones_are_not_hidden() -> None:
    """An adapter changes how an item is stored, never what it is."""
    wrong: dict[str, Any] = {"sha1": "0" * 40}
    with pytest.raises(BadRecord, match="should have 0000"):
        items_of(AdaptedStream(Stream([ContentFactory(R1[1:], (), b"a\n", **wrong)]), "knit-ft"))
    with pytest.raises(BadRecord, match="unknown storage kind 'weave'"):
        items_of(AdaptedStream(Stream([ContentFactory(R1[1:], (), b"a\n", storage_kind="weave")]), "knit-ft"))
    with pytest.raises(BadArgument, match="unknown storage kind 'weave': use one of"):
        AdaptedStream(Stream([]), "weave")
    ((_, absent),) = items_of(AdaptedStream(Stream([AbsentFactory(R1[1:])]), "fulltext"))
    with pytest.raises(UnavailableRepresentation):
        absent.get_bytes_as("fulltext")


@pytest.mark.parametrize("kind", ["knit-delta", "knit-annotated-ft", "mpdiff"])
def test_adapted_stream_goes_from_one_repository_to_another(kind: str) -> None:
    """What one repository streams, in whatever kind, is what the other one has then."""
    with penstock.connect("memory:") as store:
        source, target = (Repository.open(store, name, create=True) for name in ("code/old", "code/new"))
        source.insert_stream(history(12))
        target.insert_stream(AdaptedStream(source.get_repository_stream(Everything(), UNORDERED), kind))
        assert contents(target.get_repository_stream(Everything())) == contents(history(12))
        assert target.check().is_good


def test_breezy_reads_an_adapted_stream_of_a_repository(breezy: Oracle) -> None:
    """The way out of a repository, into one of Breezy: all versions of a file, each a delta on the one before."""
    with penstock.connect("memory:") as store:
        repo = Repository.open(store, "code/history", create=True)
        repo.insert_stream(history(20, files=1))
        stream = AdaptedStream(repo.get_repository_stream(Everything(), TOPOLOGICAL), "knit-delta")
        records = [
            _breezy_record(factory)
            for record in stream.iter_contents()
            for factory in record.entries
            if (record.key_prefix + factory.key)[0] == b"texts"
        ]
    assert [record.kind for record in records] == ["knit-ft"] + ["knit-delta"] * 19
    assert breezy.read(records, annotated=False) == [record.version.text for record in records]


def _breezy_record(factory: Factory) -> BreezyRecord:
    parents, text = tuple(parent[-1] for parent in factory.parents), factory.get_bytes_as("fulltext")
    kind, compressor_data = factory.storage_kind, factory.compressor_data
    assert compressor_data is not None
    version = Version(factory.key[-1], parents, text)
    return BreezyRecord(kind, version, compressor_data["noeol"], factory.get_bytes_as(kind))
