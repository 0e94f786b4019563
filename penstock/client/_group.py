"""Reader groups of a remote store."""

from __future__ import annotations

import math
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.client._membership import RemoteMembership
from penstock.deadlines import DeadlineExceeded, within
from penstock.errors import CheckpointFailed
from penstock.model import (
    GROUP_PLACES,
    Checkpoint,
    Position,
    StreamCut,
    as_list,
    as_time,
    check_method,
    check_name,
    check_timeout,
    check_whole,
    is_time,
)
from penstock.store import CHECKPOINT_TIMEOUT_S, EVENT_SIZE_DEFAULT, ReaderGroup
from penstock.stream.read import Reader, ReaderMember
from penstock.wire.operations import groups

if TYPE_CHECKING:
    from penstock.client._store import RemoteStore
    from penstock.model import Lag, TimeWindow
    from penstock.stream.serializers import Serializer
    from penstock.wire.operations import Operation

__all__ = ["RemoteGroup", "as_cuts"]


class RemoteGroup(ReaderGroup):
    """A group of a remote store. :class:`penstock.ReaderGroup` describes the methods."""

    def __init__(self, store: RemoteStore, name: str) -> None:
        self._store, self._name = store, name

    def _call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        self._store.report_group(self.name)
        return self._store.connection.call(call)

    @property
    def name(self) -> str:
        return self._name

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(self._call(groups.GetStreams(self.name)))

    @property
    def position(self) -> tuple[StreamCut, ...]:
        return tuple(self._call(groups.GetPosition(self.name)))

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        return dict(self._call(groups.Checkpoints(self.name)))

    @property
    def finished(self) -> bool:
        return bool(self._call(groups.IsFinished(self.name)))

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Reader:
        check_name("reader", reader_id)
        if serializer is not None:
            check_method("serializer", serializer, "deserialize")
        check_whole("max_event_size", max_event_size, least=1)
        membership = RemoteMembership(self._store, self.name, reader_id)
        member = ReaderMember(membership, reader_id)
        membership.take(member)
        return Reader(member, serializer, max_event_size)

    def readers(self) -> list[str]:
        return list(self._call(groups.Readers(self.name)))

    def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        self._call(groups.TakeOffline(self.name, reader_id, position))

    def checkpoint(self, name: str, timeout: float | None = CHECKPOINT_TIMEOUT_S) -> Checkpoint:
        check_timeout("timeout", timeout)
        timeout = None if timeout == math.inf else timeout
        try:
            with within(None if timeout is None else time.monotonic() + timeout):
                found: Checkpoint = self._call(groups.TakeCheckpoint(self.name, name, timeout))
        except DeadlineExceeded:
            raise CheckpointFailed(self.name, name, reason="the server did not answer in time") from None
        return found

    def reset(self, to: Any) -> None:  # noqa: ANN401 - the server checks it
        self._call(groups.Reset(self.name, as_cuts("to", to)))

    def lag(self) -> Lag:
        found: Lag = self._call(groups.GetLag(self.name))
        return found

    def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        found: TimeWindow | None = self._call(groups.CurrentTimeWindow(self.name, stream))
        return found

    def delete(self) -> None:
        self._call(groups.DeleteGroup(self.name))


def as_cuts(argument: str, given: Any) -> Any:  # noqa: ANN401 - the server checks it
    """Return cuts as they can be sent: a checkpoint, a position, one cut and a time as they are, others as a list."""
    if given is None or isinstance(given, Checkpoint | Position | StreamCut):
        return given
    if is_time(given):
        return as_time(argument, given) if isinstance(given, datetime) else given
    return as_list(argument, given, GROUP_PLACES)
