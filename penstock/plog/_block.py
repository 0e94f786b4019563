"""The block: the stored form of one append, and the places of blocks in a file.

A block carries a checksum and its own offset, so neither a torn, a stale nor a misdirected write passes for a block.
Blocks follow each other after the head of the file; the offsets that readers use count the bodies only.

Another process of this machine can read blocks without the owner: the process that owns the plogs says which blocks are
acknowledged and where they are (:class:`LocatedBlocks`); they never change again. The reading process maps the file and
checks each block, as the owner does.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import google_crc32c
import numpy as np

from penstock.checksums import crc32c
from penstock.errors import PlogCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from penstock.ports import Bytes

__all__ = [
    "HEAD_SIZE",
    "PLOG_BLOCK_HEADER_SIZE",
    "LocatedBlocks",
    "PlogBlockHeader",
    "block_matches",
    "clip_extents",
    "copy_located",
    "folder_place",
    "pack_block_header",
    "read_extents",
    "read_located",
    "unpack_block_header",
]

HEAD_SIZE: Final = 4096  # of the file; the first block follows it
_HEADER: Final = struct.Struct(">HBxIQI")
_CHECKED: Final = struct.Struct(">HBxIQ")
PLOG_BLOCK_HEADER_SIZE: Final = _HEADER.size
assert PLOG_BLOCK_HEADER_SIZE == 20, "on disk since format 1: a new size needs a new kind"
_MAGIC: Final = 0x5042
_KIND: Final = 1
_POSITION_MAX: Final = 1 << 48
_JOINED_SIZE_MAX: Final = 4096  # to copy so much is quicker than a call for each part
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class PlogBlockHeader:
    """The 20 bytes before every block body, big-endian.

    0   2  magic      0x5042
    2   1  kind       1; stored, so a number is never given a new meaning
    4   4  body_size  bytes that follow
    8   8  offset     of the body in its plog, headers not counted
    16  4  checksum   crc32c of the plog's uid and birth, bytes 0-15, the body
    """

    body_size: int
    offset: int
    checksum: int


def pack_block_header(key: bytes, *, offset: int, body: Sequence[Bytes], body_size: int) -> bytes:
    """Return the header of a block at ``offset`` of the plog with ``key``, whose body is the parts of ``body``."""
    checked = _CHECKED.pack(_MAGIC, _KIND, body_size, offset)
    if body_size <= _JOINED_SIZE_MAX:
        checksum: int = google_crc32c.value(b"".join((key, checked, *body)))
    else:
        checksum = crc32c(0, key + checked, *body)
    return checked + checksum.to_bytes(4, "big")


def unpack_block_header(view: memoryview, position: int) -> PlogBlockHeader | None:
    """Return the header at ``position``, None if there is no header."""
    if position + PLOG_BLOCK_HEADER_SIZE > len(view):
        return None
    magic, kind, body_size, offset, checksum = _HEADER.unpack_from(view, position)
    if magic != _MAGIC or kind != _KIND:
        return None
    return PlogBlockHeader(body_size, offset, checksum)


def block_matches(key: bytes, view: memoryview, position: int) -> bool:
    """Return whether the block at ``position`` is complete, belongs to this plog and is where it was written."""
    header = unpack_block_header(view, position)
    if header is None:
        return False
    body_start = position + PLOG_BLOCK_HEADER_SIZE
    body = view[body_start : body_start + header.body_size]
    checked = bytes(view[position : position + _CHECKED.size])
    return len(body) == header.body_size and crc32c(0, key + checked, body) == header.checksum


@dataclass(frozen=True, slots=True)
class LocatedBlocks:
    """Blocks that follow each other in a file, or in objects below ``path``.

    ``first`` is the number of the first block; ``offsets`` are the offsets of the blocks in the plog and the end of the
    last one, 4 bytes each, little-endian; ``key`` is the prefix of their checksums. Each of ``extents`` is the name of
    an object, and a position in it, in the file that the plog would be, and a size; there are none for a file.
    """

    path: str
    key: bytes
    first: int
    offsets: bytes
    extents: tuple[tuple[str, int, int, int], ...] = ()

    @classmethod
    def received(cls, path: object, key: object, first: object, offsets: object, extents: object) -> LocatedBlocks:
        """Return the blocks that a server has located; ``PlogCorrupt`` if no plog can have such blocks."""
        match path, key, first, offsets, extents:
            case str(), bytes(), int(), bytes(), list() if (
                0 <= first < 1 << 32 and len(offsets) % 4 == 0 < len(offsets) and all(map(_is_extent, extents))
            ):
                if (np.diff(np.frombuffer(offsets, "<u4").astype(np.int64)) > 0).all():
                    located = cls(path, key, first, offsets, tuple(map(tuple, extents)))
                    if not extents or located._is_whole():
                        return located
        raise PlogCorrupt(str(path), offset=None, reason="the server sent invalid block locations")

    def _positions(self) -> npt.NDArray[np.int64]:
        """Return the positions in the file at which blocks begin, and at which the last one ends."""
        offsets = np.frombuffer(self.offsets, "<u4").astype(np.int64)
        return HEAD_SIZE + (self.first + np.arange(len(offsets))) * PLOG_BLOCK_HEADER_SIZE + offsets

    def _is_whole(self) -> bool:
        """Return whether the extents follow each other and hold exactly these blocks, each in one of them."""
        borders = [self.begin, *(start + size for _, _, start, size in self.extents)]
        starts = [start for _, _, start, _ in self.extents]
        return [*starts, self.end] == borders and {*starts} <= {*self._positions().tolist()}

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
        last = max(first, int(np.searchsorted(offsets, high, "left")))
        part = LocatedBlocks(self.path, self.key, self.first + first, offsets[first : last + 1].tobytes())
        return replace(part, extents=clip_extents(self.extents, part.begin, part.end)) if self.extents else part


def _is_extent(extent: object) -> bool:
    match extent:
        case [str(), int(position), int(start), int(size)]:
            return 0 <= position < _POSITION_MAX and 0 <= start < _POSITION_MAX and 0 < size < _POSITION_MAX
    return False


def clip_extents(
    extents: Iterable[tuple[str, int, int, int]], begin: int, end: int
) -> tuple[tuple[str, int, int, int], ...]:
    """Return the parts of extents that lie between two positions of the file that the plog would be."""
    clipped = []
    for name, position, start, size in extents:
        low, high = max(start, begin), min(start + size, end)
        if low < high:
            clipped.append((name, position + low - start, low, high - low))
    return tuple(clipped)


def read_extents(
    located: LocatedBlocks, read: Callable[[str, int, int], memoryview]
) -> Iterator[tuple[int, memoryview]]:
    """Return each block, read from its object, with its offset; ``PlogCorrupt`` if one fails its check."""
    positions = located._positions()
    for name, position, start, size in located.extents:
        first, last = np.searchsorted(positions, (start, start + size)).tolist()
        blocks = replace(
            located,
            first=located.first + first,
            offsets=np.frombuffer(located.offsets, "<u4")[first : last + 1].tobytes(),
        )
        yield from read_located(blocks, read(name, position, size), set(), begin=start)


def folder_place(folder: int | Path) -> list[str | int]:
    """Return values that identify the folder among all mounted on this system, and this system since its start."""
    status = os.stat(folder)
    return [_BOOT.read_text().strip(), status.st_dev, status.st_ino]


def copy_located(located: LocatedBlocks, fd: int) -> Iterator[tuple[int, memoryview]]:
    """Return each block, copied from an open file, with its offset; ``PlogCorrupt`` if one fails its check."""
    begin, end = located.begin, min(located.end, os.fstat(fd).st_size)
    return read_located(located, memoryview(os.pread(fd, max(end - begin, 0), begin)), set(), begin=begin)


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
