"""Catalog records about reader groups: their readers, the segments of each, and how far those were read."""

from __future__ import annotations

import msgspec

from penstock.stream.format._stream_records import Offsets

__all__ = [
    "CheckpointBegun",
    "CheckpointDropped",
    "CheckpointReached",
    "GroupClaimed",
    "GroupCreated",
    "GroupDeleted",
    "GroupRecord",
    "GroupReset",
    "LossReported",
    "Places",
    "ReaderGone",
    "ReaderJoined",
    "ReaderMoved",
    "SegmentDone",
    "SegmentsLost",
    "SegmentsReleased",
    "SegmentsTaken",
]

Places = dict[str, Offsets]
"""An offset by stream and segment."""


class GroupCreated(msgspec.Struct, tag="group", array_like=True, frozen=True):
    """A new reader group: where it begins in each of its streams, and where it ends if it does.

    ``owner`` is the user of the server that it belongs to, if there is one.
    """

    group: str
    starts: Places
    ends: Places
    epoch: int = 0
    owner: str | None = None


class GroupDeleted(msgspec.Struct, tag="group-deleted", array_like=True, frozen=True):
    """A reader group is deleted."""

    group: str


class GroupClaimed(msgspec.Struct, tag="group-claimed", array_like=True, frozen=True):
    """A group that belonged to no user of the server belongs to this one now."""

    group: str
    owner: str


class GroupReset(msgspec.Struct, tag="group-reset", array_like=True, frozen=True):
    """The group begins here now, in another epoch; its readers are gone.

    ``chosen`` are the streams whose places were chosen: what was lost of them is not reported any more.
    """

    group: str
    starts: Places
    epoch: int = 0
    chosen: list[str] = []


class ReaderJoined(msgspec.Struct, tag="joined", array_like=True, frozen=True):
    """A new reader, with no segments yet; a remote one may outlive the process that owns the store."""

    group: str
    reader: str
    is_remote: bool = False


class ReaderGone(msgspec.Struct, tag="gone", array_like=True, frozen=True):
    """The reader is gone; its segments are free, at these places or where they were last known to be."""

    group: str
    reader: str
    places: Places


class ReaderMoved(msgspec.Struct, tag="moved", array_like=True, frozen=True):
    """How far the reader has come."""

    group: str
    reader: str
    places: Places


class SegmentsTaken(msgspec.Struct, tag="taken", array_like=True, frozen=True):
    """Free segments are this reader's now."""

    group: str
    reader: str
    segments: dict[str, list[int]]


class SegmentsReleased(msgspec.Struct, tag="released", array_like=True, frozen=True):
    """These segments of the reader are free, at these places."""

    group: str
    reader: str
    places: Places


class SegmentDone(msgspec.Struct, tag="done", array_like=True, frozen=True):
    """The reader has read the segment to its end; successors follow once all of ``before`` are read."""

    group: str
    reader: str
    stream: str
    segment: int
    end: int
    before: list[int]
    successors: list[int]


class SegmentsLost(msgspec.Struct, tag="lost", array_like=True, frozen=True):
    """These segments were truncated away; in their place the group has others, to be read or past its end.

    ``missed`` is where events may have been that no reader had read: a reader is to report it.
    """

    group: str
    stream: str
    segments: list[int]
    free: Offsets
    done: Offsets
    missed: Offsets = {}


class LossReported(msgspec.Struct, tag="told", array_like=True, frozen=True):
    """A reader has reported that these segments were lost before they were read; without any, that the stream was."""

    group: str
    stream: str
    segments: list[int]


class CheckpointBegun(msgspec.Struct, tag="checkpoint", array_like=True, frozen=True):
    """Every reader is to say where it is."""

    group: str
    name: str


class CheckpointReached(msgspec.Struct, tag="reached", array_like=True, frozen=True):
    """Where the reader was when it came to the checkpoint."""

    group: str
    reader: str
    places: Places


class CheckpointDropped(msgspec.Struct, tag="dropped", array_like=True, frozen=True):
    """The checkpoint, under way or done, is forgotten."""

    group: str
    name: str


GroupRecord = (
    GroupClaimed
    | GroupReset
    | ReaderJoined
    | ReaderGone
    | ReaderMoved
    | SegmentsTaken
    | SegmentsReleased
    | SegmentDone
    | SegmentsLost
    | LossReported
    | CheckpointBegun
    | CheckpointReached
    | CheckpointDropped
)
