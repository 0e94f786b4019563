"""Routing keys: which part of the key space [0, 1) a key belongs to.

The position of a key is ``mix(crc32c(key as UTF-8)) / 2**32``, where ``mix`` is the 32-bit finalizer of MurmurHash3:
``x ^= x >> 16; x *= 0x85ebca6b; x ^= x >> 13; x *= 0xc2b2ae35; x ^= x >> 16``. It never changes, because what was
written under a key stays where it is. The checksum is C code for one key after another, the mixing is done for a whole
batch at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import google_crc32c
import numpy as np

from penstock.errors import BadArgument
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = [
    "KEY_SIZE_MAX",
    "check_position",
    "key_bytes",
    "key_position",
    "key_positions",
    "keyless_position",
    "pack_positions",
    "unpack_positions",
]

KEY_SIZE_MAX: Final = 64 << 10
_SPAN: Final = float(1 << 32)


def key_position(key: str | bytes) -> float:
    """Return where in [0, 1) a key belongs."""
    x: int = google_crc32c.value(key_bytes(key))
    x ^= x >> 16
    x = x * 0x85EBCA6B & 0xFFFFFFFF
    x ^= x >> 13
    x = x * 0xC2B2AE35 & 0xFFFFFFFF
    x ^= x >> 16
    return x / _SPAN


def key_positions(keys: Sequence[str | bytes]) -> npt.NDArray[np.float64]:
    """Return where in [0, 1) each of many keys belongs."""
    sums = map(google_crc32c.value, map(key_bytes, keys))
    x = np.fromiter(sums, np.uint32, len(keys))
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    return x / _SPAN


def check_position(position: object) -> None:
    """Refuse a number that is not a position in the key space."""
    if type(position) is not float or not 0 <= position < 1:
        raise BadArgument(f"invalid key position {shown(position)}: use a number from 0 up to 1")


def keyless_position(position: float | None, transaction: str) -> float:
    """Return where events without a key go: to the given position, or to that of their transaction, all together."""
    if position is None:
        return key_position(transaction)
    check_position(position)
    return position


def pack_positions(positions: npt.NDArray[np.float64]) -> bytes:
    """Return positions of keys in 4 bytes each, little-endian; nothing of them is lost."""
    return (positions * _SPAN).astype("<u4").tobytes()


def unpack_positions(data: bytes | memoryview) -> npt.NDArray[np.float64]:
    """Return the positions that were packed."""
    return np.frombuffer(data, "<u4") / _SPAN


def key_bytes(key: str | bytes) -> bytes:
    """Return a key as it is hashed and stored; what is none is refused."""
    if isinstance(key, str):
        try:
            key = key.encode()
        except UnicodeEncodeError as error:
            raise BadArgument(f"invalid routing key {shown(key)}: {error.reason}") from error
    if not isinstance(key, bytes):
        raise BadArgument(f"invalid routing key {shown(key)}: use a text or bytes")
    if len(key) > KEY_SIZE_MAX:
        raise BadArgument(f"a routing key of {len(key)} bytes is too long: at most {KEY_SIZE_MAX} bytes")
    return key
