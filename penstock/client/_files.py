"""Files of plogs that this process reads itself, in a folder that an access probe has shown to be the server's.

The folder is kept open, so nothing that is mounted or moved later can come between. On the machine of the server files
are mapped. Through a shared mount they are copied: there a mapped file that is removed would end this process.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.plog import copy_located, folder_place, read_located
from penstock.ports import map_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog import LocatedBlocks

__all__ = ["PlogFiles"]

_FILES_MAX: Final = 128


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
    def probed(cls, path: str, content: bytes, place: list[Any]) -> PlogFiles | None:
        """Return the files of the folder in which a file has this content; None if that is not so here."""
        folder, name = os.path.split(path)
        try:
            files = cls(fd := os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), is_here=False)
            files._is_here = folder_place(fd) == place
            return files if files._content(name, len(content)) == content else None
        except OSError:
            return None

    def _content(self, name: str, size: int) -> bytes:
        fd = self._open(name)
        try:
            return os.pread(fd, size, 0)
        finally:
            os.close(fd)

    def _open(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)

    def read(self, located: LocatedBlocks) -> Iterator[tuple[int, memoryview]]:
        """Return blocks with their offsets; ``OSError`` if there is no file, ``PlogCorrupt`` if it is another."""
        name = os.path.basename(located.path)
        if self._is_here:
            return read_located(located, *self._image(name, located.key, located.end))
        fd = self._open(name)
        try:
            return copy_located(located, fd)
        finally:
            os.close(fd)

    def _image(self, name: str, key: bytes, size: int) -> tuple[memoryview, set[int]]:
        with self._lock:
            image = self._images.get(name)
            if image is None or image.key != key or len(image.view) < size:
                image = self._images[name] = _Image(key, self._mapped(name), set())
            self._images.move_to_end(name)
            if len(self._images) > _FILES_MAX:
                self._images.popitem(last=False)
            return image.view, image.verified

    def _mapped(self, name: str) -> memoryview:
        fd = self._open(name)
        try:
            return map_file(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
