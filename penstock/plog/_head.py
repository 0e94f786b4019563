"""The head of a plog's file: the plog's identity, and the length that is known to be there.

The head fills one page. Each of its two records fits into one sector, which a disk writes completely or not at all.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from penstock.checksums import crc32c

if TYPE_CHECKING:
    from penstock.model import PlogId

__all__ = ["BIRTH_SIZE", "STATE_POSITION", "Identity", "State", "is_unborn", "names_match",
           "pack_new_head"]  # fmt: skip

STATE_POSITION: Final = 512
_MAGIC: Final = b"PENSPLOG"
_FORMAT: Final = 1
_IDENTITY: Final = struct.Struct(">8sHxxxxxx16s16sQ8s")
_STATE: Final = struct.Struct(">BxxxxxxxQ")
_CHECKSUM_SIZE: Final = 4
BIRTH_SIZE: Final = 8
_SEALED: Final = 1
_NEW: Final = 2
assert _IDENTITY.size + _CHECKSUM_SIZE == 68, "on disk since format 1"
assert _STATE.size + _CHECKSUM_SIZE == 20, "on disk since format 1"


@dataclass(frozen=True, slots=True)
class Identity:
    """The 68 bytes at the start of the file, written once, big-endian.

    0   8  magic     PENSPLOG
    8   2  format    1
    16  16 uid       of the plog
    32  16 names     blake2b of "cluster/group"
    48  8  size      the most bytes that the plog takes
    56  8  birth     random: distinguishes a plog from a deleted one of the same id
    64  4  checksum  crc32c of bytes 0-63
    """

    uid: bytes
    names: bytes
    size: int
    birth: bytes

    @classmethod
    def of(cls, plog_id: PlogId, *, size: int, birth: bytes) -> Identity:
        """Return the identity of a new plog."""
        return cls(plog_id.uid_bytes, _digest(plog_id), size, birth)

    def pack(self) -> bytes:
        """Return the bytes on disk."""
        body = _IDENTITY.pack(_MAGIC, _FORMAT, self.uid, self.names, self.size, self.birth)
        return body + crc32c(0, body).to_bytes(_CHECKSUM_SIZE, "big")

    @classmethod
    def unpack(cls, head: memoryview) -> Identity | None:
        """Return the record in ``head``, None if it fails its check."""
        body = bytes(head[: _IDENTITY.size])
        checksum = bytes(head[_IDENTITY.size : _IDENTITY.size + _CHECKSUM_SIZE])
        if crc32c(0, body).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
            return None
        magic, form, uid, names, size, birth = _IDENTITY.unpack(body)
        return cls(uid, names, size, birth) if magic == _MAGIC and form == _FORMAT else None


@dataclass(frozen=True, slots=True)
class State:
    """The 20 bytes at 512 of the head, rewritten at checkpoints, big-endian.

    0   1  stage     0: open; 1: sealed, takes no more appends; 2: new, its creation may not be acknowledged
    8   8  length    sealed: the exact length; else: at least this length
    16  4  checksum  crc32c of the plog's uid and birth, bytes 0-15
    """

    sealed: bool
    length: int
    new: bool = False

    def pack(self, key: bytes) -> bytes:
        """Return the bytes on disk."""
        body = _STATE.pack(_NEW if self.new else self.sealed, self.length)
        return body + crc32c(0, key, body).to_bytes(_CHECKSUM_SIZE, "big")

    @classmethod
    def unpack(cls, key: bytes, head: memoryview) -> State | None:
        """Return the record in ``head``, None if it fails its check."""
        record = bytes(head[STATE_POSITION : STATE_POSITION + _STATE.size + _CHECKSUM_SIZE])
        body, checksum = record[: _STATE.size], record[_STATE.size :]
        if crc32c(0, key, body).to_bytes(_CHECKSUM_SIZE, "big") != checksum:
            return None
        stage, length = _STATE.unpack(body)
        return cls(sealed=stage == _SEALED, length=length, new=stage == _NEW)


def pack_new_head(plog_id: PlogId, *, size: int, birth: bytes) -> bytes:
    """Return the head of a new plog."""
    identity = Identity.of(plog_id, size=size, birth=birth)
    return identity.pack().ljust(STATE_POSITION, b"\0") + State(sealed=False, length=0, new=True).pack(
        identity.uid + birth
    )


def is_unborn(plog_id: PlogId, head: memoryview) -> bool:
    """Return whether the file holds the beginning of a creation that was never acknowledged."""
    identity = Identity.unpack(head)
    if identity is None:
        return not any(head)
    state = State.unpack(identity.uid + identity.birth, head)
    return state is not None and state.new and names_match(plog_id, head)


def names_match(plog_id: PlogId, head: memoryview) -> bool:
    """Return whether the file belongs to a plog of this cluster and group, not only of this uid."""
    identity = Identity.unpack(head)
    return identity is not None and identity.names == _digest(plog_id)


def _digest(plog_id: PlogId) -> bytes:
    return blake2b(f"{plog_id.cluster}/{plog_id.group}".encode(), digest_size=16).digest()
