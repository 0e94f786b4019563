"""Why a server cannot be reached, in words: gRPC repeats those of its libraries, or gives no reason."""

from __future__ import annotations

import ssl
from typing import Final

from penstock.errors import BadArgument
from penstock.ports import speaks_tls

__all__ = ["check_certificates", "reason_in_words", "without_context"]

_CONTEXT: Final = ". gRPC client debug context"
_SIGNS: Final = (
    ("wrong version number", "the server does not use TLS: leave out tls_ca and tls, or pass tls=False"),
    ("http1.x server", "this is an HTTP port, perhaps that of health and metrics: use the port of Arrow Flight"),
    ("missing selected ALPN", "this is an HTTP port, perhaps that of health and metrics: use the port of Arrow Flight"),
    ("certificate has expired", "its certificate has expired: the server needs a new one"),
    ("Connection refused", "no server listens there (Connection refused)"),
    ("hostname lookup error", "unknown host name"),
    ("Deadline Exceeded", "it does not answer: perhaps its process is stopped, or a firewall drops what is sent"),
)
_CLOSED: Final = ("Connection reset by peer", "Socket closed", "Broken pipe")
_STANDS_BY: Final = (
    "the server closes connections at once, as one does that stands by: name all servers of the store, as in "
    "penstock://a:7367,b:7367, so that the owner is found; 'penstock cluster status' shows it"
)
_NOT_TRUSTED: Final = "certificate verify failed"
_NOT_FOR_HOST: Final = "not in peer certificate"


def reason_in_words(message: str, *, host: str, port: int, tls: bool, tls_ca: str | None) -> str:
    """Return what keeps a client from a server, and what to do, from the message of gRPC."""
    for sign, words in _SIGNS:
        if sign in message:
            return words
    if _NOT_FOR_HOST in message:
        return (
            f"its certificate is not for {host}: connect to a name or address that it is for, "
            "or start the server again, which makes one for all its addresses"
        )
    if _NOT_TRUSTED in message:
        if tls_ca is not None:
            return f"its certificate is not signed by {tls_ca}: make tls_ca a copy of the server's own server.crt"
        return (
            "its certificate is not signed by an authority that this machine trusts: "
            "make tls_ca a copy of its server.crt"
        )
    if not tls and speaks_tls(host, port):
        return "the server uses TLS: make tls_ca a copy of its server.crt, or pass tls=True"
    return _STANDS_BY if any(sign in message for sign in _CLOSED) else message


def check_certificates(path: str, pem: bytes) -> None:
    """Refuse an invalid certificate: gRPC would say that the server has no address."""
    try:
        ssl.create_default_context(cadata=pem.decode())
    except (ssl.SSLError, ValueError):
        raise BadArgument(f"invalid tls_ca {path}: use a certificate in PEM form") from None


def without_context(message: str) -> str:
    """Return the message of gRPC without its debugging context."""
    text = message.partition(_CONTEXT)[0]
    return text.rpartition("last error: ")[2].rpartition("with message: ")[2].removeprefix("UNKNOWN: ")
