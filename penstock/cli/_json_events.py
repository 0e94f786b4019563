"""An event as a line of JSON: what ``read --json`` prints, ``write --json`` takes, and nothing is lost between them.

Bytes that are UTF-8 are text. Others are in base64: of an event and of a key under another name, ``event_base64`` and
``key_base64``; of a header as ``{"base64": …}``. What an event does not have is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.errors import BadArgument
from penstock.model import TimeWindow  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NO_WINDOW", "GivenEvent", "given_event", "json_line"]

NO_WINDOW: Final = UNSET


class _Binary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a header that is no text."""

    base64: bytes


class _Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that a line may hold; only event, key and headers are written, the rest is where and when it was read."""

    pointer: str | UnsetType = UNSET
    timestamp: int | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType = UNSET
    headers: dict[str, str | _Binary] | UnsetType | None = UNSET
    event: str | UnsetType = UNSET
    event_base64: bytes | UnsetType = UNSET
    size: int | UnsetType = UNSET
    window: TimeWindow | UnsetType | None = UNSET


class GivenEvent(msgspec.Struct, frozen=True):
    """What a line asks to be written."""

    event: bytes
    key: bytes | None
    headers: dict[str, bytes] | None


_decoder: Final = msgspec.json.Decoder(_Line)
_encoder: Final = msgspec.json.Encoder()


def json_line(
    pointer: str,
    event: bytes | None,
    *,
    size: int | None = None,
    timestamp: int | None = None,
    key: bytes | None = None,
    headers: Iterable[tuple[str, bytes]] | None = None,
    window: TimeWindow | UnsetType | None = NO_WINDOW,
) -> bytes:
    """Return the line of an event; of one that is too large for a line, which is None, the size."""
    line = _Line(pointer=pointer, window=window)
    if timestamp is not None:
        line.timestamp = timestamp
    if key is not None:
        line.key, line.key_base64 = _text_or_bytes(key)
    if headers:
        line.headers = {name: _text_or_binary(value) for name, value in headers}
    if event is not None:
        line.event, line.event_base64 = _text_or_bytes(event)
    elif size is not None:
        line.size = size
    return _encoder.encode(line) + b"\n"


def _text_or_bytes(data: bytes) -> tuple[str | UnsetType, bytes | UnsetType]:
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, data


def _text_or_binary(data: bytes) -> str | _Binary:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _Binary(data)


def given_event(text: bytes) -> GivenEvent:
    """Return what a line asks to be written; ``BadArgument`` says what is wrong with it."""
    try:
        line = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadArgument(f"it is no event as read --json prints it ({error})") from None
    if line.event is UNSET and line.event_base64 is UNSET and line.size is not UNSET:
        place = "" if line.pointer is UNSET else f" {line.pointer}"
        raise BadArgument(f"it has not the event{place}, only its size: copy it with penstock cat and write --file -")
    event = _one_of("event", line.event, line.event_base64)
    if event is None:
        raise BadArgument("it has neither event nor event_base64")
    headers = None if line.headers is UNSET or not line.headers else line.headers
    return GivenEvent(
        event,
        _one_of("key", line.key, line.key_base64),
        None if headers is None else {name: _as_bytes(value) for name, value in headers.items()},
    )


def _one_of(name: str, text: str | UnsetType | None, data: bytes | UnsetType) -> bytes | None:
    has_text = not isinstance(text, UnsetType) and text is not None
    if has_text and data is not UNSET:
        raise BadArgument(f"it has both {name} and {name}_base64: leave one of them out")
    if has_text:
        return str(text).encode()
    return None if isinstance(data, UnsetType) else data


def _as_bytes(value: str | _Binary) -> bytes:
    return value.encode() if isinstance(value, str) else value.base64
