"""Errors of snapshots, backups and restores."""

from __future__ import annotations

from penstock.errors._base import PenstockError
from penstock.errors._store import CorruptData

__all__ = [
    "BackupCorrupt",
    "BackupError",
    "BackupRunning",
    "FolderInUse",
    "NoSuchPoint",
    "NotABackup",
    "SnapshotLost",
]


class BackupError(PenstockError):
    """A backup or a restore was refused or failed; the points that were in the backup before are still there."""


class SnapshotLost(BackupError):
    """The store does not hold the snapshot any more, as after its owner was started again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the snapshot of the store is gone: {reason}; run the backup again, which continues it")
        self.reason = reason


class NotABackup(BackupError):
    """The folder or the bucket holds no backup."""

    def __init__(self, target: str, *, reason: str, advice: str = "name the target of penstock backup") -> None:
        super().__init__(f"{target} is not a backup: {reason}; {advice}")
        self.target, self.reason = target, reason


class NoSuchPoint(BackupError):
    """The backup has no such point in time."""

    def __init__(self, target: str, *, point: str | None) -> None:
        wanted = "no complete point yet" if point is None else f"no point {point}"
        super().__init__(f"the backup {target} has {wanted}: penstock backup ls lists its points")
        self.target, self.point = target, point


class BackupRunning(BackupError):
    """Another process changes the backup."""

    def __init__(self, target: str, *, owner: str) -> None:
        super().__init__(f"{owner} uses the backup {target}: wait until it ends, then try again")
        self.target, self.owner = target, owner


class FolderInUse(BackupError):
    """There is something where a store is to be restored."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"cannot restore into {folder}, which is not empty: name a folder that does not exist, or is empty"
        )
        self.folder = folder


class BackupCorrupt(CorruptData):
    """A file or an object of a backup lost or changed bytes."""

    def __init__(self, path: str, *, offset: int | None, reason: str) -> None:
        super().__init__(path, offset=offset, reason=reason)
        place = path if offset is None else f"{path} at byte {offset}"
        self.args = (f"{place} is damaged: {reason}; restore another point, or run a new backup into another target",)
