"""One folder, many processes: the first one owns it, and serves it to the others over a socket in it.

The owner listens at the door, which costs a socket and a thread; the service is started when somebody rings. Who finds
nobody at the door, because the owner has ended or was killed, takes the folder over, serves it itself, and goes on as
the client that it was. Who does not want to own it starts a process that does: it ends when no client was connected for
a while, and at once when a process that wants to own the folder asks for it while no client is connected.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock import forks
from penstock.embedded import has_store, open_store
from penstock.errors import BadArgument, FolderUnusable, OwnerStopped, StoreLocked, StoreUnreachable
from penstock.ports import owner_name, uninterrupted
from penstock.server._reach import remove_proofs
from penstock.server._stopped import OwnerWatch, answer_of, peer_of

if TYPE_CHECKING:
    from pyarrow import flight

    from penstock.client._store import RemoteStore
    from penstock.server._service import FlightService
    from penstock.stream import Engine

__all__ = ["main", "open_owned", "open_shared"]

_DOOR: Final = "owner.sock"
_ROOM: Final = "flight"  # a folder of its own, which nobody else can enter: gRPC makes a socket that everybody can use
_SERVICE: Final = f"{_ROOM}/sock"
_PATH_MAX: Final = 100  # a socket's path may have 107 bytes
_BACKLOG: Final = 1024
_ANSWER_S: Final = 10.0
_REQUEST_S: Final = 1.0  # that a client may take to say what it wants
_PAUSE_S: Final = 0.1
_IDLE_S: Final = "30"  # that an owner process stays while no client is connected: the next command finds it
_IDLE_VARIABLE: Final = "PENSTOCK_OWNER_IDLE_S"
_LEAVE_S: Final = 5.0  # that an owner process may take to close the store
_LEAVE_ANSWER_S: Final = 2.0
_LEAVE_PAUSE_S: Final = 0.01
_LOOKS: Final = 10
_START_S: Final = 2.0
_MINE: Final = b"mine"
_LOCKED: Final = b"locked"
_ENTER: Final = b"enter\n"
_LEAVE: Final = b"leave\n"
_READY: Final = b"ready\n"
_LEAVING: Final = b"leaving\n"
_STAYING: Final = b"staying\n"
_ALONE: Final = b"alone "
_logger: Final = logging.getLogger("penstock.server")


def open_shared(folder: Path, *, maintenance_interval_s: float, own: bool) -> Engine | RemoteStore:
    """Open the store in a folder: as its owner, if it may be that one, or through the process that is."""
    if own:
        with suppress(StoreLocked):
            return open_owned(folder, maintenance_interval_s=maintenance_interval_s)
    elif not has_store(folder):
        reason = "there is no store in this folder, and own=False makes none: open it once without"
        raise StoreUnreachable(str(folder), reason=reason)
    finder = _FolderFinder(folder, maintenance_interval_s, own=own)
    finder.prepare()
    from penstock.client._store import RemoteStore  # noqa: PLC0415 - an owner does without

    return RemoteStore(finder)


def open_owned(folder: Path, *, maintenance_interval_s: float, alone: bool = False) -> Engine:
    """Open the store in a folder as its owner, and serve it to others, unless they are to stay outside."""
    store = _open_store(folder, maintenance_interval_s)
    try:
        _open_door(store, folder, alone=alone)
    except OSError as error:
        _logger.warning("other processes cannot use %s: no socket can be made there (%s)", folder, error)
    except BaseException:
        store.close()
        raise
    return store


def _open_store(folder: Path, maintenance_interval_s: float) -> Engine:
    """Open a store; an owner process that no client needs is asked to leave first."""
    try:
        return open_store(folder, maintenance_interval_s=maintenance_interval_s)
    except StoreLocked:
        if not _asked_to_leave(folder):
            raise
    deadline = time.monotonic() + _LEAVE_S
    while True:
        try:
            return open_store(folder, maintenance_interval_s=maintenance_interval_s)
        except StoreLocked:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LEAVE_PAUSE_S)


def _asked_to_leave(folder: Path) -> bool:
    """Return whether the owner of a folder is a process that is about to let go of it."""
    try:
        return _asked(folder, _LEAVE, timeout=_LEAVE_ANSWER_S)[0] == _LEAVING
    except (OSError, OwnerStopped):
        return False


def _asked(folder: Path, request: bytes, *, timeout: float) -> tuple[bytes, int]:
    """Return what the owner of a folder answers at the door, and its process; ``OwnerStopped`` if it cannot answer."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(timeout)
        door.connect(f"{_short(folder)}/{_DOOR}")
        door.sendall(request)
        return answer_of(door, folder, timeout=timeout), peer_of(door)


def keep(folder: Path, seconds: float) -> None:
    """Own a folder for others, until none of them was there for so many seconds, or another process wants to."""
    from penstock.server._run import raise_file_limit  # noqa: PLC0415 - only a process that serves others needs it

    raise_file_limit()
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    with open_store(folder) as store:
        door = _open_door(store, folder, alone=False, leave=leave)
        _say(_MINE)
        idle = 0
        while idle < _LOOKS and not leave.wait(seconds / _LOOKS):
            idle = 0 if door.clients else idle + 1
            if not door.is_there():
                os._exit(0)  # the folder was removed, and there may be another in its place: nothing of it is ours


def _say(line: bytes) -> None:
    """Tell who has started this process, if they are still there."""
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line + b"\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(folder: str, seconds: str) -> None:
    """Own a folder, and say so; or why not."""
    try:
        keep(Path(folder), _seconds(seconds))
    except StoreLocked:
        _say(_LOCKED)
    except Exception as error:
        _say(f"{type(error).__name__}: {error}".encode())
        raise


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadArgument(f"{_IDLE_VARIABLE} cannot be {text!r}: give a number of seconds")
    return seconds


@uninterrupted
def _open_door(store: Engine, folder: Path, *, alone: bool, leave: threading.Event | None = None) -> _Door:
    remove_proofs(folder)
    door = _Door(store, folder, alone=alone, leave=leave)
    store.before_close(door.close)
    return door


class _Door:
    """Where others ring. An owner process has ``leave``, which is set when it is asked to end and has no clients."""

    def __init__(self, store: Engine, folder: Path, *, alone: bool, leave: threading.Event | None) -> None:
        forks.guard(self)
        self._store, self._folder, self._alone, self._leave = store, folder, alone, leave
        self._service: FlightService | None = None
        self._over = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            _remove_sockets(folder)  # left by an owner that was killed; we have the lock
            os.fchmod(self._socket.fileno(), 0o600)  # before it has a name that others could use
            self._socket.bind(f"{_short(folder)}/{_DOOR}")
            self._inode = _inode(folder)
            self._socket.listen(_BACKLOG)
        except BaseException:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._work, name="penstock-door", daemon=True)
        self._thread.start()

    def give_back_in_child(self) -> None:
        """Let clients see it when the owner ends: a socket is open until the last process that has it closes it."""
        forks.drop_sockets({f"{_short(self._folder)}/{name}" for name in (_DOOR, _SERVICE)})

    def _work(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                if self._over.wait(_PAUSE_S):
                    return
                _logger.exception("nobody can come in at the door of %s", self._folder)  # too many files, perhaps
                continue
            with visitor:
                try:
                    visitor.settimeout(_REQUEST_S)
                    visitor.sendall(self._answer(visitor.recv(64)))
                except ConnectionError:
                    pass  # the client has gone
                except Exception:
                    _logger.exception("somebody at the door could not be served")

    def _answer(self, request: bytes) -> bytes:
        if request == _LEAVE:
            if self._leave is None or self.clients:
                return _STAYING
            self._leave.set()
            return _LEAVING
        if self._alone or forks.is_network_lost():
            return _ALONE + owner_name().encode()
        self._serve()
        return _READY

    def _serve(self) -> None:
        """Start the service, unless it runs."""
        if self._service is None:
            from penstock.server._service import FlightService  # noqa: PLC0415 - heavy, and most owners are alone

            (self._folder / _ROOM).mkdir(0o700, exist_ok=True)
            (self._folder / _ROOM).chmod(0o700)  # also if it was there
            self._service = FlightService(self._store, f"grpc+unix://{_short(self._folder)}/{_SERVICE}")

    @property
    def clients(self) -> int:
        """How many others are in."""
        return 0 if self._service is None else self._service.clients

    def close(self) -> None:
        """Serve nobody any more."""
        self._over.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        if self._service is not None:
            self._service.shutdown()
        if self.is_there():
            _remove_sockets(self._folder)

    def is_there(self) -> bool:
        """Whether the door in the folder is still this one; the folder may have been removed, and made again."""
        return _inode(self._folder) == self._inode


def _inode(folder: Path) -> int | None:
    try:
        return os.stat(f"{_short(folder)}/{_DOOR}").st_ino
    except OSError:
        return None


def _remove_sockets(folder: Path) -> None:
    for name in (_DOOR, _SERVICE):
        with suppress(FileNotFoundError, NotADirectoryError):
            (folder / name).unlink()
    with suppress(FileNotFoundError):
        (folder / _ROOM).rmdir()


class _FolderFinder:
    """Finds the owner of a folder, or becomes it."""

    patience_s: Final = 10.0  # another process may just be opening it

    def __init__(self, folder: Path, maintenance_interval_s: float, *, own: bool) -> None:
        self._folder, self._pass_s, self._own = folder, maintenance_interval_s, own
        self._owned: Engine | None = None
        self._starting: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0
        self._watch = OwnerWatch(folder, f"{_short(folder)}/{_SERVICE}")
        self.address: Final = str(folder)

    def prepare(self) -> None:
        """Start an owner process if there is no owner and this process is not to be it.

        It starts while this one imports what a client needs.
        """
        if not self._own and _inode(self._folder) is None:
            self._starting = _started_owner(self._folder)

    def open(self) -> flight.FlightClient:
        """Return a client of the owner."""
        from pyarrow import flight  # noqa: PLC0415 - an owner does without

        try:
            owner = self._ring()
        except PermissionError:
            raise StoreUnreachable(
                self.address, reason="its owner runs as another user, and serves only that"
            ) from None
        except OSError:
            self._take_over()
            try:
                owner = self._ring()
            except OSError:
                raise StoreUnreachable(self.address, reason="its owner does not answer") from None
        self._watch.start(owner)
        return flight.connect(f"grpc+unix://{_short(self._folder)}/{_SERVICE}")

    def _ring(self) -> int:
        """Have the service started, and return the owner's process."""
        self._watch.check()
        answer, pid = _asked(self._folder, _ENTER, timeout=_ANSWER_S)
        if answer.startswith(_ALONE):
            raise StoreLocked(self.address, owner=answer.removeprefix(_ALONE).decode(errors="replace"))
        if answer != _READY:
            raise ConnectionResetError
        return pid

    def _take_over(self) -> None:
        if not has_store(self._folder):  # removed, or not mounted: an empty one in its place would help nobody
            raise StoreUnreachable(self.address, reason="the store is not in its folder any more")
        if not self._own:
            self._await_owner()
            return
        try:
            self._owned = open_owned(self._folder, maintenance_interval_s=self._pass_s)
        except StoreLocked as error:
            raise StoreUnreachable(self.address, reason=f"{error.owner} owns it and does not answer") from error

    def _await_owner(self) -> None:
        """Let a process of its own take the folder over, and wait until it has, or finds that somebody else did."""
        if self._starting is None:
            if time.monotonic() < self._start_at:
                return  # one may be about to
            self._starting = _started_owner(self._folder)
        self._start_at = time.monotonic() + _START_S
        starting, self._starting = self._starting, None
        said = _said(starting)
        if said not in {_MINE, _LOCKED}:
            raise FolderUnusable(self.address, reason=said.decode(errors="replace") or "its owner has ended at once")

    def explained(self, reason: str) -> str:
        """Return the reason as it is: it is told in words already."""
        return reason

    def close(self) -> None:
        """Let go of the folder, if it was taken over."""
        self._watch.close()
        if self._starting is not None:
            _said(self._starting)
        if self._owned is not None:
            self._owned.close()
            self._owned = None


def _started_owner(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that owns a folder; it keeps no terminal, pipe or folder of this one."""
    idle_s = os.environ.get(_IDLE_VARIABLE, _IDLE_S)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock.server._keeper", str(folder), idle_s],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},  # it finds what we have found
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # or it would be stopped and killed with us
    )


def _said(owner: subprocess.Popen[bytes]) -> bytes:
    """Return what a process that was started says about the folder, once it does."""
    assert owner.stdout is not None
    with owner.stdout as out:
        said = out.readline().strip()
    threading.Thread(target=owner.wait, name="penstock-keeper", daemon=True).start()  # or it stays, as a dead one
    return said


@cache
def _short(folder: Path) -> str:
    """Return a path of the folder that is short enough for a socket in it; one that is too long is kept open."""
    assert folder.is_absolute(), "or it would be another one from somewhere else"
    path = str(folder)
    if len(os.fsencode(path)) + len(_SERVICE) < _PATH_MAX:
        return path
    return f"/proc/self/fd/{os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}"
