"""Servers of one store that stand by: the one that acquires the lease opens the store and serves it.

A server goes round these states, in one thread, until it is stopped:

1. It **stands by**: it asks for the lease every quarter of a second. Its Flight port refuses clients, who look for the
   owner among the other addresses; its HTTP port answers health and metrics.
2. It has the lease and **recovers** the store. Opening it fences a former owner. If that fails, it releases the lease,
   so that another server can try, and stands by again after a pause.
3. It **serves** the store, and looks after its right to do so four times a second. A server that is stopped
   ends its connections, closes the store, and releases the lease. One that has lost the lease or was fenced
   answers no more at once, writes no more, and stands by again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

from penstock.cpo import open_cpo
from penstock.errors import NoSuchObject, PenstockError
from penstock.plog.objects import check_settings, check_store
from penstock.plog.replicated import access_from
from penstock.ports import Bucket, BucketAddress
from penstock.server._addresses import listen
from penstock.server._health import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.server._leases import ServerLeases
    from penstock.stream import Engine

__all__ = ["TRY_S", "RefusingPort", "Standby", "StandbyHealth", "reachable_plogs", "registered_oracle"]

TRY_S: Final = 0.25  # between two attempts to acquire the lease, and between two looks at a store that is served
_CLUSTER: Final = "cluster:"
_ANSWER_S: Final = 5.0  # that a bucket has to answer when the server starts
_OPENING_S: Final = 3.0  # that a server which is stopped waits for a store that is being opened
_PAUSE_S: Final = 1.0  # after the store could not be opened: another server may try
_FAILURE_S: Final = 60.0  # for which that counts for health
_REFUSE_PAUSE_S: Final = 0.1  # after a connection could not be accepted, perhaps for want of descriptors
_logger: Final = logging.getLogger("penstock.server")


def reachable_plogs(plogs: str, cache: Path) -> str:
    """Return the address of plogs with a cache in this folder, after a look at what they are in.

    Otherwise an address, a setting or credentials that are wrong would be noticed only when this server has to take
    over.
    """
    if plogs.startswith(_CLUSTER):
        access_from(os.environ)
    if plogs.startswith(("file:", _CLUSTER)):
        return plogs
    address = BucketAddress.parse(plogs)
    check_settings(address.settings)
    bucket = Bucket(address, timeout_s=_ANSWER_S, is_patient=False)
    try:
        _look_into(bucket)
    finally:
        bucket.close()
    if "cache_folder" in address.settings:
        return plogs
    return f"{plogs}{'&' if '?' in plogs else '?'}cache_folder={quote(str(cache))}"


def registered_oracle(cpo: str, plogs: str) -> Cpo:
    """Open the oracle; where the plogs are on a cluster, that has to be registered in it."""
    if not plogs.startswith(_CLUSTER):
        return open_cpo(cpo)
    oracle = open_cpo(cpo, create=False)
    try:
        oracle.cluster(plogs.removeprefix(_CLUSTER))
    except BaseException:
        oracle.close()
        raise
    return oracle


def _look_into(bucket: Bucket) -> None:
    """Read the identity of the store; only where there is none yet, a listing tells whether there is a bucket."""
    try:
        check_store(bucket)
    except NoSuchObject:
        next(bucket.names(""), None)


class Serving(Protocol):
    """The ports of an open store."""

    def cut_off(self) -> None:
        """Answer no more, at once."""

    def close(self) -> None:
        """Close the ports; requests come to their end, unless they were cut off."""


class Standby:
    """The thread that owns the store, or waits for it.

    ``open_store`` opens the store, ``serve`` its ports, and ``stand_by`` is called when there is none to serve.
    """

    def __init__(
        self,
        leases: ServerLeases,
        open_store: Callable[[], Engine],
        serve: Callable[[Engine], Serving],
        stand_by: Callable[[], None],
    ) -> None:
        self._leases = leases
        self._open_store, self._serve, self._stand_by = open_store, serve, stand_by
        self._failure: tuple[float, str] | None = None  # when and why the store could not be opened the last time
        self._logged: str | None = None  # the last failure, without names
        self._is_opening = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-standby", daemon=True)

    def start(self) -> None:
        """Stand by, and serve when it is this server's turn."""
        self._stand_by()
        self._thread.start()

    def trouble(self) -> str | None:
        """Return why this server cannot take the store over, if it cannot."""
        if self._failure is not None and time.monotonic() - self._failure[0] < _FAILURE_S:
            return self._leases.trouble or self._failure[1]
        return self._leases.trouble

    def close(self) -> None:
        """Stop serving, or standing by; a store that is being opened is closed again.

        If its plogs do not answer, that is not waited for: the thread closes the store when it is open.
        """
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_OPENING_S)
            if self._is_opening:
                _logger.warning("the store was still being opened, and was not waited for")
            else:
                self._thread.join()
        self._leases.close()

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                if self._leases.acquire():
                    self._own()
                else:
                    self._over.wait(TRY_S)
            except Exception as error:  # noqa: BLE001 - whatever it is, another attempt may succeed
                self._note_failure(error)
                self._over.wait(_PAUSE_S)

    def _note_failure(self, error: Exception) -> None:
        reason = getattr(error, "reason", str(error))  # the object that was asked for first has another name each time
        if self._logged != reason:
            unexpected = None if isinstance(error, PenstockError) else error
            _logger.error("cannot take the store over: %s", error, exc_info=unexpected)
        self._failure, self._logged = (time.monotonic(), str(error)), reason

    def _own(self) -> None:
        is_open, self._is_opening = False, True
        try:
            store = self._open_store()
            is_open = True
            with ExitStack() as parts:
                parts.callback(_closed, store)
                if not self._over.is_set():
                    self._is_opening = False
                    self._serve_until_lost(store)
            self._failure = self._logged = None
        finally:
            self._is_opening = False
            self._leases.release()
            if is_open and not self._over.is_set():  # otherwise the ports are as they were
                self._stand_by()

    def _serve_until_lost(self, store: Engine) -> None:
        serving = self._serve(store)
        try:
            reason = self._reason_to_stop(store)
            if reason is not None:
                serving.cut_off()
                store.fence()
                _logger.warning("standing by again: %s", reason)
        finally:
            serving.close()

    def _reason_to_stop(self, store: Engine) -> str | None:
        """Return when the store may be served no more, why not; None if the server is stopped."""
        while not self._over.wait(TRY_S):
            if self._leases.lost is not None:
                return self._leases.lost
            try:
                store.check_owned()
            except PenstockError as error:
                return str(error)
        return None


def _closed(store: Engine) -> None:
    """Close a store; one that was fenced says so, which is known already."""
    try:
        store.close()
    except PenstockError as error:
        _logger.warning("the store was not closed as usual: %s", error)


class StandbyHealth:
    """The health of a server that stands by: it is well as long as it could take over."""

    status: Final = "standby"

    def __init__(self, trouble: Callable[[], str | None]) -> None:
        self._trouble = trouble

    def trouble(self) -> Trouble | None:
        """Return why it could not."""
        found = self._trouble()
        return None if found is None else Trouble("this server could not take the store over", found)

    def stream_troubles(self) -> dict[str, str]:
        """Return nothing: the owner knows."""
        return {}


class RefusingPort:
    """Holds a port, and closes every connection at once: a client that had to wait would not look for the owner."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self.port = host, port
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self.open()

    def open(self) -> None:
        """Hold the port, unless it is held; port 0 becomes one that is free."""
        if self._thread is None:
            listener = self._listener = listen(self._host, self.port, setting="--port (port)")
            self.port = listener.getsockname()[1]
            self._over.clear()
            self._thread = threading.Thread(target=self._work, args=(listener,), name="penstock-refusing", daemon=True)
            self._thread.start()

    def _work(self, listener: socket.socket) -> None:
        while not self._over.is_set():
            try:
                listener.accept()[0].close()
            except OSError:
                self._over.wait(_REFUSE_PAUSE_S)

    def close(self) -> None:
        """Let go of the port."""
        if self._thread is not None and self._listener is not None:
            self._over.set()
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()
            self._thread = None
