"""Files of plogs that this process may read itself, mapped and kept open for a while."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.plog import map_file, read_located

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
    """Maps files of plogs; those that were not used for long are let go. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: OrderedDict[str, _Image] = OrderedDict()

    def read(self, located: LocatedBlocks) -> Iterator[tuple[int, memoryview]]:
        """Return blocks with their offsets; ``OSError`` if the file cannot be reached."""
        return read_located(located, *self._image(located.path, located.key, located.end))

    def _image(self, path: str, key: bytes, size: int) -> tuple[memoryview, set[int]]:
        with self._lock:
            image = self._images.get(path)
            if image is None or image.key != key or len(image.view) < size:
                image = self._images[path] = _Image(key, map_file(path), set())
            self._images.move_to_end(path)
            if len(self._images) > _FILES_MAX:
                self._images.popitem(last=False)
            return image.view, image.verified
