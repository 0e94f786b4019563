"""The host: performs the actions of protocols with real plogs and a real oracle."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from penstock.errors import NoSuchPlog
from penstock.log._actions import (
    Append,
    Create,
    Delete,
    Drain,
    FindMetadata,
    Inspect,
    NewId,
    Publish,
    ReadAll,
    Seal,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cpo import Cpo
    from penstock.log._actions import Action
    from penstock.model import PlogId
    from penstock.plog import PendingAppend, PlogInfo, Plogs

__all__ = ["Host"]


class Host:
    """The plogs and the oracle of one partition."""

    def __init__(self, plogs: Plogs, cpo: Cpo, partition: str) -> None:
        self._plogs, self._cpo, self._partition = plogs, cpo, partition
        self._doers: dict[type[Action], Callable[[Any], object]] = {
            NewId: lambda _: plogs.new_id(),
            Create: lambda action: plogs.create(plog_id=action.plog_id, size=action.size),
            Append: lambda action: plogs.append(action.plog_id, action.offset, action.data),
            Seal: lambda action: plogs.seal(action.plog_id, action.offset),
            Inspect: self._inspect,
            ReadAll: lambda action: plogs.views(action.plog_id, 0, plogs.info(action.plog_id).length),
            Delete: self._delete,
            FindMetadata: self._find_metadata,
            Publish: lambda action: cpo.set_metadata_plog(partition, action.plog_id, expected=action.expected),
            Where: lambda action: cpo.where() if action.plog_id is None else plogs.where(action.plog_id),
        }

    def perform(self, action: Action, drain: PendingAppend | None) -> object:
        """Perform an action and return its result; ``drain`` is the append that a Drain waits for."""
        if isinstance(action, Drain):
            return drain.result() if drain is not None else None
        return self._doers[type(action)](action)

    def _inspect(self, action: Inspect) -> PlogInfo | None:
        try:
            return self._plogs.info(action.plog_id)
        except NoSuchPlog:
            return None

    def _delete(self, action: Delete) -> None:
        with contextlib.suppress(NoSuchPlog):
            self._plogs.delete(action.plog_id)

    def _find_metadata(self, _: FindMetadata) -> tuple[PlogId, int] | None:
        newest = self._cpo.metadata_plog(self._partition)
        return None if newest is None else (newest.plog_id, newest.version)
