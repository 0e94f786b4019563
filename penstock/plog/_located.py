"""The places of blocks in a file of this machine, so that another process can read them without the owner.

The process that owns the plogs says which blocks are acknowledged and where they are; they never change again. The
reading process maps the file and checks each block, as the owner does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import PlogCorrupt
from penstock.plog._block import PLOG_BLOCK_HEADER_SIZE, block_matches, unpack_block_header
from penstock.plog._head import HEAD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LocatedBlocks", "copy_located", "folder_place", "read_located"]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class LocatedBlocks:
    """Blocks that follow each other in a file.

    ``first`` is the number of the first block; ``offsets`` are the offsets of the blocks in the plog and the end of the
    last one, 4 bytes each, little-endian; ``key`` is the prefix of their checksums.
    """

    path: str
    key: bytes
    first: int
    offsets: bytes

    @property
    def begin(self) -> int:
        """The position in the file at which the first block's header begins."""
        return HEAD_SIZE + self.first * PLOG_BLOCK_HEADER_SIZE + int(np.frombuffer(self.offsets, "<u4", 1)[0])

    @property
    def end(self) -> int:
        """The position in the file at which the last block ends."""
        offsets = np.frombuffer(self.offsets, "<u4")
        return HEAD_SIZE + (self.first + len(offsets) - 1) * PLOG_BLOCK_HEADER_SIZE + int(offsets[-1])

    def between(self, low: int, high: int) -> LocatedBlocks:
        """Return the blocks that hold any byte from offset ``low`` to offset ``high`` of the plog."""
        offsets = np.frombuffer(self.offsets, "<u4")
        first = max(int(np.searchsorted(offsets, low, "right")) - 1, 0)
        last = int(np.searchsorted(offsets, high, "left"))
        return LocatedBlocks(self.path, self.key, self.first + first, offsets[first : last + 1].tobytes())


def folder_place(folder: int | Path) -> list[str | int]:
    """Return values that identify the folder among all mounted on this system, and this system since its start."""
    status = os.stat(folder)
    return [_BOOT.read_text().strip(), status.st_dev, status.st_ino]


def copy_located(located: LocatedBlocks, fd: int) -> Iterator[tuple[int, memoryview]]:
    """Return each block, copied from an open file, with its offset; ``PlogCorrupt`` if one fails its check."""
    begin = located.begin
    return read_located(located, memoryview(os.pread(fd, located.end - begin, begin)), set(), begin=begin)


def read_located(
    located: LocatedBlocks, image: memoryview, verified: set[int], *, begin: int = 0
) -> Iterator[tuple[int, memoryview]]:
    """Return each block with its offset in the plog; ``PlogCorrupt`` if one fails its check.

    ``image`` is the file from ``begin`` on. ``verified`` holds the numbers of the blocks that were checked before, and
    gets those that are checked now.
    """
    offsets: list[int] = np.frombuffer(located.offsets, "<u4").tolist()
    for index, (start, end) in enumerate(pairwise(offsets), located.first):
        position = HEAD_SIZE + index * PLOG_BLOCK_HEADER_SIZE + start - begin
        if index not in verified:
            if not _is_at(located.key, image, position, offset=start, size=end - start):
                raise PlogCorrupt(located.path, offset=begin + position, reason=f"block {index} fails its checksum")
            verified.add(index)
        body = position + PLOG_BLOCK_HEADER_SIZE
        yield start, image[body : body + end - start]


def _is_at(key: bytes, image: memoryview, position: int, *, offset: int, size: int) -> bool:
    """Return whether the block at ``position`` is the one that was located there."""
    header = unpack_block_header(image, position)
    return (
        header is not None
        and (header.offset, header.body_size) == (offset, size)
        and block_matches(key, image, position)
    )
