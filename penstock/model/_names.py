"""The form that all names of Penstock have."""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import BadArgument

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def check_name(what: str, name: object) -> None:
    """Refuse what is no name; any object may be asked about, so a caller without a type checker is told, too."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArgument(f"{name!r} is no name for a {what}: use letters, digits, '.', '_', '-', at most 255")
