"""What a repository stream consists of: records, and in each record factories, one for every item.

A stream yields its records once, from front to back, and so does a record its entries: an item can be asked for its
bytes while it is the current one, or later, since a factory holds on to what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.errors import MissingBasis, UnavailableRepresentation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.repo._keys import Key

__all__ = [
    "ABSENT",
    "FULLTEXT",
    "KNIT_DELTA",
    "TOPOLOGICAL",
    "UNORDERED",
    "AbsentFactory",
    "ContentFactory",
    "Factory",
    "Record",
    "RecordStream",
    "StoredFactory",
]

UNORDERED: Final = "unordered"
TOPOLOGICAL: Final = "topological"

FULLTEXT: Final = "fulltext"
KNIT_DELTA: Final = "knit-delta"
ABSENT: Final = "absent"


class Factory(Protocol):
    """An item of a stream: what is known of it, and its bytes in the representations that are at hand.

    ``key`` and each of ``parents`` continue the key prefix of the record. ``sha1`` is that of the full text, 40
    hexadecimal digits; None if it is not known. ``compressor_data`` is what the storage kind needs beside the bytes.
    """

    @property
    def key(self) -> Key: ...
    @property
    def parents(self) -> tuple[Key, ...]: ...
    @property
    def sha1(self) -> str | None: ...
    @property
    def storage_kind(self) -> str: ...
    @property
    def compressor_data(self) -> dict[str, Any] | None: ...

    def get_bytes_as(self, storage_kind: str) -> bytes:
        """Return the item in one representation; ``UnavailableRepresentation`` if it cannot be had from here."""


class ContentFactory:
    """An item whose bytes are in memory, as a stream from elsewhere has them."""

    __slots__ = ("_data", "compressor_data", "key", "parents", "sha1", "storage_kind")

    def __init__(
        self,
        key: Key,
        parents: tuple[Key, ...],
        data: bytes,
        *,
        storage_kind: str = FULLTEXT,
        sha1: str | None = None,
        compressor_data: dict[str, Any] | None = None,
    ) -> None:
        self.key, self.parents, self._data = key, parents, data
        self.storage_kind, self.sha1, self.compressor_data = storage_kind, sha1, compressor_data

    def get_bytes_as(self, storage_kind: str) -> bytes:
        """Return the bytes, if they are of this kind."""
        if storage_kind != self.storage_kind:
            raise UnavailableRepresentation(self.key, storage_kind, self.storage_kind)
        return self._data


class StoredFactory:
    """An item that is stored where other items are: it can also be had as a full text.

    A large one has a block of its own, which ``read_pieces`` returns piece by piece; it is None for others.
    """

    __slots__ = ("_read", "_whole", "compressor_data", "key", "parents", "read_pieces", "sha1", "storage_kind")

    def __init__(
        self,
        key: Key,
        parents: tuple[Key, ...],
        *,
        storage_kind: str,
        sha1: str | None,
        compressor_data: dict[str, Any] | None,
        read: Callable[[], bytes],
        read_text: Callable[[], bytes],
        read_pieces: Callable[[], Iterator[bytes]] | None,
    ) -> None:
        self.key, self.parents = key, parents
        self.storage_kind, self.sha1, self.compressor_data = storage_kind, sha1, compressor_data
        self._read, self._whole, self.read_pieces = read, read_text, read_pieces

    def get_bytes_as(self, storage_kind: str) -> bytes:
        """Return the bytes as they are stored, or the full text."""
        if storage_kind == self.storage_kind:
            return self._read()
        if storage_kind == FULLTEXT:
            try:
                return self._whole()
            except MissingBasis:
                raise UnavailableRepresentation(self.key, storage_kind, self.storage_kind) from None
        raise UnavailableRepresentation(self.key, storage_kind, self.storage_kind)


class AbsentFactory:
    """An item that was asked for and is not there."""

    __slots__ = ("key",)
    parents: tuple[Key, ...] = ()
    sha1: str | None = None
    storage_kind = ABSENT
    compressor_data: dict[str, Any] | None = None

    def __init__(self, key: Key) -> None:
        self.key = key

    def get_bytes_as(self, storage_kind: str) -> bytes:
        """Raise ``UnavailableRepresentation``."""
        raise UnavailableRepresentation(self.key, storage_kind, ABSENT)


class Record:
    """Items whose keys begin alike."""

    __slots__ = ("entries", "key_prefix")

    def __init__(self, key_prefix: Key, entries: Iterator[Factory]) -> None:
        self.key_prefix, self.entries = key_prefix, entries


class RecordStream(Protocol):
    """Records, to be read once from front to back: what ``insert_stream`` and ``Bundle.write`` take."""

    def iter_contents(self) -> Iterator[Record]:
        """Return the records."""
