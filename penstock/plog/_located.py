"""Blocks by the place where they are, so that another process can read them: in a file of this machine.

Whoever has the plogs tells which blocks were acknowledged and where they lie; they never change again. Who reads them
maps the file and checks each block, as the owner does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import PlogCorrupt
from penstock.plog._block import BLOCK_HEADER_SIZE, block_matches, unpack_block_header
from penstock.plog._head import HEAD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LocatedBlocks", "copy_located", "folder_place", "read_located"]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class LocatedBlocks:
    """Blocks that lie one behind another in a file.

    ``first`` is the number of the first of them; ``offsets`` are where each begins in the plog and where the last one
    ends, 4 bytes each, little-endian; ``key`` is what their checksums begin with.
    """

    path: str
    key: bytes
    first: int
    offsets: bytes

    @property
    def begin(self) -> int:
        """Where in the file the first one begins, with its header."""
        return HEAD_SIZE + self.first * BLOCK_HEADER_SIZE + int(np.frombuffer(self.offsets, "<u4", 1)[0])

    @property
    def end(self) -> int:
        """Where in the file the last one ends."""
        offsets = np.frombuffer(self.offsets, "<u4")
        return HEAD_SIZE + (self.first + len(offsets) - 1) * BLOCK_HEADER_SIZE + int(offsets[-1])

    def between(self, low: int, high: int) -> LocatedBlocks:
        """Return those that hold any byte from one offset of the plog to another."""
        offsets = np.frombuffer(self.offsets, "<u4")
        first = max(int(np.searchsorted(offsets, low, "right")) - 1, 0)
        last = int(np.searchsorted(offsets, high, "left"))
        return LocatedBlocks(self.path, self.key, self.first + first, offsets[first : last + 1].tobytes())


def folder_place(folder: int | Path) -> list[str | int]:
    """Return which folder it is among all that this system has mounted, and which system this is."""
    found = os.stat(folder)
    return [_BOOT.read_text().strip(), found.st_dev, found.st_ino]


def copy_located(located: LocatedBlocks, fd: int) -> Iterator[tuple[int, memoryview]]:
    """Return each block, copied from an open file, with its offset in the plog; one that fails its check is damaged."""
    begin = located.begin
    return read_located(located, memoryview(os.pread(fd, located.end - begin, begin)), set(), begin=begin)


def read_located(
    located: LocatedBlocks, image: memoryview, verified: set[int], *, begin: int = 0
) -> Iterator[tuple[int, memoryview]]:
    """Return each block with its offset in the plog; one that fails its check is damaged.

    The image is of the file from ``begin`` on. ``verified`` are the numbers of blocks that need no check any more, and
    get to know more of them.
    """
    offsets: list[int] = np.frombuffer(located.offsets, "<u4").tolist()
    for index, (start, end) in enumerate(pairwise(offsets), located.first):
        position = HEAD_SIZE + index * BLOCK_HEADER_SIZE + start - begin
        if index not in verified:
            if not _is_here(located.key, image, position, offset=start, size=end - start):
                raise PlogCorrupt(located.path, offset=begin + position, reason=f"block {index} fails its checksum")
            verified.add(index)
        body = position + BLOCK_HEADER_SIZE
        yield start, image[body : body + end - start]


def _is_here(key: bytes, image: memoryview, position: int, *, offset: int, size: int) -> bool:
    """Whether the block at ``position`` is the one that was located there."""
    header = unpack_block_header(image, position)
    return (
        header is not None
        and (header.offset, header.body_size) == (offset, size)
        and block_matches(key, image, position)
    )
