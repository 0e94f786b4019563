"""Items that wait to be sorted: what is known of them in memory, their bytes in a file that only this process knows.

So a gigabyte can be sorted at a time, and versions of a file that came long after each other lie side by side.
"""

from __future__ import annotations

from contextlib import contextmanager
from tempfile import SpooledTemporaryFile, gettempdir
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.repo._block import Item
    from penstock.repo._keys import Key

__all__ = ["ItemBuffer", "Waiting", "naming"]

_MEMORY_MAX: Final = 16 << 20
_LEVEL: Final = 1  # it is read once, soon


class Waiting(NamedTuple):
    """An item without its bytes, its size in a block, and where its bytes are."""

    item: Item
    size: int
    start: int
    end: int


@contextmanager
def naming(file: object) -> Iterator[None]:
    """Let the error of a full disk name the file, or the folder of a temporary file, which has no name."""
    try:
        yield
    except OSError as error:
        name = getattr(file, "name", None)
        error.filename = name if isinstance(name, str) else gettempdir()
        raise


class ItemBuffer:
    """Items by their keys, in the order in which they came. Close it."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_MEMORY_MAX)  # noqa: SIM115 - closed by close()
        self._end = 0
        self._waiting: dict[Key, Waiting] = {}
        self.size = 0  # of all items, before they are compressed
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting.values())

    def get(self, key: Key) -> Item | None:
        """Return an item without its bytes, if it is here."""
        waiting = self._waiting.get(key)
        return None if waiting is None else waiting.item

    def add(self, item: Item) -> None:
        """Add an item."""
        data = self._compressor.compress(item.data)
        self._file.seek(self._end)
        with naming(self._file):
            self._file.write(data)
        start, self._end = self._end, self._end + len(data)
        self._waiting[item.key] = Waiting(msgspec.structs.replace(item, data=b""), item.size, start, self._end)
        self.size += item.size

    def data(self, key: Key) -> bytes:
        """Return the bytes of an item."""
        return self._read(self._waiting[key])

    def whole(self, waiting: Waiting) -> Item:
        """Return an item with its bytes."""
        return msgspec.structs.replace(waiting.item, data=self._read(waiting))

    def _read(self, waiting: Waiting) -> bytes:
        self._file.seek(waiting.start)
        return self._decompressor.decompress(self._file.read(waiting.end - waiting.start))

    def clear(self) -> None:
        """Forget all items."""
        self._waiting.clear()
        self._file.seek(0)
        self._file.truncate()
        self._end = self.size = 0

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
