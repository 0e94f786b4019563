"""How the C library keeps memory that was freed.

The GNU C library returns the end of its heap to the system as soon as some of it is free. A server that receives a
megabyte, stores it and frees it would get each page anew for the next one, cleared by the system: a tenth of all that
the owner of a store on plog servers does for batches.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # as malloc.h names them
_KEPT_SIZE_MAX: Final = 32 << 20  # of a heap
_HEAPS_MAX: Final = 4
_ON_HEAP_SIZE_MAX: Final = 16 << 20  # more than any message has


def keep_freed_memory() -> None:
    """Let this process keep the ends of four heaps, each up to 32 MiB, unless ``MALLOC_`` variables say otherwise.

    Nothing happens with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name.startswith("MALLOC_") for name in os.environ):
        for option, value in (
            (_TRIM_THRESHOLD, _KEPT_SIZE_MAX),
            (_MMAP_THRESHOLD, _ON_HEAP_SIZE_MAX),
            (_ARENA_MAX, _HEAPS_MAX),
        ):
            mallopt(option, value)
