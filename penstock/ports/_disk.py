"""The port of the disk: files in one flat folder.

Penstock makes the names of the files, never a user, so no path is ever built from outside input.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bytes", "Disk", "File", "write_all"]

_IOVECS_MAX: Final = 1024  # the most that one pwritev takes on Linux and macOS

Bytes = bytes | memoryview
"""Data to be written: bytes, or a flat view of bytes that do not change meanwhile."""


class File(Protocol):
    """An open file of a :class:`Disk`. Errors are plain ``OSError``; the caller translates them."""

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts one after another at ``offset``; return how many bytes were written (maybe not all)."""

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view of the bytes, shorter at the end of the file; no copy where possible."""

    def datasync(self) -> None:
        """Return once all data written to this file survives a power loss; after an error nothing is known."""

    def reserve(self, size: int) -> None:
        """Make the file at least ``size`` long, and allocate the space for it."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size``."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Close the handle; views stay valid."""


class Disk(Protocol):
    """One flat folder of files."""

    def create(self, name: str) -> File:
        """Create a file and open it; ``FileExistsError`` if there is one."""

    def open(self, name: str) -> File:
        """Open a file; ``FileNotFoundError`` if there is none."""

    def remove(self, name: str) -> None:
        """Remove a file; ``FileNotFoundError`` if there is none."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step, replacing ``new``."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def sync(self) -> None:
        """Return once every creation, rename and removal so far survives a power loss."""

    def lock(self) -> None:
        """Own the folder until :meth:`close`; ``StoreLocked`` if another process owns it."""

    def where(self, name: str = "") -> str:
        """Return the path of a file, or of the folder, for messages."""

    def close(self) -> None:
        """Release the lock."""


def write_all(file: File, parts: Sequence[Bytes], offset: int) -> None:
    """Write every byte of ``parts`` at ``offset``, however many calls it takes.

    A short write is ordinary (a signal, a nearly full disk): the next call shows whether it was an error.
    """
    rest, left = (parts if len(parts) <= _IOVECS_MAX else _rest(parts, 0)), sum(map(len, parts))
    while left:
        written = file.pwritev(rest[:_IOVECS_MAX], offset)
        if not written:
            raise OSError(errno.EIO, "the disk wrote nothing")
        left, offset = left - written, offset + written
        if left:
            rest = _rest(rest, written)


def _rest(parts: Sequence[Bytes], written: int) -> Sequence[Bytes]:
    """Return the rest of ``parts`` after their first ``written`` bytes."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[index + 1 :]]
        written -= len(part)
    return ()
