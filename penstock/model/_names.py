"""The form that all names of Penstock have."""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import BadArgument
from penstock.model._checks import shown

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def check_name(what: str, name: object) -> None:
    """Refuse what is no name; any object may be asked about, so a caller without a type checker is told, too."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArgument(f"{shown(name)} is no name for a {what}: use letters, digits, '.', '_', '-', at most 255")


def check_stream_name(name: object) -> None:
    """Refuse what is no name of a stream."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
        raise BadArgument(
            f"{shown(name)} is no name for a stream: it has the form scope/name, "
            "each of letters, digits, '.', '_', '-', at most 255"
        )
