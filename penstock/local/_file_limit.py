"""How many files and connections a process that serves others may have open."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["raise_file_limit"]

_OPEN_FILES: Final = 1 << 20


def raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
