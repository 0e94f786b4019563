"""Operations about reader groups."""

from typing import Annotated

from msgspec import Meta

from penstock.wire.operations._arguments import GroupName, GroupPlace, Name, ReaderPosition, StreamName, Timeout
from penstock.wire.operations._operation import Operation, declare


class _OfGroup(Operation):
    group: GroupName


@declare("reader_groups", "read", "unchecked", repeats=True)
class ListGroups(Operation):
    """List the groups all of whose streams the user may read."""


@declare("create_reader_group", "consume", "streams")
class CreateGroup(Operation):
    """Create a group; repeated, it might find the one that it has created itself."""

    name: GroupName
    streams: Annotated[list[StreamName], Meta(max_length=10_000, description="a list of names of streams")]
    start: GroupPlace | None
    end: GroupPlace | None
    exist_ok: bool

    @property
    def may_repeat(self) -> bool:
        """Whether one that is there is what was asked for."""
        return self.exist_ok


@declare("group.check", "read", "group", repeats=True)
class FindGroup(_OfGroup):
    """Find out whether there is such a group."""


@declare("group.streams", "read", "group", repeats=True)
class GetStreams(_OfGroup):
    """Return the streams that a group reads."""


@declare("group.position", "read", "group", repeats=True)
class GetPosition(_OfGroup):
    """Return how far the readers of a group have come."""


@declare("group.checkpoints", "read", "group", repeats=True)
class Checkpoints(_OfGroup):
    """Return the last checkpoints of a group."""


@declare("group.finished", "read", "group", repeats=True)
class IsFinished(_OfGroup):
    """Return whether a group has read everything."""


@declare("group.readers", "read", "group", repeats=True)
class Readers(_OfGroup):
    """Return the names of the readers of a group."""


@declare("group.lag", "read", "group", repeats=True)
class GetLag(_OfGroup):
    """Return how far a group is behind."""


@declare("group.current_time_window", "read", "group", repeats=True)
class CurrentTimeWindow(_OfGroup):
    """Return between which times a group is in a stream."""

    stream: StreamName | None


@declare("group.reader_offline", "consume", "group")
class TakeOffline(_OfGroup):
    """End a reader that does not answer."""

    reader_id: Name
    position: ReaderPosition | None


@declare("group.checkpoint", "consume", "group")
class TakeCheckpoint(_OfGroup):
    """Have all readers of a group come to a checkpoint."""

    name: Name
    timeout: Timeout | None


@declare("group.reset", "consume", "group")
class Reset(_OfGroup):
    """Let a group read on from another place, without its readers."""

    to: GroupPlace


@declare("group.delete", "consume", "group")
class DeleteGroup(_OfGroup):
    """Delete a group."""
