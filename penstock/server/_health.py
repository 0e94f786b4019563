"""Whether the server is fit to work: one answer for the HTTP port, the metrics and the log.

The store answers, no sync has failed, its threads run, and the disk has space for another append, or a group of plog
servers is complete. Clients without permission learn that something is wrong, and of which kind, but no path, no
address and no name of a stream.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from penstock.errors import DiskFailed, DiskFull, PenstockError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.server._ports import WatchedStore


__all__ = ["AnyHealth", "Health", "Trouble"]

_GOOD_FOR_S: Final = 1.0
_PATIENCE_S: Final = 5.0
_SILENCE_MAX_S: Final = 10.0  # of a bucket: a large put may take some seconds
_SPACE: Final = 2 << 20  # of the largest append
_logger: Final = logging.getLogger("penstock.server")


class Trouble(NamedTuple):
    """Why the store cannot do its work: for all clients, and in detail for users who may read all streams."""

    kind: str
    detail: str


class AnyHealth(Protocol):
    """The health of a server, whether it serves a store or stands by."""

    @property
    def status(self) -> str:
        """The word for it while there is no trouble."""

    def trouble(self) -> Trouble | None:
        """Return what is wrong, if something is."""

    def stream_troubles(self) -> dict[str, str]:
        """Return what maintenance could not do for single streams."""


class Health:
    """Looks at the store at most once a second, however many ask."""

    status: Final = "ok"

    def __init__(self, store: WatchedStore, folder: Path | None) -> None:
        self._store, self._folder = store, folder  # where appends need space; None: not on a disk
        self._lock = threading.Lock()
        self._found: tuple[float, Trouble | None] = (float("-inf"), None)  # when, and what
        self._ending = False

    def end(self) -> None:
        """Report from now on that the server ends, so that no new client is sent to it."""
        self._ending = True

    def trouble(self) -> Trouble | None:
        """Return what is wrong, if something is."""
        if self._ending:
            return _plain("the server is shutting down")
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return _plain(f"the disk has not answered for {_PATIENCE_S:g} s")
        try:
            now = self._store.clock.elapsed()
            if now - self._found[0] >= _GOOD_FOR_S:
                before, found = self._found[1], self._check()
                self._found = now, found
                if found is not None and found != before:
                    _logger.error("the store cannot do its work: %s", found.detail)
                elif found is None and before is not None:
                    _logger.info("the store can do its work again")
            return self._found[1]
        finally:
            self._lock.release()

    def stream_troubles(self) -> dict[str, str]:
        """Return what maintenance could not do for single streams."""
        return self._store.stream_troubles()

    def _check(self) -> Trouble | None:
        try:
            self._store.check_running()
            if not self._store.catalog.lock.acquire(timeout=_PATIENCE_S):  # which every call waits for
                return _plain(
                    f"a change of the catalog has not ended for {_PATIENCE_S:g} s: "
                    "the disk, the bucket or the control plane oracle does not answer"
                )
            self._store.catalog.lock.release()
            found = self._storage_trouble() or self._background_trouble()
            if found is not None:
                return found
            if self._folder is not None:
                with TemporaryFile(dir=self._folder) as file:
                    os.posix_fallocate(file.fileno(), 0, _SPACE)
                    os.fdatasync(file.fileno())
        except PenstockError as error:
            return Trouble(_kind_of(error), str(error))
        except OSError as error:
            kind = "the disk is full" if error.errno in _FULL else "the disk cannot be written"
            return Trouble(kind, f"{self._folder} cannot be written: {error.strerror or error}")
        return None

    def _storage_trouble(self) -> Trouble | None:
        bucket, replication = self._store.bucket_use, self._store.replication_use
        if bucket is not None and bucket.silent_s > _SILENCE_MAX_S:
            return _plain(f"the bucket has not answered for {_SILENCE_MAX_S:g} s")
        if replication is not None and not replication.has_complete_group:
            kind = "no group of plog servers is complete, so nothing can be written"
            away = ", ".join(f"{address} ({reason})" for address, reason in replication.away.items())
            return Trouble(kind, f"{kind}; away: {away}")
        return None

    def _background_trouble(self) -> Trouble | None:
        background = self._store.trouble()
        return None if background is None else Trouble("background work of the store does not run", background)


_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def _plain(text: str) -> Trouble:
    return Trouble(text, text)


def _kind_of(error: PenstockError) -> str:
    """Return an error without its path."""
    if isinstance(error, DiskFailed):
        return "the disk failed, and the store takes no more writes"
    return "the disk is full" if isinstance(error, DiskFull) else "the store is not open"
