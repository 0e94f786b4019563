"""Replay: write all acknowledged changes from the journal into the plogs' files.

Afterwards every file that the journal has records of is durable by itself, holds nothing after its last good block,
and has its length in its head; so the journal may be emptied. A file that is damaged ends the replay, unless the caller
goes on without it: then its head says how much has to be there, so that it is still damaged when the journal is empty.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.errors import PlogCorrupt
from penstock.model import PlogId
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, unpack_block_header
from penstock.plog._folder import plog_name
from penstock.plog._head import STATE_POSITION, Identity, State
from penstock.plog._replica import Damage, recover_replica
from penstock.ports import write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.plog._journal_file import JournalRecord
    from penstock.plog._replica import Replica
    from penstock.ports import Disk, File

__all__ = ["is_certain", "load_replica", "remove_if_there", "replay", "write_rest_again"]

_ZEROS: Final = bytes(1 << 20)


@dataclass(slots=True)
class _Redo:
    """The changes of one file: first whether to remove it, then the writes, in order."""

    deletes: bool = False
    writes: list[JournalRecord] = field(default_factory=list)


def replay(disk: Disk, records: Iterable[JournalRecord], note_damage: Callable[[bytes, PlogCorrupt], object]) -> None:
    """Apply the records to the files, and make them durable.

    ``note_damage`` gets the uid of a plog whose file is damaged, and the error; it raises it, or the plog stays so.
    """
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
            plog_id = PlogId("local", "main", uid.hex())
            try:
                _write_again(disk, name, plog_id, redo.writes)
            except PlogCorrupt as error:
                note_damage(uid, error)
                _leave_damaged(disk, name, plog_id, redo.writes)
    disk.sync()


def _is_reborn(disk: Disk, name: str, writes: list[JournalRecord]) -> bool:
    """Return whether the file is that of the plog created after the deletion: it may hold more than the journal."""
    if not writes:
        return False
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return False
    identity = Identity.unpack(file.view(0, HEAD_SIZE))
    file.close()
    return identity is not None and identity == Identity.unpack(writes[0].payload)


def _write_again(disk: Disk, name: str, plog_id: PlogId, writes: list[JournalRecord]) -> None:
    file = _open_or_create(disk, name)
    try:
        for record in writes:
            write_all(file, [record.payload], record.position)
        replica = load_replica(disk.where(name), plog_id, file)
        if replica is None:  # it was being deleted: only the records after the last checkpoint are left
            disk.remove(name)
            return
        if not replica.sealed and replica.acked < _known_length(writes):
            reason = "an acknowledged block fails its checksum"
            raise PlogCorrupt(disk.where(name), offset=replica.place(), reason=reason)
        write_rest_again(file, replica)
        file.datasync()
    finally:
        file.close()


def _leave_damaged(disk: Disk, name: str, plog_id: PlogId, writes: list[JournalRecord]) -> None:
    """Make what is left of a file durable; one that could be taken for a shorter plog gets its length in its head.

    The blocks up to that are read by their headers alone: that of the bad one is cleared.
    """
    file = disk.open(name)
    try:
        with contextlib.suppress(PlogCorrupt):  # which needs no mark
            replica = load_replica(disk.where(name), plog_id, file)
            assert replica is not None, "a file without a plog is not damaged"
            write_all(file, [bytes(PLOG_BLOCK_HEADER_SIZE)], replica.place())
            state = State(sealed=False, length=_known_length(writes))
            write_all(file, [state.pack(replica.key)], STATE_POSITION)
        file.datasync()
    finally:
        file.close()


def _known_length(writes: list[JournalRecord]) -> int:
    """Return the plog's length by the journal: the end of the last block that it has a record of."""
    blocks = (unpack_block_header(record.payload, 0) for record in writes if record.position >= HEAD_SIZE)
    return max((block.offset + block.body_size for block in blocks if block is not None), default=0)


def load_replica(path: str, plog_id: PlogId, file: File) -> Replica | None:
    """Return the plog in the file; None if it was never completely created."""
    replica = recover_replica(plog_id, file.view(0, file.size()))
    if isinstance(replica, Damage):
        raise PlogCorrupt(path, offset=replica.position, reason=replica.reason)
    return replica


def is_certain(file: File, replica: Replica) -> bool:
    """Return whether the head's length covers every block, and nothing follows the last one."""
    rest = file.view(replica.place(), file.size())
    return replica.sealed or (replica.known == replica.written and not np.any(np.frombuffer(rest, np.uint8)))


def write_rest_again(file: File, replica: Replica) -> None:
    """Write the blocks past the head's length again, and clear all bytes after the last one; the caller syncs.

    Blocks that a killed process did not sync, or that a failed sync gave up, can be read and are not on the disk;
    only writing them again puts them there. And a block that was never acknowledged would count again as soon as
    another one of the right size is written before it.
    """
    if not replica.sealed:
        first = next(replica.slices(replica.known or 0, replica.written - (replica.known or 0)), None)
        start, end = first.position if first else replica.place(), replica.place()
        for position in range(start, end, len(_ZEROS)):
            write_all(file, [bytes(file.view(position, min(len(_ZEROS), end - position)))], position)
        for position in range(end, file.size(), len(_ZEROS)):
            write_all(file, [_ZEROS[: file.size() - position]], position)
    write_all(file, [replica.state().pack(replica.key)], STATE_POSITION)
    replica.known = replica.acked


def _open_or_create(disk: Disk, name: str) -> File:
    try:
        return disk.open(name)
    except FileNotFoundError:
        return disk.create(name)


def remove_if_there(disk: Disk, name: str) -> None:
    """Remove a file; do nothing if there is none."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(name)
