"""The plogs of one owner: those that it has open, and the decided lengths of others.

The owner appends only to plogs that it created itself. Of those it knows the committed offset, which bounds reads. Any
other plog is sealed, or was left open by an owner before: then its length is decided at first use, and it is sealed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import NoSuchPlog, PlogExists, PlogSealed
from penstock.plog._replica import PLOG_SIZE_MAX, PlogInfo
from penstock.plog.replicated._actions import AwaitQuiet
from penstock.plog.replicated._decide import create_plog, decide_length, delete_plog
from penstock.plog.replicated._window import REPLICA_WAIT_S, AppendWindow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model import PlogId
    from penstock.plog.replicated._actions import ReplicaSteps

__all__ = ["OwnedPlogs"]


class OwnedPlogs:
    """What an owner knows about plogs; its methods are protocols, except for appends, which go to a window."""

    def __init__(
        self, groups: Mapping[str, tuple[str, ...]], *, has_oracle: bool = True, wait_s: float = REPLICA_WAIT_S
    ) -> None:
        self._groups, self._has_oracle, self._wait_s = groups, has_oracle, wait_s
        self.windows: dict[PlogId, AppendWindow] = {}
        self._sealed: dict[PlogId, PlogInfo] = {}

    def window(self, plog_id: PlogId) -> AppendWindow:
        """Return the window of a plog that takes appends; ``PlogSealed`` if it was sealed here, or ``NoSuchPlog``."""
        window = self.windows.get(plog_id)
        if window is None:
            sealed = self._sealed.get(plog_id)
            raise NoSuchPlog(plog_id) if sealed is None else PlogSealed(plog_id, sealed_offset=sealed.length)
        return window

    def create(self, plog_id: PlogId, size: int) -> ReplicaSteps[None]:
        """Create a plog, open for appends; ``PlogExists`` if this owner knows it already."""
        if plog_id in self.windows or plog_id in self._sealed:
            raise PlogExists(plog_id)
        yield from create_plog(plog_id, size, has_oracle=self._has_oracle)
        servers = self._groups[plog_id.group]
        self.windows[plog_id] = AppendWindow(plog_id, size=size, servers=servers, wait_s=self._wait_s)

    def seal(self, plog_id: PlogId, offset: int) -> ReplicaSteps[int]:
        """Seal a plog at ``offset``, or where it ends; return its length. No append is accepted from now on.

        A plog of this owner ends where it is committed. What one server has behind that was not acknowledged, and
        could be the only copy.
        """
        window = self.windows.get(plog_id)
        if window is not None:
            window.closed = True
            yield AwaitQuiet(plog_id)
        known = self._sealed.get(plog_id)
        if known is None:
            quiet = window is None or window.is_quiet
            committed = None if window is None else window.committed
            decided = yield from decide_length(
                plog_id, at_most=offset, committed=committed, quiet=quiet, has_oracle=self._has_oracle
            )
            self._sealed[plog_id] = PlogInfo(decided.length, sealed=True, size=decided.size)
            self.windows.pop(plog_id, None)
            if not decided.before:
                return decided.length
            known = self._sealed[plog_id]
        if known.length != offset:
            raise PlogSealed(plog_id, sealed_offset=known.length)
        return known.length

    def decide_failed(self, plog_id: PlogId) -> ReplicaSteps[bool]:
        """Decide the length of a plog that has failed, so that it is repaired before its log leaves it.

        An idle log may not leave it for days. Return whether the length is decided: it is not while appends are under
        way, because those fail, and then the log leaves the plog at once.
        """
        window = self.windows.get(plog_id)
        if window is None:
            return True
        if window.failure is None or not window.is_quiet:
            return False
        yield from decide_length(plog_id, committed=window.committed, quiet=True, has_oracle=self._has_oracle)
        window.is_decided = True
        return True

    def info(self, plog_id: PlogId) -> ReplicaSteps[PlogInfo]:
        """Return the committed offset of an open plog of this owner; of any other the length, decided if need be."""
        window = self.windows.get(plog_id)
        if window is not None:
            return PlogInfo(window.committed, sealed=False, size=window.size)
        if plog_id not in self._sealed:
            decided = yield from decide_length(plog_id, at_most=PLOG_SIZE_MAX, quiet=True, has_oracle=self._has_oracle)
            self._sealed[plog_id] = PlogInfo(decided.length, sealed=True, size=decided.size)
        return self._sealed[plog_id]

    def delete(self, plog_id: PlogId) -> ReplicaSteps[None]:
        """Delete a plog; ``NoSuchPlog`` if there is none."""
        self.windows.pop(plog_id, None)
        self._sealed.pop(plog_id, None)
        yield from delete_plog(plog_id, has_oracle=self._has_oracle)
