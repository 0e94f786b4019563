"""The files that sharing puts into the folder of a store, and how many files a process that shares it may have open.

owner.sock            the owner socket: the owner listens there while the store is open
flight/sock           the socket of the Flight service, in a folder that only its user may enter
flight/blocks         the socket for blocks, beside it
plogs/access-probe-*  files by which clients find out whether they have direct access to the plogs
"""

from __future__ import annotations

import os
import resource
import socket
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from penstock.model import PLOGS_FOLDER
from penstock.wire import ACCESS_PROBE_PREFIX

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "block_socket",
    "listen_for_blocks",
    "make_service_folder",
    "owner_socket",
    "owner_socket_inode",
    "raise_file_limit",
    "remove_access_probes",
    "remove_sockets",
    "service_socket",
]

_OWNER_SOCKET: Final = "owner.sock"
_SERVICE_FOLDER: Final = "flight"  # a folder of its own: gRPC makes a socket that all users of the machine may use
_SERVICE_SOCKET: Final = f"{_SERVICE_FOLDER}/sock"
_BLOCK_SOCKET: Final = f"{_SERVICE_FOLDER}/blocks"
_BACKLOG: Final = 1024
_PATH_MAX: Final = 100  # the path of a socket may have 107 bytes
_OPEN_FILES: Final = 1 << 20


def owner_socket(folder: Path) -> str:
    """Return the path of the owner socket."""
    return f"{_short(folder)}/{_OWNER_SOCKET}"


def service_socket(folder: Path) -> str:
    """Return the path of the socket of the Flight service."""
    return f"{_short(folder)}/{_SERVICE_SOCKET}"


def block_socket(folder: Path) -> str:
    """Return the path of the socket for blocks."""
    return f"{_short(folder)}/{_BLOCK_SOCKET}"


def listen_for_blocks(folder: Path) -> socket.socket:
    """Listen at the socket for blocks; the folder of the service exists."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(listener.fileno(), 0o600)
        with suppress(FileNotFoundError):  # of a service that could not be started
            os.unlink(block_socket(folder))
        listener.bind(block_socket(folder))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


@cache
def _short(folder: Path) -> str:
    """Return a path of the folder that is short enough for a socket; a folder with a long path is kept open for it."""
    assert folder.is_absolute(), "a relative path names another folder after a change of directory"
    path = str(folder)
    if len(os.fsencode(path)) + len(_BLOCK_SOCKET) < _PATH_MAX:
        return path
    return f"/proc/self/fd/{os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}"


def make_service_folder(folder: Path) -> None:
    """Make the folder of the service's socket, closed to other users."""
    service = folder / _SERVICE_FOLDER
    service.mkdir(0o700, exist_ok=True)
    service.chmod(0o700)  # also if it existed


def owner_socket_inode(folder: Path) -> int | None:
    """Return the inode of the owner socket; None if there is none."""
    try:
        return os.stat(owner_socket(folder)).st_ino
    except OSError:
        return None


def remove_sockets(folder: Path) -> None:
    """Remove the sockets of an owner that has ended, or was killed."""
    for name in (_OWNER_SOCKET, _SERVICE_SOCKET, _BLOCK_SOCKET):
        with suppress(FileNotFoundError, NotADirectoryError):
            (folder / name).unlink()
    with suppress(FileNotFoundError):
        (folder / _SERVICE_FOLDER).rmdir()


def remove_access_probes(folder: Path) -> None:
    """Remove the access probes that an owner left when it was killed."""
    for path in folder.glob(f"{PLOGS_FOLDER}/{ACCESS_PROBE_PREFIX}*"):
        with suppress(OSError):
            path.unlink()


def raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
