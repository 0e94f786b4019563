"""Files of plogs that this process reads itself, in a folder that an access probe has shown to be the server's.

The server says which folder that is and which files to read. It may be hostile, so nothing else is opened than the
probe, whose name and content the client has made up, and regular files with names of plogs; no link is followed. The
folder is kept open, so nothing that is mounted or moved later can come between. On the machine of the server those
files are mapped that only our own user and root can write to. Others are copied: a mapped file that is made shorter, or
is removed behind a shared mount, would end this process.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.model import PLOGS_FOLDER
from penstock.plog import copy_located, folder_place, read_located
from penstock.ports import map_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog import LocatedBlocks

__all__ = ["PlogFiles"]

_FILES_MAX: Final = 128
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLOG_NAME: Final = re.compile(r"[0-9a-f]{32}\.plog")


class _Image(NamedTuple):
    """A file as memory, the key of the plog in it, and the blocks that were checked."""

    key: bytes
    view: memoryview
    verified: set[int]


class PlogFiles:
    """Reads files of plogs; those mapped that were not used for long are let go. Threads may share it."""

    def __init__(self, folder: int, *, is_here: bool) -> None:
        self._folder, self._is_here = folder, is_here
        self._lock = threading.Lock()
        self._images: OrderedDict[str, _Image] = OrderedDict()

    def __del__(self) -> None:
        os.close(self._folder)

    @classmethod
    def probed(cls, folder: object, name: str, content: bytes, place: list[Any]) -> PlogFiles | None:
        """Return the files of the folder if a file in it has this name and content; None if that is not so here.

        The server names the folder, and nothing else: what is looked for in it is the caller's.
        """
        if not isinstance(folder, str) or not os.path.isabs(folder) or os.path.basename(folder) != PLOGS_FOLDER:
            return None
        try:
            files = cls(fd := os.open(folder, _FLAGS | os.O_DIRECTORY), is_here=False)
            files._is_here = folder_place(fd) == place
            return files if files._content(name, len(content) + 1) == content else None
        except (OSError, ValueError):  # a path with a zero byte is a ValueError
            return None

    def _content(self, name: str, size: int) -> bytes:
        fd = self._open(name)
        try:
            return os.pread(fd, size, 0)
        finally:
            os.close(fd)

    def _open(self, name: str) -> int:
        """Open a file of the store: a regular one, of the user that the folder belongs to, of root or of our own."""
        fd = os.open(name, _FLAGS | os.O_NONBLOCK, dir_fd=self._folder)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in {os.fstat(self._folder).st_uid, 0, os.geteuid()}:
            os.close(fd)
            raise OSError(errno.EACCES, "not a file of the store", name)
        return fd

    def read(self, located: LocatedBlocks) -> Iterator[tuple[int, memoryview]]:
        """Return blocks with their offsets; ``OSError`` if there is no file, ``PlogCorrupt`` if it is another."""
        name = os.path.basename(located.path)
        if not _PLOG_NAME.fullmatch(name):
            raise OSError(errno.EINVAL, "not the name of a plog", name)
        image = self._images.get(name)
        if image is None or image.key != located.key or len(image.view) < located.end:
            fd = self._open(name)
            try:
                status = os.fstat(fd)
                if not self._is_here or _may_shrink(status):
                    return copy_located(located, fd)
                image = _Image(located.key, map_file(fd, status.st_size), set())
            finally:
                os.close(fd)
        self._cache(name, image)
        return read_located(located, image.view, image.verified)

    def _cache(self, name: str, image: _Image) -> None:
        with self._lock:
            self._images[name] = image
            self._images.move_to_end(name)
            if len(self._images) > _FILES_MAX:
                self._images.popitem(last=False)


def _may_shrink(status: os.stat_result) -> bool:
    """Whether another user than our own and root can make a file shorter."""
    return status.st_uid not in {0, os.geteuid()} or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
