"""crc32c over any buffer, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from penstock.ports import Bytes


def crc32c(crc: int, *parts: Bytes) -> int:
    """Extend ``crc`` over the parts."""
    for part in parts:
        if type(part) is bytes:
            crc = google_crc32c.extend(crc, part)
        else:  # the C extension takes an array, but no memoryview: one over the same memory costs nothing
            crc = google_crc32c.extend(crc, np.frombuffer(part, np.uint8))
    return crc
