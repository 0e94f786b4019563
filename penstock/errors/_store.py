"""Errors of the folder, the disk and the handles of a store, and of damaged data."""

from __future__ import annotations

from penstock.errors._base import PenstockError

__all__ = [
    "CorruptData",
    "CpoCorrupt",
    "DiskFailed",
    "DiskFull",
    "FolderUnusable",
    "ForkedHandle",
    "FormatUnknown",
    "JobRunning",
    "JournalCorrupt",
    "MetadataCorrupt",
    "PlogCorrupt",
    "StoreClosed",
    "StoreLocked",
    "StreamCorrupt",
    "UsersCorrupt",
    "UsersUnreadable",
    "WrongEventLoop",
]


class FolderUnusable(PenstockError):
    """The folder cannot be created, read or written."""

    def __init__(self, folder: str, *, reason: str) -> None:
        super().__init__(f"cannot use the folder {folder}: {reason}; choose a folder that you can write to")
        self.folder, self.reason = folder, reason


class StoreLocked(PenstockError):
    """Another process owns the folder."""

    def __init__(self, folder: str, *, owner: str) -> None:
        super().__init__(f"the folder {folder} is in use by {owner}: close the store there")
        self.folder, self.owner = folder, owner


class JobRunning(PenstockError):
    """Another process runs the job with this checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(f"the job with the checkpoint {checkpoint} is already running: wait until it ends, or stop it")
        self.checkpoint = checkpoint


class FormatUnknown(PenstockError):
    """A newer Penstock wrote the folder or the table, or it is not one of Penstock's."""

    def __init__(self, path: str, *, actual: str, known: str) -> None:
        super().__init__(
            f"{path} holds {actual!r}, this Penstock knows {known!r}: "
            "upgrade Penstock, or use another folder or database"
        )
        self.path, self.actual, self.known = path, actual, known


class DiskFull(PenstockError):
    """The disk has no space left; acknowledged data is safe, and nothing else was kept."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"no space left on the disk for {path}: free some space and try again; no acknowledged data is lost"
        )
        self.path = path


class DiskFailed(PenstockError):
    """The disk refused a write or failed a sync.

    After a failed sync nothing is known about what was written since the last good one, so the store takes no
    more writes (``stopped``); opening it again replays what it had acknowledged.
    """

    def __init__(self, path: str, *, reason: str, stopped: bool) -> None:
        advice = (
            "the store takes no more writes: close it, check the disk, open it again"
            if stopped
            else "nothing was written: check the disk and try again"
        )
        super().__init__(f"the disk failed at {path}: {reason}; {advice}")
        self.path, self.reason, self.stopped = path, reason, stopped


class StoreClosed(PenstockError):
    """A store, or a handle of it, was used after ``close()``."""

    def __init__(self, handle: str) -> None:
        super().__init__(f"{handle} is closed: open it again")


class ForkedHandle(PenstockError):
    """A forked child process used a handle of its parent; nothing was changed."""

    def __init__(self, kind: str, *, owner: int) -> None:
        super().__init__(
            f"this {kind} belongs to process {owner}, from which this process was forked: open the store again in "
            "this process with penstock.connect(), which uses it through its owner"
        )
        self.kind, self.owner = kind, owner


class WrongEventLoop(PenstockError):
    """An asynchronous handle was used outside of the event loop in which it was opened; nothing was changed."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"this {kind} belongs to another event loop of asyncio: use it there, or open the store again in this loop "
            "with penstock.aio.connect()"
        )
        self.kind = kind


class CorruptData(PenstockError):
    """Stored bytes fail their check: they are never returned."""

    def __init__(self, path: str, *, offset: int | None, reason: str) -> None:
        place = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{place} is damaged: {reason}; restore it from a backup")
        self.path, self.offset, self.reason = path, offset, reason


class PlogCorrupt(CorruptData):
    """A plog's file lost or changed bytes that had been acknowledged."""


class JournalCorrupt(CorruptData):
    """The journal lost or changed records that had been acknowledged."""


class MetadataCorrupt(CorruptData):
    """The metadata log holds a record that no version of Penstock writes."""


class CpoCorrupt(CorruptData):
    """The control plane oracle's database is damaged."""


class StreamCorrupt(CorruptData):
    """A segment, or the catalog of streams, holds bytes that no version of Penstock writes."""


class UsersUnreadable(PenstockError):
    """The file of users is there, and cannot be read: its permissions, or something that is no file in its place."""

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"cannot read {path}: {reason}; make it a file that the user of the server may read")
        self.path, self.reason = path, reason


class UsersCorrupt(CorruptData):
    """The file of users holds bytes that no version of Penstock writes."""
