"""What receivers, pollers and relays do while a server or a database is out of reach: try again for ten minutes."""

from __future__ import annotations

import logging
import math
import time
from typing import Final

from penstock.errors import FutoinError
from penstock.retry import Retry

__all__ = ["Outage", "first_line"]

PATIENCE_S: Final = 600.0
_PASSING: Final = ("InternalError", "CommError")  # what a busy server answers
_logger: Final = logging.getLogger("penstock.events")


def first_line(error: Exception) -> str:
    """Return the message of an error for a log; those of databases go on with statements and links."""
    return (str(error) or type(error).__name__).partition("\n")[0]


class Outage:
    """Counts the failed attempts since something was last there, by the policy of all clients."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._retry: Retry | None = None

    def pause_after(self, error: Exception) -> float:
        """Return the seconds to wait before the next attempt; raise the error after ten minutes, a refusal at once."""
        if isinstance(error, FutoinError) and error.name not in _PASSING:
            raise error
        if self._retry is None:
            _logger.warning("%s is out of reach, trying again: %s", self._subject, first_line(error))
            self._retry = Retry(attempts_max=math.inf, until=time.monotonic() + PATIENCE_S)
        return self._retry.pause_after(error)

    def end(self) -> None:
        """Note that it is there again."""
        self._retry = None
