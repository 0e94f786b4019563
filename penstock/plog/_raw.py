"""Raw blocks: blocks of a plog as its file has them, header and body, one after another.

Whoever copies a plog copies these: they carry their checksums, which are bound to the plog and to their place in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.checksums import crc32c
from penstock.errors import BadArgument, PlogCorrupt
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, pack_block_header
from penstock.plog._head import STATE_POSITION, Identity, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.model import PlogId
    from penstock.ports import Bytes

__all__ = ["RawBlocks", "bodies_of", "check_raw", "plog_head", "raw_from", "raw_of"]

_HEADER: Final = Struct(">HBxIQI")
_MAGIC_AND_KIND: Final = (0x5042, 1)
_CHECKED_SIZE: Final = PLOG_BLOCK_HEADER_SIZE - 4


@dataclass(frozen=True, slots=True)
class RawBlocks:
    """Blocks from ``offset`` to ``end`` of a plog that takes ``size`` bytes; ``key`` is its uid and birth."""

    key: bytes
    size: int
    offset: int
    end: int
    data: Bytes


def raw_of(key: bytes, blocks: Iterable[tuple[int, memoryview]]) -> bytes:
    """Return blocks as a file would have them: the header of a block follows from its plog, its offset and its body."""
    return b"".join(
        chain.from_iterable(
            (pack_block_header(key, offset=offset, body=(body,), body_size=len(body)), body) for offset, body in blocks
        )
    )


def raw_from(raw: RawBlocks, offset: int, end: int | None = None) -> RawBlocks:
    """Return the blocks from ``offset`` on, up to ``end`` or to the last one: a block begins or ends at both."""
    view, end = memoryview(raw.data), raw.end if end is None else min(end, raw.end)
    first = _place_at(raw, offset)
    return RawBlocks(raw.key, raw.size, offset, end, view[first : _place_at(raw, end)])


def _place_at(raw: RawBlocks, offset: int) -> int:
    """Return where the blocks before ``offset`` end."""
    if offset == raw.end:
        return len(raw.data)
    view, place, start = memoryview(raw.data), 0, raw.offset
    while start < offset:
        size = _HEADER.unpack_from(view, place)[2]
        start, place = start + size, place + PLOG_BLOCK_HEADER_SIZE + size
    if start != offset:
        raise BadArgument(f"no block begins at offset {offset}")
    return place


def bodies_of(raw: RawBlocks) -> Iterator[memoryview]:
    """Return what was appended, append by append; the caller has checked the blocks."""
    view, place = memoryview(raw.data), 0
    while place < len(view):
        body = place + PLOG_BLOCK_HEADER_SIZE
        place = body + _HEADER.unpack_from(view, place)[2]
        yield view[body:place]


def check_raw(raw: RawBlocks, *, where: str) -> int:
    """Check every block; return how many there are."""
    count = 0
    for _, reason in _faults(raw):
        if reason is not None:
            raise PlogCorrupt(where, offset=None, reason=reason)
        count += 1
    return count


def _faults(raw: RawBlocks) -> Iterator[tuple[int, str | None]]:
    """Return the place of each block, and what is wrong with it; nothing comes after the first that is wrong."""
    view, offset, place = memoryview(raw.data), raw.offset, 0
    key = raw.key
    while place < len(view):
        if place + PLOG_BLOCK_HEADER_SIZE > len(view):
            yield place, f"it ends within the block at offset {offset}"
            return
        magic, kind, size, block_offset, checksum = _HEADER.unpack_from(view, place)
        body = place + PLOG_BLOCK_HEADER_SIZE
        if (magic, kind) != _MAGIC_AND_KIND or block_offset != offset or body + size > len(view):
            yield place, f"no block at offset {offset}, though one is known to be there"
            return
        if crc32c(0, key + view[place : place + _CHECKED_SIZE], view[body : body + size]) != checksum:
            yield place, f"the block at offset {offset} fails its checksum"
            return
        yield place, None
        offset, place = offset + size, body + size
    if offset != raw.end:
        yield place, f"its blocks end at offset {offset} and not at {raw.end}"


def plog_head(plog_id: PlogId, *, key: bytes, size: int, length: int, sealed: bool) -> bytes:
    """Return the head of a file with these blocks of a plog."""
    birth = key[len(plog_id.uid_bytes) :]
    head = Identity.of(plog_id, size=size, birth=birth).pack().ljust(STATE_POSITION, b"\0")
    return (head + State(sealed=sealed, length=length).pack(key)).ljust(HEAD_SIZE, b"\0")
