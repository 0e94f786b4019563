"""Restoring a point of a backup into a new folder.

A new folder is made beside its place and gets its name when it is complete and durable. A folder that is there, and
empty, may be a mount point, which cannot be replaced: there, the store is built in a folder inside, and its files are
moved when they are complete and durable, the plogs last, which make it a store. So a restore that was interrupted
leaves no store, and the next one begins again.

All plogs are sealed, so that the restored store goes on in new ones: what it writes is never taken for what the store
that it is a copy of has written behind the same offset.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.backup._outside import check_outside_stores
from penstock.backup._target import BackupTarget, open_target
from penstock.backup._verify import read_place
from penstock.cpo import open_cpo
from penstock.embedded import PARTITION, open_store
from penstock.errors import BackupCorrupt, BadArgument, DiskFailed, FolderInUse, FolderUnusable, NoSuchPoint
from penstock.model import PLOGS_FOLDER, PlogId
from penstock.plog import FilePlogs, RawBlocks, check_raw, disk_refusal, plog_file, plog_head
from penstock.ports import OsDisk, check_no_file, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from penstock.backup._point import PlogAtPoint, Point
    from penstock.ports import File

__all__ = ["RestoreReport", "find_point_name", "restore_store"]

_DRAFT: Final = ".restoring"
_ORACLE: Final = "cpo.db"
_OF_MOUNTS: Final = {"lost+found"}  # which a file system may have when it is new


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """A store that was restored: the point, and what was written."""

    point: str
    plogs: int
    size_bytes: int


def find_point_name(target: BackupTarget, at: str | None) -> str:
    """Return the name of a point that was asked for, or of the newest one."""
    if at is not None:
        return at
    names = target.points()
    if not names:
        raise NoSuchPoint(target.where(), point=None)
    return names[-1]


def restore_store(
    target: BackupTarget | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    at: str | None = None,
    on_progress: Callable[[str, int, int], object] = lambda act, done, total: None,
) -> RestoreReport:
    """Make a store in a new or empty folder, as it was at a point of a backup: by default the newest.

    ``FolderInUse`` if there is something in the folder; ``BackupCorrupt`` if the point is damaged. Nothing is left of a
    restore that fails.
    """
    if not isinstance(target, BackupTarget):
        target = open_target(target)
    if "://" in str(folder) or str(folder) in ("", "memory:"):
        raise BadArgument(f"invalid folder {str(folder)!r}: a store is restored into a folder of this machine")
    path = Path(folder).absolute()
    check_no_file(path)
    check_outside_stores(folder, may_be_store=True)
    _remove_moved(path)
    _check_empty(path)
    target.check_format()
    name = find_point_name(target, at)
    point = target.point(name)
    inside = path.is_dir()
    with _draft(path / _DRAFT if inside else path.parent / f".{path.name}{_DRAFT}", path=path) as draft:
        _write_plogs(target, point, draft, on_progress)
        with open_cpo(f"sqlite:{draft / _ORACLE}") as cpo:
            cpo.set_metadata_plog(PARTITION, PlogId.parse(point.metadata_plog), expected=0)
        with open_store(draft):  # makes what an open needs, so that the store can be read if the disk is full by then
            pass
        _sync_folder(draft)
        _check_empty(path)
        _move_into(path, draft) if inside else draft.rename(path)
        _sync_folder(path if inside else path.parent)
    return RestoreReport(point=name, plogs=len(point.plogs), size_bytes=point.size)


def _check_empty(path: Path) -> None:
    """Raise ``FolderInUse`` if there is something in a folder, other than the draft that a restore makes inside."""
    try:
        names = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderUnusable(str(path), reason=error.strerror or str(error)) from error
    if names - {_DRAFT, f"{_DRAFT}.lock"} - (_OF_MOUNTS if path.resolve().is_mount() else set()):
        raise FolderInUse(str(path))


def _remove_moved(path: Path) -> None:
    """Remove the oracle that a restore had moved into a folder when it was killed, before there were plogs."""
    if (path / _DRAFT / PLOGS_FOLDER).is_dir() and not (path / PLOGS_FOLDER).exists():
        with suppress(OSError):
            (path / _ORACLE).unlink()


def _move_into(path: Path, draft: Path) -> None:
    """Move a complete store into its folder: the oracle, then the plogs, which make it a store."""
    (draft / _ORACLE).rename(path / _ORACLE)
    try:
        _sync_folder(path)
        (draft / PLOGS_FOLDER).rename(path / PLOGS_FOLDER)
    except BaseException:
        with suppress(OSError):
            (path / _ORACLE).unlink()
        raise


@contextmanager
def _draft(draft: Path, *, path: Path) -> Iterator[Path]:
    """Make the folder in which a store is built; it is removed if the block fails, or by the next restore."""
    lock_path = draft.with_name(f"{draft.name}.lock")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FolderUnusable(str(path), reason=error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderUnusable(str(path), reason="another process restores a store there") from None
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(0o700)
            yield draft
        except OSError as error:
            raise disk_refusal(str(path), error) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            with suppress(OSError):
                os.unlink(lock_path)
    finally:
        os.close(lock)


def _write_plogs(
    target: BackupTarget, point: Point, draft: Path, on_progress: Callable[[str, int, int], object]
) -> None:
    total, done = point.size, 0
    folder = draft / PLOGS_FOLDER
    FilePlogs(OsDisk(folder)).close()  # makes the journal, and what says that this is a folder of plogs
    disk = OsDisk(folder)
    try:
        names = []
        for plog in point.plogs:
            plog_id = PlogId.parse(plog.plog)
            names.append(plog_file(plog_id))
            file = disk.create(names[-1])
            try:
                for size in _write_plog(target, point, plog, file):
                    done += size
                    on_progress("restoring", done, total)
            finally:
                file.close()
        for name in names:  # at the end: the system has written most of it by now
            file = disk.open(name)
            try:
                file.datasync()
            finally:
                file.close()
        disk.sync()
    except OSError as error:
        raise disk_refusal(str(draft), error) from error
    finally:
        disk.close()


def _write_plog(target: BackupTarget, point: Point, plog: PlogAtPoint, file: File) -> Iterator[int]:
    plog_id = PlogId.parse(plog.plog)
    head = plog_head(plog_id, key=plog.key, size=plog.plog_size, length=plog.length, sealed=True)
    write_all(file, [head], 0)
    position, offset = len(head), 0
    for place in plog.places:
        data = read_place(target, point, place, plog=plog.plog)
        where = target.where_pack(point.packs[place.pack])
        if place.offset != offset:
            raise BackupCorrupt(where, offset=place.position, reason=f"pieces of plog {plog.plog} are missing")
        check_raw(RawBlocks(plog.key, plog.plog_size, place.offset, place.end, data), where=where)
        write_all(file, [data], position)
        position, offset = position + len(data), place.end
        yield len(data)
    if offset != plog.length:
        raise BackupCorrupt(target.where(), offset=None, reason=f"pieces of plog {plog.plog} are missing")


def _sync_folder(folder: Path) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise DiskFailed(str(folder), reason=error.strerror or str(error), stopped=False) from error
