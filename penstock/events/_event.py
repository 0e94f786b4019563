"""Events of FutoIn: how one is stored as an event of a stream, and how it looks on the wire.

In the stream it is ``{"type":"…","ts":"…","data":…}``, which Spark reads with ``format=futoin``. Its id is the place
just after it in its segment: positive, increasing, and a place to go on reading from.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from penstock.errors import BadArgument
from penstock.events._codings import JSON
from penstock.events._errors import invalid
from penstock.events._sizes import EVENT_SIZE_MAX
from penstock.model import UNDECODABLE, as_list, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "NESTING_MAX",
    "Component",
    "Event",
    "EventId",
    "EventType",
    "RequestId",
    "WireEvent",
    "checked_component",
    "checked_last_id",
    "checked_type",
    "checked_want",
    "of_types",
    "pack_event",
    "unpack_events",
    "words_of",
]

_ID, _TYPE, _COMPONENT = r"\A[1-9][0-9]{0,17}\Z", r"\A[A-Z_]{1,16}\Z", r"\A[A-Za-z0-9_]{1,16}\Z"
_RID: Final = r"\A[ -~]{1,32}\Z"
EventId = Annotated[str, Meta(pattern=_ID)]
EventType = Annotated[str, Meta(pattern=_TYPE)]
Component = Annotated[str, Meta(pattern=_COMPONENT)]
RequestId = Annotated[str, Meta(pattern=_RID)]
"""It comes back with the answer, which has space for so much."""
_WORDS: Final = {
    _ID: "an event id, 1 to 18 digits",
    _TYPE: "1 to 16 of A-Z and '_'",
    _COMPONENT: "1 to 16 letters, digits and '_'",
    _RID: "1 to 32 printable characters of ASCII",
}
_TIME: Final = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z\Z"

NESTING_MAX: Final = 200
"""Arrays and maps within each other. How many more a thread can decode depends on its stack."""


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """A stored event; many have the same type and time, which are checked once."""

    type: Annotated[str, Meta(max_length=16)]
    ts: Annotated[str, Meta(max_length=30)]
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


def checked_want(want: Sequence[str] | None) -> list[str] | None:
    """Return the types of events that a consumer wants; ``BadArgument`` if one cannot be a type."""
    if want is None:
        return None
    return [_checked("want", kind, _TYPE) for kind in as_list("want", want, "event types")]


def checked_last_id(last_id: int | str) -> str:
    """Return the id of an event as it is sent; ``BadArgument`` if no event can have it."""
    return _checked("last_id", str(last_id) if type(last_id) is int else last_id, _ID)


def checked_type(kind: str) -> str:
    """Return the type of an event; ``BadArgument`` if FutoIn permits no such type."""
    return _checked("event type", kind, _TYPE)


def checked_component(component: str) -> str:
    """Return the name of a component; ``BadArgument`` if FutoIn permits no such name."""
    return _checked("component", component, _COMPONENT)


def _checked(name: str, text: object, pattern: str) -> str:
    if not isinstance(text, str) or not re.fullmatch(pattern, text):
        raise BadArgument(f"invalid {name} {shown(text)}: use {_WORDS[pattern]}")
    return text


def words_of(error: msgspec.ValidationError) -> str:
    """Return what is wrong with a value, and where it is: ``want[0]: expected 1 to 16 of A-Z and '_'``."""
    text, _, place = str(error).partition(" - at `$")
    for pattern, words in _WORDS.items():
        text = text.replace(f"`str` matching regex {pattern!r}", words)
    text, place = f"{text[0].lower()}{text[1:]}".replace("`", ""), place.strip("`.")
    return f"{place}: {text}" if place else text


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


def of_types(events: list[WireEvent], types: frozenset[str] | None) -> list[WireEvent]:
    """Return the events of these types; all of them for None."""
    return events if types is None else [event for event in events if event.type in types]


def unpack_events(ids: Iterable[int], events: Iterable[bytes | None]) -> list[WireEvent | None]:
    """Return stored events as they are sent; None for those that are not of FutoIn, or too large to be sent."""
    return [_unpack(event_id, event) for event_id, event in zip(ids, events, strict=True)]


def _unpack(event_id: int, event: bytes | None) -> WireEvent | None:
    if event is None or len(event) > EVENT_SIZE_MAX:
        return None
    try:
        stored = _decoder.decode(event)
        JSON.load(bytes(stored.data))  # what is passed on unread must be valid, or it ends its receiver
    except UNDECODABLE:
        return None
    ts = _sent_time(stored.ts)
    return WireEvent(str(event_id), stored.type, stored.data, ts) if ts and _is_type(stored.type) else None


@lru_cache(maxsize=1_000)
def _is_type(kind: str) -> bool:
    return re.fullmatch(_TYPE, kind) is not None


@lru_cache(maxsize=1_000)
def _sent_time(ts: str) -> str | None:
    """Return a stored time as it is sent, without a fraction of a second; None if it is not a time."""
    return f"{ts[:19]}Z" if re.fullmatch(_TIME, ts) else None
