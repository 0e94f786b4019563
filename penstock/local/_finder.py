"""Opening a folder that several processes share: as its owner, or through the process that owns it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import FolderUnusable, StoreLocked, StoreUnreachable
from penstock.local._folder import block_socket, owner_socket_inode, service_socket
from penstock.local._owner_process import await_owner_process, start_owner_process
from penstock.local._owner_socket import ENTER, EXCLUSIVE, READY, ask, open_owned
from penstock.local._owner_watch import OwnerWatch
from penstock.model import has_store

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyarrow import flight

    from penstock.local._owner_socket import Serve
    from penstock.store import Store
    from penstock.stream import Engine

__all__ = ["OwnerFinder", "open_shared"]

_ANSWER_S: Final = 10.0
_START_S: Final = 2.0


def open_shared(folder: Path, *, maintenance_interval_s: float, own: bool, serve: Serve) -> Store:
    """Open the store in a folder: as its owner, if this process may be the owner, or through the one that is."""
    if own:
        with suppress(StoreLocked):
            return open_owned(folder, maintenance_interval_s=maintenance_interval_s, serve=serve)
    elif not has_store(folder):
        reason = "the folder has no store, and own=False creates none: open it once without own=False"
        raise StoreUnreachable(str(folder), reason=reason)
    finder = OwnerFinder(folder, maintenance_interval_s, own=own, serve=serve)
    finder.prepare()
    from penstock.client import RemoteStore  # noqa: PLC0415 - an owner does without

    return RemoteStore(finder)


class OwnerFinder:
    """Finds the owner of a folder, or becomes the owner."""

    patience_s: Final = 10.0  # another process may just be opening the folder

    def __init__(self, folder: Path, maintenance_interval_s: float, *, own: bool, serve: Serve) -> None:
        self._folder, self._maintenance_interval_s, self._own, self._serve = folder, maintenance_interval_s, own, serve
        self._owned: Engine | None = None
        self._starting: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0
        self._watch = OwnerWatch(folder, {service_socket(folder), block_socket(folder)})
        self.address: Final = str(folder)
        self.block_host: Final = block_socket(folder)

    def prepare(self) -> None:
        """Start an owner process if there is no owner and this process is not to be it.

        It starts while this process imports what a client needs.
        """
        if not self._own and owner_socket_inode(self._folder) is None:
            self._starting = start_owner_process(self._folder)

    def open(self) -> flight.FlightClient:
        """Return a client of the owner."""
        from pyarrow import flight  # noqa: PLC0415 - an owner does without

        try:
            owner = self._enter()
        except PermissionError:
            raise StoreUnreachable(
                self.address, reason="its owner runs as another user, and serves only that user"
            ) from None
        except OSError:
            self._take_over()
            try:
                owner = self._enter()
            except OSError:
                raise StoreUnreachable(self.address, reason="its owner does not answer") from None
        self._watch.start(owner)
        return flight.connect(f"grpc+unix://{service_socket(self._folder)}")

    def _enter(self) -> int:
        """Ask the owner to start the service; return its process."""
        self._watch.check()
        answer, pid = ask(self._folder, ENTER, timeout=_ANSWER_S)
        if answer.startswith(EXCLUSIVE):
            raise StoreLocked(self.address, owner=answer.removeprefix(EXCLUSIVE).decode(errors="replace"))
        if answer != READY:
            raise ConnectionResetError
        return pid

    def _take_over(self) -> None:
        if not has_store(self._folder):  # removed, or not mounted: an empty store in its place would be wrong
            raise StoreUnreachable(self.address, reason="the store is not in its folder any more")
        if not self._own:
            self._await_owner()
            return
        try:
            self._owned = open_owned(
                self._folder, maintenance_interval_s=self._maintenance_interval_s, serve=self._serve
            )
        except StoreLocked as error:
            raise StoreUnreachable(self.address, reason=f"{error.owner} owns it and does not answer") from error

    def _await_owner(self) -> None:
        """Have an owner process take the folder over, and wait until it, or another process, owns it."""
        if self._starting is None:
            if time.monotonic() < self._start_at:
                return  # one may be about to
            self._starting = start_owner_process(self._folder)
        self._start_at = time.monotonic() + _START_S
        starting, self._starting = self._starting, None
        await_owner_process(starting, self.address)

    def explained(self, reason: str) -> str:
        """Return the reason as it is: it says already what to do."""
        return reason

    def close(self) -> None:
        """Close the store, if this process has taken the folder over."""
        self._watch.close()
        if self._starting is not None:
            starting, self._starting = self._starting, None
            with suppress(FolderUnusable):
                await_owner_process(starting, self.address)
        if self._owned is not None:
            self._owned.close()
            self._owned = None
