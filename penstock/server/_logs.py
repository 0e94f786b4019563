"""What the server writes down: a line for each thing, for people or as JSON for programs.

Whatever a client sends, it cannot make a line look like two: line ends in a message are escaped, and tracebacks are
indented.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

__all__ = ["logging_to"]

_LOGGERS: Final = ("penstock", "uvicorn")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message", "taskName"}


@contextmanager
def logging_to(file: TextIO, form: Literal["plain", "json"]) -> Iterator[None]:
    """Write what Penstock and its HTTP server log to a file, until the end of the block."""
    handler = logging.StreamHandler(file)
    handler.setFormatter(_JsonLine() if form == "json" else _PlainLine())
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [one.level for one in loggers]
    for one in loggers:
        one.addHandler(handler)
    loggers[0].setLevel(logging.INFO)
    loggers[1].setLevel(logging.WARNING)  # what else it has to say, we say ourselves
    try:
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.removeHandler(handler)
            one.setLevel(level)


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
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _PlainLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={_on_one_line(value)}" for name, value in _fields(record).items()]
        message = _on_one_line(record.getMessage())
        line = " ".join([_time(record), record.levelname.lower(), record.name, message, *fields])
        return line + indent(f"\n{self.formatException(record.exc_info)}", "    ") if record.exc_info else line


def _on_one_line(value: object) -> str:
    """Return a text without line ends, or anything else that a terminal would not print as it is."""
    text = str(value)
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
