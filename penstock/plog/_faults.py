"""What an error of the operating system means to a caller."""

from __future__ import annotations

import errno

from penstock.errors import DiskFailed, DiskFull

__all__ = ["refusal"]


def refusal(path: str, error: OSError) -> DiskFull | DiskFailed:
    """Return the error for a write that did not happen; the store goes on."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path)
    return DiskFailed(path, reason=error.strerror or str(error), stopped=False)
