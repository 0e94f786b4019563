"""crc32c over any buffer, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from penstock.ports import Bytes


def crc32c(crc: int, *parts: Bytes) -> int:
    """Extend ``crc`` over the parts."""
    for part in parts:
        # The C extension takes bytes, or an array, but no memoryview: an array over the same memory costs nothing.
        data = part if type(part) is bytes else np.frombuffer(part, np.uint8)
        crc = google_crc32c.extend(crc, cast("bytes", data))
    return crc
