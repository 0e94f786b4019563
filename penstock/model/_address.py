"""Addresses of stores and of servers, HOST:PORT, as users write them."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from os import PathLike
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PLOGS_FOLDER", "canonical_address", "has_store", "is_folder", "split_address"]

PLOGS_FOLDER: Final = "plogs"
"""Where the plogs are, in the folder of a store."""
_PORT_MAX: Final = 65_535
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ADDRESS: Final = re.compile(rf"(?P<host>{_LABEL}(\.{_LABEL})*|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{{1,5}})")


def is_folder(address: object) -> bool:
    """Whether the address of a store is that of a folder."""
    return isinstance(address, PathLike) or (
        isinstance(address, str) and address not in ("", "memory:") and "://" not in address
    )


def has_store(folder: Path) -> bool:
    """Whether a store was made in a folder, and is still there."""
    return (folder / PLOGS_FOLDER).is_dir()


def split_address(text: str) -> tuple[str, int] | None:
    """Return the host, without brackets, and the port; None if the text is not an address."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _PORT_MAX:
        return None
    return found["host"].strip("[]"), int(found["port"])


def canonical_address(text: str) -> str:
    """Return the one spelling that stands for all spellings of an address; a text that is none is returned as it is.

    Names are not looked up: only ``localhost`` is known to be 127.0.0.1.
    """
    found = split_address(text)
    if found is None:
        return text
    host, port = found[0].lower(), found[1]
    if host == "localhost":
        host = "127.0.0.1"
    with suppress(ValueError):  # it is a name
        ip = ip_address(host)
        host = str((isinstance(ip, IPv6Address) and ip.ipv4_mapped) or ip)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
