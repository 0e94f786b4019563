"""Replay: bring the plogs' files up to what the journal acknowledged.

Afterwards every file that the journal spoke of is durable by itself, holds nothing behind its last good block,
and says in its head how long it is; so the journal may be emptied.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import PlogCorrupt
from penstock.model import PlogId
from penstock.plog._block import unpack_block_header
from penstock.plog._folder import plog_name
from penstock.plog._head import HEAD_SIZE, STATE_POSITION, Identity
from penstock.plog._replica import Damage, recover_replica
from penstock.ports import write_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.plog._journal_record import Record
    from penstock.plog._replica import Replica
    from penstock.ports import Disk, File

__all__ = ["load_replica", "remove_if_there", "replay"]

_ZEROS: Final = bytes(1 << 20)


@dataclass(slots=True)
class _Redo:
    """What the journal says of one file: first whether to remove it, then what to write, in order."""

    deletes: bool = False
    writes: list[Record] = field(default_factory=list)


def replay(disk: Disk, records: Iterable[Record]) -> None:
    """Do again what the records say, and make it durable."""
    redos: dict[bytes, _Redo] = {}
    for record in records:
        if record.deletes:
            redos[record.uid] = _Redo(deletes=True)
        else:
            redos.setdefault(record.uid, _Redo()).writes.append(record)
    for uid, redo in redos.items():
        name = plog_name(uid)
        if redo.deletes and not _is_reborn(disk, name, redo.writes):
            remove_if_there(disk, name)
        if redo.writes:
            _write_again(disk, name, PlogId("local", "main", uid.hex()), redo.writes)
    disk.sync()


def _is_reborn(disk: Disk, name: str, writes: list[Record]) -> bool:
    """Whether the file is that of the plog created after the deletion: it may hold what is not in the journal."""
    if not writes:
        return False
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return False
    found = Identity.unpack(file.view(0, HEAD_SIZE))
    file.close()
    return found is not None and found == Identity.unpack(writes[0].payload)


def _write_again(disk: Disk, name: str, plog_id: PlogId, writes: list[Record]) -> None:
    file = _open_or_create(disk, name)
    try:
        for record in writes:
            write_all(file, [record.payload], record.position)
        replica = load_replica(disk.where(name), plog_id, file)
        if replica is None:  # its deletion had begun: only what came after the last checkpoint is left
            disk.remove(name)
            return
        if not replica.sealed and replica.acked < _known_length(writes):
            reason = "an acknowledged block fails its checksum"
            raise PlogCorrupt(disk.where(name), offset=replica.place(), reason=reason)
        write_all(file, [replica.state().pack(replica.key)], STATE_POSITION)
        file.datasync()
    finally:
        file.close()


def _known_length(writes: list[Record]) -> int:
    """Return how long the journal knows the plog to be: the end of the last block it has a record of."""
    blocks = (unpack_block_header(record.payload, 0) for record in writes if record.position >= HEAD_SIZE)
    return max((block.offset + block.body_size for block in blocks if block is not None), default=0)


def load_replica(path: str, plog_id: PlogId, file: File) -> Replica | None:
    """Return the plog that the file holds, with nothing behind its last block; None if it was never created."""
    replica = recover_replica(plog_id, file.view(0, file.size()))
    if isinstance(replica, Damage):
        raise PlogCorrupt(path, offset=replica.position, reason=replica.reason)
    if replica is not None and not replica.sealed:
        _clear(file, replica.place())
    return replica


def _clear(file: File, position: int) -> None:
    """Overwrite what a crash left behind the last good block.

    Otherwise a block that was written but never acknowledged could come back to life once another one of the
    right size is put before it.
    """
    rest = file.view(position, file.size() - position)
    if not np.any(np.frombuffer(rest, np.uint8)):
        return
    for start in range(position, file.size(), len(_ZEROS)):
        write_all(file, [_ZEROS[: file.size() - start]], start)


def _open_or_create(disk: Disk, name: str) -> File:
    try:
        return disk.open(name)
    except FileNotFoundError:
        return disk.create(name)


def remove_if_there(disk: Disk, name: str) -> None:
    """Remove a file, or find it removed."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(name)
