"""Breezy, measured in a process of its own: it answers one request a line, in JSON, with seconds of its processor.

Breezy is under the GPL: this file runs apart from Penstock, with the packages of ``.venv-breezy`` only, and nothing of
Penstock imports it. Texts come in a file, pickled: rows of a key, its parents and a text.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import breezy  # noqa: F401 - it prepares what the others import
from breezy.bzr.btree_index import BTreeBuilder, BTreeGraphIndex
from breezy.bzr.groupcompress import GroupCompressVersionedFiles, _GCGraphIndex
from breezy.bzr.knit import KnitVersionedFiles, make_file_factory, patiencediff
from breezy.bzr.pack import ContainerWriter
from breezy.bzr.pack_repo import _DirectPackAccess
from breezy.bzr.versionedfile import ConstantMapper, FulltextContentFactory
from breezy.osutils import split_lines
from breezy.transport import get_transport_from_path
from breezy.transport.memory import MemoryTransport

_PACK, _INDEX = "texts.pack", "texts.index"
_BASIS, _NEW = (b"basis",), (b"new",)


def _knit() -> KnitVersionedFiles:
    return make_file_factory(False, ConstantMapper("texts"))(MemoryTransport())


def add_lines(path: str) -> float:
    """Add the new text of each pair, in lines, to a knit whose basis is in memory; return the seconds."""
    taken = 0.0
    for basis, text in pickle.loads(Path(path).read_bytes()):
        knit = _knit()
        lines = split_lines(text)
        *_, content = knit.add_lines(_BASIS, [], split_lines(basis))
        start = time.thread_time()
        knit.add_lines(_NEW, [_BASIS], lines, parent_texts={_BASIS: content})
        taken += time.thread_time() - start
    return taken


def delta(path: str) -> tuple[float, int]:
    """Compute the delta of each pair from bytes to lines of a record, without storing it; return seconds and bytes."""
    knit = _knit()
    size = 0
    pairs = pickle.loads(Path(path).read_bytes())
    start = time.thread_time()
    for basis, text in pairs:
        content = knit._factory.make(split_lines(text), b"new")
        hashlib.sha1(text, usedforsecurity=False).hexdigest()
        matcher = patiencediff.PatienceSequenceMatcher(None, split_lines(basis), content.text())
        hunks = knit._make_line_delta(matcher, content)
        size += len(b"".join(knit._factory.lower_line_delta(hunks)))
    return time.thread_time() - start, size


def store(path: str, folder: str) -> int:
    """Put texts, those of a file side by side and the newest first, into a pack of groups; return its bytes."""
    transport = get_transport_from_path(folder)
    builder = BTreeBuilder(reference_lists=1, key_elements=2)
    stream = transport.open_write_stream(_PACK)
    writer = ContainerWriter(stream.write)
    writer.begin()
    access = _DirectPackAccess({})
    access.set_writer(writer, builder, (transport, _PACK))
    index = _GCGraphIndex(builder, lambda: True, parents=True, add_callback=builder.add_nodes)
    files = GroupCompressVersionedFiles(index, access)
    files.insert_record_stream(
        FulltextContentFactory(key, parents, None, text) for key, parents, text in pickle.loads(Path(path).read_bytes())
    )
    writer.end()
    stream.close()
    return Path(folder, _PACK).stat().st_size + int(transport.put_file(_INDEX, builder.finish()))


class Reader:
    """A pack of groups, just opened."""

    def __init__(self, folder: str) -> None:
        transport = get_transport_from_path(folder)
        index = BTreeGraphIndex(transport, _INDEX, Path(folder, _INDEX).stat().st_size)
        access = _DirectPackAccess({index: (transport, _PACK)})
        self._files = GroupCompressVersionedFiles(_GCGraphIndex(index, lambda: True, parents=True), access)

    def text(self, key: tuple[bytes, ...]) -> bytes:
        """Return a text."""
        stream = self._files.get_record_stream([key], "unordered", True)
        text: bytes = next(stream).get_bytes_as("fulltext")  # a record can be asked until the next one comes
        return text


def read(folder: str, keys: str, again: str) -> dict[str, list[float]]:
    """Read texts, each from a pack just opened, then each again and again from one; return the seconds."""
    taken: dict[str, list[float]] = {"opened": [], "cold": [], "warm": []}
    wanted = pickle.loads(Path(keys).read_bytes())
    for key in wanted:
        start = time.thread_time()
        reader = Reader(folder)
        opened = time.thread_time()
        reader.text(key)
        end = time.thread_time()
        taken["opened"].append(end - start)
        taken["cold"].append(end - opened)
    reader = Reader(folder)
    for key in wanted:
        reader.text(key)
        start = time.thread_time()
        for _ in range(int(again)):
            reader.text(key)
        taken["warm"].append((time.thread_time() - start) / int(again))
    return taken


def main() -> None:
    """Answer until there are no more requests."""
    for request in sys.stdin:
        name, *arguments = json.loads(request)
        answer: Any = globals()[name](*arguments)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
