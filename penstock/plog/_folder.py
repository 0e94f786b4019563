"""The folder of plogs: a format file, two journal files, and a file for each plog.

The format file is written last, so a folder without it was never completely created and holds no data.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import DiskFailed, DiskFull, FolderUnusable, FormatUnknown
from penstock.plog._journal_file import JOURNAL_NAMES, create_journal
from penstock.ports import write_all

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.ports import Disk

__all__ = ["FORMAT_NAME", "plog_file", "plog_name", "prepare_folder", "refusal"]

FORMAT_NAME: Final = "FORMAT"
_FORMAT_DRAFT: Final = "FORMAT.new"
_FORMAT_TEXT: Final = b"penstock plogs, format 1\n"
_FORMAT_SIZE_MAX: Final = 256
_DRAFTS: Final = frozenset({*JOURNAL_NAMES, _FORMAT_DRAFT})


def refusal(path: str, error: OSError) -> DiskFull | DiskFailed:
    """Return the error for a write that failed without effect; the store continues."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path)
    return DiskFailed(path, reason=error.strerror or str(error), stopped=False)


def plog_name(uid: bytes) -> str:
    """Return the file name of the plog with this uid."""
    return f"{uid.hex()}.plog"


def plog_file(plog_id: PlogId) -> str:
    """Return the file name of a plog."""
    return plog_name(plog_id.uid_bytes)


def prepare_folder(disk: Disk, *, journal_size: int) -> None:
    """Create the format and journal files if the folder is empty; ``FormatUnknown`` if it is not a folder of plogs."""
    try:
        names = set(disk.names())
        if FORMAT_NAME in names:
            _check_format(disk)
        elif names <= _DRAFTS:
            _make(disk, leftovers=names, journal_size=journal_size)
        else:
            raise FormatUnknown(disk.where(), actual="a folder with other files", known=_FORMAT_TEXT.decode().strip())
    except OSError as error:
        fault = refusal(disk.where(), error)
        if isinstance(fault, DiskFull):
            raise fault from error
        raise FolderUnusable(disk.where(), reason=error.strerror or str(error)) from error


def _check_format(disk: Disk) -> None:
    file = disk.open(FORMAT_NAME)
    text = bytes(file.view(0, _FORMAT_SIZE_MAX))
    file.close()
    if text != _FORMAT_TEXT:
        actual = text.decode(errors="replace").strip()
        raise FormatUnknown(disk.where(FORMAT_NAME), actual=actual, known=_FORMAT_TEXT.decode().strip())


def _make(disk: Disk, *, leftovers: set[str], journal_size: int) -> None:
    for name in leftovers:
        disk.remove(name)
    try:
        create_journal(disk, size=journal_size)
    except OSError:  # most likely a full disk, which would stay full of a journal without a store
        with suppress(OSError):
            for name in JOURNAL_NAMES:
                disk.remove(name)
        raise
    disk.sync()
    file = disk.create(_FORMAT_DRAFT)
    write_all(file, [_FORMAT_TEXT], 0)
    file.datasync()
    file.close()
    disk.rename(_FORMAT_DRAFT, FORMAT_NAME)
    try:
        disk.sync()
    except OSError:
        disk.remove(FORMAT_NAME)  # a later sync does not make up for a failed one: start again
        raise
