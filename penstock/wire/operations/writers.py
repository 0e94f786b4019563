"""Operations of a writer; a writer that was disconnected opens itself again, and then repeats those that it may."""

from penstock.wire.operations._arguments import Blocks, Bytes, Header, KeyPosition, Name, Number, StreamName, Time
from penstock.wire.operations._operation import Operation, declare


class _OfOpenWriter(Operation):
    writer: Number


class _OfUpload(_OfOpenWriter):
    upload: Number


@declare("writer.open", "write", repeats=True)
class OpenWriter(Operation):
    """Open a writer; one that was disconnected sends the highest number that it has used."""

    stream: StreamName
    writer_id: Name | None
    token: Name
    notes_time: bool
    sent: Number | None


@declare("append", "write", "open")
class AppendBlocks(_OfOpenWriter):
    """Append the blocks of a writer, as the descriptor of a DoPut."""


@declare("append.shared", "write", "unchecked")
class AppendShared(Operation):
    """Append small blocks of any writers of the session, as the descriptor of a DoPut; each is checked by itself."""


@declare("writer.lanes", "write", "open", repeats=True)
class GetLanes(_OfOpenWriter):
    """Return the segments that take events now."""


@declare("writer.last", "write", "open", repeats=True)
class Last(_OfOpenWriter):
    """Return up to which number the events with a key are in a segment."""

    segment: Number
    place: KeyPosition


@declare("writer.find", "write", "open", repeats=True)
class Find(_OfOpenWriter):
    """Return which blocks are durable."""

    blocks: Blocks


@declare("writer.mark", "write", "open", repeats=True)
class Mark(_OfOpenWriter):
    """Note a time behind all that the writer has written."""

    time: Time


@declare("writer.close", "write", "unchecked", repeats=True)
class CloseWriter(_OfOpenWriter):
    """Close a writer."""

    for_good: bool


@declare("large.open", "write", "open", repeats=True)
class OpenUpload(_OfOpenWriter):
    """Begin a large event; one that no client knows of ends with the session."""


@declare("large.write", "write", "open")
class WriteUpload(_OfUpload):
    """Add bytes to a large event."""

    data: Bytes


@declare("large.commit", "write", "open")
class CommitUpload(_OfUpload):
    """Make a large event part of the stream."""

    size: Number
    head: Header
    columns: Bytes
    position: KeyPosition


@declare("large.drop", "write", "open", repeats=True)
class DropUpload(_OfUpload):
    """Forget a large event."""
