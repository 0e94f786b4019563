"""The index: in which block an item is, and which items a revision has brought.

It has four numbers an item, sorted by revision: hashes of the revision and of the key, the address of the block, and
the number of the item in it. Two keys may share a hash, so the block has the last word. What was added since is kept
beside the sorted part; :meth:`Index.sorted` brings both together.

An address is the offset of an event in a repository's stream, or of a block in the file of a bundle. Of two items with
one key, the one with the lower address counts: it was there first.
"""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Final

import google_crc32c
import numpy as np
import zstandard

from penstock.repo._keys import Key, key_hash, revision_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["ROWS_MAX", "ROW_SIZE", "Index", "Place", "decode_rows", "encode_rows", "merge"]

Place = tuple[int, int]  # the address of a block, and the number of an item in it

_KIND: Final = np.dtype("<u8")
_REVISION, _KEY, _ADDRESS, _NUMBER = range(4)
ROW_SIZE: Final = 4 * _KIND.itemsize
ROWS_MAX: Final = 1 << 28
_ADDED_MAX: Final = 10_000  # items of one insert that are kept beside the sorted part


class Index:
    """Where items are. One thread adds; others may look up meanwhile."""

    def __init__(self, columns: NDArray[np.uint64] | None = None) -> None:
        self._sorted: NDArray[np.uint64] = np.empty((4, 0), np.uint64) if columns is None else columns
        self._added: dict[int, list[tuple[int, int, int]]] = {}  # by the hash of the revision
        self._added_count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._sorted.shape[1]) + self._added_count

    def add(self, blocks: Iterable[tuple[int, Iterable[Key]]]) -> None:
        """Add the items of blocks, which lie behind all others; another thread sees all of them or none."""
        numbers = array("Q")
        for address, keys in blocks:
            for number, key in enumerate(keys):
                numbers.extend((revision_hash(key[-1]), key_hash(key), address, number))
        rows = np.frombuffer(numbers, np.uint64).reshape(-1, 4)
        if len(rows) > _ADDED_MAX:  # objects would take ten times as much memory
            merged = _merged([self.sorted().columns, rows.T]).columns
            with self._lock:
                self._sorted, self._added, self._added_count = merged, {}, 0
            return
        with self._lock:
            for revision, *entry in rows.tolist():
                self._added.setdefault(revision, []).append((entry[0], entry[1], entry[2]))
            self._added_count += len(rows)

    def find(self, key: Key) -> list[Place]:
        """Return where an item with this key may be, in the order of addresses."""
        revision, wanted = revision_hash(key[-1]), key_hash(key)
        with self._lock:
            rows, added = self._rows_of(revision), self._added.get(revision)
        matches = (rows[_KEY] == np.uint64(wanted)).nonzero()[0]
        places = [(int(rows[_ADDRESS, row]), int(rows[_NUMBER, row])) for row in matches]
        if added:
            places += [(address, number) for hashed, address, number in added if hashed == wanted]
        return places

    def of_revisions(self, revisions: Iterable[bytes]) -> list[Place]:
        """Return where the items of some revisions may be, in the order of addresses."""
        places: list[Place] = []
        with self._lock:
            for revision in map(revision_hash, revisions):
                places += _places(self._rows_of(revision)[_ADDRESS:])
                places += [(address, number) for _, address, number in self._added.get(revision, ())]
        places.sort()
        return places

    def addresses(self, revisions: Iterable[bytes] | None = None) -> list[int]:
        """Return the addresses of all blocks, or of those that may have items of some revisions, in their order."""
        if revisions is not None:
            return sorted({address for address, _ in self.of_revisions(revisions)})
        with self._lock:
            added = {address for entries in self._added.values() for _, address, _ in entries}
        return sorted({*np.unique(self._sorted[_ADDRESS]).tolist(), *added})

    def doubtful(self) -> set[Place]:
        """Return the places of items whose hashes occur more than once: perhaps the same key twice."""
        columns = self.sorted().columns
        columns = columns[:, np.lexsort((columns[_KEY], columns[_REVISION]))]
        same = (columns[_REVISION:_ADDRESS, 1:] == columns[_REVISION:_ADDRESS, :-1]).all(axis=0)
        return set(_places(columns[_ADDRESS:, 1:][:, same]) + _places(columns[_ADDRESS:, :-1][:, same]))

    def sorted(self) -> Index:
        """Return an index of the same items, all of them in the sorted part."""
        with self._lock:
            columns = self._sorted
            added = [(revision, *entry) for revision, entries in self._added.items() for entry in entries]
        return _merged([columns, np.array(added, np.uint64).T]) if added else self

    def between(self, start: int, end: int) -> Index:
        """Return an index of the items from an address up to another one, all of them in the sorted part."""
        columns = self.sorted().columns
        return Index(columns[:, (columns[_ADDRESS] >= start) & (columns[_ADDRESS] < end)])

    @property
    def columns(self) -> NDArray[np.uint64]:
        """The sorted part."""
        assert not self._added_count, "sort first"
        return self._sorted

    def _rows_of(self, revision: int) -> NDArray[np.uint64]:
        wanted, column = np.uint64(revision), self._sorted[_REVISION]
        return self._sorted[:, column.searchsorted(wanted) : column.searchsorted(wanted, "right")]


def merge(parts: Sequence[Index]) -> Index:
    """Return one sorted index of the items of several sorted ones, each behind the addresses of the one before."""
    return parts[0] if len(parts) == 1 else _merged([part.columns for part in parts])


def encode_rows(index: Index) -> bytes:
    """Return a sorted index as it is stored.

    0   4  checksum  crc32c of all that follows
    4   4  rows      how many items it has, big-endian
    8   …  columns   revision, key, address and number, little-endian in 8 bytes each; all compressed with zstd
    """
    raw = index.columns.astype(_KIND, copy=False).tobytes()
    body = len(index).to_bytes(4, "big") + zstandard.ZstdCompressor(level=3).compress(raw)
    check: int = google_crc32c.value(body)
    return check.to_bytes(4, "big") + body


def decode_rows(data: bytes | memoryview, *, rows_max: int = ROWS_MAX) -> Index:
    """Return a stored index; ``ValueError`` if it is damaged, or has more rows than there can be."""
    body = bytes(data[4:])
    if len(body) < 4 or google_crc32c.value(body) != int.from_bytes(data[:4], "big"):
        raise ValueError("the index does not match its checksum")
    count = int.from_bytes(body[:4], "big")
    if count > rows_max:
        raise ValueError(f"the index has {count:,} rows, more than {rows_max:,}")
    try:
        raw = zstandard.ZstdDecompressor().decompress(body[4:], max_output_size=count * ROW_SIZE) if count else b""
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"the index cannot be decompressed: {error}") from None
    if len(raw) != count * ROW_SIZE:
        raise ValueError(f"the index has {len(raw):,} bytes for {count:,} rows")
    columns = np.frombuffer(raw, _KIND).astype(np.uint64, copy=False).reshape(4, count)
    if bool((columns[_REVISION, 1:] < columns[_REVISION, :-1]).any()):
        raise ValueError("the index is not sorted")
    return Index(columns)


def _merged(parts: Sequence[NDArray[np.uint64]]) -> Index:
    """Return one index of parts, each behind the addresses of the one before: a stable sort keeps these in order."""
    columns = np.concatenate(parts, axis=1)
    return Index(columns.take(columns[_REVISION].argsort(kind="stable"), axis=1))


def _places(columns: NDArray[np.uint64]) -> list[Place]:
    return list(zip(*columns.tolist(), strict=True))
