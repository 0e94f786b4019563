"""Sockets that belong to others: in this process, or at the other end of a connection."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from typing import Final

__all__ = ["copied_socket", "speaks_tls"]

_PROBE_S: Final = 2.0


def copied_socket(number: int) -> socket.socket:
    """Return a socket of this process on a second descriptor, which is the caller's to close.

    ``OSError`` if the descriptor is not a socket. The copy is closed then: a copy that stays open keeps a pipe from
    its end, and a file locked.
    """
    copy = os.dup(number)
    try:
        return socket.socket(fileno=copy)
    except BaseException:
        os.close(copy)
        raise


def speaks_tls(host: str, port: int) -> bool:
    """Ask a server, which only hangs up on a client that should use TLS and does not, as it does for many reasons."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError), socket.create_connection((host.strip("[]"), port), timeout=_PROBE_S) as plain:
        context.wrap_socket(plain, server_hostname=None).close()
        return True
    return False
