"""Deltas that come before their basis: they are held until it comes, and count with all that they take in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from penstock.errors import RepositoryError
from penstock.repo._keys import key_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.repo._keys import Key

__all__ = ["HeldDeltas"]

HELD_SIZE_MAX: Final = 256 << 20
_T = TypeVar("_T")


class HeldDeltas(Generic[_T]):
    """Deltas by the keys of their bases, up to a size."""

    def __init__(self) -> None:
        self._deltas: dict[Key, list[tuple[_T, int]]] = {}
        self._size = 0

    def __iter__(self) -> Iterator[tuple[Key, _T]]:
        """Return every delta, with the key of its basis."""
        for basis, deltas in self._deltas.items():
            for delta, _ in deltas:
                yield basis, delta

    def hold(self, basis: Key, delta: _T, *, key: Key, size: int) -> None:
        """Hold a delta of this key and size; an error if they are too many."""
        self._size += size
        if self._size > HELD_SIZE_MAX:
            raise RepositoryError(
                f"the stream has more than {HELD_SIZE_MAX >> 20} MiB of deltas before their bases, the last one "
                f"{key_name(key)}: ask for a topological stream, or for fewer revisions at a time"
            )
        self._deltas.setdefault(basis, []).append((delta, size))

    def release(self, basis: Key) -> list[_T]:
        """Return the deltas that waited for a text, and forget them."""
        released = self._deltas.pop(basis, [])
        self._size -= sum(size for _, size in released)
        return [delta for delta, _ in released]
