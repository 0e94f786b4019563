"""The state of replicated plogs, for metrics and for operators: what is away, and what has to be repaired."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model import PlogId

__all__ = ["KnownPlogs", "ReplicationUse"]

KnownPlogs = Callable[[Collection["PlogId"]], set["PlogId"]]
"""Returns those of some plogs that belong to a partition: it needs them, has announced them, or will delete them."""


class ReplicationUse(NamedTuple):
    """Servers that are away, with the reasons; plogs known to lack a good replica; bytes that repair has copied.

    What a server that is away has lost is not known before it is back, so its plogs are counted from then on.

    A server whose disk is full or fails is away, too. ``has_complete_group`` says whether new plogs can be created: a
    group for that has no server that is away. ``strays`` are the numbers of plogs that no log knows and that a server
    alone has, by its address; ``repairs`` says of each server of a group with plogs to be repaired how far that is.
    ``listed`` says of each server whether the plogs that its group lacks are known, because all its servers were looked
    through since they started; None while one of them is away. ``lost`` are the numbers of plogs in its group without
    any good replica.
    """

    away: Mapping[str, str]
    under_replicated: int
    copied_size: int
    has_complete_group: bool
    strays: Mapping[str, int]
    repairs: Mapping[str, str]
    listed: Mapping[str, bool | None]
    lost: Mapping[str, int]

    @property
    def is_known(self) -> bool:
        """Whether ``under_replicated`` is the number of all plogs that lack a good replica."""
        return all(self.listed.values())
