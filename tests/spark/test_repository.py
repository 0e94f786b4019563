"""Repositories as tables of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import EqualTo, GreaterThan, In, StringStartsWith

from penstock.errors import BadRecord, NoSuchStream, RepositoryError
from penstock.repo import INVENTORIES, REVISIONS, TEXTS, Repository
from penstock.spark._options import repository_options
from penstock.spark._repository import RepositoryReader
from penstock.spark._repository_tables import encoded, shown
from tests.repo.streams import Items

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter

    from penstock import Store

NAME = "code/history"
PERSON = b"J\xc3\xb6rg <j@example.org>"


@pytest.fixture
def repo(store: Store) -> Repository:
    """Three revisions: two files, one of them changed, then renamed and changed."""
    repository = Repository.open(store, NAME, create=True)
    items = Items()
    lines = {
        b"r1": [b"100644 r1 a a\n", b"100755 r1 b caf\xc3\xa9\n"],
        b"r2": [b"100644 r2 a a\n", b"100755 r1 b caf\xc3\xa9\n"],
        b"r3": [b"100755 r1 b caf\xc3\xa9\n", b"100644 r3 a new/name\n"],
    }
    filler = b"".join(b"100644 r1 f%d z%02d\n" % (n, n) for n in range(50))
    before: tuple[bytes, ...] = ()
    for second, (revision, inventory) in enumerate(lines.items()):
        time = b"%d +0000" % (1_700_000_000 + second)
        text = b"author %b %b\ncommitter %b %b\n\nWhy %b\n" % (PERSON, time, PERSON, time, revision)
        items.add((REVISIONS, revision), tuple((REVISIONS, parent) for parent in before), text)
        parents = tuple((INVENTORIES, parent) for parent in before)
        items.add((INVENTORIES, revision), parents, b"".join(inventory) + filler)
        items.add((TEXTS, b"a", revision), tuple((TEXTS, b"a", parent) for parent in before), b"text " + revision)
        before = (revision,)
    items.add((TEXTS, b"b", b"r1"), (), b"\xff\x00")
    for number in range(50):
        items.add((TEXTS, b"f%d" % number, b"r1"), (), b"filler %d" % number)
    repository.insert_stream(items)
    return repository


def table(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    return spark.read.format("penstock-repo").options(store=str(folder), stream=NAME, table=name).load()


def test_the_tables_have_what_the_repository_has(spark: SparkSession, folder: Path, repo: Repository) -> None:
    """History, files and texts, each as a DataFrame; a text has the path that it had in its revision."""
    assert repo.check().is_good
    revisions = table(spark, folder, "revisions").orderBy("revision").collect()
    assert [(row.revision, row.parents, row.author, row.message) for row in revisions] == [
        ("r1", [], "Jörg <j@example.org>", "Why r1\n"),
        ("r2", ["r1"], "Jörg <j@example.org>", "Why r2\n"),
        ("r3", ["r2"], "Jörg <j@example.org>", "Why r3\n"),
    ]
    assert [int(row.commit_time.timestamp()) for row in revisions] == [1_700_000_000, 1_700_000_001, 1_700_000_002]
    inventories = table(spark, folder, "inventories").where("path NOT LIKE 'z%'").orderBy("revision", "path").collect()
    assert [tuple(row) for row in inventories[-2:]] == [
        ("r3", "café", "b", "r1", "100755", "executable"),
        ("r3", "new/name", "a", "r3", "100644", "file"),
    ]
    assert len(inventories) == 6
    texts = table(spark, folder, "texts").where("file_id NOT LIKE 'f%'").orderBy("file_id", "revision").collect()
    assert [(row.file_id, row.path, row.revision, row.parents, bytes(row.text)) for row in texts] == [
        ("a", "a", "r1", [], b"text r1"),
        ("a", "a", "r2", ["r1"], b"text r2"),
        ("a", "new/name", "r3", ["r2"], b"text r3"),
        ("b", "café", "r1", [], b"\xff\x00"),
    ]
    assert all(row.sha1 == repo.sha1((TEXTS, row.file_id.encode(), row.revision.encode())) for row in texts)


def test_filters_choose_rows(spark: SparkSession, folder: Path, repo: Repository) -> None:
    """What is pushed down and what Spark does itself give the same rows."""
    assert repo.check().is_good
    texts = table(spark, folder, "texts")
    assert texts.where("revision = 'r2'").count() == 1
    assert texts.where(F.col("revision").isin("r2", "r3", "gone")).count() == 2
    assert texts.where("path = 'new/name'").count() == 1
    assert texts.where("path LIKE 'z1%'").count() == 10
    assert texts.where("path IS NULL").count() == 0
    assert texts.where("size > 8 AND revision = 'r1'").count() == 40
    assert table(spark, folder, "inventories").where("revision = 'r3' AND path LIKE 'new%'").count() == 1


def test_a_filter_on_the_revision_chooses_blocks(folder: Path, store: Store, repo: Repository) -> None:
    """A question about one revision does not read the history: fewer blocks are planned, by the index alone."""
    more = Items()
    for number in range(40):
        more.add((REVISIONS, b"later%d" % number), (), b"author x 0 +0000\ncommitter x 0 +0000\n\n")
        repo.insert_stream(more)
    del store
    plain = RepositoryReader(repository_options({"store": str(folder), "stream": NAME, "table": "revisions"}))
    pushed = RepositoryReader(repository_options({"store": str(folder), "stream": NAME, "table": "revisions"}))
    kept: list[Filter] = [GreaterThan(("revision",), "r1"), EqualTo(("message",), "x")]
    ours: list[Filter] = [EqualTo(("revision",), "later7"), In(("revision",), ("later7", None))]
    assert list(pushed.pushFilters([*kept, *ours, StringStartsWith(("revision",), "later")])) == kept

    def blocks(reader: RepositoryReader) -> int:
        return sum(len(part.blocks.addresses) for part in reader.partitions())  # type: ignore[attr-defined, misc]

    assert blocks(pushed) == 1
    assert blocks(plain) > 40


def test_names_that_are_not_utf8_survive_a_filter() -> None:
    """They are shown with their bytes written out, and found by that."""
    for name in (b"caf\xe9", "größe".encode(), b"plain", b"\xff\x80x"):
        assert encoded(shown(name)) == name


def reader(folder: Path, name: str, *filters: Filter, **options: str) -> RepositoryReader:
    made = RepositoryReader(repository_options({"store": str(folder), "stream": NAME, "table": name, **options}))
    assert list(made.pushFilters(list(filters))) == []
    return made


def rows(source: RepositoryReader) -> list[dict[str, object]]:
    return [row for part in source.partitions() for batch in source.read(part) for row in batch.to_pylist()]


def test_times_of_any_clock_are_read(spark: SparkSession, folder: Path, store: Store) -> None:
    """A commit may be from before 1970 or behind 2038; a time that no calendar has must not end the whole query."""
    times = [-5, 0, 2**31, 2**32, 253_402_300_799, 253_402_300_800, 10**17, -(10**17)]
    items = Items()
    for number, time in enumerate(times):
        person = b"A <a> %d +0000" % time
        text = b"author %b\ncommitter %b\nencoding utf-7\n\n+2AA-\n" % (person, person)
        items.add((REVISIONS, b"r%d" % number), (), text)
    Repository.open(store, NAME, create=True).insert_stream(items)
    seconds = F.col("commit_time").cast("long")
    read = table(spark, folder, "revisions").orderBy("revision").select(seconds.alias("time"), "message").collect()
    assert [row.time for row in read] == [*times[:5], None, None, None]
    assert {row.message for row in read} == {"+2AA-\n"}, "half a character is none"


def test_whatever_keys_and_filters_are_is_read(folder: Path, store: Store) -> None:
    """Repositories that were not made from git have other keys and inventories; hostile filters find nothing."""
    items = Items().add((INVENTORIES, b"r0"), (), b"another format\n").add((TEXTS, b"f", b"r0"), (), b"1")
    items.add((TEXTS, b"a", b"b", b"r0"), (), b"2").add((TEXTS, b"r0"), (), b"3").add((TEXTS, b"f", b"r1"), (), b"4")
    items.add((TEXTS, b"g\xff\0", b"r\xff"), (), b"5")
    Repository.open(store, NAME, create=True).insert_stream(items)
    found = rows(reader(folder, "texts", min_partitions="10000"))
    assert {(row["file_id"], row["path"], row["text"]) for row in found} == {
        ("f", None, b"1"),
        ("a/b", None, b"2"),
        ("", None, b"3"),
        ("f", None, b"4"),
        ("g\\xff\0", None, b"5"),
    }
    for hostile in ("../../etc/passwd", "/", "\0", "", "%", "' OR 1=1", "x" * 100_000):
        for filters in (
            EqualTo(("path",), hostile),
            In(("path",), (hostile, None)),
            StringStartsWith(("path",), hostile),
        ):
            assert rows(reader(folder, "texts", filters)) == []
        assert rows(reader(folder, "texts", EqualTo(("revision",), hostile))) == []
    with pytest.raises(BadRecord, match="inventories@r0"):
        rows(reader(folder, "inventories"))


def test_stream_that_goes_away_under_a_job_is_an_error(folder: Path, store: Store, repo: Repository) -> None:
    """The parts of a plan mean blocks of one stream; of a new one with the same name, other texts would be returned."""
    source = reader(folder, "texts")
    parts = source.partitions()
    assert repo.check().is_good
    store.seal_stream(NAME)
    store.delete_stream(NAME)
    with pytest.raises(NoSuchStream):
        list(source.read(parts[0]))
    Repository.open(store, NAME, create=True).insert_stream(Items().add((TEXTS, b"a", b"r1"), (), b"other"))
    with pytest.raises(RepositoryError, match="created anew"):
        list(source.read(parts[0]))


def test_event_that_is_none_of_a_repository_is_passed_over(folder: Path, store: Store, repo: Repository) -> None:
    """A job over a whole history does not end at one bad event; a check of the repository names it."""
    with store.writer(NAME) as writer:
        writer.write_event(b"PRB\x01 nonsense")
    assert len(rows(reader(folder, "texts"))) == 54
    assert not repo.check().is_good


def test_bad_options_are_named(spark: SparkSession, folder: Path, store: Store) -> None:
    """The error says which option, or that the stream holds something else."""
    store.create_stream("code/other")
    for options, message in [
        ({"stream": "code/other"}, "'code/other' is not a repository: name the stream of one"),
        ({"stream": "code/gone"}, "no stream"),
        ({"stream": NAME, "table": "files"}, "invalid value 'files' of the option 'table'"),
        ({}, "the option 'stream' is missing"),
        ({"stream": NAME, "tabel": "texts"}, "do you mean 'table'"),
    ]:
        with pytest.raises(PySparkException, match=message):
            spark.read.format("penstock-repo").options(store=str(folder), **options).load()
