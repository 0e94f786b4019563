"""Plogs that one server alone has, or none: either the others have lost them, or they were deleted.

A server whose folder is set back has plogs again that were deleted since. They look like plogs that two servers have
lost. So such a plog is copied only if it belongs to the partition, which the owner of the logs knows. Any other is a
stray: it is not copied, and it is not deleted either, because an oracle that was restored from a backup may lead to
logs that have forgotten what they need.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.plog.replicated._repair import is_left_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.model import PlogId
    from penstock.plog._replication_use import KnownPlogs
    from penstock.plog.replicated._actions import ReplicaSteps

__all__ = ["LostPlogs", "Strays"]

T = TypeVar("T")
_FOUND: Final = (
    "one server of group %s alone has plogs that no log knows (%d, such as %s). They are not copied: they were "
    "deleted, and its folder was set back since, unless the oracle was: 'penstock cluster status' names the server"
)
_logger: Final = logging.getLogger("penstock.plogs")


class Strays:
    """The plogs that one server alone has, and that are not copied: by group, each with the place of the server."""

    def __init__(self) -> None:
        self._known: KnownPlogs | None = None  # until the logs are open
        self._found: dict[str, dict[PlogId, int]] = {}
        self._lock = threading.Lock()

    def __contains__(self, plog_id: PlogId) -> bool:
        """Return whether a plog is to be left as it is."""
        return plog_id in self._found.get(plog_id.group, {})

    def set_known(self, known: KnownPlogs) -> None:
        """Be given the function that knows what belongs to the logs; all groups are to be listed again."""
        with self._lock:
            self._known = known

    def is_needed(self, plog_id: PlogId) -> bool:
        """Return whether a plog belongs to the logs; no plog does before they are open."""
        return self._known is not None and bool(self._known([plog_id]))

    def is_decided(self, group: str) -> bool:
        """Return whether it is known which of the plogs that one server alone has are strays."""
        return self._known is not None or not self._found.get(group)

    def count(self, group: str, place: int) -> int:
        """Return how many a server has; 0 until it is known which plogs the logs need."""
        return 0 if self._known is None else list(self._found.get(group, {}).values()).count(place)

    def find(
        self, group: str, single: Mapping[PlogId, int], run_alone: Callable[[PlogId, ReplicaSteps[bool]], bool]
    ) -> None:
        """Find the strays among the plogs of a group that one server alone has."""
        with self._lock:
            known, before = self._known, self._found.get(group, {})
            self._found[group] = dict(single)  # none is repaired before this is decided
        unknown = single.keys() - (known(single.keys()) if known is not None and single else set())
        self._found[group] = {
            plog_id: single[plog_id]
            for plog_id in sorted(unknown, key=str)
            if run_alone(plog_id, is_left_alone(plog_id))  # and not one whose creation was under way
        }
        if known is not None and self._found[group].keys() - before.keys():
            _logger.warning(_FOUND, group, len(self._found[group]), next(iter(self._found[group])))


class LostPlogs:
    """The plogs that the logs need, and of which no server of their group has a good replica: nothing can be copied."""

    def __init__(self) -> None:
        self._known: KnownPlogs | None = None
        self._found: dict[str, set[PlogId]] = {}

    def set_known(self, known: KnownPlogs) -> None:
        """Be given the function that knows what belongs to the logs."""
        self._known = known

    def note(self, group: str, corrupt: set[PlogId], before: set[PlogId], now: set[PlogId]) -> None:
        """Note what is corrupt, and what is gone of the plogs that the servers had when they were listed before."""
        self._found[group] = corrupt | ((self._found.get(group, set()) | before) - now)

    def count(self, group: str) -> int:
        """Return how many there are; a plog that its log does not need any more is not lost."""
        found = self._found.get(group)
        if not found:
            return 0
        self._found[group] = found = found if self._known is None else self._known(found)
        return len(found)
