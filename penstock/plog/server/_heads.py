"""The head of a stored replica: what it tells without its blocks.

The head of a sealed replica has its exact length, so that a server can list thousands of replicas without reading them;
to read the header of every block takes a hundred times as long. The head is read with ``pread`` and not through a
mapping: a sector that cannot be read is an error then, and not the end of the process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import NoSuchPlog, PlogCorrupt
from penstock.plog._block import HEAD_SIZE
from penstock.plog._head import Identity, State, names_match
from penstock.plog._replica import PlogInfo

if TYPE_CHECKING:
    from penstock.model import PlogId

__all__ = ["StoredHead", "clear_head", "read_head", "stored_info"]


@dataclass(frozen=True, slots=True)
class StoredHead:
    """The head of a replica's file: the key of its checksums, the size of the plog, and its state."""

    key: bytes
    size: int
    state: State


def stored_info(path: str, plog_id: PlogId) -> PlogInfo:
    """Return the state of a replica by its head; the length of one that is not sealed is at least that.

    The file is not in use: all of its state is in it. ``NoSuchPlog`` if there is none, ``PlogCorrupt`` if the head is
    damaged, ``OSError`` if it cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoSuchPlog(plog_id) from None
    try:
        if not any(os.pread(fd, HEAD_SIZE, 0)):
            raise NoSuchPlog(plog_id)  # its creation was begun, and never acknowledged
        head = read_head(fd, path, plog_id)
        if head.state.new:
            raise NoSuchPlog(plog_id)
        if os.fstat(fd).st_size < HEAD_SIZE + head.state.length:
            raise PlogCorrupt(path, offset=None, reason=f"it is shorter than its length of {head.state.length} bytes")
    finally:
        os.close(fd)
    return PlogInfo(head.state.length, head.state.sealed, head.size)


def clear_head(path: str) -> None:
    """Overwrite a head that cannot be read, before its file is deleted: from then on it is that of no plog."""
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, bytes(HEAD_SIZE), 0)
        finally:
            os.close(fd)


def read_head(fd: int, path: str, plog_id: PlogId) -> StoredHead:
    """Read the head of an open file; ``PlogCorrupt`` if it is damaged, or that of another plog."""
    head = memoryview(os.pread(fd, HEAD_SIZE, 0))
    identity = Identity.unpack(head)
    if identity is None or identity.uid != plog_id.uid_bytes or not names_match(plog_id, head):
        raise PlogCorrupt(path, offset=0, reason="its head fails its checksum, or is that of another plog")
    key = identity.uid + identity.birth
    state = State.unpack(key, head)
    if state is None:
        raise PlogCorrupt(path, offset=0, reason="the state in its head fails its checksum")
    return StoredHead(key, identity.size, state)
