"""Errors of reader groups and their readers."""

from __future__ import annotations

from penstock.errors._stream import StreamError

__all__ = ["CheckpointFailed", "GroupExists", "NoSuchGroup", "NoSuchReader", "ReaderInUse", "ReaderOffline"]


class NoSuchGroup(StreamError):
    """The store has no reader group of this name."""

    def __init__(self, group: str) -> None:
        super().__init__(f"no reader group {group!r}: create it first")
        self.group = group


class GroupExists(StreamError):
    """A reader group of this name exists."""

    def __init__(self, group: str, *, differs: str | None = None) -> None:
        if differs is None:
            text = f"reader group {group!r} exists: choose another name, or pass exist_ok=True to use it as it is"
        else:
            text = (
                f"reader group {group!r} exists, and has {differs}: choose another name, or use reader_group({group!r})"
            )
        super().__init__(text)
        self.group, self.differs = group, differs


class NoSuchReader(StreamError):
    """The group has no reader of this name."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader group {group!r} has no reader {reader!r}: check the name")
        self.group, self.reader = group, reader


class ReaderInUse(StreamError):
    """A reader of this name is already open."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader {reader!r} of group {group!r} is in use: close it, or choose another name")
        self.group, self.reader = group, reader


class ReaderOffline(StreamError):
    """The reader was silent for too long or was taken offline, or its group was reset or deleted."""

    def __init__(self, group: str, reader: str, *, reason: str) -> None:
        super().__init__(f"reader {reader!r} of group {group!r} is offline ({reason}): open it again to continue")
        self.group, self.reader, self.reason = group, reader, reason


class CheckpointFailed(StreamError):
    """The checkpoint failed: a reader did not reach it in time, or another checkpoint was under way."""

    def __init__(self, group: str, name: str, *, reason: str) -> None:
        super().__init__(f"checkpoint {name!r} of group {group!r} failed: {reason}")
        self.group, self.name, self.reason = group, name, reason
