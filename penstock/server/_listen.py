"""How a port is opened."""

from __future__ import annotations

import socket
from typing import Final

from penstock.errors import AddressUnusable

__all__ = ["listen"]

_BACKLOG: Final = 1024


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; connections wait in it until they are accepted."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the rest repeats the address
        raise AddressUnusable(f"{host}:{port}", reason=reason) from error
