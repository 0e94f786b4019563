"""Errors of the control plane oracle."""

from __future__ import annotations

from penstock.errors._base import PenstockError

__all__ = ["CasConflict", "ClusterExists", "CpoError", "CpoUnavailable", "LeaseHeld", "LeaseLost", "NoSuchCluster"]


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
        super().__init__(f"no persistence cluster {name!r} is registered: register it first")
        self.name = name


class ClusterExists(CpoError):
    """A different persistence cluster is registered under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a persistence cluster {name!r} with other groups is registered: choose another name")
        self.name = name


class CpoUnavailable(CpoError):
    """The database behind the oracle cannot be reached or used."""

    def __init__(self, url: str, *, reason: str) -> None:
        super().__init__(f"cannot use the control plane oracle at {url}: {reason}")
        self.url, self.reason = url, reason
