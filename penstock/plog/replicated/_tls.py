"""TLS between an owner and its plog servers, and what is wrong if only one of the two uses it.

Both then see a connection that ends without a word, as it does for many reasons.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from penstock.ports import speaks_tls

if TYPE_CHECKING:
    import socket

__all__ = ["lost_reason", "secured"]


def secured(raw: socket.socket, host: str, tls: ssl.SSLContext) -> socket.socket:
    """Return a connection with TLS; ``OSError`` if the server does not use TLS, or is not trusted."""
    try:
        return tls.wrap_socket(raw, server_hostname=host)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
        text = (
            f"the server does not seem to use TLS, which PENSTOCK_PLOG_CA asks for: it ended the connection ({error})"
        )
        raise ConnectionError(text) from error


def lost_reason(error: Exception, host: str, port: int, *, uses_tls: bool) -> str:
    """Return why a server has ended the connection, as far as it can be told."""
    if not uses_tls and speaks_tls(host, port):
        return "the server uses TLS: set PENSTOCK_PLOG_CA to a file with the certificates to trust"
    return getattr(error, "strerror", None) or str(error)
