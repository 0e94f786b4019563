"""How often the server has logged an error or a warning, for the metrics and the health page of the console.

The counter is a handler of the logger ``penstock``, beside the one that writes the log. So it also counts the lines
that the log leaves out because there were too many of their kind. Two servers in one process share the logger: each
counts the records of both.

Python prints warnings that no handler takes. A counter must not change that for a program that has not set up logging,
so it passes on what only counters have received.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.server._logs import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogCounter", "LogCounts", "LoggedError", "counting_logs"]

_LOGGER: Final = "penstock"
_TEXT_MAX: Final = 200  # characters


class LoggedError(NamedTuple):
    """An error that was logged: when, in seconds since 1970, and the beginning of what was said."""

    at: float
    text: str


class LogCounts(NamedTuple):
    """Records of level ERROR and above, those of level WARNING, and the last of the errors."""

    errors: int = 0
    warnings: int = 0
    last_error: LoggedError | None = None


class LogCounter(logging.Handler):
    """Counts records; ``counts`` is replaced as a whole, so it can be read without the lock of the handler."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts = LogCounts()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record; the caller holds the lock of the handler."""
        errors, warnings, last_error = self.counts
        if record.levelno >= logging.ERROR:
            self.counts = LogCounts(errors + 1, warnings, LoggedError(record.created, _beginning(record)))
        else:
            self.counts = LogCounts(errors, warnings + 1, last_error)
        if logging.lastResort is not None and _handlers(record) == [self]:
            logging.lastResort.handle(record)


@contextmanager
def counting_logs() -> Iterator[LogCounter]:
    """Count what Penstock logs, until the end of the block."""
    logger, counter = logging.getLogger(_LOGGER), LogCounter()
    logger.addHandler(counter)
    try:
        yield counter
    finally:
        logger.removeHandler(counter)


def _handlers(record: logging.LogRecord) -> list[logging.Handler]:
    """Return the handlers that receive a record; of several counters only the first."""
    found: list[logging.Handler] = []
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    counters = [handler for handler in found if isinstance(handler, LogCounter)]
    return [handler for handler in found if handler not in counters[1:]]


def _beginning(record: logging.LogRecord) -> str:
    """Return the first line of the message, and of the exception that it came with."""
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit; the handler that writes the log reports it
        text = str(record.msg)
    lines = [text.partition("\n")[0]]
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        lines.append(": ".join([type(error).__name__, *str(error).splitlines()[:1]]))
    line = on_one_line(": ".join(lines))
    return line if len(line) <= _TEXT_MAX else f"{line[: _TEXT_MAX - 1]}…"
