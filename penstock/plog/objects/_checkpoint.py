"""The checkpoint: the only object that is replaced, always the version that its owner knows.

It holds the state of all plogs as the journal objects before ``number`` leave it, so that the next owner reads the
journal from there. ``token`` and ``serial`` make every version different, since some buckets compute a tag from the
bytes alone. ``journal`` are the journal objects before ``number`` that may exist, apart from fences.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from penstock.checksums import crc32c
from penstock.errors import CorruptData, FormatUnknown, JournalCorrupt
from penstock.model import UNDECODABLE, PlogId
from penstock.plog.objects._records import Offset, Position, Uid  # noqa: TC001 - the decoder needs them
from penstock.plog.objects._state import Home, StoreState
from penstock.plog.objects._stored import StoredPlog, packed_plog, stored_plog

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CHECKPOINT_NAME", "CheckpointCopy", "StoreCheckpoint", "pack_checkpoint", "unpack_checkpoint"]

CHECKPOINT_NAME: Final = "checkpoint"
_MAGIC: Final = b"PENSCHKP"
_FORMAT: Final = 1
_HEADER: Final = struct.Struct(">8sHxxI")
assert _HEADER.size == 16, "stored since format 1"

Count = Annotated[int, msgspec.Meta(ge=0)]


class _StoredHome(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A plog with an object of its own."""

    cluster: str
    group: str
    uid: Uid
    name: str
    length: Offset
    size: Offset


class _Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The bytes behind magic, format and checksum, in msgpack."""

    number: Count
    epoch: Count
    serial: Count
    token: bytes
    owner: str
    plogs: list[StoredPlog]
    homes: list[_StoredHome]
    deleted: dict[str, list[str]]
    journal: list[tuple[Count, Position]]


_DECODER: Final = msgspec.msgpack.Decoder(_Body)


class StoreCheckpoint(msgspec.Struct, frozen=True):
    """The state of the store before a journal number, and the owner that noted it."""

    number: int
    epoch: int
    serial: int
    token: bytes
    owner: str
    state: StoreState
    journal: Mapping[int, int]


class CheckpointCopy:
    """A checkpoint that later changes of the state do not change; it is made under the lock, and packed without it."""

    def __init__(self, checkpoint: StoreCheckpoint) -> None:
        state = checkpoint.state
        self._head = checkpoint.number, checkpoint.epoch, checkpoint.serial, checkpoint.token, checkpoint.owner
        self._plogs = list(map(packed_plog, state.plogs.values()))
        self._homes = dict(state.homes)
        self.deleted: Final = dict(state.deleted)
        self.journal: Final = dict(checkpoint.journal)

    def pack(self) -> bytes:
        """Return the stored bytes, those of a ``_Body``."""
        homes = [
            (home.plog_id.cluster, home.plog_id.group, uid, home.name, home.length, home.size)
            for uid, home in self._homes.items()
        ]
        plogs = list(map(msgspec.Raw, self._plogs))
        body = msgspec.msgpack.encode((*self._head, plogs, homes, self.deleted, list(self.journal.items())))
        return _HEADER.pack(_MAGIC, _FORMAT, crc32c(0, body)) + body


def pack_checkpoint(checkpoint: StoreCheckpoint) -> bytes:
    """Return the stored bytes of a checkpoint whose state no other thread changes."""
    return CheckpointCopy(checkpoint).pack()


def unpack_checkpoint(data: memoryview, *, where: str) -> StoreCheckpoint:
    """Return the checkpoint; ``JournalCorrupt`` if it fails a check."""
    if len(data) < _HEADER.size or bytes(data[:8]) != _MAGIC:
        raise JournalCorrupt(where, offset=0, reason="it does not begin as a checkpoint does")
    _, form, checksum = _HEADER.unpack_from(data)
    if form != _FORMAT:
        raise FormatUnknown(where, actual=f"checkpoint format {form}", known=f"checkpoint format {_FORMAT}")
    stored = bytes(data[_HEADER.size :])
    if crc32c(0, stored) != checksum:
        raise JournalCorrupt(where, offset=_HEADER.size, reason="it fails its checksum")
    try:
        body = _DECODER.decode(stored)
        state = StoreState()
        for plog in body.plogs:
            state.plogs[plog.uid] = stored_plog(plog, where=where)
        for home in body.homes:
            plog_id = PlogId(home.cluster, home.group, home.uid.hex())
            state.homes[home.uid] = Home(plog_id, home.name, home.length, home.size)
        state.deleted = {prefix: tuple(names) for prefix, names in body.deleted.items()}
    except (*UNDECODABLE, CorruptData) as error:
        raise JournalCorrupt(where, offset=_HEADER.size, reason=f"it is invalid: {error}") from error
    return StoreCheckpoint(body.number, body.epoch, body.serial, body.token, body.owner, state, dict(body.journal))
