"""The replicas of a partition on a plog server: a folder of plogs, of which other servers have copies.

So a damaged one costs itself alone: it is noted, the owner learns of it and replaces it by a copy.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import DiskFailed, DiskFull, NoSuchPlog, PlogCorrupt
from penstock.model import PlogId
from penstock.plog._files import FilePlogs
from penstock.plog._folder import refusal
from penstock.plog._replica import PLOG_SIZE_DEFAULT, PlogInfo
from penstock.plog.server._heads import clear_head, stored_info
from penstock.plog.server._salvage import salvaged_blocks
from penstock.plog.server._verify import verified_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from penstock.plog._interface import PendingAppend
    from penstock.plog.replicated import ServerIdentity
    from penstock.ports import Disk

__all__ = ["PartitionReplicas"]

_LIST_S_MAX: Final = 0.2  # for the heads of one answer: a disk that seeks for each of them reads a few dozen
_UNREADABLE: Final = PlogInfo(0, sealed=False, size=1)
_REPLICA: Final = re.compile(r"([0-9a-f]{32})\.plog")
_logger: Final = logging.getLogger("penstock.plog_server")


class PartitionReplicas(FilePlogs):
    """The replicas of a partition in a folder, and its epoch in a file beside it."""

    def __init__(
        self, disk: Disk, identity: ServerIdentity, save: Callable[[int, bytes], None], *, saved_epoch: int
    ) -> None:
        self._damage_lock = threading.Lock()
        self._damaged: dict[bytes, bool] = {}  # by uid, replicas that were found damaged: whether unreadable
        super().__init__(disk)
        self._replica_disk, self._identity, self._save = disk, identity, save
        self._saved_epoch = saved_epoch
        self._epoch_lock = threading.Lock()
        self.takes_writes = True  # the last creation had the space that it needed
        self._checked: bytes | None = None  # the uid that the scrub is checking; None if it was deleted meanwhile

    def _note_damage(self, uid: bytes, error: PlogCorrupt) -> None:
        """Go on without a replica that was found damaged when the folder was opened: others have a copy of it."""
        self._damaged[uid] = False
        _logger.error("a replica is damaged; its owner replaces it: %s: %s", error.path, error.reason)

    def create(self, *, size: int = PLOG_SIZE_DEFAULT, plog_id: PlogId | None = None) -> PlogId:
        """Create a replica; the first refusal of the disk is logged, and that it takes one again."""
        try:
            created = super().create(size=size, plog_id=plog_id)
        except (DiskFull, DiskFailed) as error:
            self._note_refusal(error)
            raise
        if not self.takes_writes:
            self.takes_writes = True
            _logger.info("the disk takes writes again: %s", self.where(created))
        return created

    def submit(self, plog_id: PlogId, offset: int, *data: Buffer) -> PendingAppend:
        """Append without waiting; the first refusal of the disk is logged."""
        try:
            return super().submit(plog_id, offset, *data)
        except (DiskFull, DiskFailed) as error:
            self._note_refusal(error)
            raise

    def _note_refusal(self, error: DiskFull | DiskFailed) -> None:
        if self.takes_writes:
            self.takes_writes = False
            _logger.warning("the disk takes no writes: %s", error)

    def uids(self) -> list[str]:
        """Return the uids of all replicas, damaged or not, sorted."""
        return sorted(filter(None, map(_uid_in, self._replica_disk.names())))

    def plog_id(self, uid: str) -> PlogId:
        """Return the id of the plog with this uid."""
        return PlogId(self._identity.cluster, self._identity.group, uid)

    def stored_size(self, uid: str) -> int:
        """Return the bytes that a replica takes on the disk; 0 if it is gone."""
        try:
            return Path(self.where(self.plog_id(uid))).stat().st_size
        except OSError:
            return 0

    def write_buffered(self, plog_id: PlogId) -> None:
        """Write the acknowledged appends of a plog that only the journal has into its file."""
        with self._table.entered(plog_id) as plog:
            if plog.replica is not None:
                self._flushed(plog)

    @property
    def damaged(self) -> set[bytes]:
        """The uids of replicas that the start or the scrub has found damaged, and that are not replaced yet."""
        with self._damage_lock:
            return set(self._damaged)

    def begin_check(self, plog_id: PlogId) -> None:
        """Note that a replica is being checked: a finding does not count for the one that replaces it meanwhile."""
        with self._damage_lock:
            self._checked = plog_id.uid_bytes

    def note_checked(self, plog_id: PlogId, *, is_damaged: bool, is_unreadable: bool = False) -> bool:
        """Note the result of the check that has begun; return whether it is damage that was not known."""
        uid = plog_id.uid_bytes
        with self._damage_lock:
            if self._checked != uid or not is_damaged:
                self._damaged.pop(uid, None)
                return False
            is_new = uid not in self._damaged
            self._damaged[uid] = is_unreadable
            return is_new

    def delete(self, plog_id: PlogId) -> None:
        """Delete a replica; the next one of the same plog is a good one."""
        uid = plog_id.uid_bytes
        if self._is_unreadable(uid):
            clear_head(self.where(plog_id))  # or the deletion would read it through a mapping
        super().delete(plog_id)
        with self._damage_lock:
            self._damaged.pop(uid, None)
            self._checked = None if self._checked == uid else self._checked

    def _is_unreadable(self, uid: bytes) -> bool:
        return self._damaged.get(uid, False)

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return the appends that hold these bytes, up to the first that is damaged; an error if that is the first.

        They are verified each time, because a disk may lose bits at any time. Those behind the damage may be the last
        good ones, so a client that asks for them gets them.
        """
        where = self.where(plog_id)
        if self._is_unreadable(plog_id.uid_bytes):
            raise PlogCorrupt(where, offset=None, reason="the disk cannot read it")
        with self._table.entered(plog_id) as plog:
            try:
                replica = self._table.need(plog)
            except PlogCorrupt:
                return salvaged_blocks(where, plog_id, offset, size)
            start, size = replica.widen(offset, size)
            replica.slices(start, size)  # which checks the range
            file = self._flushed(plog)
            image = file.view(0, file.size())
        return verified_blocks(replica, image, start, size, where=where)

    def info(self, plog_id: PlogId) -> PlogInfo:
        """Return the length of a replica, whether it is sealed, and the size; the head tells that of a sealed one."""
        try:
            known = self.known_info(plog_id)
        except OSError as error:
            if self._is_unreadable(plog_id.uid_bytes):  # so that it is replaced
                raise PlogCorrupt(self.where(plog_id), offset=0, reason="the disk cannot read its head") from error
            raise refusal(self.where(plog_id), error) from error
        return known if known.sealed else super().info(plog_id)

    def known_info(self, plog_id: PlogId) -> PlogInfo:
        """Return the same without reading blocks: the length of one that is not in use, nor sealed, is at least that.

        ``OSError`` if the head cannot be read.
        """
        with self._table.entered(plog_id) as plog:
            if plog.deletion is not None:
                raise NoSuchPlog(plog_id)
            return stored_info(self.where(plog_id), plog_id) if plog.replica is None else plog.replica.info()

    def replicas(self, after: bytes, limit: int) -> list[tuple[bytes, PlogInfo | None]]:
        """Return up to ``limit`` replicas in the order of their uids, behind ``after``; without damaged ones.

        When the time is up, the next one ends the list, with None. One that cannot be read is there, and no more is
        known about it.
        """
        replicas: list[tuple[bytes, PlogInfo | None]] = []
        deadline = time.monotonic() + _LIST_S_MAX
        uids, damaged = self.uids(), self.damaged
        for uid in map(bytes.fromhex, uids[bisect_right(uids, after.hex()) :]):
            if len(replicas) == limit:
                break
            if replicas and time.monotonic() > deadline:
                replicas.append((uid, None))
                break
            if uid not in damaged:
                with suppress(NoSuchPlog, PlogCorrupt):
                    replicas.append((uid, self._listed_info(uid)))
        return replicas

    def _listed_info(self, uid: bytes) -> PlogInfo:
        try:
            return self.known_info(self.plog_id(uid.hex()))
        except OSError:
            return _UNREADABLE

    def save_epoch(self, epoch: int, owner: bytes) -> None:
        """Make the epoch of the present owner durable; one that is lower than that saved before has no effect."""
        with self._epoch_lock:  # of two sessions that open at the same time, the one with the lower epoch may come last
            if epoch >= self._saved_epoch:
                self._save(epoch, owner)
                self._saved_epoch = epoch


def _uid_in(name: str) -> str | None:
    """Return the uid in the name of a replica's file; None for the name of another file."""
    found = _REPLICA.fullmatch(name)
    return None if found is None else found[1]
