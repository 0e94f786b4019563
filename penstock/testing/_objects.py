"""A bucket in memory: conditional puts behave as those of S3 and Azure do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import NoSuchObject, ObjectChanged, ObjectExists
from penstock.ports import StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports import Bytes

__all__ = ["MemoryObjects"]


class MemoryObjects:
    """Objects in memory; several stores may share one, as processes share a bucket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}  # each with the number of its version
        self._versions = 0

    def where(self, name: str = "") -> str:
        """Return the address of an object, for messages."""
        return f"memory:{name}"

    def put_new(self, name: str, *parts: Bytes) -> None:
        """Put an object, all parts as one; ``ObjectExists`` if there is one of this name."""
        data = b"".join(parts)
        with self._lock:
            if name in self._objects:
                raise ObjectExists(self.where(name))
            self._put(name, data)

    def replace(self, name: str, data: Bytes, *, tag: str | None) -> str:
        """Replace the version with this tag, or put the first one if it is None; return the new version's tag."""
        with self._lock:
            present = self._objects.get(name)
            if (None if present is None else str(present[1])) != tag:
                raise ObjectChanged(self.where(name))
            return self._put(name, bytes(data))

    def _put(self, name: str, data: bytes) -> str:
        self._versions += 1
        self._objects[name] = data, self._versions
        return str(self._versions)

    def get(self, name: str) -> StoredObject:
        """Return a whole object; ``NoSuchObject`` if there is none."""
        present = self._objects.get(name)
        if present is None:
            raise NoSuchObject(self.where(name))
        return StoredObject(memoryview(present[0]), str(present[1]))

    def get_range(self, name: str, start: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``start`` on, or fewer where the object ends."""
        return self.get(name).data[start : start + size]

    def exists(self, name: str) -> bool:
        """Return whether there is such an object."""
        return name in self._objects

    def delete(self, *names: str) -> None:
        """Delete objects; those that are not there are no error."""
        with self._lock:
            for name in names:
                self._objects.pop(name, None)

    def names(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Return the names that begin with ``prefix`` and come after another name, sorted."""
        with self._lock:
            return iter(sorted(name for name in self._objects if name.startswith(prefix) and name > after))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of all objects whose names begin with ``prefix``, by name."""
        with self._lock:
            return {name: len(data) for name, (data, _) in self._objects.items() if name.startswith(prefix)}

    def close(self) -> None:
        """Do nothing: the objects stay."""
