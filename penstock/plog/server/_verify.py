"""The check of a stored replica: of its head and every block as the disk has them, or of the blocks that are read.

The first reads the file with ``pread``, and not through the mapping that clients are served from: a sector that cannot
be read is an error then, and not the end of the process. The page cache is asked to let go of the file first, so that
what is read comes from the disk.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final

import google_crc32c

from penstock.checksums import crc32c
from penstock.errors import PlogCorrupt
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, unpack_block_header
from penstock.plog._raw import RawBlocks, check_raw
from penstock.plog._replica import APPEND_SIZE_MAX
from penstock.plog.server._heads import read_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model import PlogId
    from penstock.plog._replica import Replica

__all__ = ["READ_SIZE", "check_readable", "check_stored", "verified_blocks"]

READ_SIZE: Final = 1 << 20
_HEADER: Final = Struct(">HBxIQI")  # that of a block: here it is unpacked for every block of every read
assert _HEADER.size == PLOG_BLOCK_HEADER_SIZE
_MAGIC_AND_KIND: Final = (0x5042, 1)
_CHECKED_SIZE: Final = 16
_JOINED_SIZE_MAX: Final = 4096  # to copy so much is quicker than a call for each part
_LARGEST_BLOCK: Final = PLOG_BLOCK_HEADER_SIZE + APPEND_SIZE_MAX


def verified_blocks(
    replica: Replica, image: memoryview, offset: int, size: int, *, where: str
) -> list[tuple[int, memoryview]]:
    """Return the blocks from ``offset`` to its end, up to the first damaged one; ``PlogCorrupt`` if that is the first.

    A block begins at ``offset``, and one ends behind ``size`` bytes, or the plog does: it may be sealed within a block.
    """
    key, blocks = replica.key, list[tuple[int, memoryview]]()
    first, last = bisect_left(replica.starts, offset), bisect_left(replica.starts, offset + size)
    position = HEAD_SIZE + first * PLOG_BLOCK_HEADER_SIZE + offset
    for start, end in pairwise((*replica.starts[first:last], offset + size)):
        body_start = position + PLOG_BLOCK_HEADER_SIZE
        body = image[body_start : body_start + end - start]
        if not _is_block(key, image, position, body, offset=start):
            if blocks:
                break
            raise PlogCorrupt(where, offset=position, reason=f"the block at offset {start} fails its checksum")
        blocks.append((start, body))
        position = body_start + end - start
    return blocks


def _is_block(key: bytes, image: memoryview, position: int, body: memoryview, *, offset: int) -> bool:
    """Return whether a block is the one at ``offset``; it may be longer than ``body``, the part that counts."""
    if position + PLOG_BLOCK_HEADER_SIZE > len(image):
        return False
    magic, kind, size, block_offset, checksum = _HEADER.unpack_from(image, position)
    if block_offset != offset or (magic, kind) != _MAGIC_AND_KIND or size < len(body):
        return False
    if size > len(body):
        body_start = position + PLOG_BLOCK_HEADER_SIZE
        body = image[body_start : body_start + size]
    checked = image[position : position + _CHECKED_SIZE]
    if size <= _JOINED_SIZE_MAX:
        actual: int = google_crc32c.value(b"".join((key, checked, body)))
    else:
        actual = crc32c(0, key + checked, body)
    return len(body) == size and actual == int(checksum)


def check_stored(path: str, plog_id: PlogId, *, length: int, pace: Callable[[int], object]) -> None:
    """Check a sealed replica of this length; ``PlogCorrupt`` if it is damaged, ``OSError`` if it cannot be read.

    ``pace`` is called with the number of bytes after each read, and keeps to the rate.
    """

    def read(size: int) -> bytes:
        data = os.pread(fd, size, position)
        pace(len(data))
        return data

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        head = read_head(fd, path, plog_id)
        if head.state.length > length:
            raise PlogCorrupt(path, offset=0, reason="its length is not the one that was sealed")
        pace(HEAD_SIZE)
        position, offset = HEAD_SIZE, 0
        while offset < length:
            data = read(READ_SIZE)
            stop, end = _complete_blocks(memoryview(data), offset, length)
            if not stop:  # a block that is larger than what was read, or none at all
                data = read(_LARGEST_BLOCK)
                stop, end = _complete_blocks(memoryview(data), offset, length)
            if not stop:
                raise PlogCorrupt(path, offset=position, reason=f"no block at offset {offset}, though one was sealed")
            check_raw(RawBlocks(head.key, head.size, offset, end, memoryview(data)[:stop]), where=path)
            position, offset = position + stop, end
    finally:
        os.close(fd)


def check_readable(path: str, *, pace: Callable[[int], object]) -> bool:
    """Read the first bytes of a file from the disk, whatever they are; return whether there are any."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        size = len(os.pread(fd, READ_SIZE, 0))
        pace(size)
        return size > 0
    finally:
        os.close(fd)


def _complete_blocks(view: memoryview, offset: int, length: int) -> tuple[int, int]:
    """Return where the last complete block of a part of a file ends, in the part and as an offset of the plog.

    A plog may be sealed within a block, or before blocks that it has: what lies behind the seal does not count.
    """
    place = 0
    while offset < length and (header := unpack_block_header(view, place)) is not None:
        following = place + PLOG_BLOCK_HEADER_SIZE + header.body_size
        if following > len(view) or header.offset != offset:
            break
        place, offset = following, offset + header.body_size
    return place, offset
