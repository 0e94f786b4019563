"""The bundle: a repository stream in one file, with an index, so that any item of it can be read by itself.

::

    0   8  magic    PSBUNDL and the number of the format
    8   …  blocks   one behind another, as in a repository's stream
        …  index    where each item is
        …  footer   a msgpack array: offset and size of the index, the items, what is missing
       -16 4  footer_size
       -12 4  checksum  crc32c of the footer
       -8  8  magic, again: a file that was cut off lacks it

To open a bundle, its end is read; to read an item, the block that has it: two or three requests where the file is at a
web server. A bundle of some revisions only may have deltas on items that it does not have: it is stacked on contents
that have them, or inserted where they are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import tempfile
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

import google_crc32c
import msgspec

from penstock.errors import BadArgument, BundleCorrupt, NotABundle
from penstock.model import UNDECODABLE, check_kind, check_method, shown
from penstock.repo._buffer import naming
from penstock.repo._contents import RepositoryContents
from penstock.repo._index import decode_rows, encode_rows
from penstock.repo._keys import REVISIONS
from penstock.repo._packer import Packer
from penstock.repo._ranges import open_ranges
from penstock.repo._records import ContentFactory
from penstock.repo._refs import REFS, encode_refs, next_refs_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from penstock.repo._index import Index
    from penstock.repo._keys import Key
    from penstock.repo._ranges import RangeFile
    from penstock.repo._records import RecordStream
    from penstock.repo._refs import Ref
    from penstock.repo._stream import StreamCheck

__all__ = ["Bundle", "BundleResult"]

_MAGIC: Final = b"PSBUNDL\x01"
_TAIL: Final = struct.Struct(">II8s")
assert _TAIL.size == 16, "stored since format 1"
_END_SIZE: Final = 64 << 10  # read at first: the whole end of a small bundle
_FOOTER_SIZE_MAX: Final = 64 << 20
_PIECE_SIZE: Final = 1 << 20


class _Footer(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    index_start: int
    index_size: int
    items: int
    missing: list[tuple[bytes, ...]]


_FOOTERS: Final = msgspec.msgpack.Decoder(_Footer)


class BundleResult(msgspec.Struct, frozen=True):
    """What was written: how many items of revisions, and on which items that are not there their deltas build."""

    items: int
    missing: tuple[Key, ...]


class FileBlocks:
    """Blocks in the file of a bundle."""

    def __init__(self, file: RangeFile, index: Index, end: int) -> None:
        self._file = file
        self._borders = [*index.addresses(), end]

    def read_block(self, address: int, *, table_only: bool) -> bytes:
        """Return a block: one request, whatever is needed of it."""
        del table_only
        end = self._borders[bisect_right(self._borders, address)]
        return self._file.read(address, end)

    def pieces(self, address: int) -> Iterator[bytes]:
        """Return a block piece by piece."""
        end = self._borders[bisect_right(self._borders, address)]
        for start in range(address, end, _PIECE_SIZE):
            yield self._file.read(start, min(start + _PIECE_SIZE, end))

    def damaged(self, address: int, reason: str) -> BundleCorrupt:
        """Return the error that says which block is damaged."""
        return BundleCorrupt(f"bundle {self._file.name}", offset=address, reason=reason)


class Bundle(RepositoryContents):
    """A serialised stream, open for reading: the same interface as a repository. Close it, or use it in ``with``."""

    def __init__(self, file: RangeFile, *, stacked_on: RepositoryContents | None = None) -> None:
        self._file = file
        footer, index = _read_end(file)
        super().__init__(FileBlocks(file, index, footer.index_start), index, stacked_on=stacked_on)
        self.missing: tuple[Key, ...] = tuple(footer.missing)

    @classmethod
    def open(cls, path_or_url: str | os.PathLike[str]) -> Self:
        """Open a bundle: a file, or an address such as ``https://…`` or ``s3://…``, of which it reads what it needs."""
        file = open_ranges(path_or_url)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    @staticmethod
    def write(
        path_or_file: str | os.PathLike[str] | BinaryIO,
        stream: RecordStream,
        *,
        refs: Mapping[bytes, Ref] | None = None,
    ) -> BundleResult:
        """Write a stream into a new bundle, and return what it has.

        ``refs`` are branches and tags for a stream that has none, as that of ``Everything`` has: the bundle gets those
        whose revisions are in the stream. A file appears under its name when it is complete, and an older one of that
        name stays until then; a pipe or a device is written to.
        """
        check_method("stream", stream, "iter_contents")
        if isinstance(path_or_file, str | os.PathLike):
            path = Path(os.path.realpath(path_or_file))
            if not path.exists() or path.is_file():
                with _replacing(path) as file:
                    return _write(file, stream, refs or {})
            with _opened(path, "wb") as file:
                return Bundle.write(file, stream, refs=refs)
        check_method("file", path_or_file, "write")
        with tempfile.TemporaryFile() as file:
            result = _write(file, stream, refs or {})
            file.seek(0)
            while part := file.read(1 << 20):
                path_or_file.write(part)
        return result

    def stacked_on(self, below: RepositoryContents) -> Bundle:
        """Return this bundle on top of a repository or another bundle, which is asked for what is not here."""
        check_kind("below", below, RepositoryContents)
        return Bundle(self._file, stacked_on=below)

    def check(self) -> StreamCheck:
        """Reconstruct every item, and compare it with its sha1.

        What a bundle of changes builds on is not missing: the result names it as ``elsewhere``.
        """
        found = super().check()
        elsewhere = frozenset(self.missing).intersection(found.missing)
        missing = tuple(key for key in found.missing if key not in elsewhere)
        return replace(found, missing=missing, elsewhere=tuple(sorted(elsewhere)))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _write(file: BinaryIO, stream: RecordStream, refs: Mapping[bytes, Ref]) -> BundleResult:
    file.write(_MAGIC)
    with Packer(file) as packer:
        packer.take(stream)
        revisions = {key[-1] for key in packer.added if key[0] == REVISIONS}
        if named := {name: ref for name, ref in refs.items() if ref.revision in revisions}:
            packer.add((), ContentFactory(next_refs_key(None), (), encode_refs(named)))
        missing, lists = packer.missing, packer.count_of(REFS)
        packer.finish(keep_held=True)
    index_start = file.seek(0, os.SEEK_END)
    index = encode_rows(packer.index.sorted())
    footer = msgspec.msgpack.encode(_Footer(index_start, len(index), packer.added_count, missing))
    with naming(file):
        file.write(index + footer + _TAIL.pack(len(footer), google_crc32c.value(footer), _MAGIC))
    return BundleResult(packer.added_count - lists, tuple(missing))


def _read_end(file: RangeFile) -> tuple[_Footer, Index]:
    """Return the footer and the index, of which nothing is believed before its checksum."""

    def damaged(reason: str) -> BundleCorrupt:
        return BundleCorrupt(f"bundle {file.name}", offset=None, reason=reason)

    size = file.size
    begin, end = file.read(0, len(_MAGIC)), file.read(max(0, size - _END_SIZE), size)
    if begin != _MAGIC and not end.endswith(_MAGIC):
        raise NotABundle(file.name)
    if begin != _MAGIC or size < len(_MAGIC) + _TAIL.size:
        raise damaged("it does not begin like a bundle, or is cut off")
    footer_size, check, magic = _TAIL.unpack(end[-_TAIL.size :])
    if magic != _MAGIC or footer_size > min(size, _FOOTER_SIZE_MAX):
        raise damaged("its end is missing")
    start = size - _TAIL.size - footer_size
    data = _part(file, end, start, start + footer_size)
    if google_crc32c.value(data) != check:
        raise damaged("its footer does not match its checksum")
    try:
        footer = _FOOTERS.decode(data)
        if footer.index_start < len(_MAGIC) or footer.index_start + footer.index_size != start:
            raise damaged("its index is not where its footer says")
        return footer, decode_rows(_part(file, end, footer.index_start, start))
    except UNDECODABLE as error:
        raise damaged(str(error)) from None


def _part(file: RangeFile, end: bytes, start: int, stop: int) -> bytes:
    """Return a part of a file, of which the end has been read."""
    known = file.size - len(end)
    return end[start - known : stop - known] if start >= known else file.read(start, stop)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file that takes the place of ``path`` when it is complete and on the disk."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with _opened(temporary, "x+b", name=path) as file:
            yield file
            with naming(file):
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)
        raise


def _opened(path: Path, mode: Literal["wb", "x+b"], *, name: Path | None = None) -> BinaryIO:
    try:
        return path.open(mode)
    except OSError as error:
        raise BadArgument(f"cannot write the bundle {shown(str(name or path))}: {error.strerror}") from None
