"""Errors of plogs, of the log streams over them, and of the control plane oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors._base import PenstockError

if TYPE_CHECKING:
    from penstock.model import PlogId

__all__ = [
    "AppendTooLarge",
    "CasConflict",
    "ClusterExists",
    "CpoError",
    "CpoUnavailable",
    "LeaseHeld",
    "LeaseLost",
    "LogError",
    "LogFenced",
    "LogUnavailable",
    "NoCluster",
    "NoSuchCluster",
    "NoSuchLog",
    "NoSuchPlog",
    "NotInLog",
    "PlogError",
    "PlogExists",
    "PlogFull",
    "PlogSealed",
    "ReadOutOfRange",
    "WrongOffset",
    "WrongPosition",
]


class PlogError(PenstockError):
    """A plog refused the call; nothing was changed."""


class NoSuchPlog(PlogError):
    """No plog has this id: it was never created, or it was deleted."""

    def __init__(self, plog_id: PlogId) -> None:
        super().__init__(f"no plog {plog_id}: it was never created here, or it was deleted")
        self.plog_id = plog_id


class PlogExists(PlogError):
    """A plog with this id exists."""

    def __init__(self, plog_id: PlogId) -> None:
        super().__init__(f"plog {plog_id} exists: create it under another id")
        self.plog_id = plog_id


class PlogSealed(PlogError):
    """The plog takes no more appends; the process that sealed it owns the log now."""

    def __init__(self, plog_id: PlogId, *, sealed_offset: int) -> None:
        super().__init__(f"plog {plog_id} is sealed at {sealed_offset}: reopen the log to continue")
        self.plog_id, self.sealed_offset = plog_id, sealed_offset


class AppendTooLarge(PlogError):
    """The append is larger than the limit for one append."""

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(f"an append of {size} bytes is above the limit of {limit}: split it")
        self.size, self.limit = size, limit


class WrongOffset(PlogError):
    """The append is not at the plog's current offset: there was another append, or an earlier one was lost."""

    def __init__(self, plog_id: PlogId, *, offset: int, expected: int) -> None:
        super().__init__(f"plog {plog_id} ends at {expected}, not at {offset}: append at {expected}")
        self.plog_id, self.offset, self.expected = plog_id, offset, expected


class PlogFull(PlogError):
    """The append does not fit into the plog's fixed size."""

    def __init__(self, plog_id: PlogId, *, free: int, size: int) -> None:
        super().__init__(f"plog {plog_id} has {free} bytes left, {size} do not fit: continue in a new plog")
        self.plog_id, self.free, self.size = plog_id, free, size


class ReadOutOfRange(PlogError):
    """The read goes past the last acknowledged byte."""

    def __init__(self, plog_id: PlogId, *, offset: int, size: int, length: int) -> None:
        super().__init__(
            f"plog {plog_id} has {length} bytes, a read of {size} at {offset} goes past the end: read less"
        )
        self.plog_id, self.offset, self.size, self.length = plog_id, offset, size, length


class LogError(PenstockError):
    """A log stream refused the call or failed."""


class NoSuchLog(LogError):
    """The partition has no log of this name."""

    def __init__(self, name: str, *, partition: str) -> None:
        super().__init__(f"partition {partition} has no log {name!r}: it was deleted, or spliced into another log")
        self.name, self.partition = name, partition


class WrongPosition(LogError):
    """The log does not end where the append expected it to; nothing was written."""

    def __init__(self, name: str, *, expected: object, tail: object) -> None:
        super().__init__(f"log {name!r} ends at {tail}, not at {expected}: read up to there, then append there")
        self.name, self.expected, self.tail = name, expected, tail


class NotInLog(LogError):
    """The plog is not, or no longer, part of the log."""

    def __init__(self, name: str, plog_id: PlogId) -> None:
        super().__init__(
            f"plog {plog_id} is not part of log {name!r}: it was truncated away, or belongs to another log"
        )
        self.name, self.plog_id = name, plog_id


class LogFenced(LogError):
    """The log, or its whole partition, has a new owner; data that was not acknowledged is not in it."""

    def __init__(self, log: str) -> None:
        super().__init__(f"{log} has a new owner: open it again to continue")
        self.log = log


class LogUnavailable(LogError):
    """The log found no group of servers that takes its next plog; nothing of the append is kept."""

    def __init__(self, log: str, *, reason: str) -> None:
        super().__init__(
            f"{log} cannot continue in a new plog: {reason}; see that the servers of its groups run, then append again"
        )
        self.log, self.reason = log, reason


class CpoError(PenstockError):
    """The control plane oracle refused the call."""


class CasConflict(CpoError):
    """The key is not at the expected version: another process changed it first."""

    def __init__(self, key: str, *, expected: int, actual: int) -> None:
        super().__init__(f"{key!r} is at version {actual}, not {expected}: another process changed it; read it again")
        self.key, self.expected, self.actual = key, expected, actual


class LeaseHeld(CpoError):
    """Another owner holds the lease."""

    def __init__(self, name: str, *, owner: str, seconds_left: float) -> None:
        super().__init__(
            f"{owner!r} holds the lease {name!r} for {seconds_left:.1f} s more: wait, or have its owner release it"
        )
        self.name, self.owner, self.seconds_left = name, owner, seconds_left


class LeaseLost(CpoError):
    """The lease expired or went to another owner: stop acting on it."""

    def __init__(self, name: str, *, epoch: int) -> None:
        super().__init__(f"the lease {name!r} of epoch {epoch} is over: stop, then acquire it again")
        self.name, self.epoch = name, epoch


class NoSuchCluster(CpoError):
    """No persistence cluster is registered under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no persistence cluster {name!r} is registered: check the name, or register it with "
            "'penstock cluster create'"
        )
        self.name = name


class NoCluster(CpoError):
    """The store is served by its one owner: it has no cluster whose status could be shown."""

    def __init__(self) -> None:
        super().__init__(
            "the store of this server is in a folder of its own, without other servers: a cluster has servers that are "
            "started with --plogs and --cpo"
        )


class ClusterExists(CpoError):
    """A different persistence cluster is registered under this name."""

    def __init__(self, name: str, *, group: str | None = None) -> None:
        if group is None:
            advice = "choose another name, or change it with 'penstock cluster add-group' and 'replace-server'"
            message = f"a persistence cluster {name!r} with other groups is registered: {advice}"
        else:
            message = f"cluster {name!r} has a group {group!r} with other servers: choose another name for the group"
        super().__init__(message)
        self.name, self.group = name, group


class CpoUnavailable(CpoError):
    """The database behind the oracle cannot be reached or used; nothing was changed, unless the outcome is unknown."""

    def __init__(self, url: str, *, reason: str, outcome_unknown: bool = False) -> None:
        advice = "; it is unknown whether the change was made: read before trying again" if outcome_unknown else ""
        super().__init__(f"cannot use the control plane oracle at {url}: {reason}{advice}")
        self.url, self.reason, self.outcome_unknown = url, reason, outcome_unknown
