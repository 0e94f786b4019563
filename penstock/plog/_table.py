"""The table of open plogs: finds them, reads their files at first use, closes files that were not used for long.

A plog enters the table when a call needs it. It leaves the table once its file is closed and holds all that the
journal has of it, so a folder of any number of plogs needs memory and descriptors only for those in use.

Locks are taken in this order: a plog, then the table. The table's lock is never held while a file is read or written.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, NoSuchPlog, StoreClosed
from penstock.model import PlogId
from penstock.plog._faults import refusal
from penstock.plog._head import HEAD_SIZE, Identity, names_match
from penstock.plog._open_plog import OpenPlog
from penstock.plog._replay import is_certain, load_replica, write_rest_again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog._journal import Journal
    from penstock.plog._replica import Replica
    from penstock.ports import Disk, File

__all__ = ["PlogTable"]

_EVICTIONS_MAX: Final = 8  # tried at a time, so that no call has to close many files


class PlogTable:
    """The open plogs of a folder; files above ``open_files_max`` are closed as soon as no append is under way."""

    def __init__(self, disk: Disk, journal: Journal, *, open_files_max: int) -> None:
        self._disk, self._journal, self._open_files_max = disk, journal, open_files_max
        self._lock = threading.Lock()
        self._plogs: dict[PlogId, OpenPlog] = {}
        self._opened: OrderedDict[PlogId, OpenPlog] = OrderedDict()  # those with an open file, least used first
        self._latest: OpenPlog | None = None  # the one used last
        self._sweep_at = 2 * open_files_max
        self._closed = False

    def close(self) -> list[OpenPlog] | None:
        """Let no call enter any more; return the plogs in the table, None if it was closed before."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            return list(self._plogs.values())

    @contextmanager
    def entered(self, plog_id: PlogId) -> Iterator[OpenPlog]:
        """Hold the plog's lock; its file may not have been read yet, or not exist."""
        plog = self.enter(plog_id)
        try:
            yield plog
        finally:
            self.leave(plog)

    @contextmanager
    def loaded(self, plog_id: PlogId) -> Iterator[tuple[OpenPlog, Replica]]:
        """Hold the lock of a plog that exists, its file read; ``NoSuchPlog`` if it does not exist."""
        with self.entered(plog_id) as plog:
            yield plog, self.need(plog)

    def enter(self, plog_id: PlogId) -> OpenPlog:
        """Take the plog's lock, and put the plog into the table if it is not there; :meth:`leave` follows."""
        if not isinstance(plog_id, PlogId):
            raise BadArgument(f"invalid plog id {plog_id!r}: use a PlogId")
        while True:
            with self._lock:
                if self._closed:
                    raise StoreClosed(f"the plog folder {self._disk.where()}")
                plog = self._plogs.get(plog_id)
                if plog is None:
                    plog = self._plogs[plog_id] = OpenPlog(plog_id, self._disk)
            plog.lock.acquire()
            if not plog.forgotten and not self._closed:
                return plog
            plog.lock.release()

    def leave(self, plog: OpenPlog) -> None:
        """Release the plog's lock, and note that it was used."""
        if plog.replica is None:
            self.forget(plog)
        opened = plog.file is not None
        plog.lock.release()
        if opened and self._latest is not plog:
            self._note_use(plog)

    def _note_use(self, plog: OpenPlog) -> None:
        """Note the plog as used last; close files that were not used for long, and forget closed plogs."""
        with self._lock:
            if self._plogs.get(plog.plog_id) is not plog:
                return
            self._latest = plog
            self._opened[plog.plog_id] = plog
            self._opened.move_to_end(plog.plog_id)
            surplus = len(self._opened) - self._open_files_max
            candidates = list(islice(self._opened.values(), _EVICTIONS_MAX)) if surplus > 0 else []
            for candidate in candidates:
                self._opened.move_to_end(candidate.plog_id)  # a file that cannot be closed must not block the others
            sweeps = len(self._plogs) > self._sweep_at
            if sweeps:
                candidates += [other for other in self._plogs.values() if other.file is None]
                self._sweep_at = 2 * len(self._plogs)  # no other thread sweeps meanwhile
        for candidate in candidates:
            if candidate.lock.acquire(blocking=False):
                try:
                    self._evict(candidate)
                finally:
                    candidate.lock.release()
        if sweeps:  # wait for twice as many plogs as could not be forgotten, or every call would try them
            self._sweep_at = 2 * max(len(self._plogs), self._open_files_max)

    def _evict(self, plog: OpenPlog) -> None:
        """Close the file, and forget the plog if all of it is in the file; the caller holds its lock."""
        if not plog.is_idle or plog.deletion is not None or plog.forgotten:
            return
        try:
            plog.flush()
        except OSError:
            return  # the next call that needs this plog gets the error; the present one needs another plog
        plog.close_file()
        with self._lock:
            self._opened.pop(plog.plog_id, None)
            self._latest = None
        if not plog.dirty and not plog.is_behind:
            self.forget(plog)

    def need(self, plog: OpenPlog) -> Replica:
        """Return the plog's replica, read from the file at first use; ``NoSuchPlog`` if there is none."""
        replica = None if plog.deletion is not None else plog.replica or self._load(plog)
        if replica is None:
            raise NoSuchPlog(plog.plog_id)
        return replica

    def _load(self, plog: OpenPlog) -> Replica | None:
        """Read the plog's file; None if there is no such plog."""
        path = self._disk.where(plog.name)
        try:
            file = plog.open_file()
            replica = load_replica(path, plog.plog_id, file)
            if replica is None or replica.known is None or not names_match(plog.plog_id, file.view(0, HEAD_SIZE)):
                return None
            if not is_certain(file, replica):
                write_rest_again(file, replica)
                self._sync(path, file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refusal(path, error) from error
        plog.replica, plog.allocated = replica, file.size()
        return replica

    def _sync(self, path: str, file: File) -> None:
        try:
            file.datasync()
        except OSError as error:
            raise self._journal.stop(error, path) from error

    def has_file(self, plog: OpenPlog) -> bool:
        """Return whether there is a file of this plog, damaged or not."""
        try:
            head = plog.open_file().view(0, HEAD_SIZE)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise refusal(self._disk.where(plog.name), error) from error
        return Identity.unpack(head) is None or names_match(plog.plog_id, head)

    def forget(self, plog: OpenPlog) -> None:
        """Remove a plog from the table; the caller holds its lock. A new one may have taken its place there."""
        plog.close_file()
        plog.forgotten = True
        with self._lock:
            self._latest = None
            for table in (self._plogs, self._opened):
                if table.get(plog.plog_id) is plog:
                    del table[plog.plog_id]
