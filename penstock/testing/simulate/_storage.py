"""The disk of a simulated server: replicas whose unsynced appends a crash may lose.

It is a model and not :class:`~penstock.plog.FilePlogs`: that one is proved against every crash state of a recording
disk by its own tests, and a life in the simulator has to take milliseconds. What both promise is the same: an append
counts when its sync is over, and what a crash leaves is a prefix of what was appended.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import (
    AppendTooLarge,
    DiskFailed,
    DiskFull,
    NoSuchPlog,
    PlogCorrupt,
    PlogExists,
    PlogFull,
    PlogSealed,
    ReadOutOfRange,
    WrongOffset,
)
from penstock.model import PlogId
from penstock.plog import APPEND_SIZE_MAX, PlogInfo

if TYPE_CHECKING:
    from random import Random

__all__ = ["SavedDisk", "SimReplica", "SimStorage"]

_LISTED_MAX: Final = 3  # replicas in one answer


class SimReplica:
    """One copy of a plog: its appends, how many of them are durable, and its damage."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks: list[bytes] = []
        self.synced = 0
        self.is_sealed = False
        self.damage = ""  # "head": nothing can be read; "body": its appends cannot

    @property
    def written(self) -> int:
        """The end of the last append."""
        return sum(map(len, self.blocks))

    @property
    def length(self) -> int:
        """The end of the last durable append."""
        return sum(map(len, self.blocks[: self.synced]))

    @property
    def content(self) -> bytes:
        """The durable bytes."""
        return b"".join(self.blocks[: self.synced])

    def cut_last(self) -> None:
        """Lose the last append, as after damage of it that looks like a write that was not finished."""
        if self.blocks:
            self.blocks.pop()
        self.synced = min(self.synced, len(self.blocks))


class _SimAppend:
    def __init__(self, storage: SimStorage, plog_id: PlogId, replica: SimReplica, count: int) -> None:
        self._storage, self._plog_id, self._replica, self._count = storage, plog_id, replica, count

    def result(self) -> int:
        """Make everything up to this append durable."""
        self._storage.check_writable()
        replica = self._replica
        replica.synced = max(replica.synced, min(self._count, len(replica.blocks)))
        self._storage.changed.append(self._plog_id)
        return replica.length


class SavedDisk(NamedTuple):
    """A copy of a disk: its replicas by uid, the epoch, and the small files."""

    replicas: dict[bytes, SimReplica]
    epoch: tuple[int, bytes]
    files: dict[str, bytes]


class SimStorage:
    """The replicas of a server, the epoch that it has saved, and what its scrub has found."""

    def __init__(self, name: str, cluster: str, group: str) -> None:
        self.name, self._cluster, self._group = name, cluster, group
        self.replicas_by_uid: dict[bytes, SimReplica] = {}
        self.epoch: tuple[int, bytes] = (0, b"")
        self.files: dict[str, bytes] = {}  # small ones, by name
        self.damaged: set[bytes] = set()  # uids of replicas that the scrub has found damaged
        self.is_full = self.is_failed = False
        self.changed: list[PlogId] = []  # since the last check of the invariants

    def crash(self, random: Random) -> None:
        """Lose what was not synced, or a part of it; a failed disk works again after a restart."""
        for replica in self.replicas_by_uid.values():
            kept = random.randint(replica.synced, len(replica.blocks))
            del replica.blocks[kept:]
            replica.synced = kept
        self.damaged.clear()  # until the scrub begins again
        self.is_failed = False

    def lose(self) -> None:
        """Lose everything."""
        self.replicas_by_uid, self.epoch, self.files = {}, (0, b""), {}
        self.damaged.clear()

    def saved(self) -> SavedDisk:
        """Return a copy of everything."""
        return SavedDisk(deepcopy(self.replicas_by_uid), self.epoch, dict(self.files))

    def set_back(self, saved: SavedDisk) -> None:
        """Be as the copy is."""
        self.lose()
        self.replicas_by_uid, self.epoch, self.files = deepcopy(saved.replicas), saved.epoch, dict(saved.files)

    def lengths(self) -> dict[bytes, int]:
        """Return the durable length of every replica, by uid."""
        return {uid: replica.length for uid, replica in self.replicas_by_uid.items()}

    def check_writable(self) -> None:
        """Raise the error of a failed disk."""
        if self.is_failed:
            raise DiskFailed(self.name, reason="simulated", stopped=True)

    def _need(self, plog_id: PlogId) -> SimReplica:
        replica = self.replicas_by_uid.get(plog_id.uid_bytes)
        if replica is None:
            raise NoSuchPlog(plog_id)
        if replica.damage == "head":
            raise PlogCorrupt(f"{self.name}/{plog_id}", offset=0, reason="simulated damage")
        return replica

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the durable length, whether it is sealed, and the size."""
        replica = self._need(plog_id)
        return PlogInfo(replica.length, sealed=replica.is_sealed, size=replica.size)

    def submit(self, plog_id: PlogId, offset: int, *data: bytes | memoryview) -> _SimAppend:
        """Append without waiting."""
        replica, joined = self._need(plog_id), b"".join(data)
        if replica.is_sealed:
            raise PlogSealed(plog_id, sealed_offset=replica.length)
        if len(joined) > APPEND_SIZE_MAX:
            raise AppendTooLarge(size=len(joined), limit=APPEND_SIZE_MAX)
        written = replica.written
        if offset != written:
            raise WrongOffset(plog_id, offset=offset, expected=written)
        if len(joined) > replica.size - written:
            raise PlogFull(plog_id, free=replica.size - written, size=len(joined))
        self.check_writable()
        if self.is_full:
            raise DiskFull(self.name)
        replica.blocks.append(joined)
        return _SimAppend(self, plog_id, replica, len(replica.blocks))

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return every append that holds any of these bytes, complete, with its own offset."""
        replica = self._need(plog_id)
        if offset + size > replica.length:
            raise ReadOutOfRange(plog_id, offset=offset, size=size, length=replica.length)
        if replica.damage:
            raise PlogCorrupt(f"{self.name}/{plog_id}", offset=0, reason="simulated damage")
        found, start = [], 0
        for data in replica.blocks[: replica.synced]:
            if start < offset + size and offset < start + len(data):
                found.append((start, memoryview(data)))
            start += len(data)
        return found

    def create(self, *, size: int, plog_id: PlogId) -> PlogId:
        """Create a plog durably."""
        self.check_writable()
        if plog_id.uid_bytes in self.replicas_by_uid:
            raise PlogExists(plog_id)
        if self.is_full:
            raise DiskFull(self.name)
        self.replicas_by_uid[plog_id.uid_bytes] = SimReplica(size)
        self.changed.append(plog_id)
        return plog_id

    def seal(self, plog_id: PlogId, offset: int) -> int:
        """Seal a plog durably."""
        replica = self._need(plog_id)
        if replica.is_sealed:
            if offset != replica.length:
                raise PlogSealed(plog_id, sealed_offset=replica.length)
            return offset
        self.check_writable()
        replica.synced = len(replica.blocks)  # a seal waits for the appends under way
        while replica.written > offset:
            last = replica.blocks.pop()
            if replica.written < offset:
                replica.blocks.append(last[: offset - replica.written])
        replica.synced, replica.is_sealed = len(replica.blocks), True
        self.changed.append(plog_id)
        return replica.length

    def delete(self, plog_id: PlogId) -> None:
        """Delete a plog durably."""
        self.check_writable()
        if self.replicas_by_uid.pop(plog_id.uid_bytes, None) is None:
            raise NoSuchPlog(plog_id)
        self.damaged.discard(plog_id.uid_bytes)
        self.changed.append(plog_id)

    def replicas(self, after: bytes, limit: int) -> list[tuple[bytes, PlogInfo | None]]:
        """Return replicas in the order of their uids, without damaged ones; only some, as if there were no time."""
        listed: list[tuple[bytes, PlogInfo | None]] = [
            (uid, PlogInfo(replica.length, sealed=replica.is_sealed, size=replica.size))
            for uid, replica in sorted(self.replicas_by_uid.items())
            if uid > after and replica.damage != "head" and uid not in self.damaged
        ]
        return listed[:limit] if len(listed) <= _LISTED_MAX else [*listed[:_LISTED_MAX], (listed[_LISTED_MAX][0], None)]

    # For the scrub

    def uids(self) -> list[str]:
        """Return the uids of all replicas, sorted."""
        return sorted(uid.hex() for uid in self.replicas_by_uid)

    def plog_id(self, uid: str) -> PlogId:
        """Return the id of the plog with this uid."""
        return PlogId(self._cluster, self._group, uid)

    def stored_size(self, uid: str) -> int:
        """Return the bytes that a replica takes; 0 if it is gone."""
        replica = self.replicas_by_uid.get(bytes.fromhex(uid))
        return 0 if replica is None else replica.length

    def where(self, plog_id: PlogId) -> str:
        """Return the place of a replica, for messages."""
        return f"{self.name}/{plog_id}"

    def begin_check(self, plog_id: PlogId) -> None:
        """Note that a replica is being checked; here nothing happens before :meth:`note_checked`."""

    def note_checked(self, plog_id: PlogId, *, is_damaged: bool, is_unreadable: bool = False) -> bool:
        """Note the result of a check; return whether it is damage that was not known."""
        assert not is_unreadable, "here the disk reads all or nothing"
        uid = plog_id.uid_bytes
        is_new = is_damaged and uid not in self.damaged
        (self.damaged.add if is_damaged else self.damaged.discard)(uid)
        return is_new

    def save_epoch(self, epoch: int, owner: bytes) -> None:
        """Make the epoch durable."""
        self.check_writable()
        if self.is_full:
            raise DiskFull(self.name)
        if epoch >= self.epoch[0]:
            self.epoch = (epoch, owner)
