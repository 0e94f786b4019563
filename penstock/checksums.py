"""The checksum of everything that is stored: crc32c.

``google_crc32c`` holds the interpreter's lock while it computes, so while one thread checks a block of a megabyte, or
waits for its pages to be read from the disk, no other thread runs. Large blocks go to the same C function through
ctypes, which lets go of the lock.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import Bytes

__all__ = ["crc32c"]

_UNLOCKED_SIZE_MIN: Final = 64 << 10  # the call costs 1 us more than that of google_crc32c


def crc32c(crc: int, *parts: Bytes) -> int:
    """Extend ``crc`` over the parts."""
    for part in parts:
        if len(part) >= _UNLOCKED_SIZE_MIN and _extend is not None:
            data = np.frombuffer(part, np.uint8)
            crc = _extend(crc, data.__array_interface__["data"][0], len(data))
        elif type(part) is bytes:
            crc = google_crc32c.extend(crc, part)
        else:  # the C extension takes an array, but no memoryview: one over the same memory costs nothing
            crc = google_crc32c.extend(crc, np.frombuffer(part, np.uint8))
    return crc


def _unlocked_extend() -> Callable[[int, int, int], int] | None:
    """Return the function behind ``google_crc32c.extend``; None where its library does not show it."""
    try:
        from google_crc32c import _crc32c  # noqa: PLC0415 - it is missing where there is no C library

        extend = ctypes.CDLL(_crc32c.__file__).crc32c_extend
    except (ImportError, OSError, AttributeError):
        return None
    extend.argtypes, extend.restype = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_uint32
    return extend


_extend: Final = _unlocked_extend()
