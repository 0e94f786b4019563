"""The time zone of a session, for its tasks."""

from __future__ import annotations

import os
import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.errors import BadArgument

__all__ = ["known_zone", "session_zone"]

_SETTING: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"(?:GMT|UTC|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_LOCAL: Final = "/etc/localtime"


def session_zone() -> str:
    """Return the zone of a task's session; without one in its settings, that of the machine, as in Spark."""
    context = TaskContext.get()
    return known_zone((None if context is None else context.getLocalProperty(_SETTING)) or _local_zone())


def known_zone(name: str) -> str:
    """Return a zone by a name that Arrow knows; Java knows more names."""
    offset = _OFFSET.fullmatch(name)
    zone = name if offset is None else f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}"
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), zone)
    except pa.ArrowInvalid:
        raise BadArgument(f"{_SETTING} is {name!r}: to read JSON use a name like Europe/Berlin or +01:00") from None
    return zone


def _local_zone() -> str:
    """Return the zone of this machine; UTC by default."""
    _, found, name = os.path.realpath(_LOCAL).partition("/zoneinfo/")
    return os.environ.get("TZ") or (name if found else "UTC")
