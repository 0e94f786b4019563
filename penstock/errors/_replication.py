"""Errors of plogs on three servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors._base import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model import PlogId

__all__ = ["GroupUnavailable", "PlogServerRefused", "ReplicaLost"]


class ReplicaLost(PenstockError):
    """A server has not made an append durable in time, so its outcome is unknown; the plog takes no more appends."""

    def __init__(self, plog_id: PlogId, *, server: str, reason: str) -> None:
        super().__init__(
            f"server {server} has lost its replica of plog {plog_id} ({reason}), and it is unknown whether the append "
            "was made: seal the plog, and continue in another group"
        )
        self.plog_id, self.server, self.reason = plog_id, server, reason


class GroupUnavailable(PenstockError):
    """Too few servers of a persistence group answer to carry out the call or to know its outcome."""

    def __init__(self, group: str, *, reason: str, away: Sequence[str] = ()) -> None:
        self.group, self.reason, self.away = group, reason, tuple(away)
        super().__init__(f"{self.problem}; try again when its servers run")

    @property
    def problem(self) -> str:
        """What is wrong, without advice; servers that are away, if there are any, tell more than what they led to."""
        verb = "is" if len(self.away) == 1 else "are"
        reason = f"{', '.join(self.away)} {verb} away" if self.away else self.reason
        return f"persistence group {self.group} is not available: {reason}"


class PlogServerRefused(PenstockError):
    """A plog server does not accept this client, or is not the server that was asked for.

    ``is_setup_wrong`` says that more than this server is wrong: it belongs to another deployment, or it is in its group
    twice. Then an owner does not open the store. It goes on without a server that refuses for any other reason.
    """

    def __init__(self, server: str, *, reason: str, is_setup_wrong: bool = False) -> None:
        super().__init__(f"plog server {server} cannot be used: {reason}")
        self.server, self.reason, self.is_setup_wrong = server, reason, is_setup_wrong
