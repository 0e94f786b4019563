"""What the store tells of its streams and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.model._config import StreamConfig  # noqa: TC001 - msgspec looks them up when it decodes
from penstock.model._places import StreamCut  # noqa: TC001

__all__ = ["Checkpoint", "Lag", "SegmentInfo", "StreamInfo"]


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment that takes events: those whose key lies from ``low`` up to ``high``."""

    segment_id: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """A stream as it is now; ``segments`` are those that take events, none once the stream is sealed.

    ``uid`` tells it from another of the same name, before or after it. ``events`` and ``size_bytes`` are what there is
    between its head and its tail.
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
    """Where all readers of a group were at one moment: a cut of each of its streams."""

    name: str
    group: str
    cuts: tuple[StreamCut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group is behind: events not read yet, their bytes, and for how long the oldest has been there.

    ``bytes`` are those that are stored, block headers included; once every event is read there are none.
    """

    events: int
    bytes: int
    seconds: float
