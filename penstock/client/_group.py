"""Reader groups of a remote store."""

from __future__ import annotations

import math
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.client._membership import RemoteMembership
from penstock.deadlines import DeadlineExceeded, within
from penstock.errors import CheckpointFailed
from penstock.model import (
    Checkpoint,
    Position,
    StreamCut,
    as_list,
    as_time,
    check_method,
    check_name,
    check_timeout,
    check_whole,
)
from penstock.store import CHECKPOINT_TIMEOUT_S, EVENT_SIZE_DEFAULT
from penstock.stream.group import GROUP_PLACES, is_time
from penstock.stream.read import Reader
from penstock.wire.operations import groups

if TYPE_CHECKING:
    from penstock.client._store import RemoteStore
    from penstock.model import Lag, TimeWindow
    from penstock.stream.serializers import Serializer
    from penstock.wire.operations import Operation

__all__ = ["RemoteGroup", "as_cuts"]


class RemoteGroup:
    """See :class:`penstock.store.ReaderGroup`."""

    def __init__(self, store: RemoteStore, name: str) -> None:
        self._store: Final = store
        self.name: Final = name

    def _call(self, call: Operation) -> Any:  # noqa: ANN401 - as the operation says
        self._store.report_group(self.name)
        return self._store.connection.call(call)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return tuple(self._call(groups.GetStreams(self.name)))

    @property
    def position(self) -> tuple[StreamCut, ...]:
        """How far its readers have come: a cut of each stream."""
        return tuple(self._call(groups.GetPosition(self.name)))

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The last checkpoints, oldest first, by name."""
        return dict(self._call(groups.Checkpoints(self.name)))

    @property
    def finished(self) -> bool:
        """Whether it has read everything, up to its end or that of its streams, which are sealed."""
        return bool(self._call(groups.IsFinished(self.name)))

    def reader(
        self,
        reader_id: str,
        serializer: Serializer[Any] | None = None,
        max_event_size: int = EVENT_SIZE_DEFAULT,
    ) -> Reader:
        """Open a reader. One of this name that a process left behind when it ended is replaced."""
        check_name("reader", reader_id)
        if serializer is not None:
            check_method("serializer", serializer, "deserialize")
        check_whole("max_event_size", max_event_size, least=1)
        membership = RemoteMembership(self._store, self.name, reader_id)
        reader = Reader(membership, reader_id, serializer, max_event_size)
        membership.take(reader)
        return reader

    def readers(self) -> list[str]:
        """Return the names of its readers."""
        return list(self._call(groups.Readers(self.name)))

    def reader_offline(self, reader_id: str, position: Position | None = None) -> None:
        """End a reader that does not answer: others go on with its segments, from ``position`` if it is given."""
        self._call(groups.TakeOffline(self.name, reader_id, position))

    def checkpoint(self, name: str, timeout: float | None = CHECKPOINT_TIMEOUT_S) -> Checkpoint:
        """Have every reader come to a checkpoint; return where they were, once all have."""
        check_timeout("timeout", timeout)
        timeout = None if timeout == math.inf else timeout
        try:
            with within(None if timeout is None else time.monotonic() + timeout):
                found: Checkpoint = self._call(groups.TakeCheckpoint(self.name, name, timeout))
        except DeadlineExceeded:
            raise CheckpointFailed(self.name, name, reason="the server did not answer in time") from None
        return found

    def reset(self, to: Any) -> None:  # noqa: ANN401 - the server checks it
        """Read on from a checkpoint, cuts, the head, a position or a time; what has no place in it stays as it is."""
        self._call(groups.Reset(self.name, as_cuts("to", to)))

    def lag(self) -> Lag:
        """Return how far the group is behind the tail, or its end."""
        found: Lag = self._call(groups.GetLag(self.name))
        return found

    def current_time_window(self, stream: str | None = None) -> TimeWindow | None:
        """Return between which times the group is in a stream, the only one by default; None without watermarks."""
        found: TimeWindow | None = self._call(groups.CurrentTimeWindow(self.name, stream))
        return found

    def delete(self) -> None:
        """Forget the group; its readers are ended."""
        self._call(groups.DeleteGroup(self.name))


def as_cuts(what: str, given: Any) -> Any:  # noqa: ANN401 - the server checks it
    """Return cuts as they can be sent: a checkpoint, a position, one cut and a time as they are, others as a list."""
    if given is None or isinstance(given, Checkpoint | Position | StreamCut):
        return given
    if is_time(given):
        return as_time(what, given) if isinstance(given, datetime) else given
    return as_list(what, given, GROUP_PLACES)
