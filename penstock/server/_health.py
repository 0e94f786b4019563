"""Whether the server is fit to work: the store answers, no sync has failed, and the disk takes a byte."""

from __future__ import annotations

import os
import threading
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

__all__ = ["Health"]

_GOOD_FOR_S: Final = 1.0
_PATIENCE_S: Final = 5.0


class Health:
    """Looks at the store at most once a second, however many ask."""

    def __init__(self, store: Engine, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._lock = threading.Lock()
        self._found: tuple[float, str | None] = (float("-inf"), None)  # when, and what
        self._ending = False

    def end(self) -> None:
        """Report from now on that the server ends, so that no new client is sent to it."""
        self._ending = True

    def trouble(self) -> str | None:
        """Return what is wrong, if something is."""
        if self._ending:
            return "the server is shutting down"
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return f"the disk has not answered for {_PATIENCE_S:g} s"
        try:
            now = self._store.clock.elapsed()
            if now - self._found[0] >= _GOOD_FOR_S:
                self._found = now, self._look()
            return self._found[1]
        finally:
            self._lock.release()

    def _look(self) -> str | None:
        try:
            self._store.check_running()
            self._store.reader_groups()  # waits for changes of the catalog, as every call does
            with TemporaryFile(dir=self._folder) as file:
                file.write(b"penstock")
                file.flush()
                os.fdatasync(file.fileno())
        except PenstockError as error:
            return str(error)
        except OSError as error:
            return f"{self._folder} cannot be written: {error.strerror or error}"
        return None
