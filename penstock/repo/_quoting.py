r"""Names in the texts of a repository: any bytes, on one line.

Control characters and backslashes are written as ``\n``, ``\t``, ``\\`` or ``\x07``; all other bytes stay as they are,
so a name in UTF-8 or in any other encoding can be read. A name has one spelling only. A word is a name that others
follow on its line: spaces in it are written as ``\x20``.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["quote", "quote_word", "unquote"]

_ESCAPED: Final = re.compile(rb"[\x00-\x1f\x7f\\]")
_ESCAPED_IN_WORD: Final = re.compile(rb"[\x00-\x20\x7f\\]")
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-f]{2}|.?)", re.DOTALL)
_SHORT: Final = {b"\n": b"\\n", b"\t": b"\\t", b"\\": b"\\\\"}
_LONG: Final = {escape[1:]: byte for byte, escape in _SHORT.items()}


def quote(name: bytes) -> bytes:
    """Return a name as it is written at the end of a line."""
    return _ESCAPED.sub(_escape, name)


def quote_word(name: bytes) -> bytes:
    """Return a name as it is written before others."""
    return _ESCAPED_IN_WORD.sub(_escape, name)


def unquote(text: bytes) -> bytes:
    """Return the name that is written so; ``ValueError`` if none is."""
    if b"\\" not in text:
        return text
    return _ESCAPE.sub(_unescape, text)


def _escape(match: re.Match[bytes]) -> bytes:
    byte = match[0]
    return _SHORT.get(byte) or b"\\x%02x" % byte[0]


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape not in _LONG:
        raise ValueError("a backslash is followed by an unknown letter")
    return _LONG[escape]
