"""A folder as the target of a backup: objects are files, each written beside its place and moved there complete.

A file is durable before it gets its name, and the name is durable before the call returns. So a kill or a power loss
leaves nothing behind but a draft, which the next backup removes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import (
    BackupRunning,
    DiskFailed,
    DiskFull,
    FolderUnusable,
    NoSuchObject,
    ObjectChanged,
    ObjectExists,
)
from penstock.ports import StoredObject, check_no_file, map_file, owner_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports import Bytes

__all__ = ["FolderTarget"]

_DRAFT: Final = ".draft-"
_LOCK: Final = "lock"
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_WRITES_MAX: Final = 1024


class FolderTarget:
    """The files of a backup, named like objects; closed to other users, because they hold what the store holds."""

    def __init__(self, folder: Path | str, *, create: bool) -> None:
        self._folder = Path(folder).absolute()
        check_no_file(folder)
        if create:
            with self._translated(""):
                self._folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
                _sync_folder(self._folder.parent)

    def where(self, name: str = "") -> str:
        """Return the path of a file, for messages."""
        return str(self._folder / name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process change the backup meanwhile; ``BackupRunning`` names the one that does."""
        with self._translated(_LOCK):
            fd = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(fd, 256, 0).decode(errors="replace").strip() or "another process"
                raise BackupRunning(self.where(), owner=owner) from None
            except OSError as error:
                raise FolderUnusable(self.where(), reason=f"it cannot be locked ({error.strerror})") from error
            with suppress(OSError):  # a full disk: the name is for messages only
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{owner_name()}\n".encode(), 0)
            self._remove_drafts()
            yield
        finally:
            os.close(fd)

    def _remove_drafts(self) -> None:
        for draft in self._folder.glob(f"**/{_DRAFT}*"):
            with suppress(OSError):
                draft.unlink()

    def put_new(self, name: str, *parts: Bytes) -> None:
        """Write a file; ``ObjectExists`` if there is one of this name."""
        path = self._folder / name
        with self._translated(name):
            if path.exists():
                raise ObjectExists(str(path))
            self._write(path, parts)

    def replace(self, name: str, data: Bytes, *, tag: str | None) -> str:
        """Replace a file with this tag, or write the first one if it is None; return the new tag."""
        path = self._folder / name
        with self._translated(name):
            if (self._tag(path) if path.exists() else None) != tag:
                raise ObjectChanged(str(path))
            self._write(path, (data,))
            return self._tag(path)

    @staticmethod
    def _tag(path: Path) -> str:
        status = path.stat()
        return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"

    def _write(self, path: Path, parts: tuple[Bytes, ...]) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(_FOLDER_MODE, exist_ok=True)
            _sync_folder(path.parent.parent)
        draft = path.parent / f"{_DRAFT}{secrets.token_hex(8)}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        try:
            try:
                _write_all(fd, parts)
                os.fsync(fd)
            finally:
                os.close(fd)
            draft.rename(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
        _sync_folder(path.parent)

    def get(self, name: str) -> StoredObject:
        """Return a whole file, mapped; ``NoSuchObject`` if there is none."""
        path = self._folder / name
        with self._translated(name):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return StoredObject(map_file(fd, os.fstat(fd).st_size), self._tag(path))
            finally:
                os.close(fd)

    def get_range(self, name: str, start: int, size: int) -> memoryview:
        """Return a part of a file, shorter where it ends."""
        with self._translated(name):
            fd = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                parts, end = [], start + size
                while start < end and (part := os.pread(fd, end - start, start)):
                    parts.append(part)
                    start += len(part)
                return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
            finally:
                os.close(fd)

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        return (self._folder / name).exists()

    def delete(self, *names: str) -> None:
        """Delete files; those that are not there are no error."""
        for name in names:
            with self._translated(name), suppress(FileNotFoundError):
                (self._folder / name).unlink()

    def names(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Return the names that begin with ``prefix``, of one folder, and come after another name, sorted."""
        folder, _, start = prefix.rpartition("/")
        try:
            with self._translated(prefix):
                found = os.listdir(self._folder / folder)
        except NoSuchObject:
            return iter(())
        names = (f"{folder}/{name}" if folder else name for name in found if name.startswith(start))
        return iter(sorted(name for name in names if _DRAFT not in name and name > after))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of the files whose names begin with ``prefix``, of one folder, by name."""
        sizes = {}
        for name in self.names(prefix):
            with suppress(NoSuchObject), self._translated(name):
                sizes[name] = (self._folder / name).stat().st_size
        return sizes

    def close(self) -> None:
        """Do nothing: no file is open."""

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Raise our error for one of the operating system."""
        path = self.where(name)
        try:
            yield
        except FileNotFoundError:
            raise NoSuchObject(path) from None
        except (PermissionError, NotADirectoryError) as error:
            raise FolderUnusable(self.where(), reason=f"{path}: {error.strerror}") from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(path) from error
            raise DiskFailed(path, reason=error.strerror or str(error), stopped=False) from error


def _write_all(fd: int, parts: tuple[Bytes, ...]) -> None:
    for first in range(0, len(parts), _WRITES_MAX):
        rest = [memoryview(part).cast("B") for part in parts[first : first + _WRITES_MAX] if len(part)]
        while rest:
            written = os.writev(fd, rest)
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][written:]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
