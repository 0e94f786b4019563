"""What the server writes down: a line for each thing, for people or as JSON for programs.

Whatever a client sends, it cannot make a line look like two: line ends in a message are escaped, and tracebacks are
indented. Nor does it fill the log: of one kind of message so many lines are written in a minute, and of those about one
client or user a tenth. The next line says how many were left out.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.server._limits import QuotaUse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

__all__ = ["log_use", "logging_to", "on_one_line"]

_WINDOW_S: Final = 60.0
_ABOUT_SHARE: Final = 10  # of the lines of a kind one in so many may be about the same client
_LINE_MAX: Final = 16 << 10  # characters of a message, a field or a traceback
_LOGGERS: Final = ("penstock", "uvicorn")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message", "taskName"}


@contextmanager
def logging_to(file: TextIO, form: Literal["plain", "json"], lines_max: int) -> Iterator[None]:
    """Write what Penstock and its HTTP server log to a file, until the end of the block.

    ``lines_max`` are the lines of one kind in a minute.
    """
    handler = logging.StreamHandler(file)
    handler.addFilter(_Budget(lines_max))
    handler.setFormatter(_JsonLine() if form == "json" else _PlainLine())
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
    loggers[0].setLevel(logging.INFO)
    loggers[1].setLevel(logging.WARNING)  # what else it has to say, we say ourselves
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


def log_use() -> list[QuotaUse]:
    """Return how many lines of one kind were written in this minute, at most, and how many of all kinds left out."""
    filters = (found for handler in logging.getLogger(_LOGGERS[0]).handlers for found in handler.filters)
    return [budget.use() for budget in filters if isinstance(budget, _Budget)]


class _Budget(logging.Filter):
    """Leaves out lines above a number in a minute, by kind of message, and by the client or user that they are about.

    A kind is the message as it stands in the code, so there are few of them.
    """

    def __init__(self, lines_max: int) -> None:
        super().__init__()
        self._max, self._max_about = lines_max, max(1, lines_max // _ABOUT_SHARE)
        self._lock = threading.Lock()
        self._since = -math.inf
        self._lines: Counter[tuple[str, str | None]] = Counter()
        self._left_out: Counter[str] = Counter()
        self._left_out_in_all = 0

    def use(self) -> QuotaUse:
        """Return how many lines of one kind there were, at most, and how many were left out since the start."""
        with self._lock:
            is_over = time.monotonic() - self._since > _WINDOW_S
            used = 0 if is_over else max(self._lines.values(), default=0)
            return QuotaUse("log_lines", self._max, used, self._left_out_in_all)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        kind, about = f"{record.name} {record.msg}", _about(record)
        with self._lock:
            now = time.monotonic()
            if now - self._since > _WINDOW_S:
                self._since = now
                self._lines.clear()
            if self._lines[kind, None] >= self._max or (
                about is not None and self._lines[kind, about] >= self._max_about
            ):
                self._left_out[kind] += 1
                self._left_out_in_all += 1
                return False
            self._lines[kind, None] += 1
            if about is not None:
                self._lines[kind, about] += 1
            left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.left_out = left_out
        return True


def _about(record: logging.LogRecord) -> str | None:
    """Return the client or user that a line is about; a client may come back with another port."""
    peer = getattr(record, "peer", None)
    return getattr(record, "user", None) if peer is None else str(peer).rpartition(":")[0]


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was given as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
            **{name: _cut(value) if isinstance(value, str) else value for name, value in _fields(record).items()},
        }
        if record.exc_info:
            line["error"] = _cut(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class _PlainLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={on_one_line(value)}" for name, value in _fields(record).items()]
        message = on_one_line(record.getMessage())
        line = " ".join([_time(record), record.levelname.lower(), record.name, message, *fields])
        if not record.exc_info:
            return line
        return line + indent(f"\n{_cut(self.formatException(record.exc_info))}", "    ")


def _cut(text: str) -> str:
    """Return a text, or the beginning and the end of a long one."""
    return text if len(text) <= _LINE_MAX else f"{text[: _LINE_MAX // 2]} … {text[-_LINE_MAX // 2 :]}"


def on_one_line(value: object) -> str:
    """Return a text without line ends, or anything else that a terminal would not print as it is."""
    text = _cut(str(value))
    return (
        text
        if text.isprintable()
        else "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    )
