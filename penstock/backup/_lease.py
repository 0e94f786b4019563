"""The lease on a backup in a bucket: one process at a time changes it.

A bucket has no lock that ends with its process. So the process that holds the lease writes a new version of one object
every few seconds. A process that finds the object looks whether it changes; if it does not, for longer than it takes to
renew, its owner was killed, and the lease is taken over. The owner that was only suspended notices it before it
finishes its backup, or deletes anything.
"""

from __future__ import annotations

import json
import secrets
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import BackupRunning, NoSuchObject, ObjectChanged, PenstockError
from penstock.model import UNDECODABLE
from penstock.ports import owner_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.plog.objects import Requests

__all__ = ["LEASE_S", "leased"]

LEASE_S: Final = 15.0
"""Seconds without a new version of the object, after which the lease is over."""
_NAME: Final = "lease"
_FREE: Final = b"{}"


class _Lease:
    """The lease while this process holds it."""

    def __init__(self, requests: Requests, tag: str | None, *, lease_s: float) -> None:
        self._requests, self._lease_s = requests, lease_s
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._count = 0
        self._token = secrets.token_hex(8)
        self._lost: PenstockError | None = None
        self._tag = requests.replace_own(_NAME, self._content(), tag=tag)
        self._thread = threading.Thread(target=self._work, name="penstock-backup-lease", daemon=True)
        self._thread.start()

    def _content(self) -> bytes:
        self._count += 1
        return json.dumps({"owner": owner_name(), "token": self._token, "count": self._count}).encode()

    def renew(self) -> None:
        """Write a new version; ``BackupRunning`` if another process has the lease."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            try:
                self._tag = self._requests.replace_own(_NAME, self._content(), tag=self._tag)
            except ObjectChanged:
                self._lost = BackupRunning(self._requests.objects.where(), owner="another process")
                raise self._lost from None

    def _work(self) -> None:
        while not self._over.wait(self._lease_s / 3):
            try:
                self.renew()
            except PenstockError:
                return  # the next step of the backup raises it

    def end(self) -> None:
        """Let another process have it at once."""
        self._over.set()
        self._thread.join()
        with self._lock:
            if self._lost is None:
                self._requests.replace_own(_NAME, _FREE, tag=self._tag)


@contextmanager
def leased(
    requests: Requests, *, lease_s: float = LEASE_S, pause: Callable[[float], object]
) -> Iterator[Callable[[], None]]:
    """Hold the lease; the block gets a function that raises ``BackupRunning`` if it was lost."""
    lease = _Lease(requests, _free_tag(requests, lease_s=lease_s, pause=pause), lease_s=lease_s)
    try:
        yield lease.renew
    except BaseException:
        with suppress(PenstockError):  # the error that ended the block is the one to raise
            lease.end()
        raise
    lease.end()


def _free_tag(requests: Requests, *, lease_s: float, pause: Callable[[float], object]) -> str | None:
    """Return the tag of the object to replace, once no process holds the lease; None if there is no object."""
    try:
        stored = requests.again(lambda: requests.objects.get(_NAME))
    except NoSuchObject:
        return None
    if bytes(stored.data) == _FREE:
        return stored.tag
    pause(lease_s)
    try:
        later = requests.again(lambda: requests.objects.get(_NAME))
    except NoSuchObject:
        return None
    if later.tag != stored.tag and bytes(later.data) != _FREE:
        raise BackupRunning(requests.objects.where(), owner=_owner(bytes(later.data)))
    return later.tag


def _owner(data: bytes) -> str:
    try:
        return str(json.loads(data)["owner"])
    except (*UNDECODABLE, KeyError, TypeError):
        return "another process"
