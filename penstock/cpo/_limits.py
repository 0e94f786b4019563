"""The limits of the oracle, and the checks of its arguments.

The checks take any object, so a caller without a type checker gets a ``BadArgument`` too, before anything is changed.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import BadArgument
from penstock.model import PlogId

KEY_SIZE_MAX: Final = 512
"""Characters of a key or a lease's name."""

VALUE_SIZE_MAX: Final = 64 << 10
"""Bytes of a value: the oracle holds references to data, never the data itself."""

OWNER_SIZE_MAX: Final = 255
"""Characters of a lease's owner or a server's address."""

LEASE_SECONDS_MAX: Final = 24 * 60 * 60
"""The longest lease: it bounds how long a dead owner blocks others, even if it mistook seconds for milliseconds."""


def check_text(argument: str, text: object, *, size_max: int) -> None:
    """Require text that is printable, not empty and not too long."""
    if not isinstance(text, str) or not 1 <= len(text) <= size_max or not text.isprintable():
        raise BadArgument(f"invalid {argument} {str(text)[:50]!r}: use 1 to {size_max} printable characters")


def check_value(value: object) -> None:
    """Require bytes within the size limit."""
    if not isinstance(value, bytes):
        raise BadArgument(f"invalid value of type {type(value).__name__}: use bytes")
    if len(value) > VALUE_SIZE_MAX:
        raise BadArgument(f"a value of {len(value)} bytes is above the limit of {VALUE_SIZE_MAX}: store a reference")


def check_version(version: object, *, least: int) -> None:
    """Require a version that a key can have."""
    if not isinstance(version, int) or version < least:
        raise BadArgument(f"invalid expected version {version!r}: use a whole number of at least {least}")


def check_seconds(seconds: object) -> None:
    """Require a lease time above 0 and within the limit."""
    if not isinstance(seconds, int | float) or not 0 < seconds <= LEASE_SECONDS_MAX:
        raise BadArgument(f"invalid lease time {seconds!r}: use seconds above 0, at most {LEASE_SECONDS_MAX}")


def check_plog_id(plog_id: object) -> None:
    """Require a ``PlogId``, not its text."""
    if not isinstance(plog_id, PlogId):
        raise BadArgument(f"invalid plog id {plog_id!r}: use a PlogId")
