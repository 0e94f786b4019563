"""Small files of the server in the store's folder: replaced atomically, and readable by the server's user only."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import FolderUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LOCK_FILE", "alone_in", "read_file", "replace_file"]

LOCK_FILE: Final = "server.lock"
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let no other process change files of ours in the folder meanwhile; the folder is made if it is not there.

    The lock is a file of its own: other users may be able to open the folder, and so to lock that.
    """
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        fd = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FolderUnusable(str(folder), reason=error.strerror or str(error)) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def read_file(path: Path, *, size: int) -> bytes:
    """Return what a file holds, up to ``size``; ``OSError`` for a pipe or a device, which might never end."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(size)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put ``data`` in the place of what the file holds, durably and in one step; the caller is alone in its folder."""
    draft = path.with_name(f"{path.name}.new")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()  # a crash may have left it
        _write(draft, data, mode)
        draft.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise FolderUnusable(str(path.parent), reason=error.strerror or str(error)) from error


def _write(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, _FLAGS, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
