"""Addresses of servers, HOST:PORT, as users write them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["split_address"]

_PORT_MAX: Final = 65_535
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ADDRESS: Final = re.compile(rf"(?P<host>{_LABEL}(\.{_LABEL})*|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{{1,5}})")


def split_address(text: str) -> tuple[str, int] | None:
    """Return the host, without brackets, and the port; None if the text is not an address."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _PORT_MAX:
        return None
    return found["host"].strip("[]"), int(found["port"])
