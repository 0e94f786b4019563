"""What a server sends besides blocks, as forms: a client looks into nothing that does not have the form.

A channel begins with the welcome. Behind it come lists of notifications, each of which begins with the name of its
kind. The answer of a call says how many of these lists the server has sent before it. Blocks are acknowledged together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.model import NUMBER_MAX
from penstock.wire._values import ARE_YOU_THERE

__all__ = [
    "Acknowledgement",
    "Answer",
    "AskIfHere",
    "AttendGroup",
    "BlockAccess",
    "FenceWriter",
    "MissEvents",
    "NoteTime",
    "Notification",
    "Notifications",
    "ProbePlace",
    "SegmentChanged",
    "StopReader",
    "Welcome",
]

_Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
BlockAccess = tuple[Annotated[int, Meta(ge=0, le=65_535)], str, bytes]
"""The port for blocks, the name of the session there, and its key; 0 is a socket whose path the client knows."""
Welcome = tuple[
    Literal["welcome"],
    Annotated[str, Meta(min_length=1, max_length=100)],
    Annotated[float, Meta(gt=0)],
    BlockAccess | None,
]
"""The id of the session, how many bytes may be in flight, and the port for blocks, if there is one."""
Answer = tuple[_Number, Any]
Acknowledgement = tuple[list[Annotated[int, Meta(ge=-1, le=NUMBER_MAX)]], bytes | None]
"""Where blocks begin, ``ENDED`` for those whose segment has ended; or an error."""
ProbePlace = tuple[_Number, str, list[str | int]] | None
"""The number of an access probe, its folder, and what identifies that; None if there is none."""


class Notification(msgspec.Struct, frozen=True, array_like=True):
    """What a client is notified of."""


class SegmentChanged(Notification, frozen=True, tag="segment"):
    """Where a segment begins, how far it can be read and where it ends, None if it is gone; and its new blocks."""

    stream: str
    segment: _Number
    update: tuple[_Number, _Number, _Number | None] | None
    blocks: list[tuple[_Number, _Number, bytes]]


class AskIfHere(Notification, frozen=True, tag=ARE_YOU_THERE):
    """Asks a silent client for a call."""


class FenceWriter(Notification, frozen=True, tag="fence"):
    """Another writer has the id of this one."""

    token: str


class NoteTime(Notification, frozen=True, tag="note"):
    """A writer is to note a time, behind what it has written."""

    token: str
    time: _Number


class AttendGroup(Notification, frozen=True, tag="attend"):
    """The group has something for a reader."""

    reader: _Number


class StopReader(Notification, frozen=True, tag="stop"):
    """A reader reads no more."""

    reader: _Number
    error: bytes


class MissEvents(Notification, frozen=True, tag="miss"):
    """A reader has missed events."""

    reader: _Number
    error: bytes


Notifications = list[SegmentChanged | AskIfHere | FenceWriter | NoteTime | AttendGroup | StopReader | MissEvents]
