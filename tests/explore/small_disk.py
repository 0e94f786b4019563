"""A disk of a given size: what does not fit is refused with ENOSPC, as the operating system does."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Bytes, File
    from penstock.testing import MemoryDisk

_FILE_COST: Final = 64  # of a file by itself


class SmallDisk:
    """A memory disk, of which ``limit`` bytes can be used."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.limit: float = float("inf")
        self.refused = 0
        self.remove, self.names, self.sync = disk.remove, disk.names, disk.sync
        self.rename, self.lock, self.where, self.close = disk.rename, disk.lock, disk.where, disk.close

    @property
    def used(self) -> int:
        """How many bytes all files take."""
        return sum(map(self._size_of, self._disk.names()))

    def _size_of(self, name: str) -> int:
        try:
            return _FILE_COST + self._disk.open(name).size()
        except FileNotFoundError:
            return 0  # another thread has removed it meanwhile

    @property
    def is_full(self) -> bool:
        """Whether next to nothing fits any more."""
        return self.used + _FILE_COST > self.limit

    def take(self, size: int) -> None:
        """Refuse to use more bytes than there are."""
        if size > 0 and self.used + size > self.limit:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, name: str) -> SmallFile:
        """Make a new file and open it."""
        self.take(_FILE_COST)
        return SmallFile(self, self._disk.create(name))

    def open(self, name: str) -> SmallFile:
        """Open a file."""
        return SmallFile(self, self._disk.open(name))


class SmallFile:
    """An open file of a :class:`SmallDisk`."""

    def __init__(self, disk: SmallDisk, file: File) -> None:
        self._disk, self._file = disk, file
        self.view, self.datasync, self.truncate = file.view, file.datasync, file.truncate
        self.size, self.close = file.size, file.close

    def pwritev(self, parts: Sequence[Bytes], offset: int) -> int:
        """Write the parts, if there is space for what they add to the file."""
        self._disk.take(offset + sum(map(len, parts)) - self._file.size())
        return self._file.pwritev(parts, offset)

    def reserve(self, size: int) -> None:
        """Make the file longer, if there is space."""
        self._disk.take(size - self._file.size())
        self._file.reserve(size)
