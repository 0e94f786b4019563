"""Opening plogs by address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadArgument
from penstock.plog._files import FilePlogs
from penstock.ports import OsDisk

if TYPE_CHECKING:
    from penstock.plog._interface import Plogs

__all__ = ["open_plogs"]


def open_plogs(url: str) -> Plogs:
    """Open the plogs at ``file:FOLDER``, created if there is none, or ``memory:``, gone when closed."""
    scheme, _, path = url.partition(":")
    if scheme == "file" and path:
        return FilePlogs(OsDisk(path))
    if url == "memory:":
        from penstock.testing import MemoryDisk  # noqa: PLC0415 - most processes never need it

        return FilePlogs(MemoryDisk())
    raise BadArgument(f"cannot open plogs at {url!r}: use file:FOLDER or memory:")
