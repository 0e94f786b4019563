"""Breezy as an oracle, in a process of its own: it answers questions about storage kinds, one a line, in JSON.

Breezy is under the GPL: tests ask it from outside, and nothing of Penstock imports it. Bytes are sent as Latin-1.
"""

from __future__ import annotations

import gzip
import json
import sys
from io import BytesIO
from typing import Any

import breezy  # noqa: F401 - it prepares what the others import
from breezy.bzr.knit import KnitContentFactory, KnitVersionedFiles, make_file_factory
from breezy.bzr.versionedfile import ConstantMapper
from breezy.multiparent import MultiParent
from breezy.transport.memory import MemoryTransport


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _text(content: bytes) -> str:
    return content.decode("latin-1")


def _lines(text: str) -> list[bytes]:
    return list(BytesIO(_bytes(text)))


def _key(version: str) -> tuple[bytes]:
    return (_bytes(version),)


def _knit(*, annotated: bool) -> KnitVersionedFiles:
    return make_file_factory(annotated, ConstantMapper("texts"))(MemoryTransport())


def make(versions: list[list[Any]], *, annotated: bool, chain: int) -> list[list[Any]]:
    """Add texts to a knit; return the records that it keeps them in: kind, version, parents, noeol, data."""
    knit = _knit(annotated=annotated)
    knit._max_delta_chain = chain
    for version, parents, text in versions:
        knit.add_lines(_key(version), [_key(parent) for parent in parents], _lines(text))
    keys = [_key(version) for version, _, _ in versions]
    records = {record.key: record for record in knit.get_record_stream(keys, "unordered", False)}
    return [
        [
            records[key].storage_kind.removesuffix("-gz"),
            version,
            parents,
            records[key]._build_details[1],
            _text(gzip.decompress(records[key]._raw_record)),
        ]
        for key, (version, parents, _) in zip(keys, versions, strict=True)
    ]


def read(records: list[list[Any]], *, annotated: bool) -> list[str]:
    """Insert records into a knit; return the texts that it reads from them."""
    knit = _knit(annotated=annotated)
    knit.insert_record_stream(
        KnitContentFactory(
            _key(version),
            tuple(_key(parent) for parent in parents),
            ("line-delta" if kind.endswith("delta") else "fulltext", noeol),
            None,
            gzip.compress(_bytes(data), 1),
            annotated,
        )
        for kind, version, parents, noeol, data in records
    )
    keys = [_key(version) for _, version, *_ in records]
    texts = {record.key: record.get_bytes_as("fulltext") for record in knit.get_record_stream(keys, "unordered", True)}
    return [_text(texts[key]) for key in keys]


def diff(text: str, parents: list[str]) -> str:
    """Return an mpdiff."""
    return _text(b"".join(MultiParent.from_lines(_lines(text), [_lines(parent) for parent in parents]).to_patch()))


def patch(data: str, parents: list[str]) -> str:
    """Return the text of an mpdiff."""
    return _text(b"".join(MultiParent.from_patch(_bytes(data)).to_lines([_bytes(parent) for parent in parents])))


def main() -> None:
    """Answer until there are no more questions."""
    for question in sys.stdin:
        name, arguments = json.loads(question)
        try:
            answer = {"answer": globals()[name](**arguments)}
        except Exception as error:  # noqa: BLE001 - that it refuses may be what was asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
