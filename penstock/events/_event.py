"""Events of FutoIn: how one is stored as an event of a stream, and how it looks on the wire.

In the stream it is ``{"type":"…","ts":"…","data":…}``, which Spark reads with ``format=futoin``. Its id is the place
just after it in its segment: positive, increasing, and a place to go on reading from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from penstock.events._codings import JSON
from penstock.events._errors import invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EVENT_SIZE_MAX",
    "NESTING_MAX",
    "Component",
    "Event",
    "EventId",
    "EventType",
    "WireEvent",
    "pack_event",
    "unpack_events",
]

EventId = Annotated[str, Meta(pattern=r"\A[1-9][0-9]{0,17}\Z")]
EventType = Annotated[str, Meta(pattern=r"\A[A-Z_]{1,16}\Z")]
Component = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_]{1,16}\Z")]
_Time = Annotated[str, Meta(pattern=r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z\Z")]

_SMALL_MESSAGE: Final = 65_536
_AROUND: Final = 256  # bytes of a message around one event: names, id, time, sequence
EVENT_SIZE_MAX: Final = _SMALL_MESSAGE - _AROUND
"""The largest event that every call can return: one byte above the limit of a message ends a reference client."""


NESTING_MAX: Final = 200
"""Arrays and maps within each other. How many more a thread can decode depends on its stack."""


class _Stored(msgspec.Struct, frozen=True, gc=False):
    type: EventType
    ts: _Time
    data: msgspec.Raw


class WireEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it is sent; the data is JSON, as it was stored."""

    id: str
    type: str
    data: msgspec.Raw
    ts: str

    def size(self) -> int:
        """Return about how many bytes of JSON it is, never too few."""
        return len(bytes(self.data)) + len(self.type) + 80


class Event(msgspec.Struct, frozen=True):
    """An event of FutoIn, as Python programs see it."""

    id: EventId
    type: EventType
    data: object
    ts: str


_decoder: Final = msgspec.json.Decoder(_Stored)
_encoder: Final = msgspec.json.Encoder()


def pack_event(kind: str, data: object, ts: str) -> bytes:
    """Return an event as it is stored; ``InvalidRequest`` if it is too large for every reader to get it."""
    try:
        event = _encoder.encode({"type": kind, "ts": ts, "data": data})
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise invalid(f"the data is not a JSON value: {error}") from None
    if len(event) > EVENT_SIZE_MAX:
        raise invalid(f"the event has {len(event)} bytes: at most {EVENT_SIZE_MAX} can be delivered")
    if event.count(b"[") + event.count(b"{") > NESTING_MAX and _is_too_deep(data):
        raise invalid(f"the data is nested too deeply: at most {NESTING_MAX} levels can be delivered")
    return event


def _is_too_deep(data: object) -> bool:
    level = [data]
    for _ in range(NESTING_MAX):
        level = [
            inner
            for value in level
            if isinstance(value, list | dict)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True


def unpack_events(ids: Iterable[int], events: Iterable[bytes | None]) -> list[WireEvent | None]:
    """Return stored events as they are sent; None for those that are not of FutoIn, or too large to be sent."""
    return [_unpack(event_id, event) for event_id, event in zip(ids, events, strict=True)]


def _unpack(event_id: int, event: bytes | None) -> WireEvent | None:
    if event is None or len(event) > EVENT_SIZE_MAX:
        return None
    try:
        stored = _decoder.decode(event)
        JSON.load(bytes(stored.data))  # what is passed on unread must be valid, or it ends its receiver
    except (ValueError, RecursionError):
        return None
    return WireEvent(str(event_id), stored.type, stored.data, f"{stored.ts[:19]}Z")
