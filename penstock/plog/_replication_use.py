"""The state of replicated plogs, for metrics and for operators: what is away, and what has to be repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ReplicationUse"]


class ReplicationUse(NamedTuple):
    """Servers that are away, with the reasons; plogs without three good replicas; bytes that repair has copied.

    A server whose disk is full or fails is away, too. ``has_complete_group`` says whether new plogs can be created: a
    group for that has no server that is away.
    """

    away: Mapping[str, str]
    under_replicated: int
    copied_size: int
    has_complete_group: bool
