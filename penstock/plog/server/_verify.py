"""The check of a stored replica: of its head and every block as the disk has them, or of the blocks that are read.

The first reads the file with ``pread``, and not through the mapping that clients are served from: a sector that cannot
be read is an error then, and not the end of the process. The page cache is asked to let go of the file first, so that
what is read comes from the disk.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from penstock.errors import PlogCorrupt
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, unpack_block_header
from penstock.plog._raw import RawBlocks, check_raw
from penstock.plog._replica import APPEND_SIZE_MAX
from penstock.plog.server._heads import read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.model import PlogId
    from penstock.plog._replica import BlockSlice, Replica

__all__ = ["READ_SIZE", "check_readable", "check_stored", "good_count"]

READ_SIZE: Final = 1 << 20
_LARGEST_BLOCK: Final = PLOG_BLOCK_HEADER_SIZE + APPEND_SIZE_MAX


def good_count(replica: Replica, image: memoryview, slices: Sequence[BlockSlice], *, where: str) -> int:
    """Return how many blocks are good before the first that is not; ``PlogCorrupt`` if that is the first of all."""
    try:
        if slices:
            _check_blocks(replica, image, slices, where=where)
    except PlogCorrupt:
        for count, part in enumerate(slices):
            try:
                _check_blocks(replica, image, [part], where=where)
            except PlogCorrupt:
                if not count:
                    raise
                return count
    return len(slices)


def _check_blocks(replica: Replica, image: memoryview, slices: Sequence[BlockSlice], *, where: str) -> None:
    """Check blocks that follow each other in a file, and that its replica has; ``PlogCorrupt`` if one is damaged."""
    first, last = slices[0], slices[-1]
    header = unpack_block_header(image, last.position)  # a plog may be sealed within its last block
    size = 0 if header is None else header.body_size
    end = last.position + PLOG_BLOCK_HEADER_SIZE + size
    begin, stop = replica.starts[first.index], replica.starts[last.index] + size
    if len(image) < end:
        raise PlogCorrupt(where, offset=last.position, reason=f"the block at offset {stop - size} is cut off")
    check_raw(RawBlocks(replica.key, replica.size, begin, stop, image[first.position : end]), where=where)


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
