"""Files of which parts are read: on a disk, at a web server, in an object store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import BadArgument, BundleUnreadable
from penstock.model import shown

if TYPE_CHECKING:
    from obstore.store import ClientConfig

__all__ = ["RangeFile", "open_ranges"]

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_RETRIES: Final = 3


class RangeFile(Protocol):
    """A file of known size, of which any part can be read."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` up to ``end``, or up to the end of the file."""

    def close(self) -> None:
        """Let go of the file."""


class _DiskFile:
    """A file on a disk; it stays readable if it is renamed or deleted."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise BundleUnreadable(self.name, reason=error.strerror or str(error)) from None
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, start: int, end: int) -> bytes:
        parts = []
        while start < end and (part := os.pread(self._file.fileno(), end - start, start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()


class _ObjectFile:
    """A file at a web server or in an object store; each part is one request."""

    def __init__(self, url: str) -> None:
        import obstore  # noqa: PLC0415 - installed with penstock-stream[repo], and needed for addresses only
        from obstore.store import from_url  # noqa: PLC0415

        self.name = url
        base, _, self._path = url.rpartition("/")
        options: ClientConfig | None = {"allow_http": True} if url.startswith("http://") else None
        self._unreachable = obstore.exceptions.BaseError, OSError
        self._get_range, self._head = obstore.get_range, obstore.head
        try:
            self._store = from_url(base, client_options=options, retry_config={"max_retries": _RETRIES})
            self.size = int(self._head(self._store, self._path)["size"])
        except self._unreachable as error:
            raise BundleUnreadable(url, reason=_first_line(error)) from None

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        if start >= end:
            return b""
        try:
            return self._get_range(self._store, self._path, start=start, end=end).to_bytes()
        except self._unreachable as error:
            raise BundleUnreadable(self.name, reason=_first_line(error)) from None

    def close(self) -> None:
        """Connections are closed when they have been idle."""


def open_ranges(path_or_url: str | os.PathLike[str]) -> RangeFile:
    """Open a file for reading parts of it."""
    text = os.fspath(path_or_url) if isinstance(path_or_url, os.PathLike) else path_or_url
    if not isinstance(text, str):
        raise BadArgument(f"invalid path {shown(text)}: use a str or a Path")
    return _ObjectFile(text) if _URL.match(text) else _DiskFile(Path(text))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
