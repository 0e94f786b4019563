"""Objects: named bytes in a bucket, below a prefix.

An object is put once and never changes, except the few that :meth:`Objects.replace` changes. A call that raises
``StorageUnavailable`` may have been carried out: whoever needs to know looks at the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports._disk import Bytes

__all__ = ["Objects", "StoredObject"]


class StoredObject(NamedTuple):
    """The bytes of an object, and the tag of this version of it."""

    data: memoryview
    tag: str


class Objects(Protocol):
    """The objects below a prefix of a bucket. Any thread may call; every call is one request, or a few."""

    def where(self, name: str = "") -> str:
        """Return the address of an object, for messages: it holds no credentials."""

    def put_new(self, name: str, *parts: Bytes) -> None:
        """Put an object, all parts as one; ``ObjectExists`` if there is one of this name, whoever put it."""

    def replace(self, name: str, data: Bytes, *, tag: str | None) -> str:
        """Replace the version with this tag, or put the first one if it is None; return the new version's tag.

        ``ObjectChanged`` if the object has another tag, is there though ``tag`` is None, or is not there.
        """

    def get(self, name: str) -> StoredObject:
        """Return a whole object; ``NoSuchObject`` if there is none."""

    def get_range(self, name: str, start: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``start`` on, fewer where the object ends; ``NoSuchObject`` if there is none."""

    def exists(self, name: str) -> bool:
        """Return whether there is such an object."""

    def delete(self, *names: str) -> None:
        """Delete objects; those that are not there are no error."""

    def names(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Return the names that begin with ``prefix`` and come after another name, sorted.

        A bucket may list a new object late.
        """

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of all objects whose names begin with ``prefix``, by name, from one listing."""

    def close(self) -> None:
        """Release the connections."""
