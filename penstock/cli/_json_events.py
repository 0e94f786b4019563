"""An event as a line of JSON: ``read --json`` prints it, ``write --json`` takes it, and nothing is lost in between.

Bytes that are UTF-8 are text. Others are in base64: of an event and of a key under another name, ``event_base64`` and
``key_base64``; of a header as ``{"base64": …}``. Headers are pairs where a name is repeated. A field without a
value is omitted. A large event comes last in its line, and is printed piece by piece.
"""

from __future__ import annotations

import base64
import codecs
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.errors import BadArgument
from penstock.model import UNDECODABLE, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.stream.format import Headers
    from penstock.stream.read import EventInputStream

__all__ = ["NO_WINDOW", "GivenEvent", "given_event", "json_line", "streamed_json_line"]

NO_WINDOW: Final = UNSET
_PIECE_SIZE: Final = 3 << 18  # whole groups of base64


class _Binary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a header that is not UTF-8."""

    base64: bytes


class _Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All fields of a line; only event, key and headers are written, the others say where and when it was read."""

    pointer: str | UnsetType = UNSET
    timestamp: int | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType = UNSET
    headers: dict[str, str | _Binary] | list[tuple[str, str | _Binary]] | UnsetType | None = UNSET
    event: str | UnsetType = UNSET
    event_base64: bytes | UnsetType = UNSET
    size: int | UnsetType = UNSET
    window: TimeWindow | UnsetType | None = UNSET


class GivenEvent(msgspec.Struct, frozen=True):
    """The event of a line, to be written."""

    event: bytes
    key: bytes | None
    headers: Headers | None


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
    """Return the line of an event; if the event is None, the line has its size instead."""
    line = _Line(pointer=pointer, window=window)
    if timestamp is not None:
        line.timestamp = timestamp
    if key is not None:
        line.key, line.key_base64 = _text_or_bytes(key)
    if headers:
        pairs = [(name, _text_or_binary(value)) for name, value in headers]
        by_name = dict(pairs)
        line.headers = by_name if len(by_name) == len(pairs) else pairs
    if event is not None:
        line.event, line.event_base64 = _text_or_bytes(event)
    elif size is not None:
        line.size = size
    return _encoder.encode(line) + b"\n"


def streamed_json_line(
    event: EventInputStream, *, window: TimeWindow | UnsetType | None = NO_WINDOW
) -> Iterator[bytes]:
    """Yield the line of an event of any size, in pieces."""
    start = json_line(
        str(event.pointer),
        None,
        timestamp=event.timestamp,
        key=event.key,
        headers=event.header_pairs,
        window=window,
    ).removesuffix(b"}\n")
    if _is_text(event):
        yield start + b',"event":"'
        decode = codecs.getincrementaldecoder("utf-8")().decode
        yield from (_encoder.encode(decode(piece))[1:-1] for piece in _pieces(event))
    else:
        yield start + b',"event_base64":"'
        yield from map(base64.b64encode, _pieces(event))
    yield b'"}\n'


def _is_text(event: EventInputStream) -> bool:
    """Return whether an event is UTF-8; its line begins with the answer, so the event is read twice."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in _pieces(event):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _pieces(event: EventInputStream) -> Iterator[bytes]:
    event.seek(0)
    return iter(lambda: event.read(_PIECE_SIZE) or b"", b"")


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
    """Return the event of a line; ``BadArgument`` says why a line is invalid."""
    try:
        line = _decoder.decode(text)
    except UNDECODABLE as error:
        fields = "event or event_base64, key or key_base64, and headers"
        raise BadArgument(f"not an event as read --json prints it ({error}): use the fields {fields}") from None
    if line.event is UNSET and line.event_base64 is UNSET and line.size is not UNSET:
        place = "" if line.pointer is UNSET else f" {line.pointer}"
        raise BadArgument(
            f"only the size of the event{place} is given: print it with penstock read --json, not on a terminal"
        )
    event = _one_of("event", line.event, line.event_base64)
    if event is None:
        raise BadArgument("neither event nor event_base64 is given")
    headers = line.headers.items() if isinstance(line.headers, dict) else line.headers
    return GivenEvent(
        event,
        _one_of("key", line.key, line.key_base64),
        tuple((name, _as_bytes(value)) for name, value in headers) if headers else None,
    )


def _one_of(name: str, text: str | UnsetType | None, data: bytes | UnsetType) -> bytes | None:
    has_text = not isinstance(text, UnsetType) and text is not None
    if has_text and data is not UNSET:
        raise BadArgument(f"both {name} and {name}_base64 are given: leave one of them out")
    if has_text:
        return str(text).encode()
    return None if isinstance(data, UnsetType) else data


def _as_bytes(value: str | _Binary) -> bytes:
    return value.encode() if isinstance(value, str) else value.base64
