"""The good blocks of a sealed replica in which the header of a block is damaged.

Such a replica cannot be loaded: a header says where the next block begins. But each block carries its own offset, and a
checksum that is bound to its plog, so the blocks behind the damage are found again. Where all three replicas are
damaged, these may be the last good ones. To look for them takes long, and is done for each read: such a replica is
replaced soon, unless the two others are damaged, too.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchPlog, PlogCorrupt, ReadOutOfRange
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, block_matches, unpack_block_header
from penstock.plog._replica import APPEND_SIZE_MAX
from penstock.plog.server._heads import read_head
from penstock.ports import map_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model import PlogId

__all__ = ["salvaged_blocks"]

_BEGIN: Final = re.compile(rb"\x50\x42\x01\x00")  # of a header: magic and kind


def salvaged_blocks(path: str, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
    """Return the blocks that hold these bytes, up to the first damaged one; ``PlogCorrupt`` if that is the first."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoSuchPlog(plog_id) from None
    try:
        head = read_head(fd, path, plog_id)
        image = map_file(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)
    length, end = head.state.length, offset + size
    if not head.state.sealed:
        raise PlogCorrupt(path, offset=None, reason="the header of a block is damaged, and it is not sealed")
    if end > length:
        raise ReadOutOfRange(plog_id, offset=offset, size=size, length=length)
    blocks: list[tuple[int, memoryview]] = []
    reached = offset  # no block is missing before that
    for start, body in _good_blocks(head.key, image):
        if start >= end or start > reached:
            break
        if start + len(body) > reached:
            blocks.append((start, body[: length - start]))
            reached = start + len(body)
    if not blocks and size:
        raise PlogCorrupt(path, offset=None, reason=f"the header of the block at offset {offset} is damaged")
    return blocks


def _good_blocks(key: bytes, image: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Return all blocks that pass their checks, in their order, with their offsets."""
    position = HEAD_SIZE
    while True:
        header = unpack_block_header(image, position)
        # A block lies behind the bodies before it, and as many headers.
        headers_size = -1 if header is None else position - HEAD_SIZE - header.offset
        if (
            header is not None
            and 0 < header.body_size <= APPEND_SIZE_MAX
            and headers_size >= 0
            and headers_size % PLOG_BLOCK_HEADER_SIZE == 0
            and block_matches(key, image, position)
        ):
            body = position + PLOG_BLOCK_HEADER_SIZE
            position = body + header.body_size
            yield header.offset, image[body:position]
        else:
            found = _BEGIN.search(image, position + 1)
            if found is None:
                return
            position = found.start()
