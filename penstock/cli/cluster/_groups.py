"""Groups of plog servers, as arguments."""

from __future__ import annotations

from typing import Final

from penstock.errors import BadArgument
from penstock.model import split_address

__all__ = ["is_address", "parse_group"]

_SERVERS: Final = 3


def parse_group(text: str) -> tuple[str, list[str]]:
    """Return the name of a group and its servers, from GROUP=HOST:PORT,HOST:PORT,HOST:PORT."""
    group, _, servers = text.partition("=")
    addresses = servers.split(",")
    if len(addresses) != _SERVERS or not all(is_address(address) for address in addresses):
        raise BadArgument(
            f"invalid group {text!r}: use GROUP=HOST:PORT,HOST:PORT,HOST:PORT with {_SERVERS} servers, as each plog "
            "has a replica on each of them"
        )
    return group, addresses


def is_address(text: str) -> bool:
    """Whether a text has the form HOST:PORT."""
    found = split_address(text)
    return found is not None and found[1] > 0
