"""Operations of a reader in its group; a reader that was disconnected joins again, and then repeats them."""

import msgspec

from penstock.wire.operations._arguments import GroupName, Name, Number, Numbers, Places, StreamName
from penstock.wire.operations._operation import Operation, declare


class _OfReader(Operation):
    reader: Number


@declare("reader.open", "consume", "group", repeats=True)
class OpenReader(Operation):
    """Join a group; a reader that was a member before sends the epoch of the group, and where it was.

    By its ``token``, which only its client knows, the server recognises a reader that it has opened already.
    """

    group: GroupName
    reader_id: Name
    epoch: Number | None = None
    places: Places = msgspec.field(default_factory=list)
    token: Name | None = None


@declare("reader.finished", "read", "group", repeats=True)
class IsGroupFinished(Operation):
    """Return whether the group of a reader has read everything."""

    group: GroupName


@declare("reader.sync", "consume", "open", repeats=True)
class Sync(_OfReader):
    """Come to a checkpoint, release and take segments."""

    places: Places
    told: Name | None
    passing: bool


@declare("reader.places", "consume", "open", repeats=True)
class Report(_OfReader):
    """Report where a reader is, without and with what it has returned last."""

    places: Places
    returned: Places


@declare("reader.record", "consume", "open", repeats=True)
class RecordPlaces(_OfReader):
    """Record where a reader is."""

    places: Places | None
    durable: bool


@declare("reader.finish_segment", "consume", "open", repeats=True)
class FinishSegment(_OfReader):
    """Record that a segment is read to its end."""

    stream: StreamName
    segment: Number
    place: Number


@declare("reader.note_told", "consume", "open", repeats=True)
class NoteTold(_OfReader):
    """Note that a reader has reported the loss of segments."""

    stream: StreamName
    segments: Numbers


@declare("reader.leave", "read", "unchecked", repeats=True)
class Leave(_OfReader):
    """Leave the group; the places are recorded only for a user who may still consume its streams."""

    places: Places
