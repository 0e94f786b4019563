"""What the oracle takes, and the errors for what it does not.

Checks take any object: callers without a type checker get a ``BadArgument`` too, before anything is touched.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import BadArgument
from penstock.model import PlogId

KEY_SIZE_MAX: Final = 512
"""Characters of a key or a lease's name."""

VALUE_SIZE_MAX: Final = 64 << 10
"""Bytes of a value: the oracle holds what points to data, never data."""

OWNER_SIZE_MAX: Final = 255
"""Characters of a lease's owner or a server's address."""

LEASE_SECONDS_MAX: Final = 24 * 60 * 60
"""The longest lease: what a dead owner can block, also one that mistook seconds for milliseconds."""


def check_text(what: str, text: object, *, size_max: int) -> None:
    """Refuse text that is empty, too long, or has characters that no screen shows."""
    if not isinstance(text, str) or not 1 <= len(text) <= size_max or not text.isprintable():
        raise BadArgument(f"{str(text)[:50]!r} is no {what}: use 1 to {size_max} printable characters")


def check_value(value: object) -> None:
    """Refuse what is not bytes, or more of them than the oracle is for."""
    if not isinstance(value, bytes):
        raise BadArgument(f"a value is bytes, not {type(value).__name__}")
    if len(value) > VALUE_SIZE_MAX:
        raise BadArgument(f"a value of {len(value)} bytes is above the limit of {VALUE_SIZE_MAX}: store a pointer")


def check_version(version: object, *, least: int) -> None:
    """Refuse an expected version that no key can have."""
    if not isinstance(version, int) or version < least:
        raise BadArgument(f"{version!r} is no expected version: it is a whole number from {least}")


def check_seconds(seconds: object) -> None:
    """Refuse a lease that is over before it starts, or never."""
    if not isinstance(seconds, int | float) or not 0 < seconds <= LEASE_SECONDS_MAX:
        raise BadArgument(f"a lease of {seconds!r} seconds cannot be: more than 0, at most {LEASE_SECONDS_MAX}")


def check_plog_id(plog_id: object) -> None:
    """Refuse what merely looks like a plog id."""
    if not isinstance(plog_id, PlogId):
        raise BadArgument(f"{plog_id!r} is no PlogId")
