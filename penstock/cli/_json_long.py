"""A line of JSON that is too long for memory: its event is decoded as it arrives.

An event is written with its key and headers, so these must come before it, as ``read --json`` prints them. Of the
event, only what is incomplete at the end of a piece is kept: an escape, a character, a group of base64.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from penstock.cli._json_events import given_event
from penstock.errors import BadArgument
from penstock.model import UNDECODABLE

__all__ = ["LongLine"]

T = TypeVar("T")

_FIELDS_MAX: Final = 1 << 20  # a key and headers of 64 KiB each, however they are escaped, and the rest
_CUT_MAX: Final = 12  # bytes of an incomplete character: two escapes make one beyond the first 65,536

_STRING: Final = rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_TOKENS: Final = re.compile(rb"[{}]|" + _STRING + rb'(?=(\s*:\s*")?)', re.DOTALL)
_CHARACTERS: Final = re.compile(
    rb"""(?:[^"\\\x80-\xff]++
          | \\[^u]
          | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
          | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}
          | [\x80-\xdf]. | [\xe0-\xef].. | [\xf0-\xff]...
        )*+""",
    re.DOTALL | re.VERBOSE,
)
_text_decoder: Final = msgspec.json.Decoder(str)
_base64_decoder: Final = msgspec.json.Decoder(bytes)


class LongLine:
    """The beginning of a line, with the ``key`` and ``headers`` of its event, whose string begins at ``start``.

    ``BadArgument`` says why a line is invalid.
    """

    def __init__(self, begun: bytes) -> None:
        self.start, self._is_base64 = _event_start(begun[:_FIELDS_MAX])
        given = given_event(begun[: self.start] + b'"}')
        self.key, self.headers = given.key, given.headers
        self._cut = b""  # an incomplete character
        self._group = b""  # an incomplete group of base64
        self._behind: bytearray | None = None  # what follows the event, once that is complete

    def add(self, data: bytes) -> bytes:
        """Return the bytes of the event in the next piece of the line, from ``start`` on."""
        if self._behind is not None:
            self._add_behind(data)
            return b""
        data = self._cut + data
        found = _CHARACTERS.match(data)
        assert found is not None, "it may be empty"
        self._cut = data[found.end() :]
        if self._cut.startswith(b'"'):
            self._behind = bytearray()
            self._add_behind(self._cut[1:])
        elif len(self._cut) >= _CUT_MAX:
            raise _no_event("invalid character in a string")
        text = _decoded(_text_decoder, found[0]).encode()
        return self._bytes_of(text) if self._is_base64 else text

    def _add_behind(self, data: bytes) -> None:
        assert self._behind is not None
        self._behind += data
        if len(self._behind) > _FIELDS_MAX:
            raise BadArgument("the line goes on for too long after its event")

    def _bytes_of(self, text: bytes) -> bytes:
        text = self._group + text
        end = len(text) if self._behind is not None else max(len(text) - 1, 0) // 4 * 4
        whole, self._group = text[:end], text[end:]
        if self._group and b"=" in whole:
            raise _no_event("Invalid base64 encoded string")
        return _decoded(_base64_decoder, whole)

    def end(self) -> None:
        """Check that the line is complete, and that neither key nor headers come after the event."""
        if self._behind is None:
            raise _no_event("the line ends within the event")
        rest = given_event(b'{"event":""' + self._behind)
        if rest.event or rest.key is not None or rest.headers is not None:
            raise _misplaced()


def _event_start(begun: bytes) -> tuple[int, bool]:
    """Return where the string of the event begins, after its quote, and whether it is base64."""
    depth = 0
    for found in _TOKENS.finditer(begun):
        if found[0] in b"{}":
            depth += 1 if found[0] == b"{" else -1
        elif depth == 1 and found[1] in (b"event", b"event_base64") and found[2] is not None:
            return found.end(2), found[1] == b"event_base64"
    raise _misplaced()


def _decoded(decoder: msgspec.json.Decoder[T], characters: bytes) -> T:
    try:
        return decoder.decode(b'"%b"' % characters)
    except UNDECODABLE as error:
        raise _no_event(error) from None


def _no_event(reason: object) -> BadArgument:
    return BadArgument(f"not an event as read --json prints it ({reason})")


def _misplaced() -> BadArgument:
    return BadArgument("too long for memory: put key and headers before the event, as read --json does")
