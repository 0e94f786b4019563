"""Tasks: what the listening thread leaves to the pump, because it may wait, or call the server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Task"]

_logger: Final = logging.getLogger("penstock.client")


class Task:
    """Something that the pump does once."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    def pump(self) -> bool:
        """Do it, and do not come again; the pump goes on, whatever happens."""
        try:
            self._run()
        except Exception:
            _logger.exception("a notification of the server could not be handled")
        return False
