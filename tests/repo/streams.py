"""Streams for tests of repositories, made of plain values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.repo import INVENTORIES, REVISIONS, TEXTS, ContentFactory, Everything, Record
from penstock.repo.kinds import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.repo import Factory, Key, RecordStream, RepositoryContents, RepositoryStream


@dataclass
class Items:
    """Items in the order in which they are given; a stream of records, one for each."""

    factories: list[tuple[Key, Factory]] = field(default_factory=list)

    def iter_contents(self) -> Iterator[Record]:
        """Return a record for each item."""
        for prefix, factory in self.factories:
            yield Record(prefix, iter([factory]))

    def add(self, key: Key, parents: tuple[Key, ...], text: bytes, kind: str = "fulltext", basis: bytes = b"") -> Items:
        """Add an item under its whole key; a delta is made on ``basis``."""
        data, compressor_data = encode(kind, text, key=key, parents=parents, get_text=lambda _: basis)
        factory = ContentFactory(
            key[-1:],
            tuple(parent[-1:] for parent in parents),
            data,
            storage_kind=kind,
            sha1=hashlib.sha1(text, usedforsecurity=False).hexdigest(),
            compressor_data=compressor_data,
        )
        self.factories.append((key[:-1], factory))
        return self


def history(revisions: int, *, files: int = 3, start: int = 0, text: bytes = b"line\n" * 20) -> Items:
    """Return a line of revisions, each of which changes one of some files; the rest was there before ``start``."""
    items = Items()
    for number in range(start, start + revisions):
        revision, before = b"r%d" % number, ((b"r%d" % (number - 1),) if number else ())
        path, previous = b"file-%d" % (number % files), number - files
        parents = ((TEXTS, path, b"r%d" % previous),) if previous >= 0 else ()
        items.add((TEXTS, path, revision), parents, text + b"changed in %d\n" % number)
        items.add((INVENTORIES, revision), tuple((INVENTORIES, parent) for parent in before), inventory(number, files))
        items.add((REVISIONS, revision), tuple((REVISIONS, parent) for parent in before), b"revision %d" % number)
    return items


def inventory(number: int, files: int) -> bytes:
    """Return the inventory of a revision of :func:`history`: a line for each file."""
    latest = {n % files: n for n in range(max(0, number - files + 1), number + 1)}
    lines = [b"file-%d %d\n" % (name, latest[name]) for name in sorted(latest)]
    return b"".join(lines) + b"".join(b"other-%d\n" % n for n in range(50))


def contents(stream: RecordStream) -> dict[Key, bytes]:
    """Return the full texts of a stream, by key."""
    return {
        (*record.key_prefix, *factory.key): factory.get_bytes_as("fulltext")
        for record in stream.iter_contents()
        for factory in record.entries
    }


def everything(source: RepositoryContents) -> RepositoryStream:
    """Return all that a repository or a bundle has."""
    return source.get_repository_stream(Everything())


def keys(stream: RecordStream) -> list[Key]:
    """Return the keys of a stream, in its order."""
    return [(*record.key_prefix, *factory.key) for record in stream.iter_contents() for factory in record.entries]
