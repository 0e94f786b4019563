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
_STATUS: Final = re.compile(r"status code: (\d{3})([^:\n]*)")
_ADVICE: Final = {
    "401": "check the credentials",
    "403": "check the credentials, and whether the file is there",
    "404": "there is no such file; check the address",
    "405": "it does not support HEAD requests, which tell the size of the file",
}
_CAUSES: Final = {  # by what the library says, the most special first
    "169.254.169.254": "the environment has no credentials for this object store: set them",
    "empty host": "the address has no host, or no file: check it",
    "dns error": "the name of its server cannot be resolved: check the address",
    "tcp connect error": "no server answers there: check the address, and that the server runs",
    "certificate": "the TLS certificate of the server is not valid: check the address, and the certificate",
    "error sending request": "the server does not answer as a web server: check the address, and http or https",
    "RangeNotSupported": "the server does not support range requests: use one that does, or download the file",
    "Unable to recognise URL": "the address is none of http, https or an object store: check it",
}


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
        self._unreachable = obstore.exceptions.BaseError, OSError, ValueError  # for an address without a host
        self._get_range, self._head = obstore.get_range, obstore.head
        try:
            self._store = from_url(base, client_options=options, retry_config={"max_retries": _RETRIES})
            self.size = int(self._head(self._store, self._path)["size"])
        except self._unreachable as error:
            raise BundleUnreadable(url, reason=_reason(error)) from None

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        if start >= end:
            return b""
        try:
            return self._get_range(self._store, self._path, start=start, end=end).to_bytes()
        except self._unreachable as error:
            raise BundleUnreadable(self.name, reason=_reason(error)) from None

    def close(self) -> None:
        """Connections are closed when they have been idle."""


def open_ranges(path_or_url: str | os.PathLike[str]) -> RangeFile:
    """Open a file for reading parts of it."""
    text = os.fspath(path_or_url) if isinstance(path_or_url, os.PathLike) else path_or_url
    if not isinstance(text, str):
        raise BadArgument(f"invalid path {shown(text)}: use a str or a Path")
    return _ObjectFile(text) if _URL.match(text) else _DiskFile(Path(text))


def _reason(error: BaseException) -> str:
    """Return what is wrong with a file in plain words; the library tells of retries, timeouts and its own classes."""
    text = str(error)
    if status := _STATUS.search(text):
        advice = _ADVICE.get(status[1], "try again later" if status[1] > "499" else "check the address")
        return f"the server answers {status[1]}{status[2].rstrip()}: {advice}"
    for phrase, reason in _CAUSES.items():
        if phrase in text:
            return reason
    if isinstance(error, FileNotFoundError):
        return "there is no such file: check the address"
    return text.partition("\n")[0].rpartition(" - ")[2]
