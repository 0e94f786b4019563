"""Blocks by the place where they are, so that another process can read them: in a file of this machine.

Whoever has the plogs tells which blocks were acknowledged and where they lie; they never change again. Who reads them
maps the file and checks each block, as the owner does.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import PlogCorrupt
from penstock.plog._block import BLOCK_HEADER_SIZE, block_matches
from penstock.plog._head import HEAD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LocatedBlocks", "map_file", "read_located"]


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


def map_file(path: str) -> memoryview:
    """Return a file as memory; it stays good when the file is removed."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
    finally:
        os.close(fd)


def read_located(located: LocatedBlocks, image: memoryview, verified: set[int]) -> Iterator[tuple[int, memoryview]]:
    """Return each block with its offset in the plog; one that fails its check is damaged.

    ``verified`` are the numbers of blocks that need no check any more, and get to know more of them.
    """
    offsets: list[int] = np.frombuffer(located.offsets, "<u4").tolist()
    for index, (start, end) in enumerate(pairwise(offsets), located.first):
        position = HEAD_SIZE + index * BLOCK_HEADER_SIZE + start
        if index not in verified:
            if not block_matches(located.key, image, position):
                raise PlogCorrupt(located.path, offset=position, reason=f"block {index} fails its checksum")
            verified.add(index)
        body = position + BLOCK_HEADER_SIZE
        yield start, image[body : body + end - start]
