"""Descriptions of streams and groups, as the store returns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.model._config import StreamConfig  # noqa: TC001 - msgspec looks them up when it decodes
from penstock.model._places import StreamCut  # noqa: TC001

__all__ = ["Checkpoint", "Lag", "SegmentInfo", "StreamInfo"]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment that takes events: those whose key hashes to ``low`` or above and below ``high``."""

    segment_id: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """The state of a stream; ``segments`` are those that take events, none once the stream is sealed.

    ``uid`` distinguishes the stream from an earlier or a later stream of the same name. ``events`` and ``size_bytes``
    count the events between its head and its tail.
    """

    name: str
    uid: int
    state: Literal["active", "sealed"]
    epoch: int
    segments: tuple[SegmentInfo, ...]
    config: StreamConfig
    events: int
    size_bytes: int
    head: StreamCut
    tail: StreamCut


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The positions of all readers of a group at one moment: a cut of each of its streams."""

    name: str
    group: str
    cuts: tuple[StreamCut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group is behind: the unread events, their bytes, and the age of the oldest one.

    ``bytes`` counts stored bytes, block headers included; it is 0 once every event is read.
    """

    events: int
    bytes: int
    seconds: float
