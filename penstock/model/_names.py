"""The form of all names: letters, digits, '.', '_' and '-', of which a letter or a digit comes first."""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import BadArgument
from penstock.model._checks import shown

__all__ = ["check_name", "check_stream_name"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_FORM: Final = "1 to 255 letters, digits, '.', '_' and '-', a letter or a digit first"


def check_name(kind: str, name: object) -> None:
    """Require a name; ``kind`` is the kind of object that it names."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArgument(f"invalid {kind} name {shown(name)}: use {_FORM}")


def check_stream_name(name: object) -> None:
    """Require a stream's name, which is a scope and a name with a slash between them."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
        raise BadArgument(f"invalid stream name {shown(name)}: use the form scope/name, each of {_FORM}")
