"""Where a FutoIn server is, who calls it, and why it cannot be reached."""

from __future__ import annotations

import base64
import errno
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from websockets.exceptions import InvalidMessage, InvalidStatus

from penstock.errors import BadArgument, FutoinError
from penstock.events._errors import ERROR_NAMES
from penstock.events._mac import answer_mac, mac_matches
from penstock.model import check_kind, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Endpoint", "reason_of"]

_SCHEME, _ALGORITHM = "-smac", "HS256"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, and who calls: with a password, with a key that signs messages, or anonymously.

    ``mac_key`` is in base64, as ``penstock user mac-key`` prints it. ``tls_ca`` is the file of a certificate to trust.
    """

    url: str
    user: str | None = None
    password: str | None = None
    mac_key: str | None = None
    tls_ca: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is sent."""
        _check_url(self.url)
        if (self.user is None) != (self.password is None and self.mac_key is None):
            raise BadArgument("credentials are a user and a password, or a user and a mac_key")
        if self.user is not None and ":" in self.user:
            raise BadArgument(f"invalid user {self.user!r}: FutoIn has no way to send a name with a colon")
        if self.mac_key is not None:
            try:
                base64.b64decode(self.mac_key, validate=True)
            except ValueError:
                raise BadArgument("invalid mac_key: it is not base64") from None

    def signed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message with its credentials."""
        if self.mac_key is not None:
            code = answer_mac(message, base64.b64decode(self.mac_key), scheme=_SCHEME, algorithm=_ALGORITHM)
            return message | {"sec": f"{_SCHEME}:{self.user}:{_ALGORITHM}:{code}"}
        return message if self.user is None else message | {"sec": f"{self.user}:{self.password}"}

    def check_signature(self, answer: Mapping[str, Any]) -> None:
        """Refuse an answer without the right signature, if messages are signed: it may be of anybody on the way.

        An error may lack it, as a server cannot sign the refusal of a message that it does not accept.
        """
        if self.mac_key is None or ("sec" not in answer and answer.get("e") in ERROR_NAMES):
            return
        key, code = base64.b64decode(self.mac_key), str(answer.get("sec"))
        if not mac_matches(answer, key, scheme=_SCHEME, algorithm=_ALGORITHM, given=code):
            raise FutoinError("SecurityError", "the signature of the answer is missing or wrong: it is not used")

    def context(self) -> ssl.SSLContext | None:
        """Return how TLS is checked; None without TLS. ``BadArgument`` if ``tls_ca`` is not a certificate."""
        if not self.url.startswith("wss://"):
            return None
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:  # an SSLError is one, too
            reason = "use a certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise BadArgument(f"invalid tls_ca {self.tls_ca}: {reason}") from None


def _check_url(url: str) -> None:
    """Refuse what is not the address of an event stream; the message does not repeat a password."""
    check_kind("url", url, str)
    if "@" in url:
        raise BadArgument("invalid address with a user or password in it: pass them as user and password")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadArgument(f"invalid address {shown(url)}: {str(error)[0].lower()}{str(error)[1:]}") from None
    if parts.scheme not in {"ws", "wss"} or not host or parts.fragment or not url.isprintable() or " " in url:
        raise BadArgument(f"invalid address {shown(url)}: use ws://host:port/futoin/scope/stream, or wss://")


_SIGNS: Final = (
    (OSError, f"[Errno {errno.ECONNREFUSED}]", "no server listens there (Connection refused)"),
    (socket.gaierror, "", "unknown host name"),
    (ssl.SSLError, "WRONG_VERSION_NUMBER", "the server does not use TLS: use an address that begins with ws://"),
    (ssl.SSLError, "certificate has expired", "its certificate has expired: the server needs a new one"),
    (ssl.SSLError, "is not valid for", "its certificate is not for this host: use a name or address that it is for"),
    (ssl.SSLError, "certificate verify failed", "its certificate is not trusted: make tls_ca a copy of its server.crt"),
    (InvalidMessage, "", "it is not an HTTP port, or it uses TLS: use the server's HTTP port, and wss:// with TLS"),
    (InvalidStatus, "HTTP 40", "there is no event stream at this address: use ws://host:port/futoin/scope/stream"),
    (TimeoutError, "", "it does not answer"),
)


def reason_of(error: Exception) -> str:
    """Return why a server cannot be reached, and what to do."""
    for kind, sign, words in _SIGNS:
        if isinstance(error, kind) and sign in str(error):
            return words
    return str(error) or type(error).__name__
