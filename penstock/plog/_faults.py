"""The translation of errors of the operating system."""

from __future__ import annotations

import errno

from penstock.errors import DiskFailed, DiskFull

__all__ = ["refusal"]


def refusal(path: str, error: OSError) -> DiskFull | DiskFailed:
    """Return the error for a write that failed without effect; the store continues."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path)
    return DiskFailed(path, reason=error.strerror or str(error), stopped=False)
