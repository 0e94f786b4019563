"""The check of one stored replica: its head and every block, as the disk has them.

The file is read with ``pread``, and not through the mapping that clients are served from: a sector that cannot be read
is an error then, and not the end of the process. The page cache is asked to let go of the file first, so that what is
read comes from the disk.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from penstock.errors import PlogCorrupt
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, unpack_block_header
from penstock.plog._head import Identity, State, names_match
from penstock.plog._raw import RawBlocks, check_raw
from penstock.plog._replica import APPEND_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model import PlogId

__all__ = ["READ_SIZE", "check_stored"]

READ_SIZE: Final = 1 << 20
_LARGEST_BLOCK: Final = PLOG_BLOCK_HEADER_SIZE + APPEND_SIZE_MAX


def check_stored(path: str, plog_id: PlogId, *, length: int, pace: Callable[[int], object]) -> None:
    """Check a sealed replica of this length; ``PlogCorrupt`` if it is damaged, ``OSError`` if it cannot be read.

    ``pace`` is called with the number of bytes after each read, and keeps to the rate.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        key, size = _checked_head(path, memoryview(os.pread(fd, HEAD_SIZE, 0)), plog_id, length=length)
        pace(HEAD_SIZE)
        position, offset = HEAD_SIZE, 0
        while offset < length:
            data = os.pread(fd, READ_SIZE, position)
            stop, end = _complete_blocks(memoryview(data), offset, length)
            if not stop:  # a block that is larger than what was read, or none at all
                data = os.pread(fd, _LARGEST_BLOCK, position)
                stop, end = _complete_blocks(memoryview(data), offset, length)
            if not stop:
                raise PlogCorrupt(path, offset=position, reason=f"no block at offset {offset}, though one was sealed")
            check_raw(RawBlocks(key, size, offset, end, memoryview(data)[:stop]), where=path)
            pace(len(data))
            position, offset = position + stop, end
    finally:
        os.close(fd)


def _checked_head(path: str, head: memoryview, plog_id: PlogId, *, length: int) -> tuple[bytes, int]:
    """Return the key of the plog's checksums, and its size."""
    identity = Identity.unpack(head)
    if identity is None or identity.uid != plog_id.uid_bytes or not names_match(plog_id, head):
        raise PlogCorrupt(path, offset=0, reason="its head fails its checksum, or is that of another plog")
    key = identity.uid + identity.birth
    state = State.unpack(key, head)
    if state is None or state.length > length:
        raise PlogCorrupt(path, offset=0, reason="its length fails its checksum, or is not the one that was sealed")
    return key, identity.size


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
