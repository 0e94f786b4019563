"""The tables of a repository: from items to rows, in Arrow batches of bounded size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.errors import BadRecord, NoSuchKey
from penstock.repo import INVENTORIES, REVISIONS, TEXTS, Inventory, RevisionText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.repo import Factory, Key, Repository, RepositoryPart

    _Paths = Callable[[bytes], Mapping[bytes, bytes]]
    _IsWanted = Callable[[str, str | None], bool]

__all__ = ["TABLES", "Table", "encoded"]

_BATCH_SIZE: Final = 16 << 20
_BATCH_ROWS: Final = 10_000
_PATHS_CACHED: Final = 4_096
_MICROSECONDS: Final = 1_000_000
_UTC_TIME: Final = pa.timestamp("us", "UTC")
_TIME_MIN, _TIME_MAX = -62_135_596_800, 253_402_300_799  # the years 1 to 9999, in seconds since 1970


@dataclass(frozen=True)
class Table:
    """A table: its columns as Spark and as Arrow name them, and what makes rows of an item."""

    schema: str
    arrow: pa.Schema
    first: bytes
    filtered: tuple[str, ...]
    rows: Callable[[_Paths, Key, Factory, _IsWanted], Iterator[tuple[object, ...]]]

    def batches(self, repository: Repository, part: RepositoryPart, is_wanted: _IsWanted) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part that are wanted."""
        paths = lru_cache(_PATHS_CACHED)(partial(_changed_paths, repository))
        rows: list[tuple[object, ...]] = []
        size = 0
        for key, factory in repository.items_in(part):
            if key[0] != self.first or not is_wanted("revision", shown(key[-1])):
                continue
            for row in self.rows(paths, key, factory, is_wanted):
                rows.append(row)
                size += sum(len(value) for value in row if isinstance(value, bytes | str))
                if size >= _BATCH_SIZE or len(rows) >= _BATCH_ROWS:
                    yield self._batch(rows)
                    rows, size = [], 0
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
        columns = [
            pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), self.arrow.types, strict=True)
        ]
        return pa.record_batch(columns, schema=self.arrow)


def shown(name: bytes) -> str:
    """Return a name as a text; bytes that are not UTF-8 are written out."""
    return name.decode("utf-8", "backslashreplace")


def encoded(text: str) -> bytes:
    """Return the name that is shown as a text."""
    return re.sub(rb"\\x([89a-f][0-9a-f])", lambda found: bytes.fromhex(found[1].decode()), text.encode())


def _microseconds(seconds: int) -> int | None:
    """Return a time as Arrow has it; None if it is none that Spark and Python have."""
    return seconds * _MICROSECONDS if _TIME_MIN <= seconds <= _TIME_MAX else None


def _revision_rows(paths: _Paths, key: Key, factory: Factory, is_wanted: _IsWanted) -> Iterator[tuple[object, ...]]:
    del paths, is_wanted
    text = RevisionText.parse(key[-1], factory.get_bytes_as("fulltext"))
    author, committer = text.author, text.committer
    yield (
        shown(key[-1]),
        [shown(parent[-1]) for parent in factory.parents],
        text.decoded(author.name),
        _microseconds(author.time),
        text.decoded(committer.name),
        _microseconds(committer.time),
        text.decoded(text.message),
    )


def _inventory_rows(paths: _Paths, key: Key, factory: Factory, is_wanted: _IsWanted) -> Iterator[tuple[object, ...]]:
    del paths
    revision = shown(key[-1])
    for path, entry in Inventory(key[-1], factory.get_bytes_as("fulltext")).items():
        name = shown(path)
        if is_wanted("path", name):
            yield revision, name, shown(entry.file_id), shown(entry.revision), entry.git_mode, entry.kind


def _text_rows(paths: _Paths, key: Key, factory: Factory, is_wanted: _IsWanted) -> Iterator[tuple[object, ...]]:
    file_id, revision = b"/".join(key[1:-1]), key[-1]
    path = paths(revision).get(file_id)
    name = None if path is None else shown(path)
    if not is_wanted("file_id", shown(file_id)) or not is_wanted("path", name):
        return
    text = factory.get_bytes_as("fulltext")
    yield (
        shown(file_id),
        name,
        shown(revision),
        [shown(parent[-1]) for parent in factory.parents],
        factory.sha1,
        len(text),
        text,
    )


def _changed_paths(repository: Repository, revision: bytes) -> Mapping[bytes, bytes]:
    """Return the paths of the files that a revision has changed, by file id; none if its inventory has no paths."""
    try:
        return repository.changed_paths(revision)
    except (NoSuchKey, BadRecord):
        return {}


TABLES: Final[Mapping[str, Table]] = {
    "revisions": Table(
        "revision string, parents array<string>, author string, author_time timestamp, committer string, "
        "commit_time timestamp, message string",
        pa.schema(
            [
                ("revision", pa.string()),
                ("parents", pa.list_(pa.string())),
                ("author", pa.string()),
                ("author_time", _UTC_TIME),
                ("committer", pa.string()),
                ("commit_time", _UTC_TIME),
                ("message", pa.string()),
            ]
        ),
        REVISIONS,
        ("revision",),
        _revision_rows,
    ),
    "inventories": Table(
        "revision string, path string, file_id string, text_revision string, mode string, kind string",
        pa.schema(
            [
                ("revision", pa.string()),
                ("path", pa.string()),
                ("file_id", pa.string()),
                ("text_revision", pa.string()),
                ("mode", pa.string()),
                ("kind", pa.string()),
            ]
        ),
        INVENTORIES,
        ("revision", "path"),
        _inventory_rows,
    ),
    "texts": Table(
        "file_id string, path string, revision string, parents array<string>, sha1 string, size bigint, text binary",
        pa.schema(
            [
                ("file_id", pa.string()),
                ("path", pa.string()),
                ("revision", pa.string()),
                ("parents", pa.list_(pa.string())),
                ("sha1", pa.string()),
                ("size", pa.int64()),
                ("text", pa.binary()),
            ]
        ),
        TEXTS,
        ("file_id", "path", "revision"),
        _text_rows,
    ),
}
