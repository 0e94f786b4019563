"""Backups of whole stores, at one moment each, and checks of stores and backups.

A backup is a copy of the plogs of a store, as a crash at one moment could have left them, so it has everything that the
store has: events and their order, segments, watermarks, groups and consumers, the numbers of writers, prepared
transactions, repositories. ``docs/backup.md`` says what is not in it.
"""

from penstock.backup._backup import BackupReport, backup_store
from penstock.backup._check import check_backup, check_folder, check_store
from penstock.backup._findings import CheckReport
from penstock.backup._points import PointInfo, list_points
from penstock.backup._restore import restore_store
from penstock.backup._target import BackupTarget
from penstock.backup._verify import VerifyReport, verify_backup

__all__ = [
    "BackupReport",
    "BackupTarget",
    "CheckReport",
    "PointInfo",
    "VerifyReport",
    "backup_store",
    "check_backup",
    "check_folder",
    "check_store",
    "list_points",
    "restore_store",
    "verify_backup",
]
