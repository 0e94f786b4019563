"""Tasks that a server runs periodically."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Periodic"]

_ROUND_S: Final = 0.1
_END_S: Final = 5.0
_logger: Final = logging.getLogger("penstock.server")


class Periodic:
    """A thread that runs a task periodically. The task may wait for the disk, so no other thread waits for it."""

    def __init__(self, task: Callable[[], object], name: str, *, every_s: float = _ROUND_S) -> None:
        self._task, self._every_s = task, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, without waiting long for a disk that hangs."""
        self._over.set()
        self._thread.join(_END_S)

    def _work(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._task()
            except BaseException:  # the next time may be better, also after SystemExit
                _logger.exception("a periodic task failed")
